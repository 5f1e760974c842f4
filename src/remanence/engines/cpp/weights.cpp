// Gradients of all weights of a layer after the last step: the sum over all steps of all sequences of d_pre^T [h_{t-1}, x_t, 1].
// Rows are taken in blocks that stay in the core's cache, packed so that a register tile reads them in order.

constexpr int64_t DEEP = 128;  // rows per block

// Gate rows, rounded up to whole tiles.
extern "C" int64_t gates(int64_t width) { return (width + AT_ONCE - 1) / AT_ONCE * AT_ONCE; }

// Elements of a packed block: d_pre, the factors, and one row of these.
extern "C" int64_t room_of(int64_t width, int64_t columns) { return DEEP * (gates(width) + columns) + columns; }

struct Gradients {
    int64_t steps, rows, units, inputs, width, columns, parts, reverse;  // columns: H + I + 1 rounded up to whole panels
    const float* d_pre;         // (T B, width)
    const float* hidden;        // (T, B, H): after every step
    const float* first_hidden;  // (B, H), or null for zero
    const float* x;             // (T, B, I)
    float* room;                // (parts, room_of(width, columns)): packed blocks
    float* sums;                // (parts, gates(width), columns); on return, the first part has the sum

    // h_{t-1} of a row, or null for zero.
    const float* before(int64_t row) const {
        const int64_t other = reverse ? row + rows : row - rows, all = steps * rows;
        if (other >= 0 && other < all) return hidden + other * units;
        return first_hidden == nullptr ? nullptr : first_hidden + (reverse ? other - all : row) * units;
    }
};

// Adds AT_ONCE gate rows times WIDE vectors of columns. `left` is (inner, AT_ONCE), `right` is (inner, COLUMNS).
template <int WIDE>
static void outer(Rows<float> sums, const float* left, const float* right, int64_t inner) {
    Vector held[AT_ONCE][WIDE];
    UNROLLED
    for (int row = 0; row < AT_ONCE; ++row) {
        UNROLLED
        for (int v = 0; v < WIDE; ++v) held[row][v] = ((const Vector*)(sums.first + row * sums.apart))[v];
    }
    TWO_AT_A_TIME
    for (int64_t k = 0; k < inner; ++k) {
        const Vector* factors = (const Vector*)right + k * VECTORS;
        UNROLLED
        for (int row = 0; row < AT_ONCE; ++row) {
            UNROLLED
            for (int v = 0; v < WIDE; ++v) held[row][v] += left[k * AT_ONCE + row] * factors[v];
        }
    }
    UNROLLED
    for (int row = 0; row < AT_ONCE; ++row) {
        UNROLLED
        for (int v = 0; v < WIDE; ++v) ((Vector*)(sums.first + row * sums.apart))[v] = held[row][v];
    }
}

// Packs rows of d_pre in groups of AT_ONCE columns, (groups, DEEP, AT_ONCE), the last one padded with zeros.
static void pack_left(const Gradients& g, float* left, int64_t first, int64_t many) {
    const int64_t whole = g.width / AT_ONCE, rest = g.width % AT_ONCE;
    for (int64_t k = 0; k < many; ++k) {
        const float* from = g.d_pre + (first + k) * g.width;
        float* to = left + k * AT_ONCE;
        for (int64_t group = 0; group < whole; ++group)
            std::memcpy(to + group * DEEP * AT_ONCE, from + group * AT_ONCE, AT_ONCE * sizeof(float));
        for (int64_t i = 0; rest && i < AT_ONCE; ++i) to[whole * DEEP * AT_ONCE + i] = i < rest ? from[whole * AT_ONCE + i] : 0.0f;
    }
}

// Packs [h_{t-1}, x_t, 1, 0 ...] of these rows in panels, (panels, DEEP, COLUMNS).
static void pack_right(const Gradients& g, float* right, float* row, int64_t first, int64_t many) {
    const int64_t columns = g.columns;
    std::memset(row, 0, columns * sizeof(float));
    row[g.units + g.inputs] = 1.0f;
    for (int64_t k = 0; k < many; ++k) {
        const float* before = g.before(first + k);
        if (before == nullptr) std::memset(row, 0, g.units * sizeof(float));
        else std::memcpy(row, before, g.units * sizeof(float));
        std::memcpy(row + g.units, g.x + (first + k) * g.inputs, g.inputs * sizeof(float));
        for (int64_t column = 0; column < columns; column += COLUMNS)
            std::memcpy(right + column * DEEP + k * COLUMNS, row + column, COLUMNS * sizeof(float));
    }
}

// The sum over the rows of one part.
static void sum_part(const Gradients& g, int64_t part) {
    const int64_t columns = g.columns, valid = g.units + g.inputs + 1, all = g.steps * g.rows;
    const int64_t begin = all * part / g.parts, end = all * (part + 1) / g.parts;
    float *row = g.room + part * room_of(g.width, columns), *right = row + columns, *left = right + DEEP * columns;
    const int64_t size = gates(g.width) * columns;
    float* sums = g.sums + part * size;
    std::memset(sums, 0, size * sizeof(float));
    for (int64_t first = begin; first < end; first += DEEP) {
        const int64_t many = end - first < DEEP ? end - first : DEEP;
        pack_left(g, left, first, many);
        pack_right(g, right, row, first, many);
        for (int64_t column = 0; column < columns; column += COLUMNS) {
            const auto add = valid - column > LANES ? outer<VECTORS> : outer<1>;
            for (int64_t gate = 0; gate < gates(g.width); gate += AT_ONCE)
                add({sums + gate * columns + column, columns}, left + gate * DEEP, right + column * DEEP, many);
        }
    }
}

extern "C" void sum_gradients(const Gradients* g) {
#pragma omp parallel for schedule(static) num_threads(g->parts) if (g->parts > 1)
    for (int64_t part = 0; part < g->parts; ++part) sum_part(*g, part);
    const int64_t size = gates(g->width) * g->columns;
#pragma omp parallel for schedule(static) num_threads(g->parts) if (g->parts > 1)
    for (int64_t i = 0; i < size; i += COLUMNS) {
        for (int64_t part = 1; part < g->parts; ++part) {
            SIDE_BY_SIDE
            for (int64_t j = i; j < i + COLUMNS; ++j) g->sums[j] += g->sums[part * size + j];
        }
    }
}
