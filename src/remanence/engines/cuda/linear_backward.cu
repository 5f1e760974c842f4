// The gradient of hidden (N, M, H), and every thread block's partial sums of the gradients of weight and bias: `sums`
// (N, parts, ROOM), the weight's first. From hidden, weight (N, O, H) and the gradient of the outputs (N, M, O); `parts` thread
// blocks share the rows of a replica.

constexpr int ROOM = O * H + (O + 3) / 4 * 4;
constexpr int SOME = ROWS * O;         // output gradients that a warp has at a time
constexpr int FEW = (SOME + 31) / 32;  // of these, how many a thread reads
constexpr int PITCH = (SOME + 3) / 4 * 4;
constexpr int AHEAD = WARPS * STAGES * ROWS * 128 * sizeof(NUMBER);  // bytes
static_assert(O * 32 * sizeof(float4) <= AHEAD, "in the end sums are where rows were");

extern "C" __global__ void __launch_bounds__(THREADS) linear_backward(
    const NUMBER* hidden, const NUMBER* weight, const NUMBER* d_outputs, NUMBER* d_hidden, float* sums, int rows, int parts) {
    const Place me = whereabouts(parts);
    hidden += (offset)me.replica * rows * H;
    d_hidden += (offset)me.replica * rows * H;
    d_outputs += (offset)me.replica * rows * O;
    sums += (offset)blockIdx.x * ROOM;

    const Ahead ahead(me);
    const int first = ROWS * (me.part * WARPS + me.warp), onward = ROWS * parts * WARPS;
    for (int stage = 0; stage < STAGES - 1; ++stage) ahead.fetch(stage, hidden, first + stage * onward, rows, me);
    float own[FEW];
    auto read = [&](int start) {
#pragma unroll
        for (int i = 0; i < FEW; ++i) {
            const int place = me.lane + 32 * i;
            const bool there = place < SOME && start + place / O < rows;
            own[i] = there ? value_of(d_outputs[(offset)start * O + place]) : 0.0f;
        }
    };
    read(first);
    float* d_rows = (float*)(shared + AHEAD) + me.warp * PITCH;
    float4 columns[O], d_columns[O] = {};
    read_columns(columns, weight + me.replica * O * H, me);
    float d_bias[FEW] = {};

    int stage = 0;
    for (int start = first; start < rows; start += onward) {
        ahead.fetch((stage + STAGES - 1) % STAGES, hidden, start + (STAGES - 1) * onward, rows, me);
#pragma unroll
        for (int i = 0; i < FEW; ++i) {
            if (me.lane + 32 * i < PITCH) d_rows[me.lane + 32 * i] = own[i];
            d_bias[i] += own[i];
        }
        read(start + onward);
        __syncwarp();
        wait_for_fetches<STAGES - 1>();
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
            const float4 x = four_values(ahead.at(stage, row));
            float4 d_x = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
            for (int output = 0; output < O; ++output) {
                const float d = d_rows[row * O + output];
                const float4 w = columns[output];
                d_x = {d_x.x + d * w.x, d_x.y + d * w.y, d_x.z + d * w.z, d_x.w + d * w.w};
                float4& sum = d_columns[output];
                sum = {sum.x + d * x.x, sum.y + d * x.y, sum.z + d * x.z, sum.w + d * x.w};
            }
            if (start + row < rows && me.unit < H) store_four(d_hidden + (offset)(start + row) * H + me.unit, d_x);
        }
        __syncwarp();
        stage = (stage + 1) % STAGES;
    }
    wait_for_fetches<0>();  // prefetches past the last row

    // The warps add their sums one after the other, in a fixed order.
    float4* total = (float4*)shared;
    for (int warp = 0; warp < WARPS; ++warp) {
        __syncthreads();
        if (me.warp != warp) continue;
#pragma unroll
        for (int output = 0; output < O; ++output) {
            float4 sum = d_columns[output];
            if (warp) {
                const float4 before = total[output * 32 + me.lane];
                sum = {sum.x + before.x, sum.y + before.y, sum.z + before.z, sum.w + before.w};
            }
            total[output * 32 + me.lane] = sum;
        }
        for (int i = 0; i < FEW; ++i)
            if (me.lane + 32 * i < PITCH) d_rows[me.lane + 32 * i] = d_bias[i];
    }
    __syncthreads();
    for (int place = threadIdx.x; place < O * H; place += THREADS) sums[place] = ((float*)total)[place / H * 128 + place % H];
    for (int output = threadIdx.x; output < O; output += THREADS) {
        float sum = 0.0f;
        for (int warp = 0; warp < WARPS; ++warp)
            for (int row = 0; row < ROWS; ++row) sum += ((float*)(shared + AHEAD))[warp * PITCH + row * O + output];
        sums[O * H + output] = sum;
    }
}
