// Products of some rows with a matrix that lies in panels, (width / COLUMNS, inner, COLUMNS), filled up with zeros: the sums of a
// few rows and the columns of a panel are all in registers.

#include <array>
#include <utility>

#if defined(__AVX512F__)
constexpr int LANES = 16, AT_ONCE = 12;
#elif defined(__AVX__)
constexpr int LANES = 8, AT_ONCE = 6;
#else
constexpr int LANES = 4, AT_ONCE = 10;
#endif
constexpr int VECTORS = 2, COLUMNS = VECTORS * LANES;

typedef float Vector __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));

constexpr int64_t PIECE = 4096 / COLUMNS;  // of a panel, which stays next to the processor while rows go by
constexpr int64_t ROOM = PIECE + 16;       // for a piece of a row, see multiply

extern "C" int columns() { return COLUMNS; }

__forceinline__ void copy_columns(void* to, const void* from, int64_t columns) {
    if (columns == COLUMNS) std::memcpy(to, from, COLUMNS * sizeof(float));
    else std::memcpy(to, from, columns * sizeof(float));
}

// Of a few rows and a piece of some panels; added to what is there, where `more` says so. Of the only panel there may be less
// columns than it has room for. Every sum goes through `inner` in order, whatever is computed beside it.
template <int MANY, int PANELS>
static void tile(
    Rows<float> products, Rows<const float> rows, Rows<const float> panels, int64_t inner, int64_t columns, bool more) {
    Vector sums[PANELS][MANY][VECTORS] = {};
    if (more) {
        UNROLLED
        for (int panel = 0; panel < PANELS; ++panel) {
            UNROLLED
            for (int row = 0; row < MANY; ++row)
                copy_columns(sums[panel][row], products.first + row * products.apart + panel * COLUMNS, columns);
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
        for (int row = 0; row < MANY; ++row)
            copy_columns(products.first + row * products.apart + panel * COLUMNS, sums[panel][row], columns);
    }
}

// How many panels at once: a sum waits for the one before it, and few rows have few sums.
constexpr int beside(int64_t many) { return many == 1 ? 4 : many < 4 ? 2 : 1; }

// The tiles of one row, of two, and so on: with one panel, and with several.
template <int... LESS>
constexpr auto tiles_of(std::integer_sequence<int, LESS...>) {
    return std::array{std::array{tile<LESS + 1, 1>, tile<LESS + 1, beside(LESS + 1)>}...};
}

constexpr auto TILES = tiles_of(std::make_integer_sequence<int, AT_ONCE>());

// `many` rows of `inner` numbers, at most MOST_ROWS, times a matrix (inner, width). In between, `room` has a piece of every row, which
// are no power of two apart: of such a cache keeps only a few.
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
                TILES[end - row - 1][several](
                    {products.first + row * products.apart + column, products.apart}, {&room[row * ROOM], ROOM},
                    {panels + column * inner + k * COLUMNS, inner * COLUMNS}, piece, next <= width ? COLUMNS : width - column, k > 0);
            }
        }
    }
}
