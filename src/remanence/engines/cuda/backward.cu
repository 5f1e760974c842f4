// The backward pass. kernels.cuh describes the scheme, ../triton/kernels.py the tensors. `totals` are sums over the steps and rows of a
// group, [group][kind][unit]: gradients of the biases of all blocks, of that of hn, and of the gate's own weights; then, as
// [block][unit][input], of the input matrix if inputs are narrow. d_pre and d_parts may alias pre and parts.

constexpr int PRODUCTS = (CLUSTER + 3) / 4;                     // tiles of sixteen units of h that a warp computes
constexpr int SENT = CLUSTER * TILES * UNITS * 8 * 4;           // bytes of the shares that a thread block receives
constexpr int OTHERS = TILES * UNITS * 8;                       // offset of the other blocks' gradients, in units of four float16
constexpr int PART = (8 + 2 * MORE) * OTHERS;                   // bytes of the thread block's gradients, or of their residuals
constexpr int DERIVATIVES = PARTS * PART;
constexpr int SIZES = TILES * WARPS * 8 * 4;                    // bytes of their scales
constexpr int D_HIDDEN = BLOCKS, CELL = BLOCKS + 1, HN = CELL + CARRIED + (SPLIT >= 0);  // carried values come after the cell

__device__ __forceinline__ bool of_state(int kind) { return kind >= CELL && kind <= CELL + CARRIED; }

constexpr int ROW = EIGHTS ? 8 * EIGHTS + 4 : 0;                // row stride of the inputs in the inbox
constexpr int GIVEN_INPUTS = (HN + 1) * PAGE, DT = GIVEN_INPUTS + TILES * 8 * ROW;
constexpr int INBOX = DT + TILES * 8;                           // elements that a step loads; inputs and dt come last
constexpr int KINDS = BLOCKS + (SPLIT >= 0);
constexpr int TOTALS = KINDS + OWN;
constexpr int OUTBOX = KINDS * PAGE;                            // elements that a step stores: gradients
constexpr int GIVEN = ((HN + 1) * FOURS + THREADS - 1) / THREADS, LEFT = (KINDS * FOURS + THREADS - 1) / THREADS;

// Gradients are float16 in a scale of each warp and row. With ONE_SCALE they are rescaled to the largest of the thread block when they
// are read, and their products add up in the accumulators; that pays off if every one is used in many products. Otherwise the products
// are scaled, and only other blocks, whose tiles have the units of four warps, are rescaled to the largest of these.
constexpr bool ONE_SCALE = PRODUCTS > 2;

__device__ __forceinline__ int size_at(int tile, int warp, int row) { return ONE_SCALE ? (tile * 8 + row) * WARPS + warp : (tile * WARPS + warp) * 8 + row; }

// Gradients of four units of a row, with residuals if full float32 needs them.
struct Halves { uint2 coarse, fine; };

__device__ __forceinline__ Halves halves_at(const uint2* place) { return {place[0], PARTS == 2 ? place[PART / 8] : uint2{}}; }

__device__ __forceinline__ Halves operator*(Halves d, word by) { return {times_halves(d.coarse, by), PARTS == 2 ? times_halves(d.fine, by) : uint2{}}; }

// Adds the product of a tile of the matrix, with residuals in `fine`; `by` are the scales of its two columns unless ONE_SCALE.
__device__ __forceinline__ void accumulate(float* sums, const word* coarse, const word* fine, Halves d, float2 by) {
    float own[4] = {}, rest[4] = {}, *product = ONE_SCALE ? sums : own;
    multiply(product, coarse, d.coarse);
    if (PARTS == 2) multiply(rest, coarse, d.fine), multiply(rest, fine, d.coarse);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
        if (PARTS == 2) product[e] = fmaf(rest[e], 1.0f / FINER, product[e]);
        if (!ONE_SCALE) sums[e] = fmaf(product[e], e & 1 ? by.y : by.x, sums[e]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, TOGETHER) backward(
    const NUMBER* pre, const float* inputs, const NUMBER* matrix, const BIAS* own_weights, const float* dt,
    const int* lengths, const float* first_cell, const float* first_carried, const float* cells, const float* carried,
    const NUMBER* parts, const NUMBER* d_hidden, const float* d_last_hidden, const float* d_last_cell,
    const float* d_last_carried, NUMBER* d_pre, NUMBER* d_parts, float* d_first_hidden, float* d_first_cell,
    float* d_first_carried, float* totals, float* d_dt, int N, int T, int B, float beta) {
    // Shared memory: two mbarriers; the shelf; two buffers each of shares as [thread block][tile][unit][row], gradients as
    // [part][tile][unit][row][block] and of other blocks as [block][tile][warp][row][unit], and their scales, see `size_at`;
    // inbox and outbox.
    unsigned char* shelf = shared + 128;
    unsigned char* shares = shelf + SHELF;
    unsigned char* derivatives = shares + 2 * SENT;
    unsigned char* sizes = derivatives + 2 * DERIVATIVES;
    float* inbox = (float*)(sizes + 2 * SIZES);
    float* outbox = inbox + DEPTH * INBOX;
    const Place me = whereabouts(B);
    const word box = two_letterboxes(SENT);

    // The slice of the matrix, transposed: rows are all units, columns the blocks of this thread block's units.
    matrix += (offset)me.replica * BLOCKS * H * H;
    auto entry_at = [&](int i, int k, int half, int block) {
        int row = 16 * (me.warp + WARPS * i) + me.g + 8 * half, unit = me.rank * UNITS + 4 * k + me.q;
        bool there = block < BLOCKS && row < H && unit < H;
        return there ? value_of(matrix[((offset)block * H + unit) * H + row]) : 0.0f;
    };
    word largest = 0;
    for (int i = 0; i < PRODUCTS; ++i)
        for (int k = 0; k < WARPS; ++k)
#pragma unroll
            for (int e = 0; e < 8; ++e) largest = max(largest, magnitude(entry_at(i, k, e & 1, e >> 1)));
    // The other blocks: a tile has the units of four warps, and lanes of q have those of one warp.
    auto more_at = [&](int i, int k, int half, int block, int u) {
        int row = 16 * (me.warp + WARPS * i) + me.g + 8 * half, unit = me.rank * UNITS + 16 * k + 4 * me.q + u;
        return row < H && unit < H ? value_of(matrix[((offset)(4 + block) * H + unit) * H + row]) : 0.0f;
    };
    for (int i = 0; i < PRODUCTS * MORE; ++i)
        for (int k = 0; k < QUARTERS; ++k)
#pragma unroll
            for (int e = 0; e < 8; ++e) largest = max(largest, magnitude(more_at(i / (MORE + !MORE), k, e & 1, i % (MORE + !MORE), e >> 1)));
    const Range range = range_of(largest_of(largest));
    word slice[IN_HAND][PRODUCTS][WARPS][4];
#pragma unroll
    for (int i = 0; i < PRODUCTS; ++i)
#pragma unroll
        for (int k = 0; k < WARPS; ++k) {
            word fine[4];
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int pair = 0; pair < 2; ++pair) {
                    float low = entry_at(i, k, half, 2 * pair) * range.times;
                    float high = entry_at(i, k, half, 2 * pair + 1) * range.times;
                    slice[0][i][k][half + 2 * pair] = as_halves(low, high);
                    fine[half + 2 * pair] = as_halves(finer(low), finer(high));
                    if (IN_HAND == 2) slice[IN_HAND - 1][i][k][half + 2 * pair] = fine[half + 2 * pair];
                }
            if (ON_SHELF) *on_shelf(shelf, i * WARPS + k) = {fine[0], fine[1], fine[2], fine[3]};
        }
    word more[IN_HAND][PRODUCTS][MORE + !MORE][QUARTERS][4];
    auto more_on_shelf = [&](int i, int block, int k) { return on_shelf(shelf, ON_SHELF * PRODUCTS * WARPS + (i * MORE + block) * QUARTERS + k); };
#pragma unroll
    for (int at = 0; at < PRODUCTS * MORE * QUARTERS; ++at) {
        const int i = at / (MORE * QUARTERS + !MORE), block = at / QUARTERS % (MORE + !MORE), k = at % QUARTERS;
        word fine[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            float low = more_at(i, k, e & 1, block, e & 2) * range.times, high = more_at(i, k, e & 1, block, (e & 2) + 1) * range.times;
            more[0][i][block][k][e] = as_halves(low, high);
            fine[e] = as_halves(finer(low), finer(high));
            if (IN_HAND == 2) more[IN_HAND - 1][i][block][k][e] = fine[e];
        }
        const word* tile = ON_SHELF ? fine : more[0][i][block][k];
        if (ON_SHELF || ASIDE) *more_on_shelf(i, block, k) = {tile[0], tile[1], tile[2], tile[3]};
    }

    const Fixed fixed = fixed_of(own_of(own_weights, me.replica, me.unit));
    const offset start = (offset)me.replica * B * H;
    float held[TILES], d_cell[TILES], d_carried[TILES][CARRIED + !CARRIED], from_later[TILES];
    float d_bias[PLACES] = {}, d_bias_hn = 0.0f, d_fixed[FIXED + !FIXED] = {}, d_input_slice[EIGHTS + !EIGHTS][4] = {};
    float d_input_more[EIGHTS + !EIGHTS][4] = {};
    int length[TILES];
    offset here[TILES];
#pragma unroll
    for (int j = 0; j < TILES; ++j) {
        here[j] = (offset)me.row[j] * H + me.unit;
        held[j] = entry(d_last_hidden, start + here[j], me.there[j]);
        d_cell[j] = entry(d_last_cell, start + here[j], me.there[j]);
        for (int i = 0; i < CARRIED; ++i) d_carried[j][i] = entry(d_last_carried, carried_at(me, i, me.row[j], B), me.there[j]);
        from_later[j] = 0.0f;
        length[j] = HAS_LENGTHS && me.row[j] < B ? lengths[(offset)me.replica * B + me.row[j]] : 0;
    }

    const offset first = ((offset)me.replica * T + (REVERSE ? 0 : T - 1)) * B, stride = REVERSE ? B : -B;
    // The vectors that this thread fetches and stores in every step. Cell and age are those before the step; in the last
    // iteration, those of the initial state.
    Route from[GIVEN];
#pragma unroll
    for (int i = 0; i < GIVEN; ++i) {
        Four four = four_of(i, me, B);
        offset at = (first + four.row) * H + four.unit;
        const void* memory = nullptr;
        if (four.there) {
            if (four.kind < BLOCKS) memory = pre + ((first + four.row) * BLOCKS + four.kind) * H + four.unit;
            else if (four.kind == D_HIDDEN) memory = d_hidden == nullptr ? nullptr : d_hidden + at;
            else if (four.kind == CELL) memory = cells + at + stride * H;
            else if (four.kind <= CELL + CARRIED)
                memory = carried + ((first + stride) * CARRIED + (offset)(four.kind - CELL - 1) * B + four.row) * H + four.unit;
            else if (SPLIT >= 0 && four.kind == HN) memory = parts + at;
        }
        int place = four.kind * PAGE * 4 + four.place * (of_state(four.kind) ? 4 : (int)sizeof(NUMBER));
        from[i] = route_of(memory, of_state(four.kind), stride * (four.kind < BLOCKS ? BLOCKS * H : of_state(four.kind) && four.kind > CELL ? CARRIED * H : H), place);
    }
    auto go_to_first_state = [&](word stage) {  // redirects the fetches of the last iteration to the initial state
#pragma unroll
        for (int i = 0; i < GIVEN; ++i) {
            Four four = four_of(i, me, B);
            if (!four.there || !of_state(four.kind)) continue;
            const float* initial = four.kind == CELL ? first_cell : first_carried;
            const offset row = four.kind == CELL ? (offset)me.replica * B : ((offset)me.replica * CARRIED + four.kind - CELL - 1) * B;
            from[i].there = initial != nullptr;
            from[i].memory = (char*)(initial + (row + four.row) * H + four.unit);
            if (initial == nullptr) *(float4*)((char*)inbox + stage + from[i].place) = {0, 0, 0, 0};
        }
    };
    Single input[SINGLES + !SINGLES], time = dt_of(dt, first + me.first_row, B - me.first_row);
#pragma unroll
    for (int i = 0; i < SINGLES; ++i) {
        input[i] = input_of<ROW>(i, inputs, first + me.first_row, B - me.first_row);
        input[i].place = steady(input[i].place);
    }
    auto fetch_step = [&](int s) {  // in order: addresses advance by one step per call
        if (s < T) {
            word stage = s % DEPTH * INBOX * 4;
            if (s == T - 1) go_to_first_state(stage);
            stage += shared_address(inbox);
#pragma unroll
            for (int i = 0; i < GIVEN; ++i) fetch_and_go_on(from[i], stage);
#pragma unroll
            for (int i = 0; i < SINGLES; ++i) fetch_and_go_on(input[i], stage + GIVEN_INPUTS * 4, stride * INPUTS);
            if (HAS_DT) fetch_and_go_on(time, stage + DT * 4, stride);
        }
        end_of_fetches();
    };
    Route to[LEFT];
#pragma unroll
    for (int i = 0; i < LEFT; ++i) {
        Four four = four_of(i, me, B);
        NUMBER* memory = nullptr;
        if (four.there && four.kind < KINDS)
            memory = four.kind == BLOCKS ? d_parts + (first + four.row) * H + four.unit
                                         : d_pre + ((first + four.row) * BLOCKS + four.kind) * H + four.unit;
        to[i] = route_of(memory, false, stride * (four.kind < BLOCKS ? BLOCKS * H : H), (four.kind * PAGE + four.place) * 4);
    }
    auto store_step = [&](int s) {  // in order, too
#pragma unroll
        for (int i = 0; i < LEFT; ++i) store_and_go_on(to[i], outbox + (s & 1) * OUTBOX);
    };
    for (int i = threadIdx.x; i < DEPTH * INBOX; i += THREADS) inbox[i] = 0.0f;  // for elements that are never fetched
    __syncthreads();
    for (int s = 0; s < DEPTH; ++s) fetch_step(s);

    // Destinations of this thread: the shares of a tile of units go to the thread block that has these units. Lanes of even q
    // send four rows of unit g, those of odd q of unit g + 8.
    word place[PRODUCTS], boxes[PRODUCTS];
#pragma unroll
    for (int i = 0; i < PRODUCTS; ++i) {
        int tile = me.warp + WARPS * i, unit = 16 * (tile % SQUARES) + me.g + 8 * (me.q & 1);
        word here = shared_address(shares) + ((me.rank * TILES * UNITS + unit) * 8 + 4 * (me.q >> 1)) * 4;
        word rank = tile < CLUSTER * SQUARES ? tile / SQUARES : 0;
        place[i] = address_in(rank, here), boxes[i] = address_in(rank, box);
    }
    wait_for_fetches<DEPTH - 1>();
    __syncthreads();
    meet();

    const int own = steady((me.warp * 4 + (me.g & 3)) * 8 + 2 * me.q + (me.g >> 2));  // this thread's unit and row in a tile
    const int factor_at = steady(me.q * 8 + turned(me.g, me.q));
    auto receive = [&](int s) {  // sums the shares that were sent in step s
        wait_for(box + 8 * (s & 1), (s >> 1) & 1);
        if (threadIdx.x == 0) expect(box + 8 * (s & 1), SENT);
        const float* share = (const float*)(shares + (s & 1) * SENT) + own;
#pragma unroll
        for (int j = 0; j < TILES; ++j) {
            from_later[j] = 0.0f;
#pragma unroll
            for (int c = 0; c < CLUSTER; ++c) from_later[j] += share[(c * TILES + j) * UNITS * 8];
        }
    };

    const int mine = steady((2 * me.q + (me.g >> 2)) * PITCH + me.warp * 4 + (me.g & 3));  // offset in a page
    for (int s = 0; s < T; ++s) {
        const float* stage = inbox + s % DEPTH * INBOX;
        CellSlopes slopes[TILES];
        float d_h[TILES], x[TILES][EIGHTS + !EIGHTS][2];
#pragma unroll
        for (int j = 0; j < TILES; ++j) {
            const float* state = stage + j * 8 * PITCH + mine;
            auto given = [&](int kind) { return value_of(((const NUMBER*)(stage + kind * PAGE))[j * 8 * PITCH + mine]); };
            float z[PLACES] = {};
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block) z[block] = given(block);
            d_h[j] = given(D_HIDDEN) + held[j];
            float before[CARRIED + !CARRIED] = {};
#pragma unroll
            for (int i = 0; i < CARRIED; ++i) before[i] = state[(CELL + 1 + i) * PAGE];
            float step = HAS_DT ? stage[DT + me.row[j] - me.first_row] : 1.0f;
            slopes[j] = CELL_SLOPES(z, SPLIT >= 0 ? given(HN) : 0.0f, state_before(state[CELL * PAGE], before), 0.0f, fixed.values, step, beta);
#pragma unroll
            for (int e = 0; e < 2 * EIGHTS; ++e)
                x[j][e / 2][e % 2] = stage[GIVEN_INPUTS + (j * 8 + 2 * me.q + e % 2) * ROW + 8 * (e / 2) + me.g];
        }
        if (s > 0) receive(s - 1);

        CellBack back[TILES];
#pragma unroll
        for (int j = 0; j < TILES; ++j) {
            d_h[j] += from_later[j];
            back[j] = CELL_BACKWARD(slopes[j], d_h[j], d_cell[j], d_carried[j]);
            held[j] = 0.0f;
            if (HAS_LENGTHS && (REVERSE ? s : T - 1 - s) >= length[j]) {
                back[j] = handed_on(d_cell[j], d_carried[j]);
                held[j] = d_h[j];
            }
            d_cell[j] = back[j].cell;
#pragma unroll
            for (int i = 0; i < CARRIED; ++i) d_carried[j][i] = back[j].carried[i];
            if (me.there[j]) {
#pragma unroll
                for (int block = 0; block < BLOCKS; ++block) d_bias[block] += back[j].z[block];
                if (SPLIT >= 0) d_bias_hn += back[j].hn;
#pragma unroll
                for (int i = 0; i < FIXED; ++i) d_fixed[i] += back[j].fixed[i];
            }

            // Convert to float16, scaled by the largest magnitude of the warp's units in this row.
            float factor[PLACES];
            word most = 0;
#pragma unroll
            for (int block = 0; block < PLACES; ++block) {
                factor[block] = block == SPLIT ? back[j].hn : back[j].z[block];
                most = max(most, magnitude(factor[block]));
            }
            most = max(most, from_partner(most, 4));
            most = max(most, from_partner(most, 8));
            Range range_here = range_of(most);
            uint2* halves = (uint2*)(derivatives + (s & 1) * DERIVATIVES) + j * UNITS * 8 + turned(own, me.g);
#pragma unroll
            for (int block = 0; block < PLACES; ++block) factor[block] *= range_here.times;
            *halves = {as_halves(factor[0], factor[1]), as_halves(factor[2], factor[3])};
            if (PARTS == 2)
                halves[PART / 8] = {as_halves(finer(factor[0]), finer(factor[1])), as_halves(finer(factor[2]), finer(factor[3]))};
#pragma unroll
            for (int block = 0; block < MORE; ++block) {
                const int row = turned(2 * me.q + (me.g >> 2), me.warp), warp = (block * TILES + j) * WARPS + me.warp;
                half_bits* half = (half_bits*)((uint2*)(derivatives + (s & 1) * DERIVATIVES) + OTHERS + warp * 8 + row) + (me.g & 3);
                *half = (half_bits)as_halves(factor[4 + block], 0.0f);
                if (PARTS == 2) half[PART / 2] = (half_bits)as_halves(finer(factor[4 + block]), 0.0f);
            }
            if ((me.g & 3) == 0)
                ((float*)(sizes + (s & 1) * SIZES))[size_at(j, me.warp, 2 * me.q + (me.g >> 2))] = range_here.size;
        }
        wait_for_fetches<DEPTH - 2>();
        __syncthreads();

        float sums[PRODUCTS][TILES][4] = {};
        float2 by[TILES], most_by[TILES];  // scales of two rows, of a warp and the largest of four
        Scales scales[TILES];
        const uint2* gradients = (const uint2*)(derivatives + (s & 1) * DERIVATIVES);
        const float* size = (const float*)(sizes + (s & 1) * SIZES);
        if (ONE_SCALE)
#pragma unroll
            for (int j = 0; j < TILES; ++j) {
                scales[j] = scales_of(size + size_at(j, 0, me.g));
                by[j] = of_two_rows(scales[j].largest * range.size, me.q);
            }
#pragma unroll
        for (int k = 0; k < WARPS; ++k) {
            Halves d[TILES];
#pragma unroll
            for (int j = 0; j < TILES; ++j) {
                d[j] = halves_at(gradients + (j * UNITS + 4 * k) * 8 + factor_at);
                if (ONE_SCALE) {
                    d[j] = d[j] * scales[j].of(k);
                } else {
                    by[j] = *(const float2*)(size + size_at(j, k, 2 * me.q));
                    most_by[j] = k % 4 ? larger_of_both(most_by[j], by[j]) : by[j];
                }
            }
#pragma unroll
            for (int i = 0; i < PRODUCTS; ++i) {
                word there[4] = {};
                if (ON_SHELF) take(on_shelf(shelf, i * WARPS + k), there);
#pragma unroll
                for (int j = 0; j < TILES; ++j) accumulate(sums[i][j], slice[0][i][k], ON_SHELF ? there : slice[IN_HAND - 1][i][k], d[j], by[j]);
            }
            if (MORE == 0 || k % 4 < 3) continue;
#pragma unroll
            for (int block = 0; block < MORE; ++block) {
#pragma unroll
                for (int j = 0; j < TILES; ++j) {
                    word scale = ONE_SCALE ? scales[j].of_quarter(k / 4, me.q) : of_largest(size[size_at(j, k - 3 + me.q, me.g)]);
                    d[j] = halves_at(gradients + OTHERS + ((block * TILES + j) * WARPS + k - 3) * 8 + factor_at) * scale;
                }
#pragma unroll
                for (int i = 0; i < PRODUCTS; ++i) {
                    word there[4] = {};
                    if (ON_SHELF || ASIDE) take(more_on_shelf(i, block, k / 4), there);
                    const word* coarse = ASIDE ? there : more[0][i][block][k / 4];
                    const word* fine = ON_SHELF ? there : more[IN_HAND - 1][i][block][k / 4];
#pragma unroll
                    for (int j = 0; j < TILES; ++j) accumulate(sums[i][j], coarse, fine, d[j], most_by[j]);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < PRODUCTS; ++i)
            // (If registers are scarce, a redundant comparison is faster.)
            if ((ROOM && PRODUCTS * WARPS == CLUSTER * SQUARES) || me.warp + WARPS * i < CLUSTER * SQUARES)
#pragma unroll
                for (int j = 0; j < TILES; ++j) {
                    bool odd = me.q & 1;
                    float* sum = sums[i][j];
#pragma unroll
                    for (int e = 0; e < 4; ++e) sum[e] *= !ONE_SCALE ? range.size : e & 1 ? by[j].y : by[j].x;
                    word a = __float_as_uint(odd ? sum[2] : sum[0]), b = __float_as_uint(odd ? sum[3] : sum[1]);
                    word c = from_partner(__float_as_uint(odd ? sum[0] : sum[2]), 1);
                    word d = from_partner(__float_as_uint(odd ? sum[1] : sum[3]), 1);
                    deliver(place[i] + (s & 1) * SENT + j * UNITS * 8 * 4, boxes[i] + 8 * (s & 1), odd ? c : a, odd ? d : b,
                            odd ? a : c, odd ? b : d);
                }

        if (s > 0) store_step(s - 1);
        // The gradient of the input matrix: the tensor cores reduce over the rows of a tile.
        if (INPUTS)
#pragma unroll
            for (int j = 0; j < TILES; ++j) {
                float d[4];
                share_out(back[j].z, me.g >= 4, d);
                Factor rows[4] = {factor_of(d[0]), factor_of(d[2]), factor_of(d[1]), factor_of(d[3])};
#pragma unroll
                for (int k = 0; k < EIGHTS; ++k) {
                    Factor two[2] = {factor_of(x[j][k][0]), factor_of(x[j][k][1])};
                    float product[4] = {};
                    multiply(product, rows, two);
#pragma unroll
                    for (int e = 0; e < 4; ++e) d_input_slice[k][e] += product[e];
                }
                if constexpr (MORE > 0) {
                    float rest[4] = {}, others[4];
#pragma unroll
                    for (int block = 0; block < MORE; ++block) rest[block] = back[j].z[4 + block];
                    share_out(rest, me.g >= 4, others);
                    Factor rows[4] = {factor_of(others[0]), factor_of(others[2]), factor_of(others[1]), factor_of(others[3])};
#pragma unroll
                    for (int k = 0; k < EIGHTS; ++k) {
                        Factor two[2] = {factor_of(x[j][k][0]), factor_of(x[j][k][1])};
                        float product[4] = {};
                        multiply(product, rows, two);
#pragma unroll
                        for (int e = 0; e < 4; ++e) d_input_more[k][e] += product[e];
                    }
                }
            }
        fetch_step(s + DEPTH);
        float* leave = outbox + (s & 1) * OUTBOX + mine;
#pragma unroll
        for (int j = 0; j < TILES; ++j, leave += 8 * PITCH) {
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block) leave[block * PAGE] = back[j].z[block];
            if (SPLIT >= 0) leave[BLOCKS * PAGE] = back[j].hn;
            if (HAS_DT && d_dt != nullptr) {
                float d = me.there[j] ? back[j].dt : 0.0f;
                d += from_partner(d, 4);
                d += from_partner(d, 8);
                if ((me.g & 3) == 0 && me.row[j] < B)
                    d_dt[(offset)(me.rank * WARPS + me.warp) * N * T * B + first + s * stride + me.row[j]] = d;
            }
        }
    }
    __syncthreads();
    store_step(T - 1);
    receive(T - 1);  // always: a thread block must not exit while others still write to its shared memory
    if (d_first_hidden != nullptr)
#pragma unroll
        for (int j = 0; j < TILES; ++j)
            if (me.there[j]) {
                d_first_hidden[start + here[j]] = held[j] + from_later[j];
                d_first_cell[start + here[j]] = d_cell[j];
                for (int i = 0; i < CARRIED; ++i) d_first_carried[carried_at(me, i, me.row[j], B)] = d_carried[j][i];
            }
    totals += (offset)me.group * (TOTALS + BLOCKS * INPUTS) * H + me.unit;
#pragma unroll
    for (int block = 0; block < BLOCKS; ++block) leave_total(me, totals, block, d_bias[block]);
    if (SPLIT >= 0) leave_total(me, totals, BLOCKS, d_bias_hn);
    leave_own(me, totals, KINDS, own_weights, d_fixed);
#pragma unroll
    for (int k = 0; k < EIGHTS; ++k)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            int block = (me.g >> 2) + 2 * (e >> 1), input = 8 * k + 2 * me.q + (e & 1);
            if (block < BLOCKS && input < INPUTS && me.unit_there)
                totals[(offset)(TOTALS + block * INPUTS) * H + (offset)me.unit * (INPUTS - 1) + input] = d_input_slice[k][e];
            if constexpr (MORE > 0) {
                block += 4;
                if (block < BLOCKS && input < INPUTS && me.unit_there)
                    totals[(offset)(TOTALS + block * INPUTS) * H + (offset)me.unit * (INPUTS - 1) + input] = d_input_more[k][e];
            }
        }
}
