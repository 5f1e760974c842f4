// The forward pass of a wide layer. wide.cuh describes the scheme, ../triton/kernels.py the tensors.

constexpr int SENT = CHUNKS * 64 * TILES;            // bytes of h_t
constexpr int CHAINS = TILES == 1 ? 4 : 2;           // independent accumulators, to hide the latency of mma
using Tiles = Order<SLICED, 1, true>;

extern "C" __global__ void __launch_bounds__(THREADS, 1) wide_forward(
    NUMBER* pre, const float* inputs, const NUMBER* input_matrix, const NUMBER* matrix, const BIAS* bias_ih, const BIAS* bias_hh,
    const BIAS* own_weights, const float* dt, const int* lengths, const float* first_hidden, const float* first_cell,
    const float* first_carried, NUMBER* hidden, float* cells, float* carried, NUMBER* parts, float* last_hidden,
    float* last_cell, float* last_carried, uint4* overflow, int T, int B, float beta) {
    // Shared memory: two mbarriers, two buffers of h_t as [tile][chunk][row][unit], the shelf.
    unsigned char* hiddens = shared + 128;
    unsigned char* shelf = hiddens + 2 * SENT;
    const Place me = whereabouts(B);
    const word box = two_letterboxes(SENT);

    // The slice of the matrix: row g is block g / 4 of unit g % 4 of this warp, row g + 8 is two blocks further.
    matrix += (offset)me.replica * BLOCKS * H * H;
    auto four_at = [&](int half, int k) {
        int block = (me.g >> 2) + 2 * half;
        bool there = block < BLOCKS && me.unit_there;
        return there ? four_in_row(matrix + ((offset)block * H + me.unit) * H, 16 * k + 4 * me.q) : float4{0, 0, 0, 0};
    };
    // The other blocks: column g is of unit g / 2 and has one half of every four columns.
    auto two_at = [&](int block, int k) {
        int unit = me.rank * UNITS + me.warp * 4 + (me.g >> 1);
        return unit < H ? two_in_row(matrix + ((offset)(4 + block) * H + unit) * H, 16 * k + 4 * me.q + 2 * (me.g & 1)) : float2{0, 0};
    };
    word largest = 0;
    for (int block = 0; block < MORE; ++block)
#pragma unroll 4
        for (int k = 0; k < SLICED; ++k) {
            float2 two = two_at(block, k);
            largest = max(largest, max(magnitude(two.x), magnitude(two.y)));
        }
#pragma unroll 4
    for (int k = 0; k < SLICED; ++k) largest = max(largest, max(largest_of_four(four_at(0, k)), largest_of_four(four_at(1, k))));
    const Range range = range_of(largest_of(largest));
    Stock<Tiles::ALL> stock(shelf, overflow, me);
#pragma unroll
    for (int k = 0; k < SLICED; ++k) {
        float4 one = four_at(0, k), other = four_at(1, k);
        auto two = [&](float x, float y) { return as_halves(x * range.times, y * range.times); };
        stock.keep(Tiles::of(k), {two(one.x, one.y), two(other.x, other.y), two(one.z, one.w), two(other.z, other.w)});
        if constexpr (MORE > 0)
            if (Tiles::is_last(k))
#pragma unroll
                for (int block = 0; block < MORE; ++block) {
                    word words[4];
#pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        float2 entries = two_at(block, k / 4 * 4 + e);
                        words[e] = two(entries.x, entries.y);
                    }
                    stock.keep(Tiles::more(k, block), {words[0], words[1], words[2], words[3]});
                }
    }

    const Bias bias = bias_of(bias_ih, bias_hh, me);
    const Fixed fixed = fixed_of(own_of(own_weights, me.replica, me.unit));
    State state[TILES];
    int length[TILES];
    take_states(state, length, first_hidden, first_cell, first_carried, lengths, me, B);
    fill_with_first(hiddens, first_hidden, me, B);

    // `here` is the row of this thread's current step in all tensors (T B rows per replica); `given` holds the pre-activations of the
    // inputs for the next step.
    word here = (me.replica * T + (REVERSE ? T - 1 : 0)) * B + me.row[0];
    const int stride = REVERSE ? -B : B;
    auto pre_at = [&](word row, int j, int block) { return (offset)row * PRE_ROW + me.unit + (j * 8 * PRE_ROW + block * H); };
    float given[TILES][BLOCKS], time[TILES];
    auto read_step = [&](word row) {
#pragma unroll
        for (int j = 0; j < TILES; ++j) {
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block)
                given[j][block] = me.there[j] ? value_of(pre[pre_at(row, j, block)]) : 0.0f;
            time[j] = HAS_DT && me.row[j] < B ? dt[row + 8 * j] : 1.0f;
        }
    };
    if (T > 0) read_step(here);

    // Destinations of this thread: the lanes of one g send the 64 bytes of their warp and tile to thread blocks g and g + 8.
    const word own = shared_address(hiddens) + (me.rank * WARPS + me.warp) * 64 + turned(2 * me.q, me.rank * WARPS + me.warp) * 8;
    word place[(CLUSTER + 7) / 8], boxes[(CLUSTER + 7) / 8];
#pragma unroll
    for (int i = 0; i < (CLUSTER + 7) / 8; ++i) {
        word rank = me.g + 8 * i < CLUSTER ? me.g + 8 * i : 0;
        place[i] = address_in(rank, own), boxes[i] = address_in(rank, box);
    }
    __syncthreads();
    meet();

    const bool upper = me.g >= 4;
    for (int s = 0; s < T; ++s, here += stride) {
        float z[TILES][PLACES] = {}, hn[TILES], step[TILES];
#pragma unroll
        for (int j = 0; j < TILES; ++j) {
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block) z[j][block] = given[j][block] + bias.of[block];
            step[j] = time[j];
        }
        if (s < T - 1) read_step(here + stride);
        stock.read_ahead();
        if (s > 0) {
            wait_for(box + 8 * (s & 1), ((s - 1) >> 1) & 1);
            if (threadIdx.x == 0) expect(box + 8 * (s & 1), SENT);
        }
        float sums[TILES][CHAINS][4] = {}, more_sums[TILES][MORE + !MORE][CHAINS / 2][4] = {};
        Tile more[MORE + !MORE];  // tiles of the other blocks, for two pairs of tiles
        const uint2* factor = (const uint2*)(hiddens + (s & 1) * SENT) + me.q * 8 + turned(me.g, me.q);
#pragma unroll
        for (int k = 0; MORE && k < SLICED; k += 2) {
#pragma unroll
            for (int block = 0; block < MORE; ++block)
                if (k % 4 == 0) more[block] = stock.tile(Tiles::more(k, block));
            const bool two = k + 1 < SLICED;
            const Tile one = stock.tile(Tiles::of(k)), other = two ? stock.tile(Tiles::of(two ? k + 1 : k)) : one;
#pragma unroll
            for (int j = 0; j < TILES; ++j) {
                const uint2 h = factor[(j * CHUNKS + 4 * k) * 8], next = two ? factor[(j * CHUNKS + 4 * (k + 1)) * 8] : uint2{0, 0};
                const word both[4] = {h.x, h.y, next.x, next.y};
                multiply(sums[j][k % CHAINS], one.of, h);
                if (two) multiply(sums[j][(k + 1) % CHAINS], other.of, next);
#pragma unroll
                for (int block = 0; block < MORE; ++block)
                    multiply(more_sums[j][block][k / 2 % (CHAINS / 2)], both, {more[block].of[k % 4], more[block].of[k % 4 + 1]});
            }
        }
#pragma unroll
        for (int k = 0; !MORE && k < SLICED; ++k)
#pragma unroll
            for (int j = 0; j < TILES; ++j) stock.times(sums[j][k % CHAINS], k, factor[(j * CHUNKS + 4 * k) * 8]);

#pragma unroll
        for (int j = 0; j < TILES; ++j) {
            float* sum = sums[j][0];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (CHAINS == 4) sum[i] += sums[j][CHAINS - 2][i] + sums[j][CHAINS - 1][i];
                sum[i] = (sum[i] + sums[j][1][i]) * range.size;
            }
            float product[4];
            share_out(sum, upper, product);
            hn[j] = 0.0f;
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block)
                if (block < 4) {
                    if (block == SPLIT) hn[j] = bias.apart + product[block % 4]; else z[j][block] += product[block % 4];
                }
#pragma unroll
            for (int block = 0; block < MORE; ++block) {
                const float *one = more_sums[j][block][0], *other = more_sums[j][block][CHAINS / 2 - 1];
                z[j][4 + block] += handed_over((CHAINS == 4 ? one[0] + one[3] + (other[0] + other[3]) : one[0] + one[3]) * range.size, me);
            }
            State next = CELL_FORWARD(z[j], hn[j], state[j], fixed.values, step[j], beta);
            if (!HAS_LENGTHS || (REVERSE ? T - 1 - s : s) < length[j]) state[j] = next;
        }

        if (s < T - 1)
#pragma unroll
            for (int j = 0; j < TILES; ++j) {  // sixteen bytes: the four units of the warp in two rows
                const uint4 sent = gathered(as_halves(clamped_to_half(state[j].hidden), 0.0f), me);
                word shift = ((s + 1) & 1) * SENT + j * CHUNKS * 64;
#pragma unroll
                for (int i = 0; i < (CLUSTER + 7) / 8; ++i)
                    if (me.g + 8 * i < CLUSTER)
                        deliver(place[i] + shift, boxes[i] + 8 * ((s + 1) & 1), sent.x, sent.y, sent.z, sent.w);
            }

#pragma unroll
        for (int j = 0; j < TILES; ++j)
            if (me.there[j]) {
                const offset at = (offset)here * H + me.unit + j * 8 * H;
                if (SAVE) {
#pragma unroll
                    for (int block = 0; block < BLOCKS; ++block) store(pre + pre_at(here, j, block), to_keep(z[j][block]));
                    cells[at] = state[j].cell;
#pragma unroll
                    for (int i = 0; i < CARRIED; ++i)
                        carried[((offset)(here - me.row[0]) * CARRIED + (offset)i * B + me.row[j]) * H + me.unit] = state[j].carried[i];
                    if (SPLIT >= 0) store(parts + at, to_keep(hn[j]));
                }
                store(hidden + at, state[j].hidden);
            }
    }
    leave_states(state, last_hidden, last_cell, last_carried, me, B);
}
