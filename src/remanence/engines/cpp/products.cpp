// Matmul of a few rows with a matrix stored in panels, (width / COLUMNS, inner, COLUMNS), padded with zeros. The accumulators of a
// register tile (a few rows times the columns of a panel) stay in vector registers. MOST_ALSO is given by products.py.

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

constexpr int64_t PIECE = BLOCK / COLUMNS;   // rows of a panel per block
constexpr int64_t ROOM = PIECE + MOST_ALSO;  // stride of a row in the packed copy, see multiply; also the longest block

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
    TWO_AT_A_TIME
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

// A tile of a panel with only so many valid `columns`, through a copy of its products. Whole tiles know nothing of such panels: a copy
// of a variable size would need the address of their accumulators, which then could not stay in registers.
static void last_panel(
    Rows<float> products, int64_t many, int64_t columns, Rows<const float> rows, Rows<const float> panel, int64_t inner, bool more) {
    float copy[AT_ONCE * COLUMNS] = {};
    const int64_t bytes = columns * sizeof(float);
    for (int64_t row = 0; more && row < many; ++row) std::memcpy(&copy[row * COLUMNS], products.first + row * products.apart, bytes);
    TILES[many - 1][0]({copy, COLUMNS}, rows, panel, inner, more);
    for (int64_t row = 0; row < many; ++row) std::memcpy(products.first + row * products.apart, &copy[row * COLUMNS], bytes);
}

// `many` rows (at most MOST_ROWS), each of `inner` elements and `extra` (at most MOST_ALSO) others from `also`, times a matrix
// (inner + extra, width). `room` holds a packed block of every row, with a stride that is not a power of two, to avoid cache set
// conflicts.
extern "C" void multiply(
    Rows<float> products, Rows<const float> rows, Rows<const float> also, const float* panels, int64_t many, int64_t inner,
    int64_t extra, int64_t width) {
    float room[MOST_ROWS * ROOM];
    const int64_t groups = (many + AT_ONCE - 1) / AT_ONCE, all = inner + extra;
    for (int64_t k = 0, piece; k < all; k += piece) {
        piece = all - k <= ROOM ? all - k : PIECE;
        const int64_t own = inner - k < piece ? inner - k : piece;
        for (int64_t row = 0; row < many; ++row) {
            std::memcpy(&room[row * ROOM], rows.first + row * rows.apart + k, own * sizeof(float));
            for (int64_t i = 0; i < piece - own; ++i) room[row * ROOM + own + i] = also.first[row * also.apart + i];
        }
        for (int64_t column = 0, next; column < width; column = next) {
            const bool several = groups == 1 && column + beside(many) * COLUMNS <= width;
            next = column + (several ? beside(many) : 1) * COLUMNS;
            for (int64_t group = 0; group < groups; ++group) {
                const int64_t row = many * group / groups, end = many * (group + 1) / groups;
                const Rows<float> to = {products.first + row * products.apart + column, products.apart};
                const Rows<const float> from = {&room[row * ROOM], ROOM}, block = {panels + column * all + k * COLUMNS, all * COLUMNS};
                if (next <= width) TILES[end - row - 1][several](to, from, block, piece, k > 0);
                else last_panel(to, end - row, width - column, from, block, piece, k > 0);
            }
        }
    }
}
