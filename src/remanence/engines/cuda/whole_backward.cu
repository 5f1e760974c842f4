// The backward pass. whole.cuh describes the scheme, ../triton/kernels.py the tensors, backward.cu `totals`. d_pre and d_parts may alias
// pre and parts.

// Blocks after the fourth have their own tiles, in which the four values of q are of four units.
constexpr int MORE = BLOCKS > 4 ? BLOCKS - 4 : 0, NEAR = MORE ? 2 : PAIRS;
constexpr int FULL_TILES = 2 * NEAR, TILES_EACH = FULL_TILES + MORE;  // tiles per sixteen units
constexpr int OTHERS = 8 * NEAR * 64;                // offset of the gradients of blocks after the fourth
constexpr int GROUP = OTHERS + MORE * 256;           // bytes of the gradients of a warp
constexpr int DERIVATIVES = WARPS * GROUP;
constexpr int SIZES = WARPS * 8 * 4;                 // bytes of their scales
constexpr int INPUT_ROW = EIGHTS ? (8 * EIGHTS + 4) * 4 : 0;  // bytes of the inputs of a row
constexpr int D_HIDDEN = BLOCKS_PAGE, CELL = D_HIDDEN + PAGE, AGE = CELL + STATE_PAGE, HN = AGE + CARRIED * STATE_PAGE;
constexpr int GIVEN_INPUTS = HN + (SPLIT >= 0) * PAGE, DT = GIVEN_INPUTS + 8 * INPUT_ROW;
constexpr int INBOX = DT + 32;                       // bytes that a step loads: pre-activations, those pages, inputs and dt
constexpr bool ONES = INPUTS % 8 != 0;               // a padding input is set to 1: its weight gradients are those of the biases
constexpr int KINDS = BLOCKS + (SPLIT >= 0), TOTALS = KINDS + OWN;
constexpr int BOARD = THREADS * 16;                  // bytes of four 32-bit values per thread

// Layout of shared memory: two buffers of gradients as [warp][row][unit][block], after the fourth block [block][row][unit]; two buffers of
// their scales as [warp][row]; gradients of the input matrix (the ledger); with D_INPUTS, that matrix, and two buffers of the warps'
// shares of the input gradients, as [warp][input][row]; inbox; with ASIDE, tiles of the blocks after the fourth.
constexpr int DIVIDED_BY = 2 * DERIVATIVES, LEDGER = DIVIDED_BY + 2 * SIZES, INPUT_MATRIX = LEDGER + EIGHTS * BLOCKS * BOARD;
constexpr int SHARES = INPUT_MATRIX + D_INPUTS * TILES_EACH * BOARD, IN = SHARES + D_INPUTS * 2 * WARPS * 512;
constexpr int LAST_BLOCKS = IN + DEPTH * INBOX;
constexpr int ENTRIES = 64;                          // steps between flushes to the ledger: tensor cores truncate their accumulators
// They also truncate float32 operands to TF32 by dropping thirteen bits, which is on average 0.72 / 2048 of a value.
constexpr float CUT_OFF = 1.0f + 0.72134752f / 2048;

// Offset of the gradients of two units of a row, the first one even, among those of their warp. Rows are swizzled to avoid bank
// conflicts of loads and stores.
__device__ __forceinline__ int place_of(int unit, int row) {
    int pair = NEAR == 2 ? unit / 2 ^ (row >> 1) * 2 ^ (row & 1) * 4 : unit / 2;
    return row * NEAR * 64 + pair * NEAR * 8;
}

// The same for one of the other blocks.
__device__ __forceinline__ int other_place_of(int unit, int row) {
    return OTHERS + ((row >> 1 ^ (row & 1) * 2) + (row & 1) * 4) * 32 + unit * 2;
}

extern "C" __global__ void __launch_bounds__(THREADS, TOGETHER) whole_backward(
    const NUMBER* pre, const float* inputs, const NUMBER* matrix, const BIAS* own_weights, const float* dt,
    const int* lengths, const float* first_cell, const float* first_carried, const float* cells, const float* carried,
    const NUMBER* parts, const NUMBER* d_hidden, const float* d_last_hidden, const float* d_last_cell,
    const float* d_last_carried, NUMBER* d_pre, NUMBER* d_parts, float* d_first_hidden, float* d_first_cell,
    float* d_first_carried, float* totals, float* d_dt, const NUMBER* input_matrix, NUMBER* d_inputs, int N, int T, int B,
    float beta) {
    const Place me = whereabouts(B);
    const int rows = B - me.first_row;

    // The slice of the matrix, transposed: row g is the first of this thread's units, row g + 8 the second; columns are the blocks of
    // all units. The four columns of q in a tile are, with two pairs of blocks, of one unit; with one pair, of two.
    matrix += (offset)me.replica * BLOCKS * H * H + me.unit;
    auto two_at = [&](int unit, int block) { return block < BLOCKS ? two_values(matrix + (block * H + unit) * H) : float2{0, 0}; };
    word largest = 0;
#pragma unroll 4
    for (int unit = me.q; unit < H; unit += 4)
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block) {
            float2 two = two_at(unit, block);
            largest = max(largest, max(magnitude(two.x), magnitude(two.y)));
        }
    const Range range = range_of(largest_of(largest));
    read_again();
    word slice[WARPS][TILES_EACH][4];
#pragma unroll
    for (int k = 0; k < WARPS; ++k)
#pragma unroll
        for (int i = 0; i < TILES_EACH; ++i)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                int unit = 16 * k + (NEAR == 2 ? i / 2 * 8 + 2 * me.q + i % 2 : 4 * me.q + 2 * i + e);
                int block = NEAR == 2 ? 2 * e : 0;
                if (i >= FULL_TILES) unit = 16 * k + 4 * me.q + 2 * e, block = 4 + i - FULL_TILES;
                float2 one = two_at(unit, block), other = i < FULL_TILES ? two_at(unit, block + 1) : two_at(unit + 1, block);
                slice[k][i][2 * e] = as_halves(one.x * range.times, other.x * range.times);
                slice[k][i][2 * e + 1] = as_halves(one.y * range.times, other.y * range.times);
            }
#pragma unroll
    for (int i = 0; ASIDE && i < WARPS * MORE; ++i) {
        const word* tile = slice[i / (MORE + !MORE)][TILES_EACH - MORE + i % (MORE + !MORE)];
        at<uint4>(LAST_BLOCKS + i * BOARD + (int)threadIdx.x * 16) = {tile[0], tile[1], tile[2], tile[3]};
    }

    // The slice of the input matrix, transposed, for the gradients of this warp only: rows are inputs, columns as above.
    auto input_entry = [&](int input, int unit, int block) {
        offset at = (((offset)me.replica * BLOCKS + block) * H + 16 * me.warp + unit) * INPUTS + input;
        return input < INPUTS && block < BLOCKS ? value_of(input_matrix[at]) : 0.0f;
    };
    float input_size = 0.0f;
    if (D_INPUTS) {
        largest = 0;
        for (int i = threadIdx.x % 32; i < 16 * BLOCKS * INPUTS; i += 32)
            largest = max(largest, magnitude(input_entry(i / (16 * BLOCKS), i / BLOCKS % 16, i % BLOCKS)));
        const Range range = range_of(largest_of(largest));
        input_size = range.size;
        for (int i = 0; i < TILES_EACH; ++i) {
            word tile[4];
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                int unit = NEAR == 2 ? i / 2 * 8 + 2 * me.q + i % 2 : 4 * me.q + 2 * i + e / 2, block = NEAR == 2 ? e / 2 * 2 : 0;
                int input = me.g + e % 2 * 8;
                if (MORE && i >= FULL_TILES) {
                    unit = 4 * me.q + e / 2 * 2, block = 4 + i - FULL_TILES;
                    tile[e] = as_halves(input_entry(input, unit, block) * range.times, input_entry(input, unit + 1, block) * range.times);
                    continue;
                }
                tile[e] = as_halves(input_entry(input, unit, block) * range.times, input_entry(input, unit, block + 1) * range.times);
            }
            at<uint4>(INPUT_MATRIX + i * BOARD + (int)threadIdx.x * 16) = {tile[0], tile[1], tile[2], tile[3]};
        }
    }

    const offset start = (offset)me.replica * B * H;
    const offset first = ((offset)me.replica * T + (REVERSE ? 0 : T - 1)) * B + me.first_row, stride = REVERSE ? B : -B;
    Fixed fixed[2];  // per unit
    float held[2][2], d_cell[2][2], d_carried[2][2][CARRIED + !CARRIED], after[2][2];  // per row and unit
    float d_bias[2][PLACES] = {}, d_bias_hn[2] = {}, d_fixed[2][FIXED + !FIXED] = {}, d_input_slice[EIGHTS + !EIGHTS][BLOCKS][4] = {};
    int length[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int u = 0; u < 2; ++u) {
            offset here = start + (offset)me.row[j] * H + me.unit + u;
            fixed[u] = fixed_of(own_of(own_weights, me.replica, me.unit + u));
            held[j][u] = entry(d_last_hidden, here, me.there[j]);
            d_cell[j][u] = entry(d_last_cell, here, me.there[j]);
            for (int i = 0; i < CARRIED; ++i) d_carried[j][u][i] = entry(d_last_carried, carried_at(me, i, j, B) + u, me.there[j]);
            after[j][u] = entry(cells, (first + 2 * me.q + j) * H + me.unit + u, me.there[j]);
        }
        length[j] = HAS_LENGTHS && me.there[j] ? lengths[(offset)me.replica * B + me.row[j]] : 0;
    }

    Single input[SINGLES + !SINGLES], time = dt_of(dt, first - stride, rows);
#pragma unroll
    for (int i = 0; i < SINGLES; ++i) {
        input[i] = input_of<INPUT_ROW / 4>(i, inputs, first - stride, rows);
        input[i].place = pinned(input[i].place);
    }
    const word inbox = shared_address(shared) + IN;
    auto fetch_step = [&](int s) {  // in order: addresses advance by one step per call
        if (s < T) {
            const int place = s % DEPTH * INBOX;
            const word stage = inbox + place;
            const word here = (word)first + (word)s * (word)stride;
            // Cell and age are those before the step; in the last iteration, those of the initial state.
            auto fetch_state = [&](int page, const float* states, const float* first_state, int number, int i) {  // the i-th of `number`
                const bool last = s == T - 1;
                const float* state = last ? first_state : states;
                const word before = (last ? me.replica * B : here + (word)stride - me.first_row) * number + i * B;
                const word row = before + me.first_row;
                Page<H, float>::fetch(stage + page, state, row, state == nullptr ? 0 : rows);
                if (state == nullptr)
#pragma unroll
                    for (int i = 0; i < Page<H, float>::FOURS; ++i)
                        if (Page<H, float>::row_of(i) < 8) at<float4>(IN + place + page + Page<H, float>::place_of(i)) = {0, 0, 0, 0};
            };
            Page<BLOCKS * H, NUMBER>::fetch(stage, pre, here, rows);
            Page<H, NUMBER>::fetch(stage + D_HIDDEN, d_hidden, here, d_hidden == nullptr ? 0 : rows);
            fetch_state(CELL, cells, first_cell, 1, 0);
#pragma unroll
            for (int i = 0; i < CARRIED; ++i) fetch_state(AGE + i * STATE_PAGE, carried, first_carried, CARRIED, i);
            if (SPLIT >= 0) Page<H, NUMBER>::fetch(stage + HN, parts, here, rows);
#pragma unroll
            for (int i = 0; i < SINGLES; ++i) go_on_and_fetch(input[i], stage + GIVEN_INPUTS, stride * INPUTS);
            if (HAS_DT) go_on_and_fetch(time, stage + DT, stride);
        }
        end_of_fetches();
    };
    // Global addresses of the gradients of this thread's units, in two rows.
    NUMBER *to = d_pre + (first + 2 * me.q) * BLOCKS * H + me.unit, *parts_to = d_parts + (first + 2 * me.q) * H + me.unit;
    for (int i = threadIdx.x; i < DEPTH * INBOX / 4; i += THREADS) at<float>(IN + 4 * i) = 0.0f;  // for elements that are never fetched
    for (int i = threadIdx.x; i < EIGHTS * BLOCKS * THREADS; i += THREADS) at<float4>(LEDGER + 16 * i) = {0, 0, 0, 0};
    __syncthreads();
    for (int i = threadIdx.x; ONES && i < DEPTH * 8; i += THREADS)
        at<float>(IN + i / 8 * INBOX + GIVEN_INPUTS + i % 8 * INPUT_ROW + INPUTS * 4) = 1.0f;
    for (int s = 0; s < DEPTH; ++s) fetch_step(s);
    wait_for_fetches<DEPTH - 1>();
    __syncthreads();

    // Offsets in the pages of the inbox.
    const int wide_mine = pinned(2 * me.q * BLOCKS_PITCH + me.unit * SIZE), mine = pinned(2 * me.q * PITCH + me.unit * SIZE);
    const int state_mine = pinned(2 * me.q * STATE_PITCH + me.unit * 4);
    CellSlopes slopes[2][2];
    float d_h[2][2];
    auto prepare = [&](int s) {  // everything that does not depend on the gradients of later steps
        const int stage = IN + s % DEPTH * INBOX;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            auto given = [&](int page) { return two_values(&at<NUMBER>(stage + mine + page + j * PITCH)); };
            auto before = [&](int page) { return at<float2>(stage + state_mine + page + j * STATE_PITCH); };
            float z[2][PLACES] = {};
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block) {
                float2 two = two_values(&at<NUMBER>(stage + wide_mine + j * BLOCKS_PITCH + block * ROW));
                z[0][block] = two.x, z[1][block] = two.y;
            }
            float2 d = given(D_HIDDEN), cell = before(CELL), hn = {0, 0};
            float ages[2][CARRIED + !CARRIED] = {};
#pragma unroll
            for (int i = 0; i < CARRIED; ++i) {
                float2 two = before(AGE + i * STATE_PAGE);
                ages[0][i] = two.x, ages[1][i] = two.y;
            }
            if (SPLIT >= 0) hn = given(HN);
            float step = HAS_DT ? at<float>(stage + DT + (2 * me.q + j) * 4) : 1.0f;
            d_h[j][0] = d.x, d_h[j][1] = d.y;
            if (HAS_LENGTHS || s == 0) d_h[j][0] += held[j][0], d_h[j][1] += held[j][1];
            slopes[j][0] = CELL_SLOPES(z[0], hn.x, state_before(cell.x, ages[0]), after[j][0], fixed[0].values, step, beta);
            slopes[j][1] = CELL_SLOPES(z[1], hn.y, state_before(cell.y, ages[1]), after[j][1], fixed[1].values, step, beta);
            after[j][0] = cell.x, after[j][1] = cell.y;
        }
    };

    auto enter = [&] {  // adds the accumulators to the ledger and clears them
#pragma unroll
        for (int k = 0; k < EIGHTS; ++k)
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block) {
                float4& total = at<float4>(LEDGER + (k * BLOCKS + block) * BOARD + (int)threadIdx.x * 16);
                float* sum = d_input_slice[k][block];
                total = {total.x + sum[0], total.y + sum[1], total.z + sum[2], total.w + sum[3]};
                sum[0] = sum[1] = sum[2] = sum[3] = 0.0f;
            }
    };
    // Offsets of the gradients that this thread writes (in two rows), of those that it multiplies, and of their scales.
    int to_one = pinned(me.warp * GROUP + place_of(2 * me.g, 2 * me.q)), to_other = pinned(me.warp * GROUP + place_of(2 * me.g, 2 * me.q + 1));
    int from_one = pinned(place_of(NEAR == 2 ? 2 * me.q : 4 * me.q, me.g)), from_other = pinned(place_of(8 + 2 * me.q, me.g));
    int to_more = pinned(MORE ? me.warp * GROUP + other_place_of(2 * me.g, 2 * me.q) : 0), from_more = pinned(MORE ? other_place_of(4 * me.q, me.g) : 0);
    const int next_row = other_place_of(0, 2 * me.q + 1) - other_place_of(0, 2 * me.q);
    int size_at = pinned(DIVIDED_BY + me.q * 8), turn = 1;
    int share = pinned(SHARES + me.warp * 512 + me.g * 32 + me.q * 8);
    NUMBER* inputs_to = d_inputs + first * INPUTS;
    auto multiply_inputs = [&] {  // stores this warp's share of the input gradients
        float product[4] = {};
        auto times = [&](int i, uint2 derivatives) {
            uint4 tile = at<uint4>(INPUT_MATRIX + i * BOARD + (int)threadIdx.x * 16);
            const word four[4] = {tile.x, tile.y, tile.z, tile.w};
            multiply(product, four, derivatives);
        };
        uint4 one = at<uint4>(from_one + me.warp * GROUP);
        times(0, {one.x, one.y}), times(1, {one.z, one.w});
        if (NEAR == 2) {
            uint4 other = at<uint4>(from_other + me.warp * GROUP);
            times(2 * NEAR - 2, {other.x, other.y}), times(2 * NEAR - 1, {other.z, other.w});
        }
#pragma unroll
        for (int block = 0; block < MORE; ++block) times(FULL_TILES + block, at<uint2>(from_more + me.warp * GROUP + block * 256));
        float2 by = at<float2>(size_at + me.warp * 32);
        by = {by.x * input_size, by.y * input_size};
        at<float2>(share) = {product[0] * by.x, product[1] * by.y};
        at<float2>(share + 256) = {product[2] * by.x, product[3] * by.y};
    };
    auto leave_inputs = [&](int shares) {  // sums the shares; steps in order
#pragma unroll
        for (int i = threadIdx.x, more = 0; more < 128; i += THREADS, more += THREADS) {
            if (i >= 128) break;
            float sum = 0.0f;
#pragma unroll
            for (int k = 0; k < WARPS; ++k) sum += at<float>(shares + k * 512 + i * 4);
            if (i / 8 < INPUTS && i % 8 < rows) store(inputs_to + i % 8 * INPUTS + i / 8, sum);
        }
        inputs_to += stride * INPUTS;
    };
    float from_later[2][2] = {};
    const int x_at = pinned(IN + GIVEN_INPUTS + 2 * me.q * INPUT_ROW + me.g * 4);
    prepare(0);
    for (int s = 0; s < T; ++s) {
        word x[EIGHTS + !EIGHTS][2];  // inputs of both rows, loaded here so as not to wait for the stores below
#pragma unroll
        for (int i = 0; i < 2 * EIGHTS; ++i)
            x[i / 2][i % 2] = as_tf32(at<float>(x_at + s % DEPTH * INBOX + i % 2 * INPUT_ROW + i / 2 * 32));
        CellBack back[2][2];
        float factor[2][2][PLACES];
        float most[2] = {0, 0};
#pragma unroll
        for (int j = 0; j < 2; ++j)
#pragma unroll
            for (int u = 0; u < 2; ++u) {
                d_h[j][u] += from_later[j][u];
                CellBack& b = back[j][u];
                b = CELL_BACKWARD(slopes[j][u], d_h[j][u], d_cell[j][u], d_carried[j][u]);
                held[j][u] = 0.0f;
                if (HAS_LENGTHS && (REVERSE ? s : T - 1 - s) >= length[j]) {
                    b = handed_on(d_cell[j][u], d_carried[j][u]);
                    held[j][u] = d_h[j][u];
                }
                d_cell[j][u] = b.cell;
#pragma unroll
                for (int i = 0; i < CARRIED; ++i) d_carried[j][u][i] = b.carried[i];
#pragma unroll
                for (int block = 0; block < PLACES; ++block) {
                    factor[j][u][block] = block == SPLIT ? b.hn : b.z[block];
                    most[j] = fmaxf(most[j], fabsf(factor[j][u][block]));
                }
            }
        // Convert to float16, scaled by the largest magnitude of the warp's units in a row; its upper 16 bits suffice, for both rows in
        // one word.
        word largest_two = upper_halves(magnitude(most[0]), magnitude(most[1]));
#pragma unroll
        for (int bits = 4; bits < 32; bits *= 2) largest_two = larger_halves(largest_two, from_partner(largest_two, bits));
        Range ranges[2] = {range_of(largest_two << 16), range_of(largest_two)};
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            word halves[2][2];
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const float* f = factor[j][e >> 1] + 2 * (e & 1);
                halves[e >> 1][e & 1] = as_halves(f[0] * ranges[j].times, f[1] * ranges[j].times);
            }
            const int there = j ? to_other : to_one;
            if (NEAR == 2) at<uint4>(there) = {halves[0][0], halves[0][1], halves[1][0], halves[1][1]};
            else at<uint2>(there) = {halves[0][0], halves[1][0]};
#pragma unroll
            for (int block = 0; block < MORE; ++block)
                at<word>(to_more + j * next_row + block * 256) =
                    as_halves(factor[j][0][PLACES - MORE + block] * ranges[j].times, factor[j][1][PLACES - MORE + block] * ranges[j].times);
        }
        if (me.g == 0) at<float2>(size_at + me.warp * 32) = {ranges[0].size, ranges[1].size};
        __syncwarp();  // keeps the compiler from moving the work below ahead of the stores above
#pragma unroll
        for (int j = 0; j < 2; ++j) {
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block) {
                if (me.there[j]) store_two(to + (j * BLOCKS + block) * H, back[j][0].z[block], back[j][1].z[block]);
                if (!ONES) d_bias[0][block] += back[j][0].z[block], d_bias[1][block] += back[j][1].z[block];
            }
            if (SPLIT >= 0 && me.there[j]) store_two(parts_to + j * H, back[j][0].hn, back[j][1].hn);
#pragma unroll
            for (int u = 0; u < 2; ++u) {
                d_bias_hn[u] += back[j][u].hn;
#pragma unroll
                for (int i = 0; i < FIXED; ++i) d_fixed[u][i] += back[j][u].fixed[i];
            }
        }
        // The gradient of the input matrix: the tensor cores reduce over the rows. (Here as above, gradients of missing rows are zero.)
#pragma unroll
        for (int k = 0; k < EIGHTS; ++k) {
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block) {
                auto factor = [&](int j, int u) { return __float_as_uint(back[j][u].z[block]); };
                multiply_tf32(d_input_slice[k][block], factor(0, 0), factor(0, 1), factor(1, 0), factor(1, 1), x[k][0], x[k][1]);
            }
        }
        if (s % ENTRIES == ENTRIES - 1) enter();
        if (HAS_DT && d_dt != nullptr)
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                float d = back[j][0].dt + back[j][1].dt;
#pragma unroll
                for (int bits = 4; bits < 32; bits *= 2) d += from_partner(d, bits);
                if (me.g == 0 && me.there[j])
                    d_dt[(offset)me.warp * N * T * B + first + s * stride + 2 * me.q + j] = d;
            }
        wait_for_fetches<DEPTH - 2>();
        __syncthreads();
        fetch_step(s + DEPTH);
        if (D_INPUTS && s > 0) leave_inputs(SHARES + (s - 1) % 2 * WARPS * 512);

        float sums[4] = {};
#pragma unroll
        for (int k = 0; k < WARPS; ++k) {
            float2 by = at<float2>(size_at + k * 32);
            uint4 one = at<uint4>(from_one + k * GROUP);
            float product[4] = {};
            multiply(product, slice[k][0], {one.x, one.y});
            multiply(product, slice[k][1], {one.z, one.w});
            if (NEAR == 2) {
                uint4 other = at<uint4>(from_other + k * GROUP);
                multiply(product, slice[k][2 * NEAR - 2], {other.x, other.y});
                multiply(product, slice[k][2 * NEAR - 1], {other.z, other.w});
            }
#pragma unroll
            for (int block = 0; block < MORE; ++block) {
                uint4 four = {};
                if (ASIDE) four = at<uint4>(LAST_BLOCKS + (k * MORE + block) * BOARD + (int)threadIdx.x * 16);
                const word there[4] = {four.x, four.y, four.z, four.w};
                multiply(product, ASIDE ? there : slice[k][TILES_EACH - MORE + block], at<uint2>(from_more + k * GROUP + block * 256));
            }
            sums[0] = fmaf(product[0], by.x, sums[0]), sums[1] = fmaf(product[1], by.y, sums[1]);
            sums[2] = fmaf(product[2], by.x, sums[2]), sums[3] = fmaf(product[3], by.y, sums[3]);
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) from_later[e & 1][e >> 1] = sums[e] * range.size;
        to += stride * (BLOCKS * H), parts_to += stride * H;
        prepare(s + 1);  // after the last step, of stale data that is not used
        if (D_INPUTS) multiply_inputs();
        to_one += turn * DERIVATIVES, to_other += turn * DERIVATIVES, from_one += turn * DERIVATIVES, from_other += turn * DERIVATIVES;
        if (MORE) to_more += turn * DERIVATIVES, from_more += turn * DERIVATIVES;
        size_at += turn * SIZES, share += turn * WARPS * 512, turn = -turn;
    }
    if (D_INPUTS) {
        __syncthreads();
        leave_inputs(SHARES + (T - 1) % 2 * WARPS * 512);
    }
    enter();
    totals += (offset)me.group * (TOTALS + BLOCKS * INPUTS) * H + me.unit;
    auto leave_total = [&](int kind, int u, float total) {
        total += from_partner(total, 1);
        total += from_partner(total, 2);
        if (me.q == 0) totals[kind * H + u] = total;
    };
#pragma unroll
    for (int u = 0; u < 2; ++u) {
#pragma unroll
        for (int j = 0; j < 2; ++j)
            if (d_first_hidden != nullptr && me.there[j]) {
                offset here = start + (offset)me.row[j] * H + me.unit + u;
                d_first_hidden[here] = held[j][u] + from_later[j][u];
                d_first_cell[here] = d_cell[j][u];
                for (int i = 0; i < CARRIED; ++i) d_first_carried[carried_at(me, i, j, B) + u] = d_carried[j][u][i];
            }
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block)
            if (!ONES) leave_total(block, u, d_bias[u][block]);
        if (SPLIT >= 0) leave_total(BLOCKS, u, d_bias_hn[u]);
        Own d_own = {};
        if (OWN) gate_own(own_of(own_weights, me.replica, me.unit + u).weights, d_fixed[u], d_own.weights);
#pragma unroll
        for (int i = 0; i < OWN; ++i) leave_total(KINDS + i, u, d_own.weights[i]);
#pragma unroll
        for (int k = 0; k < EIGHTS; ++k)
#pragma unroll
            for (int e = 0; e < 2 * BLOCKS; ++e) {
                int block = e / 2, input = 8 * k + 2 * me.q + (e & 1);
                float total = CUT_OFF * at<float>(LEDGER + (k * BLOCKS + block) * BOARD + (int)threadIdx.x * 16 + (2 * u + (e & 1)) * 4);
                if (ONES && input == INPUTS) totals[block * H + u] = total;
                if (input < INPUTS)
                    totals[(offset)(TOTALS + block * INPUTS) * H + (offset)(me.unit + u) * (INPUTS - 1) + u + input] = total;
            }
    }
}
