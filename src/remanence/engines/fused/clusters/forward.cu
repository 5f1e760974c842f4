// The forward pass; kernels.cuh says how, ../kernels.py what the tensors are.

constexpr int CHUNKS = CLUSTER * WARPS;              // of four units, of the whole layer
constexpr int INNER = CLUSTER * SQUARES;             // tiles of sixteen columns of the matrix
constexpr int PART = CHUNKS * 64 * TILES;            // bytes of h_t, or of its finer part
constexpr int SENT = PARTS * PART;
constexpr int INBOX = BLOCKS * PAGE + TILES * 8;     // numbers of a step: what the inputs contribute, and dt
constexpr int CELL = SAVE ? BLOCKS : -1, AGE = SAVE && HAS_AGE ? CELL + 1 : -1, HN = SAVE && SPLIT >= 0 ? CELL + HAS_AGE + 1 : -1;
constexpr int HIDDEN = SAVE ? CELL + HAS_AGE + (SPLIT >= 0) + 1 : 0;
constexpr int OUTBOX = (HIDDEN + 1) * PAGE;          // numbers that a step leaves: pre-activations, cell, age, hn, h
constexpr int GIVEN = (BLOCKS * FOURS + THREADS - 1) / THREADS;          // times four numbers that a thread fetches
constexpr int LEFT = ((HIDDEN + 1) * FOURS + THREADS - 1) / THREADS;     // and stores
constexpr int CHAINS = TILES * PARTS == 1 ? 4 : 2;   // sums that do not wait for each other

extern "C" __global__ void __launch_bounds__(THREADS, TOGETHER) forward(
    float* pre, const NUMBER* matrix, const float* bias_ih, const float* bias_hh,
    const float* p_hat, const float* dt, const int* lengths, const float* first_hidden, const float* first_cell,
    const float* first_age, NUMBER* hidden, float* cells, float* ages, float* parts, float* last_hidden,
    float* last_cell, float* last_age, int T, int B, float eps, float fixed_p, float beta) {
    // Shared memory: two letterboxes, two times h_t as [part][tile][chunk][row][unit], inbox and outbox.
    unsigned char* hiddens = shared + 128;
    float* inbox = (float*)(hiddens + 2 * SENT);
    float* outbox = inbox + DEPTH * INBOX;
    const Place me = whereabouts(B);
    const word box = two_letterboxes(SENT);

    // The slice of the matrix: row g is block g / 4 of unit g % 4 of this warp, row g + 8 two blocks further.
    matrix += (offset)me.replica * BLOCKS * H * H;
    auto entry_at = [&](int half, int column) {
        int block = (me.g >> 2) + 2 * half;
        bool there = block < BLOCKS && me.unit_there && column < H;
        return there ? value_of(matrix[((offset)block * H + me.unit) * H + column]) : 0.0f;
    };
    word largest = 0;
    for (int half = 0; half < 2; ++half)
#pragma unroll 4
        for (int k = 0; k < 4 * INNER; ++k) largest = max(largest, magnitude(entry_at(half, 4 * k + me.q)));
    const Range range = range_of(largest_of(largest));
    word slice[PARTS][INNER][4];
#pragma unroll
    for (int k = 0; k < INNER; ++k)
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int pair = 0; pair < 2; ++pair) {
                int column = 16 * k + 4 * me.q + 2 * pair;
                float low = entry_at(half, column) * range.times, high = entry_at(half, column + 1) * range.times;
                slice[0][k][half + 2 * pair] = as_halves(low, high);
                if (PARTS == 2) slice[PARTS - 1][k][half + 2 * pair] = as_halves(finer(low), finer(high));
            }

    float bias[4] = {0, 0, 0, 0}, apart = 0.0f;
#pragma unroll
    for (int block = 0; block < BLOCKS; ++block) {
        offset at = ((offset)me.replica * BLOCKS + block) * H + me.unit;
        float recurrent = entry(bias_hh, at, me.unit_there);
        bias[block] = entry(bias_ih, at, me.unit_there);
        if (block == SPLIT) apart = recurrent; else bias[block] += recurrent;
    }
    const float p = exponent_of(p_hat, fixed_p, me);
    State state[TILES];
    int length[TILES];
#pragma unroll
    for (int j = 0; j < TILES; ++j) {
        offset at = ((offset)me.replica * B + me.row[j]) * H + me.unit;
        state[j] = {entry(first_hidden, at, me.there[j]), entry(first_cell, at, me.there[j]),
                    HAS_AGE ? entry(first_age, at, me.there[j]) : 0.0f};
        length[j] = HAS_LENGTHS && me.row[j] < B ? lengths[(offset)me.replica * B + me.row[j]] : 0;
    }
    // h_0 of all units, from memory: every program fills its own.
    for (int i = threadIdx.x; i < TILES * CHUNKS * 8; i += THREADS) {
        int row = me.first_row + i / (CHUNKS * 8) * 8 + i % 8, unit = i / 8 % CHUNKS * 4;
        float four[4];
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            offset at = ((offset)me.replica * B + row) * H + unit + u;
            four[u] = clamped_to_half(entry(first_hidden, at, row < B && unit + u < H));
        }
        ((uint2*)hiddens)[i] = {as_halves(four[0], four[1]), as_halves(four[2], four[3])};
        if (PARTS == 2)
            ((uint2*)(hiddens + PART))[i] = {as_halves(finer(four[0]), finer(four[1])), as_halves(finer(four[2]), finer(four[3]))};
    }

    const offset first = ((offset)me.replica * T + (REVERSE ? T - 1 : 0)) * B, stride = REVERSE ? -B : B;
    // What this thread fetches and stores in every step.
    const float* from[GIVEN];
#pragma unroll
    for (int i = 0; i < GIVEN; ++i) {
        Four four = four_of(threadIdx.x + i * THREADS);
        int row = me.first_row + four.row, unit = me.rank * UNITS + four.unit;
        bool inside = four.kind < BLOCKS && row < B && unit < H;
        from[i] = inside ? pre + ((first + row) * BLOCKS + four.kind) * H + unit : nullptr;
    }
    auto fetch_step = [&](int s, offset onward) {
        if (s < T) {
            word stage = s % DEPTH * INBOX * 4;
#pragma unroll
            for (int i = 0; i < GIVEN; ++i)
                if (from[i] != nullptr)
                    fetch_four(shared_address(inbox + four_of(threadIdx.x + i * THREADS).place) + stage,
                               from[i] + onward * BLOCKS, true);
            if (HAS_DT && threadIdx.x < TILES * 8) {
                int row = me.first_row + threadIdx.x;
                fetch(shared_address(inbox + BLOCKS * PAGE + threadIdx.x) + stage, row < B ? dt + first + s * stride + row : dt, row < B);
            }
        }
        end_of_fetches();
    };
    void* to[LEFT];
#pragma unroll
    for (int i = 0; i < LEFT; ++i) {
        Four four = four_of(threadIdx.x + i * THREADS);
        int row = me.first_row + four.row, unit = me.rank * UNITS + four.unit;
        offset at = (first + row) * H + unit;
        to[i] = nullptr;
        if (row < B && unit < H) {
            if (four.kind == HIDDEN) to[i] = hidden + at;
            else if (four.kind == CELL) to[i] = cells + at;
            else if (four.kind == AGE) to[i] = ages + at;
            else if (four.kind == HN) to[i] = parts + at;
            else if (four.kind < HIDDEN) to[i] = pre + ((first + row) * BLOCKS + four.kind) * H + unit;
        }
    }
    auto store_step = [&](int s, offset onward) {
#pragma unroll
        for (int i = 0; i < LEFT; ++i)
            if (to[i] != nullptr) {
                Four four = four_of(threadIdx.x + i * THREADS);
                float4 numbers = *(const float4*)(outbox + (s & 1) * OUTBOX + four.place);
                if (four.kind == HIDDEN) store_four((NUMBER*)to[i] + onward, numbers);
                else store_four((float*)to[i] + onward * (four.kind < BLOCKS ? BLOCKS : 1), numbers);
            }
    };
    for (int i = threadIdx.x; i < DEPTH * INBOX; i += THREADS) inbox[i] = 0.0f;  // where nothing will come
    __syncthreads();
    const offset step_size = stride * H;
    for (int s = 0; s < DEPTH - 1; ++s) fetch_step(s, s * step_size);

    // Where this thread sends to: lanes of one g send the 64 bytes of their warp and tile to programs g and g + 8.
    const word own = shared_address(hiddens) + (me.rank * WARPS + me.warp) * 64 + me.q * 16;
    word place[(CLUSTER + 7) / 8], boxes[(CLUSTER + 7) / 8];
#pragma unroll
    for (int i = 0; i < (CLUSTER + 7) / 8; ++i) {
        word rank = me.g + 8 * i < CLUSTER ? me.g + 8 * i : 0;
        place[i] = address_in(rank, own), boxes[i] = address_in(rank, box);
    }
    wait_for_fetches<DEPTH - 2>();
    __syncthreads();
    meet();

    const int mine = (2 * me.q + (me.g >> 2)) * PITCH + me.warp * 4 + (me.g & 3);  // in a page of a box
    offset now = 0;  // of this step, in numbers of h
    for (int s = 0; s < T; ++s, now += step_size) {
        if (s > 0) store_step(s - 1, now - step_size);
        fetch_step(s + DEPTH - 1, now + (DEPTH - 1) * step_size);
        const float* stage = inbox + s % DEPTH * INBOX;
        float z[TILES][4] = {}, hn[TILES], step[TILES];
#pragma unroll
        for (int j = 0; j < TILES; ++j) {
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block) z[j][block] = stage[block * PAGE + j * 8 * PITCH + mine] + bias[block];
            step[j] = HAS_DT ? stage[BLOCKS * PAGE + me.row[j] - me.first_row] : 1.0f;
        }
        if (s > 0) {
            wait_for(box + 8 * (s & 1), ((s - 1) >> 1) & 1);
            if (threadIdx.x == 0) expect(box + 8 * (s & 1), SENT);
        }
        float sums[TILES][CHAINS][4] = {}, fine[TILES][PARTS][4] = {};
        const uint2* factor = (const uint2*)(hiddens + (s & 1) * SENT) + me.q * 8 + me.g;
#pragma unroll
        for (int k = 0; k < INNER; ++k)
#pragma unroll
            for (int j = 0; j < TILES; ++j) {
                uint2 h = factor[(j * CHUNKS + 4 * k) * 8];
                multiply(sums[j][k % CHAINS], slice[0][k], h);
                if (PARTS == 2) {
                    multiply(fine[j][0], slice[0][k], factor[(j * CHUNKS + 4 * k) * 8 + PART / 8]);
                    multiply(fine[j][PARTS - 1], slice[PARTS - 1][k], h);
                }
            }

        const bool upper = me.g >= 4;
#pragma unroll
        for (int j = 0; j < TILES; ++j) {
            float* sum = sums[j][0];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (CHAINS == 4) sum[i] += sums[j][CHAINS - 2][i] + sums[j][CHAINS - 1][i];
                sum[i] += sums[j][1][i];
                if (PARTS == 2) sum[i] += (fine[j][0][i] + fine[j][PARTS - 1][i]) * (1.0f / FINER);
                sum[i] *= range.size;
            }
            // Threads of the lower half have blocks 0 and 2 of two rows, those of the upper 1 and 3: they share out the rows.
            float one = from_partner(upper ? sum[0] : sum[1], 16), other = from_partner(upper ? sum[2] : sum[3], 16);
            float product[4] = {upper ? one : sum[0], upper ? sum[1] : one, upper ? other : sum[2], upper ? sum[3] : other};
            hn[j] = 0.0f;
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block)
                if (block == SPLIT) hn[j] = apart + product[block]; else z[j][block] += product[block];
            State next = CELL_FORWARD(z[j], hn[j], state[j], p, step[j], eps, beta);
            if (!HAS_LENGTHS || (REVERSE ? T - 1 - s : s) < length[j]) state[j] = next;
        }

        if (s < T - 1)
#pragma unroll
            for (int j = 0; j < TILES; ++j) {  // the four units of the warp in two rows, as sixteen bytes
                float value = clamped_to_half(state[j].hidden);
                word halves[PARTS];
                halves[0] = as_halves(value, 0.0f);
                if (PARTS == 2) halves[PARTS - 1] = as_halves(finer(value), 0.0f);
#pragma unroll
                for (int part = 0; part < PARTS; ++part) {
                    word other = from_partner(halves[part], 4);
                    word two = me.g & 1 ? other | halves[part] << 16 : halves[part] | other << 16;
                    other = from_partner(two, 8);
                    word low = me.g & 2 ? other : two, high = me.g & 2 ? two : other;
                    word low2 = from_partner(low, 16), high2 = from_partner(high, 16);
                    word shift = ((s + 1) & 1) * SENT + part * PART + j * CHUNKS * 64;
#pragma unroll
                    for (int i = 0; i < (CLUSTER + 7) / 8; ++i)
                        if (me.g + 8 * i < CLUSTER)
                            deliver(place[i] + shift, boxes[i] + 8 * ((s + 1) & 1), upper ? low2 : low,
                                    upper ? high2 : high, upper ? low : low2, upper ? high : high2);
                }
            }

        float* leave = outbox + (s & 1) * OUTBOX + mine;
#pragma unroll
        for (int j = 0; j < TILES; ++j, leave += 8 * PITCH) {
            if (SAVE) {
#pragma unroll
                for (int block = 0; block < BLOCKS; ++block) leave[block * PAGE] = z[j][block];
                leave[CELL * PAGE] = state[j].cell;
                if (HAS_AGE) leave[AGE * PAGE] = state[j].age;
                if (SPLIT >= 0) leave[HN * PAGE] = hn[j];
            }
            leave[HIDDEN * PAGE] = state[j].hidden;
        }
        wait_for_fetches<DEPTH - 2>();
        __syncthreads();
    }
    store_step(T - 1, now - step_size);
#pragma unroll
    for (int j = 0; j < TILES; ++j)
        if (me.there[j]) {
            offset end = ((offset)me.replica * B + me.row[j]) * H + me.unit;
            last_hidden[end] = state[j].hidden;
            last_cell[end] = state[j].cell;
            if (HAS_AGE) last_age[end] = state[j].age;
        }
}
