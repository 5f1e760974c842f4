// A single step of a few sequences in one call. It reads the weights from the parameters directly: there is no repacked copy that could
// be stale. For some units at a time: a matrix-vector product of their rows of both matrices with inputs and hidden state, then
// gate and cell, whose code comes from ../kernels and is derived from the gate's equation.
//
// B sequences, I inputs, H units, W elements of the hidden state (H unless it is projected), G blocks.

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif
constexpr int TOGETHER = 32;  // units at a time
constexpr int SHORT = 512;    // columns up to which two matrix rows are read at once; with longer rows one stream is faster

typedef float Vector __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));

constexpr int PARTS = 1 + CELLS + CARRIED;  // of the state: hidden, cell (the GRU has none), carried values

struct OneStep {
    int64_t rows, inputs, units, width, threads;
    double beta;
    const float *values, *weight_ih, *weight_hh, *bias_ih, *bias_hh, *dt;  // (B, I), (G H, I), (G H, W), (G H) or null, (B) or null
    const float* own[OWN];                                                // (H)
    const float* before[PARTS];                                           // (B, W), then (B, H); null for zeros
    float *after[PARTS], *copy;                                           // (B, H); a copy of the hidden state, or null
};

// Dot products of MANY matrix rows with one vector, added to `sums`.
template <int MANY>
static void add_products(float* sums, const float* matrix, const float* vector, int64_t columns) {
    constexpr int AT_ONCE = 4;
    Vector parts[MANY][AT_ONCE] = {};
    int64_t k = 0;
    for (; k + AT_ONCE * LANES <= columns; k += AT_ONCE * LANES) {
        UNROLLED
        for (int row = 0; row < MANY; ++row) __builtin_prefetch(matrix + (row + MANY) * columns + k);
        UNROLLED
        for (int v = 0; v < AT_ONCE; ++v) {
            const Vector factors = *(const Vector*)(vector + k + v * LANES);
            UNROLLED
            for (int row = 0; row < MANY; ++row) parts[row][v] += *(const Vector*)(matrix + row * columns + k + v * LANES) * factors;
        }
    }
    UNROLLED
    for (int row = 0; row < MANY; ++row) {
        const Vector both = (parts[row][0] + parts[row][1]) + (parts[row][2] + parts[row][3]);
        float sum = 0.0f;
        UNROLLED
        for (int lane = 0; lane < LANES; ++lane) sum += both[lane];
        for (int64_t rest = k; rest < columns; ++rest) sum += matrix[row * columns + rest] * vector[rest];
        sums[row] += sum;
    }
}

static void add_all_products(float* sums, const float* matrix, const float* vector, int64_t many, int64_t columns) {
    int64_t row = 0;
    for (; columns <= SHORT && row + 2 <= many; row += 2) add_products<2>(sums + row, matrix + row * columns, vector, columns);
    for (; row < many; ++row) add_products<1>(sums + row, matrix + row * columns, vector, columns);
}

static void start(float* sums, const float* bias, int64_t many) {
    if (bias == nullptr) std::memset(sums, 0, many * sizeof(float));
    else std::memcpy(sums, bias, many * sizeof(float));
}

static const float ZEROS[TOGETHER] = {};

// `many` units from `first`, of one sequence.
static void some_units(const OneStep& s, int64_t row, int64_t first, int64_t many) {
    float z[BLOCKS][TOGETHER], parts[BLOCKS][TOGETHER];
    const float* hidden = s.before[0];
    for (int block = 0; block < BLOCKS; ++block) {
        const int64_t at = block * s.units + first;
        start(z[block], s.bias_ih == nullptr ? nullptr : s.bias_ih + at, many);
        start(parts[block], s.bias_hh == nullptr ? nullptr : s.bias_hh + at, many);
        add_all_products(z[block], s.weight_ih + at * s.inputs, s.values + row * s.inputs, many, s.inputs);
        if (hidden != nullptr) add_all_products(parts[block], s.weight_hh + at * s.width, hidden + row * s.width, many, s.width);
    }
    const float beta = s.beta, dt = HAS_DT ? s.dt[row] : 1.0f;
    const int64_t at = row * s.units + first;
    const float *cell = s.before[CELLS] == nullptr ? ZEROS : s.before[CELLS] + at, *part = parts[SPLIT >= 0 ? SPLIT : 0];
    const float *own_weights[OWN + !OWN], *carried[CARRIED + !CARRIED];
    float spare[TOGETHER], *hidden_after = s.after[0] + at, *cell_after = CELLS ? s.after[CELLS] + at : spare;
    float* carried_after[CARRIED + !CARRIED];
    for (int i = 0; i < OWN; ++i) own_weights[i] = s.own[i] + first;
    for (int i = 0; i < CARRIED; ++i) {
        const float* earlier = s.before[1 + CELLS + i];
        carried[i] = earlier == nullptr ? ZEROS : earlier + at;
        carried_after[i] = s.after[1 + CELLS + i] + at;
    }
    SIDE_BY_SIDE
    for (int64_t unit = 0; unit < many; ++unit) {
        float own[OWN + !OWN], fixed[FIXED + !FIXED], rows[BLOCKS];
        UNROLLED
        for (int i = 0; i < OWN; ++i) own[i] = own_weights[i][unit];
        gate_fixed(own, fixed);
        UNROLLED
        for (int block = 0; block < BLOCKS; ++block) rows[block] = z[block][unit] + (block == SPLIT ? 0.0f : parts[block][unit]);
        State state = {0.0f, cell[unit]};
        UNROLLED
        for (int i = 0; i < CARRIED; ++i) state.carried[i] = carried[i][unit];
        state = CELL_FORWARD(rows, SPLIT >= 0 ? part[unit] : 0.0f, state, fixed, dt, beta);
        hidden_after[unit] = state.hidden;
        cell_after[unit] = state.cell;
        UNROLLED
        for (int i = 0; i < CARRIED; ++i) carried_after[i][unit] = state.carried[i];
    }
    if (s.copy != nullptr) std::memcpy(s.copy + at, hidden_after, many * sizeof(float));
}

extern "C" void one_step(const OneStep* step) {
    const OneStep s = *step;
    const int64_t groups = (s.units + TOGETHER - 1) / TOGETHER;
#pragma omp parallel for schedule(static) num_threads(s.threads) if (s.threads > 1)
    for (int64_t group = 0; group < groups; ++group) {
        const int64_t first = group * TOGETHER, left = s.units - first;
        for (int64_t row = 0; row < s.rows; ++row) some_units(s, row, first, left < TOGETHER ? left : TOGETHER);
    }
}
