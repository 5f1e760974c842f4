// The backward pass of a wide layer. wide.cuh describes the scheme, ../triton/kernels.py the tensors, backward.cu `totals`.

constexpr int SENT = CLUSTER * UNITS * 8 * 4;                   // bytes of the shares that a thread block receives
constexpr int OTHERS = UNITS * 8;                               // offset of the other blocks' gradients, in units of four float16
constexpr int ROUND = 4 * QUARTERS;                             // warps, rounded up to a multiple of four
constexpr int DERIVATIVES = OTHERS * 8 + MORE * ROUND * 64;     // bytes of the thread block's gradients
constexpr int SIZES = ROUND * 8 * 4;                            // bytes of their scales
using Tiles = Order<WARPS, PRODUCTS, false>;
constexpr int KINDS = BLOCKS + (SPLIT >= 0);
constexpr int TOTALS = KINDS + OWN;

extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_backward(
    const NUMBER* pre, const float* inputs, const NUMBER* matrix, const BIAS* own_weights, const float* dt,
    const int* lengths, const float* first_cell, const float* first_carried, const float* cells, const float* carried,
    const NUMBER* parts, const NUMBER* d_hidden, const float* d_last_hidden, const float* d_last_cell,
    const float* d_last_carried, NUMBER* d_pre, NUMBER* d_parts, float* d_first_hidden, float* d_first_cell,
    float* d_first_carried, float* totals, float* d_dt, uint4* overflow, int N, int T, int B, float beta) {
    // Shared memory: two mbarriers; two buffers each of shares as [thread block][unit][row], gradients as [unit][row][block] and of other
    // blocks as [block][warp][row][unit], and their scales as [row][warp]; the shelf.
    unsigned char* shares = shared + 128;
    unsigned char* derivatives = shares + 2 * SENT;
    unsigned char* sizes = derivatives + 2 * DERIVATIVES;
    unsigned char* shelf = sizes + 2 * SIZES;
    const Place me = whereabouts(B);
    const bool there = me.there[0];
    const word box = two_letterboxes(SENT);

    // The slice of the matrix, transposed: rows are all units, columns the blocks of this thread block's units.
    matrix += (offset)me.replica * BLOCKS * H * H;
    // Rows g and g + 8 of a tile are adjacent units.
    auto two_at = [&](int i, int k, int block) {
        int row = 16 * (me.warp + WARPS * i) + 2 * me.g, unit = me.rank * UNITS + 4 * k + me.q;
        bool there = block < BLOCKS && unit < H;
        return there ? two_in_row(matrix + ((offset)block * H + unit) * H, row) : float2{0, 0};
    };
    word largest = 0;
    for (int i = 0; i < PRODUCTS; ++i)
        for (int k = 0; k < WARPS; ++k)
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block) {
                float2 two = two_at(i, k, block);
                largest = max(largest, max(magnitude(two.x), magnitude(two.y)));
            }
    // The other blocks: a tile has the units of four warps, and lanes of q have those of one warp.
    auto more_at = [&](int i, int k, int block, int u) {
        int row = 16 * (me.warp + WARPS * i) + 2 * me.g, own = 4 * (4 * k + me.q) + u, unit = me.rank * UNITS + own;
        return own < UNITS && unit < H ? two_in_row(matrix + ((offset)(4 + block) * H + unit) * H, row) : float2{0, 0};
    };
    for (int i = 0; i < PRODUCTS * MORE; ++i)
        for (int k = 0; k < QUARTERS; ++k)
#pragma unroll
            for (int u = 0; u < 4; ++u) {
                float2 two = more_at(i / (MORE + !MORE), k, i % (MORE + !MORE), u);
                largest = max(largest, max(magnitude(two.x), magnitude(two.y)));
            }
    const Range range = range_of(largest_of(largest));
    Stock<Tiles::ALL> stock(shelf, overflow, me);
#pragma unroll
    for (int k = 0; k < WARPS; ++k) {
#pragma unroll
        for (int i = 0; i < PRODUCTS; ++i) {
            float2 of[4];
#pragma unroll
            for (int block = 0; block < 4; ++block) of[block] = two_at(i, k, block);
            auto two = [&](float x, float y) { return as_halves(x * range.times, y * range.times); };
            stock.keep(Tiles::of(k) + i, {two(of[0].x, of[1].x), two(of[0].y, of[1].y), two(of[2].x, of[3].x), two(of[2].y, of[3].y)});
        }
        if constexpr (MORE > 0)
            if (Tiles::is_last(k))
#pragma unroll
                for (int at = 0; at < MORE * PRODUCTS; ++at) {
                    const int block = at / PRODUCTS, i = at % PRODUCTS;
                    float2 of[4];
#pragma unroll
                    for (int u = 0; u < 4; ++u) of[u] = more_at(i, k / 4, block, u);
                    auto two = [&](float x, float y) { return as_halves(x * range.times, y * range.times); };
                    stock.keep(Tiles::more(k, block) + i, {two(of[0].x, of[1].x), two(of[0].y, of[1].y), two(of[2].x, of[3].x), two(of[2].y, of[3].y)});
                }
    }
    if constexpr (MORE > 0)  // zeros for missing warps
        for (int i = threadIdx.x; i < (DERIVATIVES + SIZES) / 2; i += THREADS) ((word*)derivatives)[i] = 0;

    const Fixed fixed = fixed_of(own_of(own_weights, me.replica, me.unit));
    const offset start = ((offset)me.replica * B + me.row[0]) * H + me.unit;
    float held = entry(d_last_hidden, start, there), d_cell = entry(d_last_cell, start, there), from_later = 0.0f;
    float d_carried[CARRIED + !CARRIED] = {};
    for (int i = 0; i < CARRIED; ++i) d_carried[i] = entry(d_last_carried, carried_at(me, i, me.row[0], B), there);
    float d_bias[PLACES] = {}, d_bias_hn = 0.0f, d_fixed[FIXED + !FIXED] = {};
    const int length = HAS_LENGTHS && me.row[0] < B ? lengths[(offset)me.replica * B + me.row[0]] : 0;

    // `here` is the row of this thread's current step in all tensors (T B rows per replica); `given` holds the data of the next step.
    // Cell and age are those before the step; in the last iteration, those of the initial state.
    word here = (me.replica * T + (REVERSE ? 0 : T - 1)) * B + me.row[0];
    const int stride = REVERSE ? B : -B;
    auto pre_at = [&](word row, int block) { return (offset)row * PRE_ROW + me.unit + block * H; };
    auto at = [&](word row) { return (offset)row * H + me.unit; };
    struct { float z[PLACES], hn, d_h, cell, carried[CARRIED + !CARRIED], time; } given = {{}, 0, 0, 0, {}, 1};
    auto read_step = [&](int s, word row) {
        if (there) {
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block) given.z[block] = value_of(pre[pre_at(row, block)]);
            if (SPLIT >= 0) given.hn = value_of(parts[at(row)]);
            if (d_hidden != nullptr) given.d_h = value_of(d_hidden[at(row)]);
            bool last = s == T - 1;
            given.cell = last ? entry(first_cell, start, true) : cells[at(row + stride)];
#pragma unroll
            for (int i = 0; i < CARRIED; ++i)
                given.carried[i] = last ? entry(first_carried, carried_at(me, i, me.row[0], B), true)
                                        : carried[((offset)(row + stride - me.row[0]) * CARRIED + (offset)i * B + me.row[0]) * H + me.unit];
        }
        if (HAS_DT && me.row[0] < B) given.time = dt[row];
    };
    if (T > 0) read_step(0, here);

    // Destinations of this thread: the shares of a tile of units go to the thread block that has these units. Lanes of even q send
    // four rows of unit 2 g, those of odd q of the next unit.
    word place[PRODUCTS], boxes[PRODUCTS];
#pragma unroll
    for (int i = 0; i < PRODUCTS; ++i) {
        int tile = me.warp + WARPS * i, unit = 16 * tile + 2 * me.g + (me.q & 1);
        word here = shared_address(shares) + ((me.rank * UNITS + unit % UNITS) * 8 + 4 * (me.q >> 1)) * 4;
        word rank = tile < SLICED ? unit / UNITS : 0;
        place[i] = address_in(rank, here), boxes[i] = address_in(rank, box);
    }
    __syncthreads();
    meet();

    const int own = (me.warp * 4 + (me.g & 3)) * 8 + 2 * me.q + (me.g >> 2);  // this thread's unit and row
    auto receive = [&](int s) {  // sums the shares that were sent in step s
        wait_for(box + 8 * (s & 1), (s >> 1) & 1);
        if (threadIdx.x == 0) expect(box + 8 * (s & 1), SENT);
        const float* share = (const float*)(shares + (s & 1) * SENT) + own;
        from_later = 0.0f;
#pragma unroll
        for (int c = 0; c < CLUSTER; ++c) from_later += share[c * UNITS * 8];
    };

    for (int s = 0; s < T; ++s, here += stride) {
        float d_h = given.d_h + held;
        CellSlopes slopes = CELL_SLOPES(given.z, given.hn, state_before(given.cell, given.carried), 0.0f, fixed.values, given.time, beta);
        if (s < T - 1) read_step(s + 1, here + stride);
        if (s > 0) receive(s - 1);
        d_h += from_later;
        CellBack back = CELL_BACKWARD(slopes, d_h, d_cell, d_carried);
        held = 0.0f;
        if (HAS_LENGTHS && (REVERSE ? s : T - 1 - s) >= length) {
            back = handed_on(d_cell, d_carried);
            held = d_h;
        }
        d_cell = back.cell;
#pragma unroll
        for (int i = 0; i < CARRIED; ++i) d_carried[i] = back.carried[i];

        // Convert to float16, scaled by the largest magnitude of the warp's units in this row.
        float factor[PLACES];
        word most = 0;
#pragma unroll
        for (int block = 0; block < PLACES; ++block) {
            factor[block] = block == SPLIT ? back.hn : back.z[block];
            most = max(most, magnitude(factor[block]));
        }
        most = max(most, from_partner(most, 4));
        most = max(most, from_partner(most, 8));
        Range range_here = range_of(most);
#pragma unroll
        for (int block = 0; block < PLACES; ++block) factor[block] *= range_here.times;
        ((uint2*)(derivatives + (s & 1) * DERIVATIVES))[turned(own, me.g)] = {as_halves(factor[0], factor[1]), as_halves(factor[2], factor[3])};
#pragma unroll
        for (int block = 0; block < MORE; ++block) {
            const int row = turned(2 * me.q + (me.g >> 2), me.warp), warp = block * ROUND + me.warp;
            ((half_bits*)((uint2*)(derivatives + (s & 1) * DERIVATIVES) + OTHERS + warp * 8 + row))[me.g & 3] = (half_bits)as_halves(factor[4 + block], 0.0f);
        }
        if ((me.g & 3) == 0)
            ((float*)(sizes + (s & 1) * SIZES))[(2 * me.q + (me.g >> 2)) * ROUND + me.warp] = range_here.size;
        if (there) {
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block) {
                d_bias[block] += back.z[block];
                store(d_pre + pre_at(here, block), back.z[block]);
            }
            if (PRE_ROW > BLOCKS * H && me.unit < PRE_ROW - BLOCKS * H) store(d_pre + pre_at(here, BLOCKS), 0.0f);
            if (SPLIT >= 0) d_bias_hn += back.hn, store(d_parts + at(here), back.hn);
#pragma unroll
            for (int i = 0; i < FIXED; ++i) d_fixed[i] += back.fixed[i];
        }
        if (HAS_DT && d_dt != nullptr) {
            float d = there ? back.dt : 0.0f;
            d += from_partner(d, 4);
            d += from_partner(d, 8);
            if ((me.g & 3) == 0 && me.row[0] < B) d_dt[(offset)(me.rank * WARPS + me.warp) * N * T * B + here] = d;
        }
        stock.read_ahead();
        __syncthreads();

        // All gradients of a row in the scale of the largest, so that products add up in the accumulators.
        float sums[PRODUCTS][4] = {};
        const Scales scales = scales_of((const float*)(sizes + (s & 1) * SIZES) + me.g * ROUND);
        const float2 by = of_two_rows(scales.largest * range.size, me.q);
        const uint2* halves = (const uint2*)(derivatives + (s & 1) * DERIVATIVES) + me.q * 8 + turned(me.g, me.q);
#pragma unroll
        for (int k = 0; k < WARPS; ++k) {
            const uint2 d = times_halves(halves[4 * k * 8], scales.of(k));
#pragma unroll
            for (int i = 0; i < PRODUCTS; ++i) stock.times(sums[i], Tiles::of(k) + i, d);
            if (MORE == 0 || !Tiles::is_last(k)) continue;
#pragma unroll
            for (int block = 0; block < MORE; ++block) {
                const uint2 d = times_halves(halves[OTHERS + (block * ROUND + k / 4 * 4) * 8], scales.of_quarter(k / 4, me.q));
#pragma unroll
                for (int i = 0; i < PRODUCTS; ++i) stock.times(sums[i], Tiles::more(k, block) + i, d);
            }
        }
#pragma unroll
        for (int i = 0; i < PRODUCTS; ++i)
            if (me.warp + WARPS * i < SLICED) {
                bool odd = me.q & 1;
                float* sum = sums[i];
#pragma unroll
                for (int e = 0; e < 4; ++e) sum[e] *= e & 1 ? by.y : by.x;
                word a = __float_as_uint(odd ? sum[2] : sum[0]), b = __float_as_uint(odd ? sum[3] : sum[1]);
                word c = from_partner(__float_as_uint(odd ? sum[0] : sum[2]), 1);
                word d = from_partner(__float_as_uint(odd ? sum[1] : sum[3]), 1);
                deliver(place[i] + (s & 1) * SENT, boxes[i] + 8 * (s & 1), odd ? c : a, odd ? d : b, odd ? a : c, odd ? b : d);
            }
    }
    if (T > 0) receive(T - 1);  // always: a thread block must not exit while others still write to its shared memory
    if (d_first_hidden != nullptr && there) {
        d_first_hidden[start] = held + from_later;
        d_first_cell[start] = d_cell;
        for (int i = 0; i < CARRIED; ++i) d_first_carried[carried_at(me, i, me.row[0], B)] = d_carried[i];
    }
    totals += (offset)me.group * TOTALS * H + me.unit;
#pragma unroll
    for (int block = 0; block < BLOCKS; ++block) leave_total(me, totals, block, d_bias[block]);
    if (SPLIT >= 0) leave_total(me, totals, BLOCKS, d_bias_hn);
    leave_own(me, totals, KINDS, own_weights, d_fixed);
}
