// A single step of a few sequences in one call. It reads the weights from the parameters directly: there is no repacked copy that could
// be stale. For some units at a time: dot products of their rows of both matrices with inputs and hidden states of some sequences, then
// gate and cell, whose code comes from ../kernels and is derived from the gate's equation.
//
// B sequences, I inputs, H units, W elements of the hidden state (H unless it is projected), G blocks.

// Lanes of a vector, and which elements of two vectors are the even and the odd ones.
#if defined(__AVX512F__)
constexpr int LANES = 16;
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#elif defined(__AVX__)
constexpr int LANES = 8;
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define ODD 1, 3, 5, 7, 9, 11, 13, 15
#else
constexpr int LANES = 4;
#define EVEN 0, 2, 4, 6
#define ODD 1, 3, 5, 7
#endif
#ifdef __clang__
#define CHOSEN(one, other, ...) __builtin_shufflevector(one, other, __VA_ARGS__)
#else
#define CHOSEN(one, other, ...) __builtin_shuffle(one, other, Indices{__VA_ARGS__})
#endif
#if defined(__AVX512F__) || defined(__ARM_NEON)
constexpr int WIDE = 4;  // matrix rows read at once for several sequences: 32 vector registers, otherwise 16
#else
constexpr int WIDE = 2;
#endif
constexpr int TOGETHER = 32;  // units at a time
constexpr int MOST = 4;       // sequences that share a read of the weights, see one_step.py
constexpr int SHORT = 512;    // columns up to which one sequence reads two matrix rows at once; with longer rows one stream is faster
#define INLINE inline __attribute__((always_inline))

typedef float Vector __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));
typedef int32_t Indices __attribute__((vector_size(LANES * sizeof(int32_t)), aligned(sizeof(int32_t)), may_alias));

constexpr int PARTS = 1 + CELLS + CARRIED;  // of the state: hidden, cell (the GRU has none), carried values

struct OneStep {
    int64_t rows, inputs, units, width, threads;
    double beta;
    const float *values, *weight_ih, *weight_hh, *bias_ih, *bias_hh, *dt;  // (B, I), (G H, I), (G H, W), (G H) or null, (B) or null
    const float* own[OWN];                                                // (H)
    const float* before[PARTS];                                           // (B, W), then (B, H); null for zeros
    float *after[PARTS], *copy;                                           // (B, H); a copy of the hidden state, or null
};

// LANES values from the n-th are a mask for the last n lanes.
struct Masks {
    int32_t values[2 * LANES] = {};
    constexpr Masks() {
        for (int lane = LANES; lane < 2 * LANES; ++lane) values[lane] = -1;
    }
};
static constexpr Masks MASKS;

// Copies the last elements of rows, those that are left after whole vectors, into one vector each. All other lanes are zero.
static __attribute__((noinline)) void copy_last(float* copies, const float* rows, int64_t many, int64_t columns) {
    const int64_t left = columns % LANES;
    const Indices mask = *(const Indices*)(MASKS.values + left);
    for (int64_t row = 0; row < many; ++row) {
        const float* end = rows + (row + 1) * columns;
        float* copy = copies + row * LANES;
        if (columns > LANES) {
            *(Indices*)copy = *(const Indices*)(end - LANES) & mask;
        } else {
            std::memset(copy, 0, LANES * sizeof(float));
            SIDE_BY_SIDE
            for (int64_t lane = 0; lane < left; ++lane) copy[lane] = (end - left)[lane];
        }
    }
}

// Adds the products of VECTORS vectors of MANY matrix rows with those of ROWS sequences, lane by lane.
template <int MANY, int ROWS, int DEEP, int VECTORS>
static INLINE void add_vectors(
    Vector (&parts)[MANY][ROWS][DEEP], const float* matrix, int64_t apart, const float* vectors, int64_t apart_too) {
    UNROLLED
    for (int v = 0; v < VECTORS; ++v) {
        Vector factors[ROWS];
        UNROLLED
        for (int row = 0; row < ROWS; ++row) factors[row] = *(const Vector*)(vectors + row * apart_too + v * LANES);
        UNROLLED
        for (int unit = 0; unit < MANY; ++unit) {
            const Vector weights = *(const Vector*)(matrix + unit * apart + v * LANES);
            UNROLLED
            for (int row = 0; row < ROWS; ++row) parts[unit][row][v] += weights * factors[row];
        }
    }
}

struct Operands {
    const float *matrix, *vectors, *last;  // (.., columns), (.., columns), (.., LANES): what copy_last wrote for the vectors
    int64_t columns;
};

// The same for all columns. Of every pair there are DEEP accumulators, because an FMA waits for the one before it.
template <int MANY, int ROWS, int DEEP>
static INLINE void add_products(Vector (&parts)[MANY][ROWS][DEEP], const Operands& operands) {
    const float *matrix = operands.matrix, *vectors = operands.vectors;
    const int64_t columns = operands.columns;
    int64_t k = 0;
    for (; k + DEEP * LANES <= columns; k += DEEP * LANES) {
        if constexpr (ROWS == 1) {  // with several sequences it would displace their vectors in L1
            UNROLLED
            for (int unit = 0; unit < MANY; ++unit) __builtin_prefetch(matrix + (unit + MANY) * columns + k);
        }
        add_vectors<MANY, ROWS, DEEP, DEEP>(parts, matrix + k, columns, vectors + k, columns);
    }
    for (; k + LANES <= columns; k += LANES) add_vectors<MANY, ROWS, DEEP, 1>(parts, matrix + k, columns, vectors + k, columns);
    if (k < columns) {
        float copies[MANY][LANES];
        copy_last(copies[0], matrix, MANY, columns);
        add_vectors<MANY, ROWS, DEEP, 1>(parts, copies[0], LANES, operands.last, LANES);
    }
}

// Sums of the lanes of MANY vectors, in order: neighbours are added until there is one lane per vector. LEFT is the number of lanes.
template <int MANY, int LEFT>
static INLINE void sum_lanes(const Vector* parts, Vector* sums) {
    constexpr int HALF = (MANY + 1) / 2;
    Vector halves[HALF];
    UNROLLED
    for (int i = 0; i < HALF; ++i) {
        const Vector one = parts[2 * i], other = parts[2 * i + 1 < MANY ? 2 * i + 1 : 2 * i];
        halves[i] = CHOSEN(one, other, EVEN) + CHOSEN(one, other, ODD);
    }
    if constexpr (LEFT > 2) {
        sum_lanes<HALF, LEFT / 2>(halves, sums);
    } else {
        UNROLLED
        for (int i = 0; i < HALF; ++i) sums[i] = halves[i];
    }
}

constexpr int64_t APART = (BLOCKS + 1) * TOGETHER;  // sums of a sequence

// Writes the sums of accumulators, MANY units of every sequence.
template <int MANY, int ROWS, int DEEP>
static INLINE void write(const Vector (&parts)[MANY][ROWS][DEEP], float* sums) {
    Vector flat[ROWS * MANY], found[(ROWS * MANY + LANES - 1) / LANES];
    UNROLLED
    for (int row = 0; row < ROWS; ++row) {
        UNROLLED
        for (int unit = 0; unit < MANY; ++unit) {
            Vector sum = parts[unit][row][0];
            UNROLLED
            for (int v = 1; v < DEEP; ++v) sum += parts[unit][row][v];
            flat[row * MANY + unit] = sum;
        }
    }
    sum_lanes<ROWS * MANY, LANES>(flat, found);
    UNROLLED
    for (int row = 0; row < ROWS; ++row) std::memcpy(sums + row * APART, (const float*)found + row * MANY, MANY * sizeof(float));
}

// Dot products of MANY matrix rows with the vectors of ROWS sequences, summed over `count` pairs of matrix and vectors.
template <int MANY, int ROWS>
static void multiply(float* sums, const Operands* operands, int count) {
    constexpr int DEEP = ROWS == 1 ? 4 : ROWS == 2 ? 2 : 1;
    Vector parts[MANY][ROWS][DEEP] = {};
    for (int i = 0; i < count; ++i) add_products(parts, operands[i]);
    write(parts, sums);
}

typedef void Multiply(float*, const Operands*, int);
static Multiply* const MULTIPLY[MOST] = {multiply<2, 1>, multiply<WIDE, 2>, multiply<WIDE, 3>, multiply<WIDE, 4>};

static const float ZEROS[TOGETHER] = {};

// `many` units from `first`, of `rows` sequences from `from`.
static void some_units(const OneStep& s, int64_t from, int64_t rows, int64_t first, int64_t many) {
    float sums[MOST][BLOCKS + 1][TOGETHER], bias[BLOCKS + 1][TOGETHER] = {};  // the last one: the hidden state's part of the block SPLIT
    const float *values = s.values + from * s.inputs, *hidden = s.before[0] == nullptr ? nullptr : s.before[0] + from * s.width;
    float last[2][MOST][LANES];
    copy_last(last[0][0], values, rows, s.inputs);
    if (hidden != nullptr) copy_last(last[1][0], hidden, rows, s.width);
    const bool long_rows = s.inputs > SHORT || s.width > SHORT;
    const int64_t several = rows > 1 ? WIDE : 2, at_once = many < several || (rows == 1 && long_rows) ? 1 : several;
    for (int block = 0; block < BLOCKS; ++block) {
        const int64_t start = block * s.units + first;
        float* other = bias[block == SPLIT ? BLOCKS : block];
        for (int64_t unit = 0; s.bias_ih != nullptr && unit < many; ++unit) bias[block][unit] += s.bias_ih[start + unit];
        for (int64_t unit = 0; s.bias_hh != nullptr && unit < many; ++unit) other[unit] += s.bias_hh[start + unit];
        for (int64_t done = 0; done < many; done += at_once) {
            const int64_t unit = done + at_once <= many ? done : many - at_once, at = start + unit;  // the last ones may overlap
            for (int64_t row = 0; row < rows; row += at_once > 1 ? rows : 1) {
                const Operands operands[2] = {
                    {s.weight_ih + at * s.inputs, values + row * s.inputs, last[0][row], s.inputs},
                    {s.weight_hh + at * s.width, hidden == nullptr ? nullptr : hidden + row * s.width, last[1][row], s.width}};
                Multiply* const multiply_units = at_once > 1 ? MULTIPLY[rows - 1] : multiply<1, 1>;
                multiply_units(&sums[row][block][unit], operands, block == SPLIT || hidden == nullptr ? 1 : 2);
                if (block == SPLIT) multiply_units(&sums[row][BLOCKS][unit], operands + 1, hidden == nullptr ? 0 : 1);
            }
        }
    }
    const float *own_weights[OWN + !OWN], *carried[CARRIED + !CARRIED];
    float spare[TOGETHER], *carried_after[CARRIED + !CARRIED];
    for (int i = 0; i < OWN; ++i) own_weights[i] = s.own[i] + first;
    for (int64_t row = 0; row < rows; ++row) {
        const float beta = s.beta, dt = HAS_DT ? s.dt[from + row] : 1.0f;
        const int64_t at = (from + row) * s.units + first;
        const float(*z)[TOGETHER] = sums[row];
        const float* cell = s.before[CELLS] == nullptr ? ZEROS : s.before[CELLS] + at;
        float *hidden_after = s.after[0] + at, *cell_after = CELLS ? s.after[CELLS] + at : spare;
        for (int i = 0; i < CARRIED; ++i) {
            const float* earlier = s.before[1 + CELLS + i];
            carried[i] = earlier == nullptr ? ZEROS : earlier + at;
            carried_after[i] = s.after[1 + CELLS + i] + at;
        }
        SIDE_BY_SIDE
        for (int64_t unit = 0; unit < many; ++unit) {
            float own[OWN + !OWN], fixed[FIXED + !FIXED], rows[BLOCKS + 1];
            UNROLLED
            for (int i = 0; i < OWN; ++i) own[i] = own_weights[i][unit];
            gate_fixed(own, fixed);
            UNROLLED
            for (int block = 0; block < BLOCKS + (SPLIT >= 0); ++block) rows[block] = z[block][unit] + bias[block][unit];
            State state = {0.0f, cell[unit]};
            UNROLLED
            for (int i = 0; i < CARRIED; ++i) state.carried[i] = carried[i][unit];
            state = CELL_FORWARD(rows, SPLIT >= 0 ? rows[BLOCKS] : 0.0f, state, fixed, dt, beta);
            hidden_after[unit] = state.hidden;
            cell_after[unit] = state.cell;
            UNROLLED
            for (int i = 0; i < CARRIED; ++i) carried_after[i][unit] = state.carried[i];
        }
        if (s.copy != nullptr) std::memcpy(s.copy + at, hidden_after, many * sizeof(float));
    }
}

extern "C" void one_step(const OneStep* step) {
    const OneStep s = *step;
    const int64_t groups = (s.units + TOGETHER - 1) / TOGETHER, reads = (s.rows + MOST - 1) / MOST;
#pragma omp parallel for schedule(static) num_threads(s.threads) if (s.threads > 1)
    for (int64_t group = 0; group < groups; ++group) {
        const int64_t first = group * TOGETHER, left = s.units - first;
        for (int64_t read = 0; read < reads; ++read) {
            const int64_t row = s.rows * read / reads, end = s.rows * (read + 1) / reads;
            some_units(s, row, end - row, first, left < TOGETHER ? left : TOGETHER);
        }
    }
}
