// The backward pass; whole.cuh says how, ../kernels.py what the tensors are, backward.cu what `totals` is. d_pre and d_parts may be
// pre and parts themselves.

constexpr int GROUP = 8 * PAIRS * 32;                // bytes of the derivatives of a warp
constexpr int DERIVATIVES = WARPS * GROUP;
constexpr int SIZES = WARPS * 8 * 4;                 // bytes of what those were divided by
constexpr int D_HIDDEN = 0, CELL = 1, AGE = HAS_AGE ? 2 : -1, HN = SPLIT >= 0 ? 2 + HAS_AGE : -1;
constexpr int KINDS = 2 + HAS_AGE + (SPLIT >= 0);    // of pages of single blocks
constexpr int ROW = EIGHTS ? 8 * EIGHTS + 4 : 0;     // places for the inputs of a row
constexpr int GIVEN_INPUTS = WIDE_PAGE + KINDS * PAGE, DT = GIVEN_INPUTS + 8 * ROW;
constexpr int INBOX = DT + 8;                        // numbers that a step needs: pre-activations, those pages, inputs and dt
constexpr int TOTALS = BLOCKS + (SPLIT >= 0) + HAS_AGE;
constexpr int OUTBOX = WIDE_PAGE + (SPLIT >= 0 ? PAGE : 0);  // numbers that a step leaves: derivatives
constexpr int GIVEN = (KINDS + 1) / 2;               // times four of pages of single blocks that a thread fetches

extern "C" __global__ void __launch_bounds__(THREADS, TOGETHER) whole_backward(
    const NUMBER* pre, const float* inputs, const NUMBER* matrix, const float* p_hat, const float* dt,
    const int* lengths, const float* first_cell, const float* first_age, const float* cells, const float* ages,
    const NUMBER* parts, const NUMBER* d_hidden, const float* d_last_hidden, const float* d_last_cell,
    const float* d_last_age, NUMBER* d_pre, NUMBER* d_parts, float* d_first_hidden, float* d_first_cell,
    float* d_first_age, float* totals, float* d_dt, int N, int T, int B, float eps, float fixed_p, float beta) {
    // Shared memory: two times derivatives as [warp][row][unit][block] and what they were divided by as [warp][row]; what two
    // warps give each other; inbox and outbox.
    unsigned char* derivatives = shared;
    unsigned char* sizes = derivatives + 2 * DERIVATIVES;
    float2* exchanged = (float2*)(sizes + 2 * SIZES);
    float* inbox = (float*)(exchanged + THREADS);
    float* outbox = inbox + DEPTH * INBOX;
    const Place me = whereabouts(B);
    const int tile = me.warp % HALF, half = me.warp / HALF;

    // The slice of the matrix, transposed: row g is this thread's unit, row g + 8 that of the other warp of this tile; columns are
    // the blocks of the units of half of the warps.
    matrix += (offset)me.replica * BLOCKS * H * H;
    auto entry_at = [&](int k, int place, int other, int block) {  // of the k-th warp; two units are those of q
        int unit = 16 * k + 8 * half + 2 * me.q + place, row = 16 * tile + 8 * (half ^ other) + me.g;
        return block < BLOCKS ? value_of(matrix[((offset)block * H + unit) * H + row]) : 0.0f;
    };
    word largest = 0;
    for (int k = 0; k < HALF; ++k)
#pragma unroll
        for (int e = 0; e < 16; ++e) largest = max(largest, magnitude(entry_at(k, e & 1, e >> 1 & 1, e >> 2)));
    const Range range = range_of(largest_of(largest));
    // The four numbers of q in a tile are, of two pairs of blocks, those of one unit; of one pair, those of two.
    word slice[HALF][PAIRS][4];
#pragma unroll
    for (int k = 0; k < HALF; ++k)
#pragma unroll
        for (int p = 0; p < PAIRS; ++p)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                int place = PAIRS == 2 ? p : e >> 1, block = PAIRS == 2 ? e & 2 : 0;
                slice[k][p][e] = as_halves(entry_at(k, place, e & 1, block) * range.times,
                                           entry_at(k, place, e & 1, block + 1) * range.times);
            }

    const float p = exponent_of(p_hat, fixed_p, (offset)me.replica * H + me.unit, true);
    const offset start = (offset)me.replica * B * H;
    float held[2], d_cell[2], d_age[2];
    float d_bias[4] = {}, d_bias_hn = 0.0f, d_p = 0.0f, d_input_slice[EIGHTS + !EIGHTS][PAIRS][4] = {};
    int length[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
        offset here = start + (offset)me.row[j] * H + me.unit;
        held[j] = entry(d_last_hidden, here, me.there[j]);
        d_cell[j] = entry(d_last_cell, here, me.there[j]);
        d_age[j] = HAS_AGE ? entry(d_last_age, here, me.there[j]) : 0.0f;
        length[j] = HAS_LENGTHS && me.there[j] ? lengths[(offset)me.replica * B + me.row[j]] : 0;
    }

    const offset first = ((offset)me.replica * T + (REVERSE ? 0 : T - 1)) * B + me.first_row, stride = REVERSE ? B : -B;
    const offset onward = stride * H * (int)sizeof(NUMBER), wide_onward = stride * H * 4;
    const int rows = B - me.first_row;
    // What this thread fetches and stores in every step. Cell and age are those before the step: at last, the first.
    auto page_of = [&](int i) { return (int)(threadIdx.x + i * THREADS) / (THREADS / 2); };
    Route pre_from[WIDE_FOURS], from[GIVEN], to[WIDE_FOURS], parts_to;
#pragma unroll
    for (int i = 0; i < WIDE_FOURS; ++i) {
        int j = threadIdx.x + i * THREADS;
        pre_from[i] = route_of<BLOCKS * H>(j, pre + first * BLOCKS * H, false, false, rows);
        to[i] = route_of<BLOCKS * H>(j, d_pre + first * BLOCKS * H, false, true, rows);
    }
#pragma unroll
    for (int i = 0; i < GIVEN; ++i) {
        int kind = page_of(i);
        const void* memory = nullptr;
        if (kind == D_HIDDEN && d_hidden != nullptr) memory = d_hidden + first * H;
        if (kind == CELL) memory = cells + (first + stride) * H;
        if (kind == AGE) memory = ages + (first + stride) * H;
        if (kind == HN) memory = parts + first * H;
        from[i] = route_of<H>(threadIdx.x % (THREADS / 2), memory, kind == CELL || kind == AGE, false, rows);
        from[i].place += kind * PAGE * 4;
    }
    bool parted = SPLIT >= 0 && threadIdx.x < THREADS / 2;
    parts_to = route_of<H>(threadIdx.x % (THREADS / 2), parted ? d_parts + first * H : nullptr, false, true, rows);
    auto go_to_first_state = [&](float* stage) {  // which is what was before the last step back
#pragma unroll
        for (int i = 0; i < GIVEN; ++i)
            if (from[i].wide && from[i].there) {
                const float* initial = page_of(i) == CELL ? first_cell : first_age;
                from[i].there = initial != nullptr;
                from[i].memory = (char*)(initial + start + (offset)me.first_row * H + threadIdx.x % (THREADS / 2) * 4);
                if (initial == nullptr) *(float4*)((char*)stage + from[i].place) = {0, 0, 0, 0};
            }
    };
    Single input[SINGLES + !SINGLES], time = dt_of(dt, first, rows);
#pragma unroll
    for (int i = 0; i < SINGLES; ++i) input[i] = input_of<ROW>(i, inputs, first, rows);
    auto fetch_step = [&](int s) {  // one after the other
        if (s < T) {
            float* place = inbox + s % DEPTH * INBOX;
            if (s == T - 1) go_to_first_state(place + WIDE_PAGE);
            word stage = shared_address(place);
#pragma unroll
            for (int i = 0; i < WIDE_FOURS; ++i) fetch_and_go_on(pre_from[i], stage, onward * BLOCKS);
#pragma unroll
            for (int i = 0; i < GIVEN; ++i) fetch_and_go_on(from[i], stage + WIDE_PAGE * 4, from[i].wide ? wide_onward : onward);
#pragma unroll
            for (int i = 0; i < SINGLES; ++i) fetch_and_go_on(input[i], stage + GIVEN_INPUTS * 4, stride * INPUTS);
            if (HAS_DT) fetch_and_go_on(time, stage + DT * 4, stride);
        }
        end_of_fetches();
    };
    auto store_step = [&](int s) {  // one after the other
        const float* box = outbox + (s & 1) * OUTBOX;
#pragma unroll
        for (int i = 0; i < WIDE_FOURS; ++i) store_and_go_on(to[i], box, onward * BLOCKS);
        if (SPLIT >= 0) store_and_go_on(parts_to, box + WIDE_PAGE, onward);
    };
    for (int i = threadIdx.x; i < DEPTH * INBOX; i += THREADS) inbox[i] = 0.0f;  // where nothing will come
    __syncthreads();
    for (int s = 0; s < DEPTH - 1; ++s) fetch_step(s);
    wait_for_fetches<DEPTH - 2>();
    __syncthreads();

    const int wide_mine = 2 * me.q * WIDE_PITCH + me.unit, mine = 2 * me.q * PITCH + me.unit;  // in a page of a box
    // Where the derivatives of a unit of a row are in those of its warp, in bytes: rows begin at different pairs of units, which lets
    // a warp's threads write at once.
    auto place_of = [](int unit, int row) { return row * PAIRS * 32 + (unit / 2 ^ (row >> 1 & 3)) * PAIRS * 8 + unit % 2 * PAIRS * 4; };
    float own[2] = {0, 0};
    auto receive = [&] {  // what the other warp of this tile has of this thread's units
        meet_in_pairs(1 + tile);
        float2 other = exchanged[threadIdx.x];
        own[0] += other.x, own[1] += other.y;
    };

    for (int s = 0; s < T; ++s) {
        fetch_step(s + DEPTH - 1);
        const float* stage = inbox + s % DEPTH * INBOX;
        CellSlopes slopes[2];
        float d_h[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const float* pages = stage + WIDE_PAGE;
            auto given = [&](int kind) { return value_of(((const NUMBER*)(pages + kind * PAGE))[mine + j * PITCH]); };
            float z[4] = {0, 0, 0, 0};
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block)
                z[block] = value_of(((const NUMBER*)stage)[wide_mine + j * WIDE_PITCH + block * H]);
            d_h[j] = given(D_HIDDEN) + held[j];
            State before = {0.0f, pages[CELL * PAGE + mine + j * PITCH], HAS_AGE ? pages[AGE * PAGE + mine + j * PITCH] : 0.0f};
            float step = HAS_DT ? stage[DT + 2 * me.q + j] : 1.0f;
            slopes[j] = CELL_SLOPES(z, SPLIT >= 0 ? given(HN) : 0.0f, before, p, step, eps, beta);
        }
        if (s > 0) receive();

        CellBack back[2];
        float factor[2][4];
        word most[2] = {0, 0};
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            d_h[j] += own[j];
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
#pragma unroll
            for (int block = 0; block < 4; ++block) {
                factor[j][block] = block == SPLIT ? back[j].hn : back[j].z[block];
                most[j] = max(most[j], magnitude(factor[j][block]));
            }
        }
        // As float16, in the range of the warp's units in a row; of the largest of both rows the upper halves are enough.
        word largest_two = upper_halves(most[0], most[1]);
#pragma unroll
        for (int bits = 4; bits < 32; bits *= 2) largest_two = larger_halves(largest_two, from_partner(largest_two, bits));
        Range ranges[2] = {range_of(largest_two << 16), range_of(largest_two)};
        unsigned char* halves = derivatives + (s & 1) * DERIVATIVES + me.warp * GROUP;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
#pragma unroll
            for (int block = 0; block < 4; ++block) factor[j][block] *= ranges[j].times;
            unsigned char* place = halves + place_of(me.g, 2 * me.q + j);
            if (PAIRS == 2) *(uint2*)place = {as_halves(factor[j][0], factor[j][1]), as_halves(factor[j][2], factor[j][3])};
            else *(word*)place = as_halves(factor[j][0], factor[j][1]);
        }
        if (me.g == 0) ((float2*)(sizes + (s & 1) * SIZES))[me.warp * 4 + me.q] = {ranges[0].size, ranges[1].size};
        float* leave = outbox + (s & 1) * OUTBOX;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block) leave[wide_mine + j * WIDE_PITCH + block * H] = back[j].z[block];
            if (SPLIT >= 0) leave[WIDE_PAGE + mine + j * PITCH] = back[j].hn;
        }
        // By the matrix of the inputs: the tensor cores sum over the rows.
#pragma unroll
        for (int k = 0; k < EIGHTS; ++k) {
            const float* x = stage + GIVEN_INPUTS + 2 * me.q * ROW + 8 * k + me.g;
            word one = as_tf32(x[0]), other = as_tf32(x[ROW]);
#pragma unroll
            for (int i = 0; i < PAIRS; ++i) {
                float product[4] = {};
                multiply_tf32(product, as_tf32(back[0].z[2 * i]), as_tf32(back[0].z[2 * i + 1]), as_tf32(back[1].z[2 * i]),
                              as_tf32(back[1].z[2 * i + 1]), one, other);
#pragma unroll
                for (int e = 0; e < 4; ++e) d_input_slice[k][i][e] += product[e];
            }
        }
        if (HAS_DT && d_dt != nullptr)
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                float d = back[j].dt;
#pragma unroll
                for (int bits = 4; bits < 32; bits *= 2) d += from_partner(d, bits);
                if (me.g == 0 && me.there[j])
                    d_dt[(offset)me.warp * N * T * B + first + s * stride + 2 * me.q + j] = d;
            }
        wait_for_fetches<DEPTH - 2>();
        __syncthreads();

        float sums[4] = {};
#pragma unroll
        for (int k = 0; k < HALF; ++k) {
            const int warp = k + HALF * half;
            const unsigned char* there = derivatives + (s & 1) * DERIVATIVES + warp * GROUP + place_of(2 * me.q, me.g);
            float2 by = ((const float2*)(sizes + (s & 1) * SIZES))[warp * 4 + me.q];
            float product[4] = {};
            if (PAIRS == 2) {
                uint4 both = *(const uint4*)there;
                multiply(product, slice[k][0], {both.x, both.y});
                multiply(product, slice[k][PAIRS - 1], {both.z, both.w});
            } else {
                multiply(product, slice[k][0], *(const uint2*)there);
            }
            sums[0] = fmaf(product[0], by.x, sums[0]), sums[1] = fmaf(product[1], by.y, sums[1]);
            sums[2] = fmaf(product[2], by.x, sums[2]), sums[3] = fmaf(product[3], by.y, sums[3]);
        }
        own[0] = sums[0] * range.size, own[1] = sums[1] * range.size;
        exchanged[(threadIdx.x + THREADS / 2) % THREADS] = {sums[2] * range.size, sums[3] * range.size};
        store_step(s);
    }
    receive();
    if (d_first_hidden != nullptr)
#pragma unroll
        for (int j = 0; j < 2; ++j)
            if (me.there[j]) {
                offset here = start + (offset)me.row[j] * H + me.unit;
                d_first_hidden[here] = held[j] + own[j];
                d_first_cell[here] = d_cell[j];
                if (HAS_AGE) d_first_age[here] = d_age[j];
            }
    totals += (offset)me.group * (TOTALS + BLOCKS * INPUTS) * H + me.unit;
    auto leave_total = [&](int kind, float total) {
        total += from_partner(total, 1);
        total += from_partner(total, 2);
        if (me.q == 0) totals[kind * H] = total;
    };
#pragma unroll
    for (int block = 0; block < BLOCKS; ++block) leave_total(block, d_bias[block]);
    if (SPLIT >= 0) leave_total(BLOCKS, d_bias_hn);
    if (HAS_AGE) leave_total(TOTALS - 1, d_p * p * (1.0f - p));
#pragma unroll
    for (int k = 0; k < EIGHTS; ++k)
#pragma unroll
        for (int e = 0; e < 4 * PAIRS; ++e) {
            int block = e / 2, input = 8 * k + 2 * me.q + (e & 1);
            if (block < BLOCKS && input < INPUTS)
                totals[(offset)(TOTALS + block * INPUTS) * H + (offset)me.unit * (INPUTS - 1) + input] = d_input_slice[k][e / 4][e % 4];
        }
}
