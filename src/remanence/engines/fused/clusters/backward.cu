// The backward pass; kernels.cuh says how, ../kernels.py what the tensors are. `totals` are sums over the steps and rows
// of a group, [group][kind][unit]: derivatives by the biases of all blocks, by that of hn, and by p_hat.
// Rows of d_pre are APART times as long as what is in them.

constexpr int PRODUCTS = (CLUSTER + 3) / 4;                     // tiles of sixteen units of h that a warp computes
constexpr int SENT = CLUSTER * TILES * UNITS * 8 * 4;           // bytes of the shares that a program gets
constexpr int PART = TILES * UNITS * 8 * 8;                     // bytes of its derivatives, or of their finer part
constexpr int DERIVATIVES = PARTS * PART;
constexpr int SIZES = TILES * WARPS * 8 * 4;                    // bytes of what those were divided by
constexpr int D_HIDDEN = BLOCKS, CELL = BLOCKS + 1, AGE = CELL + HAS_AGE, HN = AGE + (SPLIT >= 0);
constexpr int INBOX = (HN + 1) * PAGE + TILES * 8;              // numbers that a step needs; last is dt
constexpr int KINDS = BLOCKS + (SPLIT >= 0);
constexpr int OUTBOX = KINDS * PAGE;                            // numbers that a step leaves: derivatives
constexpr int GIVEN = ((HN + 1) * FOURS + THREADS - 1) / THREADS, LEFT = (KINDS * FOURS + THREADS - 1) / THREADS;

extern "C" __global__ void __launch_bounds__(THREADS, TOGETHER) backward(
    const float* pre, const NUMBER* matrix, const float* p_hat, const float* dt,
    const int* lengths, const float* first_cell, const float* first_age, const float* cells, const float* ages,
    const float* parts, const float* d_hidden, const float* d_last_hidden, const float* d_last_cell,
    const float* d_last_age, NUMBER* d_pre, NUMBER* d_parts, float* d_first_hidden, float* d_first_cell,
    float* d_first_age, float* totals, float* d_dt, int N, int T, int B, float eps, float fixed_p, float beta) {
    // Shared memory: two letterboxes; two times shares as [program][tile][unit][row], derivatives as [part][tile]
    // [unit][row][block] and what they were divided by as [tile][warp][row]; inbox and outbox.
    unsigned char* shares = shared + 128;
    unsigned char* derivatives = shares + 2 * SENT;
    unsigned char* sizes = derivatives + 2 * DERIVATIVES;
    float* inbox = (float*)(sizes + 2 * SIZES);
    float* outbox = inbox + DEPTH * INBOX;
    const Place me = whereabouts(B);
    const word box = two_letterboxes(SENT);

    // The slice of the matrix, transposed: rows are all units, columns the blocks of this program's units.
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
    const Range range = range_of(largest_of(largest));
    word slice[PARTS][PRODUCTS][WARPS][4];
#pragma unroll
    for (int i = 0; i < PRODUCTS; ++i)
#pragma unroll
        for (int k = 0; k < WARPS; ++k)
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int pair = 0; pair < 2; ++pair) {
                    float low = entry_at(i, k, half, 2 * pair) * range.times;
                    float high = entry_at(i, k, half, 2 * pair + 1) * range.times;
                    slice[0][i][k][half + 2 * pair] = as_halves(low, high);
                    if (PARTS == 2) slice[PARTS - 1][i][k][half + 2 * pair] = as_halves(finer(low), finer(high));
                }

    const float p = exponent_of(p_hat, fixed_p, me);
    const offset start = (offset)me.replica * B * H;
    float held[TILES], d_cell[TILES], d_age[TILES], from_later[TILES];
    float d_bias[4] = {}, d_bias_hn = 0.0f, d_p = 0.0f;
    int length[TILES];
    offset here[TILES];
#pragma unroll
    for (int j = 0; j < TILES; ++j) {
        here[j] = (offset)me.row[j] * H + me.unit;
        held[j] = entry(d_last_hidden, start + here[j], me.there[j]);
        d_cell[j] = entry(d_last_cell, start + here[j], me.there[j]);
        d_age[j] = HAS_AGE ? entry(d_last_age, start + here[j], me.there[j]) : 0.0f;
        from_later[j] = 0.0f;
        length[j] = HAS_LENGTHS && me.row[j] < B ? lengths[(offset)me.replica * B + me.row[j]] : 0;
    }

    const offset first = ((offset)me.replica * T + (REVERSE ? 0 : T - 1)) * B, stride = REVERSE ? B : -B;
    // What this thread fetches and stores in every step. Cell and age are those before the step: at last, the first.
    const float* from[GIVEN];
#pragma unroll
    for (int i = 0; i < GIVEN; ++i) {
        Four four = four_of(threadIdx.x + i * THREADS);
        int row = me.first_row + four.row, unit = me.rank * UNITS + four.unit;
        offset at = (first + row) * H + unit;
        from[i] = nullptr;
        if (row < B && unit < H) {
            if (four.kind < BLOCKS) from[i] = pre + ((first + row) * BLOCKS + four.kind) * H + unit;
            else if (four.kind == D_HIDDEN) from[i] = d_hidden == nullptr ? nullptr : d_hidden + at;
            else if (four.kind == CELL) from[i] = cells + at + stride * H;
            else if (HAS_AGE && four.kind == AGE) from[i] = ages + at + stride * H;
            else if (SPLIT >= 0 && four.kind == HN) from[i] = parts + at;
        }
    }
    auto fetch_step = [&](int s, offset onward) {
        if (s < T) {
            word stage = s % DEPTH * INBOX * 4;
#pragma unroll
            for (int i = 0; i < GIVEN; ++i)
                if (from[i] != nullptr) {
                    Four four = four_of(threadIdx.x + i * THREADS);
                    const float* source = from[i] + onward * (four.kind < BLOCKS ? BLOCKS : 1);
                    bool there = true;
                    if (s == T - 1 && (four.kind == CELL || (HAS_AGE && four.kind == AGE))) {
                        const float* initial = four.kind == CELL ? first_cell : first_age;
                        there = initial != nullptr;
                        source = there ? initial + start + (offset)(me.first_row + four.row) * H + me.rank * UNITS + four.unit : pre;
                    }
                    fetch_four(shared_address(inbox + four.place) + stage, source, there);
                }
            if (HAS_DT && threadIdx.x < TILES * 8) {
                int row = me.first_row + threadIdx.x;
                fetch(shared_address(inbox + (HN + 1) * PAGE + threadIdx.x) + stage, row < B ? dt + first + s * stride + row : dt, row < B);
            }
        }
        end_of_fetches();
    };
    NUMBER* to[LEFT];
#pragma unroll
    for (int i = 0; i < LEFT; ++i) {
        Four four = four_of(threadIdx.x + i * THREADS);
        int row = me.first_row + four.row, unit = me.rank * UNITS + four.unit;
        to[i] = nullptr;
        if (four.kind < KINDS && row < B && unit < H)
            to[i] = four.kind == BLOCKS ? d_parts + (first + row) * H + unit
                                        : d_pre + ((first + row) * APART * BLOCKS + four.kind) * H + unit;
    }
    auto store_step = [&](int s, offset onward) {
#pragma unroll
        for (int i = 0; i < LEFT; ++i)
            if (to[i] != nullptr) {
                Four four = four_of(threadIdx.x + i * THREADS);
                store_four(to[i] + onward * (four.kind < BLOCKS ? BLOCKS * APART : 1),
                           *(const float4*)(outbox + (s & 1) * OUTBOX + four.place));
            }
    };
    for (int i = threadIdx.x; i < DEPTH * INBOX; i += THREADS) inbox[i] = 0.0f;  // where nothing will come
    __syncthreads();
    const offset step_size = stride * H;
    for (int s = 0; s < DEPTH; ++s) fetch_step(s, s * step_size);

    // Where this thread sends to: the shares of a tile of units go to the program that has them. Threads of even q send
    // four rows of unit g, those of odd q of unit g + 8.
    word place[PRODUCTS], boxes[PRODUCTS];
#pragma unroll
    for (int i = 0; i < PRODUCTS; ++i) {
        int tile = me.warp + WARPS * i, unit = 16 * (tile % SQUARES) + me.g + 8 * (me.q & 1);
        word own = shared_address(shares) + ((me.rank * TILES * UNITS + unit) * 8 + 4 * (me.q >> 1)) * 4;
        word rank = tile < CLUSTER * SQUARES ? tile / SQUARES : 0;
        place[i] = address_in(rank, own), boxes[i] = address_in(rank, box);
    }
    wait_for_fetches<DEPTH - 1>();
    __syncthreads();
    meet();

    auto receive = [&](int s) {  // what was sent in step s
        wait_for(box + 8 * (s & 1), (s >> 1) & 1);
        if (threadIdx.x == 0) expect(box + 8 * (s & 1), SENT);
        const float* share = (const float*)(shares + (s & 1) * SENT) + (me.warp * 4 + (me.g & 3)) * 8 + 2 * me.q + (me.g >> 2);
#pragma unroll
        for (int j = 0; j < TILES; ++j) {
            from_later[j] = 0.0f;
#pragma unroll
            for (int c = 0; c < CLUSTER; ++c) from_later[j] += share[(c * TILES + j) * UNITS * 8];
        }
    };

    const int mine = (2 * me.q + (me.g >> 2)) * PITCH + me.warp * 4 + (me.g & 3);  // in a page of a box
    offset now = 0;  // of this step, in numbers of h
    for (int s = 0; s < T; ++s, now += step_size) {
        const float* stage = inbox + s % DEPTH * INBOX;
        CellSlopes slopes[TILES];
        float d_h[TILES];
#pragma unroll
        for (int j = 0; j < TILES; ++j) {
            const float* given = stage + j * 8 * PITCH + mine;
            float z[4] = {0, 0, 0, 0};
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block) z[block] = given[block * PAGE];
            d_h[j] = given[D_HIDDEN * PAGE] + held[j];
            State before = {0.0f, given[CELL * PAGE], HAS_AGE ? given[AGE * PAGE] : 0.0f};
            float step = HAS_DT ? stage[(HN + 1) * PAGE + me.row[j] - me.first_row] : 1.0f;
            slopes[j] = CELL_SLOPES(z, SPLIT >= 0 ? given[HN * PAGE] : 0.0f, before, p, step, eps, beta);
        }
        if (s > 0) receive(s - 1);

        CellBack back[TILES];
#pragma unroll
        for (int j = 0; j < TILES; ++j) {
            d_h[j] += from_later[j];
            back[j] = CELL_BACKWARD(slopes[j], d_h[j], d_cell[j], d_age[j]);
            held[j] = 0.0f;
            if (HAS_LENGTHS && (REVERSE ? s : T - 1 - s) >= length[j]) {
                back[j] = {{0, 0, 0, 0}, 0, d_cell[j], d_age[j], 0, 0};
                held[j] = d_h[j];
            }
            d_cell[j] = back[j].cell;
            d_age[j] = back[j].age;
            if (me.there[j]) {
#pragma unroll
                for (int block = 0; block < BLOCKS; ++block) d_bias[block] += back[j].z[block];
                if (SPLIT >= 0) d_bias_hn += back[j].hn;
                if (HAS_AGE) d_p += back[j].p;
            }

            // As float16, in the range of the warp's units in this row.
            float factor[4];
            word most = 0;
#pragma unroll
            for (int block = 0; block < 4; ++block) {
                factor[block] = block == SPLIT ? back[j].hn : back[j].z[block];
                most = max(most, magnitude(factor[block]));
            }
            most = max(most, from_partner(most, 4));
            most = max(most, from_partner(most, 8));
            Range own = range_of(most);
            uint2* halves = (uint2*)(derivatives + (s & 1) * DERIVATIVES) + (j * UNITS + me.warp * 4 + (me.g & 3)) * 8 + 2 * me.q + (me.g >> 2);
#pragma unroll
            for (int block = 0; block < 4; ++block) factor[block] *= own.times;
            *halves = {as_halves(factor[0], factor[1]), as_halves(factor[2], factor[3])};
            if (PARTS == 2)
                halves[PART / 8] = {as_halves(finer(factor[0]), finer(factor[1])), as_halves(finer(factor[2]), finer(factor[3]))};
            if ((me.g & 3) == 0)
                ((float*)(sizes + (s & 1) * SIZES))[(j * WARPS + me.warp) * 8 + 2 * me.q + (me.g >> 2)] =
                    own.size;
        }
        wait_for_fetches<DEPTH - 2>();
        __syncthreads();

        float sums[PRODUCTS][TILES][4] = {};
#pragma unroll
        for (int k = 0; k < WARPS; ++k)
#pragma unroll
            for (int j = 0; j < TILES; ++j) {
                const uint2* halves = (const uint2*)(derivatives + (s & 1) * DERIVATIVES) + (j * UNITS + 4 * k + me.q) * 8 + me.g;
                uint2 d = *halves;
                float2 by = ((const float2*)(sizes + (s & 1) * SIZES))[(j * WARPS + k) * 4 + me.q];
#pragma unroll
                for (int i = 0; i < PRODUCTS; ++i) {
                    float product[4] = {}, fine[4] = {};
                    multiply(product, slice[0][i][k], d);
                    if (PARTS == 2) {
                        multiply(fine, slice[0][i][k], halves[PART / 8]);
                        multiply(fine, slice[PARTS - 1][i][k], d);
#pragma unroll
                        for (int e = 0; e < 4; ++e) product[e] += fine[e] * (1.0f / FINER);
                    }
                    sums[i][j][0] = fmaf(product[0], by.x, sums[i][j][0]);
                    sums[i][j][1] = fmaf(product[1], by.y, sums[i][j][1]);
                    sums[i][j][2] = fmaf(product[2], by.x, sums[i][j][2]);
                    sums[i][j][3] = fmaf(product[3], by.y, sums[i][j][3]);
                }
            }
#pragma unroll
        for (int i = 0; i < PRODUCTS; ++i)
            if (me.warp + WARPS * i < CLUSTER * SQUARES)
#pragma unroll
                for (int j = 0; j < TILES; ++j) {
                    bool odd = me.q & 1;
                    float* sum = sums[i][j];
#pragma unroll
                    for (int e = 0; e < 4; ++e) sum[e] *= range.size;
                    word a = __float_as_uint(odd ? sum[2] : sum[0]), b = __float_as_uint(odd ? sum[3] : sum[1]);
                    word c = from_partner(__float_as_uint(odd ? sum[0] : sum[2]), 1);
                    word d = from_partner(__float_as_uint(odd ? sum[1] : sum[3]), 1);
                    deliver(place[i] + (s & 1) * SENT + j * UNITS * 8 * 4, boxes[i] + 8 * (s & 1), odd ? c : a, odd ? d : b,
                            odd ? a : c, odd ? b : d);
                }

        if (s > 0) store_step(s - 1, now - step_size);
        fetch_step(s + DEPTH, now + DEPTH * step_size);
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
    store_step(T - 1, now - step_size);
    receive(T - 1);  // always: nobody may write into the memory of a program that has ended
    if (d_first_hidden != nullptr)
#pragma unroll
        for (int j = 0; j < TILES; ++j)
            if (me.there[j]) {
                d_first_hidden[start + here[j]] = held[j] + from_later[j];
                d_first_cell[start + here[j]] = d_cell[j];
                if (HAS_AGE) d_first_age[start + here[j]] = d_age[j];
            }
    totals += (offset)me.group * (KINDS + HAS_AGE) * H + me.unit;
    auto leave_total = [&](int kind, float total) {
        total += from_partner(total, 1);
        total += from_partner(total, 2);
        total += from_partner(total, 16);
        if (me.q == 0 && me.g < 4 && me.unit_there) totals[kind * H] = total;
    };
#pragma unroll
    for (int block = 0; block < BLOCKS; ++block) leave_total(block, d_bias[block]);
    if (SPLIT >= 0) leave_total(BLOCKS, d_bias_hn);
    if (HAS_AGE) leave_total(KINDS, d_p * p * (1.0f - p));
}
