// A single step of a few sequences in one launch. It reads the weights from the parameters directly: there is no repacked copy that could
// be stale. A warp has one unit: dot products of its row of every block of both matrices with inputs and hidden states of some
// sequences, then gate and cell, whose code comes from ../kernels and is derived from the gate's equation.
//
// B sequences, I inputs, H units, W elements of the hidden state (H unless it is projected).

constexpr int PARTS = 1 + CELLS + CARRIED;  // of the state: hidden, cell (the GRU has none), carried values

struct OneStep {
    int rows, inputs, units, width;
    float beta;
    const float *values, *weight_ih, *weight_hh, *bias_ih, *bias_hh, *dt;  // (B, I), (G H, I), (G H, W), (G H) or null, (B) or null
    const float* others[OWN + PARTS];  // own weights (H); state before the step (B, W), then (B, H), null for zeros
    float *after[PARTS], *copy;        // (B, H); a copy of the hidden state, or null
};

// Adds one lane's part of the dot products of a matrix row per block (`apart` elements from block to block) with MANY vectors.
template <int MANY>
__device__ __forceinline__ void add_products(
    float (*sums)[MANY], const float* matrix, offset apart, const float* vectors, int columns, int lane) {
    int done = 0;
    if ((((offset)matrix | (offset)vectors | (offset)(4 * columns)) & 15) == 0) {
        done = columns;
#pragma unroll 2
        for (int k = 4 * lane; k < columns; k += 128) {
            float4 factors[MANY];
#pragma unroll
            for (int j = 0; j < MANY; ++j) factors[j] = four_values(vectors + (offset)j * columns + k);
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block) {
                const float4 four = four_values(matrix + block * apart + k);
#pragma unroll
                for (int j = 0; j < MANY; ++j) {
                    float sum = fmaf(four.x, factors[j].x, sums[block][j]);
                    sum = fmaf(four.y, factors[j].y, sum);
                    sum = fmaf(four.z, factors[j].z, sum);
                    sums[block][j] = fmaf(four.w, factors[j].w, sum);
                }
            }
        }
    }
#pragma unroll 2
    for (int k = done + lane; k < columns; k += 32)
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block)
#pragma unroll
            for (int j = 0; j < MANY; ++j)
                sums[block][j] = fmaf(matrix[block * apart + k], vectors[(offset)j * columns + k], sums[block][j]);
}

__device__ __forceinline__ float summed(float sum) {
#pragma unroll
    for (int bit = 16; bit > 0; bit /= 2) sum += from_partner(sum, bit);
    return sum;
}

// The time since the previous step. Values that are no time become NaN, because the host would have to wait for the GPU to refuse them.
__device__ __forceinline__ float as_time(float dt) { return dt >= 0.0f && dt < infinity() ? dt : infinity() - infinity(); }

// One unit of MANY sequences, from sequence `first` on.
template <int MANY>
__device__ __forceinline__ void some_rows(const OneStep& s, int unit, int lane, int first) {
    const float *const *own_weights = s.others, *const *before = s.others + OWN;
    float given[BLOCKS][MANY] = {}, parts[BLOCKS][MANY] = {};
    add_products<MANY>(given, s.weight_ih + (offset)unit * s.inputs, (offset)s.units * s.inputs, s.values + (offset)first * s.inputs,
                       s.inputs, lane);
    if (before[0] != nullptr)
        add_products<MANY>(parts, s.weight_hh + (offset)unit * s.width, (offset)s.units * s.width, before[0] + (offset)first * s.width,
                           s.width, lane);
    float z[BLOCKS] = {}, hn = 0.0f;
#pragma unroll
    for (int block = 0; block < BLOCKS; ++block) {
        const int at = block * s.units + unit;
        const float bias = s.bias_ih == nullptr ? 0.0f : s.bias_ih[at], recurrent = s.bias_hh == nullptr ? 0.0f : s.bias_hh[at];
#pragma unroll
        for (int j = 0; j < MANY; ++j) {
            const bool apart = block == SPLIT;
            const float sum = summed(apart ? given[block][j] : given[block][j] + parts[block][j]) + bias;
            if (lane == j) z[block] = apart ? sum : sum + recurrent;
            if (!apart) continue;
            const float part = summed(parts[block][j]) + recurrent;
            if (lane == j) hn = part;
        }
    }
    if (lane >= MANY) return;
    const int row = first + lane;
    const offset at = (offset)row * s.units + unit;
    float own[OWN + !OWN] = {}, fixed[FIXED + !FIXED];
    for (int i = 0; i < OWN; ++i) own[i] = own_weights[i][unit];
    gate_fixed(own, fixed);
    State state = {0.0f, before[CELLS] == nullptr ? 0.0f : before[CELLS][at]};
    for (int i = 0; i < CARRIED; ++i) state.carried[i] = before[1 + CELLS + i] == nullptr ? 0.0f : before[1 + CELLS + i][at];
    state = CELL_FORWARD(z, hn, state, fixed, HAS_DT ? as_time(s.dt[row]) : 1.0f, s.beta);
    s.after[0][at] = state.hidden;
    if (s.copy != nullptr) s.copy[at] = state.hidden;
    if (CELLS) s.after[CELLS][at] = state.cell;
    for (int i = 0; i < CARRIED; ++i) s.after[1 + CELLS + i][at] = state.carried[i];
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) one_step(const OneStep s) {
    const int unit = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (unit >= s.units) return;
    int row = 0;
    for (; row + 4 <= s.rows; row += 4) some_rows<4>(s, unit, lane, row);
    for (; row < s.rows; ++row) some_rows<1>(s, unit, lane, row);
}
