// Matmul of a few rows with a matrix stored in panels, (width / COLUMNS, inner, COLUMNS), padded with zeros. The accumulators of a
// register tile (a few rows times the columns of a panel) stay in vector registers.

#include <array>
#include <utility>

// Lanes of a vector, rows of a register tile, and elements of a block of a panel, which stays in L1 while all rows use it.
#if defined(__AVX512F__)
constexpr int LANES = 16, AT_ONCE = 12, BLOCK = 8192;
#elif defined(__AVX__)
constexpr int LANES = 8, AT_ONCE = 6, BLOCK = 4096;
#else
constexpr int LANES = 4, AT_ONCE = 10, BLOCK = 4096;
#endif
constexpr int VECTORS = 2, COLUMNS = VECTORS * LANES;

typedef float Vector __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));

constexpr int64_t PIECE = BLOCK / COLUMNS;  // rows of a panel per block
constexpr int64_t ROOM = PIECE + 16;        // stride of a row in the packed copy, see multiply

extern "C" int columns() { return COLUMNS; }

// A register tile: MANY rows times a block of PANELS panels, added to `products` if `more`. Every accumulator runs through `inner` in
// order, so results do not depend on the tiling.
template <int MANY, int PANELS>
static void tile(Rows<float> products, Rows<const float> rows, Rows<const float> panels, int64_t inner, bool more) {
    Vector sums[PANELS][MANY][VECTORS] = {};
    if (more) {
        UNROLLED
        for (int panel = 0; panel < PANELS; ++panel) {
            UNROLLED
            for (int row = 0; row < MANY; ++row) {
                const Vector* before = (const Vector*)(products.first + row * products.apart + panel * COLUMNS);
                UNROLLED
                for (int v = 0; v < VECTORS; ++v) sums[panel][row][v] = before[v];
            }
        }
    }
    for (int64_t k = 0; k < inner; ++k) {
        UNROLLED
        for (int panel = 0; panel < PANELS; ++panel) {
            const Vector* factors = (const Vector*)(panels.first + panel * panels.apart) + k * VECTORS;
            UNROLLED
            for (int row = 0; row < MANY; ++row) {
                UNROLLED
                for (int v = 0; v < VECTORS; ++v) sums[panel][row][v] += rows.first[row * rows.apart + k] * factors[v];
            }
        }
    }
    UNROLLED
    for (int panel = 0; panel < PANELS; ++panel) {
        UNROLLED
        for (int row = 0; row < MANY; ++row) {
            Vector* after = (Vector*)(products.first + row * products.apart + panel * COLUMNS);
            UNROLLED
            for (int v = 0; v < VECTORS; ++v) after[v] = sums[panel][row][v];
        }
    }
}

// Panels per tile: FMAs into one accumulator depend on each other, and few rows have few accumulators to hide the latency.
constexpr int beside(int64_t many) { return many == 1 ? 4 : many < 4 ? 2 : 1; }

// Tile functions for 1, 2, ... rows: with one panel, and with several.
template <int... LESS>
constexpr auto tiles_of(std::integer_sequence<int, LESS...>) {
    return std::array{std::array{tile<LESS + 1, 1>, tile<LESS + 1, beside(LESS + 1)>}...};
}

constexpr auto TILES = tiles_of(std::make_integer_sequence<int, AT_ONCE>());

// `many` rows (at most MOST_ROWS) of `inner` elements times a matrix (inner, width). `room` holds a packed block of every row, with a
// stride that is not a power of two, to avoid cache set conflicts.
extern "C" void multiply(
    Rows<float> products, Rows<const float> rows, const float* panels, int64_t many, int64_t inner, int64_t width) {
    float room[MOST_ROWS * ROOM];
    const int64_t groups = (many + AT_ONCE - 1) / AT_ONCE;
    for (int64_t k = 0; k < inner; k += PIECE) {
        const int64_t piece = inner - k < PIECE ? inner - k : PIECE;
        for (int64_t row = 0; row < many; ++row)
            std::memcpy(&room[row * ROOM], rows.first + row * rows.apart + k, piece * sizeof(float));
        for (int64_t column = 0, next; column < width; column = next) {
            const bool several = groups == 1 && column + beside(many) * COLUMNS <= width;
            next = column + (several ? beside(many) : 1) * COLUMNS;
            for (int64_t group = 0; group < groups; ++group) {
                const int64_t row = many * group / groups, end = many * (group + 1) / groups;
                const Rows<const float> factors = {&room[row * ROOM], ROOM}, block = {panels + column * inner + k * COLUMNS, inner * COLUMNS};
                const Rows<float> to = {products.first + row * products.apart + column, products.apart};
                if (next <= width) {
                    TILES[end - row - 1][several](to, factors, block, piece, k > 0);
                    continue;
                }
                float padded[AT_ONCE * COLUMNS] = {};  // a last panel, not all of whose columns are valid
                const int64_t bytes = (width - column) * sizeof(float);
                for (int64_t r = 0; r < end - row && k > 0; ++r) std::memcpy(&padded[r * COLUMNS], to.first + r * to.apart, bytes);
                TILES[end - row - 1][several]({padded, COLUMNS}, factors, block, piece, k > 0);
                for (int64_t r = 0; r < end - row; ++r) std::memcpy(to.first + r * to.apart, &padded[r * COLUMNS], bytes);
            }
        }
    }
}
