// Either one step of all units of all sequences, between matmuls with the recurrent matrix by torch, or all steps including these
// matmuls. Units are vectorised over SIMD lanes, sequences are distributed over threads. The code of gates and cells comes from
// ../kernels and is derived from the gate's equation.
//
// T steps, B sequences, H units, G blocks. Sequences that have ended keep their state.
//
// BACKWARD selects the pass to compile, SAVE whether the forward pass saves what the backward pass needs. Variants are compiled
// in parallel, and only when needed.

struct Sizes { int64_t steps, rows, units, inputs, threads, reverse; };

// Arguments of both passes.
struct Task {
    Sizes sizes;
    double beta;
    float* pre;                // (T, B, G H): blocks of pre-activations; without SAVE, those of a few steps
    float* parts;              // (T, B, H): the recurrent part of the candidate, GRU only
    float *cells, *carried;    // (T, B, H) and (T, CARRIED, B, H); without SAVE, a double buffer of two steps
    const float *first_cell, *first_carried;  // (B, H), (CARRIED, B, H)
    const float* fixed;        // (FIXED, H): values precomputed from the gate's own weights, the same in every step
    const float* dt;           // (T, B)
    const int32_t* lengths;    // (B), or null
};

struct Forward {
    Task task;
    const float* inputs;       // (T, B, I), multiplied together with the hidden state; or null: then `pre` has their products
    const float* zero;         // (G H)
    float* product;            // (B, G H): recurrent matrix times the hidden state before the step
    const float* bias;         // (G H)
    const float* bias_hn;      // (H): GRU only
    const float* first_hidden; // (B, H)
    float* hidden;             // (T, B, H)
};

struct Backward {
    Task task;
    const float* d_hidden;     // (T, B, H), or null for zero
    const float* zero;         // (H)
    float* from_later;         // (B, H): gradient of this step's hidden state from later steps
    float *d_cell, *d_carried; // (B, H), (CARRIED, B, H): gradients of the state after the step; on return, of the state before it
    float *d_fixed, *d_step;   // (FIXED, B, H): gradients of the fixed values, summed over steps; (B, H): of dt
    float *d_pre, *d_parts;    // may alias pre and parts
    float* d_product;          // (B, G H): gradient that goes through the recurrent matrix, GRU only: otherwise it is d_pre
    float* held;               // (B, H): gradient that bypasses it, of sequences that have ended
};

template <typename Number>
__forceinline__ Number* row_of(Number* numbers, int64_t step, int64_t row, Sizes n, int64_t width) {
    return numbers == nullptr ? nullptr : numbers + (step * n.rows + row) * width;
}

// A row of each carried value at a step, or of each fixed value; MANY may be 0.
template <int MANY, typename Number>
struct Several {
    Number* of[MANY + !MANY];
    Several(Number* numbers, int64_t step, int64_t row, Sizes n) {
        for (int i = 0; i < MANY; ++i) of[i] = numbers + ((step * MANY + i) * n.rows + row) * n.units;
    }
};

#if !BACKWARD

static void forward_row(const Forward& f, int64_t s, int64_t row, int64_t first) {
    const Task& task = f.task;
    const Sizes n = task.sizes;
    const int64_t units = n.units, t = n.reverse ? n.steps - 1 - s : s, before = n.reverse ? t + 1 : t - 1;
    const int64_t now = SAVE ? t : s % 2, earlier = SAVE ? before : (s + 1) % 2;
    float* pre = row_of(task.pre, t - first, row, n, BLOCKS * units);
    const float *product = row_of(f.product, 0, row, n, BLOCKS * units), *by_inputs = f.inputs == nullptr ? pre : f.zero;
    const float* cell = s ? row_of(task.cells, earlier, row, n, units) : row_of(task.first_cell, 0, row, n, units);
    const Several<CARRIED, const float> carried(s ? task.carried : task.first_carried, s ? earlier : 0, row, n);
    const Several<CARRIED, float> carried_after(task.carried, now, row, n);
    float *hidden = row_of(f.hidden, t, row, n, units), *cells = row_of(task.cells, now, row, n, units);
    float* parts = row_of(task.parts, t, row, n, units);
    if (task.lengths != nullptr && t >= task.lengths[row]) {
        const float* h = s ? row_of(f.hidden, before, row, n, units) : row_of(f.first_hidden, 0, row, n, units);
        std::memcpy(hidden, h, units * sizeof(float));
        std::memcpy(cells, cell, units * sizeof(float));
        for (int i = 0; i < CARRIED; ++i) std::memcpy(carried_after.of[i], carried.of[i], units * sizeof(float));
        return;
    }
    const float beta = task.beta, dt = HAS_DT ? task.dt[t * n.rows + row] : 1.0f;
    const float *bias = f.bias, *bias_hn = f.bias_hn, *fixed_values = task.fixed;
    SIDE_BY_SIDE
    for (int64_t unit = 0; unit < units; ++unit) {
        float z[BLOCKS];
        UNROLLED
        for (int block = 0; block < BLOCKS; ++block) {
            int64_t at = block * units + unit;
            z[block] = by_inputs[at] + bias[at] + (block == SPLIT ? 0.0f : product[at]);
        }
        float hn = SPLIT >= 0 ? product[SPLIT * units + unit] + bias_hn[unit] : 0.0f;
        State state = {0.0f, cell[unit]};
        UNROLLED
        for (int i = 0; i < CARRIED; ++i) state.carried[i] = carried.of[i][unit];
        float fixed[FIXED + !FIXED];
        UNROLLED
        for (int i = 0; i < FIXED; ++i) fixed[i] = fixed_values[i * units + unit];
        state = CELL_FORWARD(z, hn, state, fixed, dt, beta);
        hidden[unit] = state.hidden;
        cells[unit] = state.cell;
        UNROLLED
        for (int i = 0; i < CARRIED; ++i) carried_after.of[i][unit] = state.carried[i];
        if (SAVE) {
            UNROLLED
            for (int block = 0; block < BLOCKS; ++block) pre[block * units + unit] = z[block];
            if (SPLIT >= 0) parts[unit] = hn;
        }
    }
}

#else

static void backward_row(const Backward& b, int64_t s, int64_t row) {
    const Task& task = b.task;
    const Sizes n = task.sizes;
    const int64_t units = n.units, t = n.reverse ? s : n.steps - 1 - s, before = n.reverse ? t + 1 : t - 1;
    const bool first = s == n.steps - 1;
    const float *pre = row_of(task.pre, t, row, n, BLOCKS * units), *parts = row_of(task.parts, t, row, n, units);
    const float* cell = first ? row_of(task.first_cell, 0, row, n, units) : row_of(task.cells, before, row, n, units);
    const Several<CARRIED, const float> carried(first ? task.first_carried : task.carried, first ? 0 : before, row, n);
    const float *after = row_of(task.cells, t, row, n, units), *fixed_values = task.fixed;
    const float* d_hidden = b.d_hidden == nullptr ? b.zero : row_of(b.d_hidden, t, row, n, units);
    const float* from_later = row_of(b.from_later, 0, row, n, units);
    float *d_cell = row_of(b.d_cell, 0, row, n, units), *d_step = row_of(b.d_step, 0, row, n, units);
    const Several<CARRIED, float> d_carried(b.d_carried, 0, row, n);
    const Several<FIXED, float> d_fixed(b.d_fixed, 0, row, n);
    float *d_pre = row_of(b.d_pre, t, row, n, BLOCKS * units), *d_parts = row_of(b.d_parts, t, row, n, units);
    float *d_product = row_of(b.d_product, 0, row, n, BLOCKS * units), *held = row_of(b.held, 0, row, n, units);
    if (task.lengths != nullptr) {
        bool ended = t >= task.lengths[row];
        for (int64_t unit = 0; unit < units; ++unit) held[unit] = ended ? from_later[unit] + d_hidden[unit] : 0.0f;
        if (ended) {
            std::memset(d_pre, 0, BLOCKS * units * sizeof(float));
            if (SPLIT >= 0) std::memset(d_parts, 0, units * sizeof(float));
            if (SPLIT >= 0) std::memset(d_product, 0, BLOCKS * units * sizeof(float));
            if (HAS_DT) std::memset(d_step, 0, units * sizeof(float));
            return;
        }
    }
    const float beta = task.beta, dt = HAS_DT ? task.dt[t * n.rows + row] : 1.0f;
    SIDE_BY_SIDE
    for (int64_t unit = 0; unit < units; ++unit) {
        float z[BLOCKS];
        UNROLLED
        for (int block = 0; block < BLOCKS; ++block) z[block] = pre[block * units + unit];
        State state = {0.0f, cell[unit]};
        float fixed[FIXED + !FIXED], d_carried_after[CARRIED + !CARRIED];
        UNROLLED
        for (int i = 0; i < CARRIED; ++i) state.carried[i] = carried.of[i][unit], d_carried_after[i] = d_carried.of[i][unit];
        UNROLLED
        for (int i = 0; i < FIXED; ++i) fixed[i] = fixed_values[i * units + unit];
        float hn = SPLIT >= 0 ? parts[unit] : 0.0f;
        CellSlopes slopes = CELL_SLOPES(z, hn, state, after[unit], fixed, dt, beta);
        float d_h = from_later[unit] + d_hidden[unit];
        CellBack back = CELL_BACKWARD(slopes, d_h, d_cell[unit], d_carried_after);
        UNROLLED
        for (int block = 0; block < BLOCKS; ++block) {
            d_pre[block * units + unit] = back.z[block];
            if (SPLIT >= 0) d_product[block * units + unit] = block == SPLIT ? back.hn : back.z[block];
        }
        if (SPLIT >= 0) d_parts[unit] = back.hn;
        d_cell[unit] = back.cell;
        UNROLLED
        for (int i = 0; i < CARRIED; ++i) d_carried.of[i][unit] = back.carried[i];
        UNROLLED
        for (int i = 0; i < FIXED; ++i) d_fixed.of[i][unit] += back.fixed[i];
        if (HAS_DT) d_step[unit] = back.dt;
    }
}

#endif

// Precomputes the fixed values (FIXED, H) from the gate's own weights (OWN, H).
extern "C" void gate_fixed_all(int64_t units, const float* weights, float* found) {
    for (int64_t unit = 0; unit < units; ++unit) {
        float own[OWN + !OWN], fixed[FIXED + !FIXED];
        for (int i = 0; i < OWN; ++i) own[i] = weights[i * units + unit];
        gate_fixed(own, fixed);
        for (int i = 0; i < FIXED; ++i) found[i * units + unit] = fixed[i];
    }
}

// See products.cpp.
typedef void Multiply(
    Rows<float> products, Rows<const float> rows, Rows<const float> also, const float* panels, int64_t many, int64_t inner,
    int64_t extra, int64_t width);

// A group of sequences, independent of the others. Every thread gets the same number of groups.
struct Group {
    int64_t begin, many;
    static int64_t number(Sizes n) { return n.threads * ((n.rows + n.threads * MOST_ROWS - 1) / (n.threads * MOST_ROWS)); }
    Group(Sizes n, int64_t i) : begin(n.rows * i / number(n)), many(n.rows * (i + 1) / number(n) - begin) {}
};

#if !BACKWARD

// One step; `first` is the first step in `pre`.
extern "C" void forward(const Forward* f, int64_t s, int64_t first) {
    const Sizes n = f->task.sizes;
#pragma omp parallel for schedule(static) num_threads(n.threads) if (n.threads > 1)
    for (int64_t row = 0; row < n.rows; ++row) forward_row(*f, s, row, first);
}

// Steps from `begin` to `end`, with matmuls. The matrix is (H, G H), in panels; with the inputs (H + I, G H).
extern "C" void forward_all(const Forward* f, Multiply* multiply, const float* panels, int64_t begin, int64_t end, int64_t first) {
    const Sizes n = f->task.sizes;
    const int64_t width = BLOCKS * n.units;
#pragma omp parallel for schedule(static) num_threads(n.threads) if (n.threads > 1)
    for (int64_t i = 0; i < Group::number(n); ++i) {
        const Group group(n, i);
        float* product = row_of(f->product, 0, group.begin, n, width);
        for (int64_t s = begin; s < end; ++s) {
            const int64_t before = n.reverse ? n.steps - s : s - 1;
            const float* hidden = s ? row_of(f->hidden, before, group.begin, n, n.units) : row_of(f->first_hidden, 0, group.begin, n, n.units);
            const float* inputs = row_of(f->inputs, n.reverse ? n.steps - 1 - s : s, group.begin, n, n.inputs);
            const int64_t extra = inputs == nullptr ? 0 : n.inputs;
            multiply({product, width}, {hidden, n.units}, {inputs, extra}, panels, group.many, n.units, extra, width);
            for (int64_t row = group.begin; row < group.begin + group.many; ++row) forward_row(*f, s, row, first);
        }
    }
}

#else

// Gradients of the gate's own weights from those of the fixed values.
extern "C" void gate_own_all(int64_t units, const float* weights, const float* by_fixed, float* found) {
    for (int64_t unit = 0; unit < units; ++unit) {
        float own[OWN + !OWN], d_fixed[FIXED + !FIXED], d_own[OWN + !OWN];
        for (int i = 0; i < OWN; ++i) own[i] = weights[i * units + unit];
        for (int i = 0; i < FIXED; ++i) d_fixed[i] = by_fixed[i * units + unit];
        gate_own(own, d_fixed, d_own);
        for (int i = 0; i < OWN; ++i) found[i * units + unit] = d_own[i];
    }
}

// One step of the backward pass.
extern "C" void backward(const Backward* b, int64_t s) {
    const Sizes n = b->task.sizes;
#pragma omp parallel for schedule(static) num_threads(n.threads) if (n.threads > 1)
    for (int64_t row = 0; row < n.rows; ++row) backward_row(*b, s, row);
}

// All steps of the backward pass, with matmuls. The matrix is (G H, H), in panels; d_dt is (T, B) or null.
extern "C" void backward_all(const Backward* b, Multiply* multiply, const float* panels, float* d_dt) {
    const Sizes n = b->task.sizes;
    const int64_t width = BLOCKS * n.units;
#pragma omp parallel for schedule(static) num_threads(n.threads) if (n.threads > 1)
    for (int64_t i = 0; i < Group::number(n); ++i) {
        const Group group(n, i);
        float *from_later = row_of(b->from_later, 0, group.begin, n, n.units), *held = row_of(b->held, 0, group.begin, n, n.units);
        for (int64_t s = 0; s < n.steps; ++s) {
            const int64_t t = n.reverse ? s : n.steps - 1 - s;
            for (int64_t row = group.begin; row < group.begin + group.many; ++row) backward_row(*b, s, row);
            const float* back = SPLIT >= 0 ? row_of(b->d_product, 0, group.begin, n, width) : row_of(b->d_pre, t, group.begin, n, width);
            multiply({from_later, n.units}, {back, width}, {}, panels, group.many, width, 0, n.units);
            if (held != nullptr) for (int64_t unit = 0; unit < group.many * n.units; ++unit) from_later[unit] += held[unit];
            if (d_dt == nullptr) continue;
            for (int64_t row = group.begin; row < group.begin + group.many; ++row) {
                float sum = 0.0f, *d_step = row_of(b->d_step, 0, row, n, n.units);
                for (int64_t unit = 0; unit < n.units; ++unit) sum += d_step[unit];
                d_dt[t * n.rows + row] = sum;
            }
        }
    }
}

#endif
