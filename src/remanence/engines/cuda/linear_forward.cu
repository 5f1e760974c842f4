// Outputs (N, M, O) of hidden (N, M, H), weight (N, O, H) and bias (N, O); `parts` thread blocks share the rows of a replica.

constexpr int WIDE = (O + 3) / 4 * 4;
constexpr int SUMS = ROWS * WIDE;
static_assert(SUMS % 32 == 0, "every thread ends with as many sums");

// Reduces the sums over a warp by recursive halving: two partner lanes each keep half of the sums, until every lane has its own.
template <int BITS, int HALF>
__device__ __forceinline__ void add_up(float* sums, int lane) {
    const bool upper = lane & BITS;
#pragma unroll
    for (int i = 0; i < HALF; ++i) {
        const float kept = upper ? sums[i + HALF] : sums[i], given = upper ? sums[i] : sums[i + HALF];
        sums[i] = kept + from_partner(given, BITS);
    }
    if constexpr (BITS > 1) add_up<BITS / 2, HALF / 2>(sums, lane);
}

extern "C" __global__ void __launch_bounds__(THREADS) linear_forward(
    const NUMBER* hidden, const NUMBER* weight, const NUMBER* bias, NUMBER* outputs, int rows, int parts) {
    const Place me = whereabouts(parts);
    hidden += (offset)me.replica * rows * H;
    outputs += (offset)me.replica * rows * O;
    bias += me.replica * O;

    const Ahead ahead(me);
    const int first = ROWS * (me.part * WARPS + me.warp), onward = ROWS * parts * WARPS;
    for (int stage = 0; stage < STAGES - 1; ++stage) ahead.fetch(stage, hidden, first + stage * onward, rows, me);
    float4 columns[O];
    read_columns(columns, weight + me.replica * O * H, me);

    int stage = 0;
    for (int start = first; start < rows; start += onward) {
        ahead.fetch((stage + STAGES - 1) % STAGES, hidden, start + (STAGES - 1) * onward, rows, me);
        wait_for_fetches<STAGES - 1>();
        float sums[SUMS] = {};  // by row and output
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
            const float4 x = four_values(ahead.at(stage, row));
#pragma unroll
            for (int output = 0; output < O; ++output) {
                const float4 w = columns[output];
                sums[row * WIDE + output] = x.x * w.x + x.y * w.y + x.z * w.z + x.w * w.w;
            }
        }
        add_up<16, SUMS / 2>(sums, me.lane);
#pragma unroll
        for (int i = 0; i < SUMS / 32; ++i) {
            const int place = me.lane * (SUMS / 32) + i, row = start + place / WIDE, output = place % WIDE;
            if (row < rows && output < O) store(outputs + (offset)row * O + output, sums[i] + value_of(bias[output]));
        }
        stage = (stage + 1) % STAGES;
    }
    wait_for_fetches<0>();  // prefetches past the last row
}
