// The forward pass; whole.cuh says how, ../kernels.py what the tensors are. With narrow inputs `pre` is only written, if SAVE.

constexpr int SENT = 16 * H;                         // bytes of h_t
constexpr int ROW = 8 * EIGHTS;                      // places for the inputs of a row
constexpr int DT = INPUTS ? 8 * ROW : WIDE_PAGE;
constexpr int INBOX = DT + 8;                        // numbers of a step: inputs or what they contribute, and dt
constexpr int FIRST_PAGE = SAVE ? WIDE_PAGE : 0;     // of an outbox, after that of pre-activations
constexpr int CELL = SAVE ? 1 : -1, AGE = SAVE && HAS_AGE ? 2 : -1, HN = SAVE && SPLIT >= 0 ? 2 + HAS_AGE : -1;
constexpr int KINDS = SAVE ? 2 + HAS_AGE + (SPLIT >= 0) : 1;  // of pages of single blocks: h, cell, age, hn
constexpr int OUTBOX = FIRST_PAGE + KINDS * PAGE;
constexpr int LEFT = (KINDS + 1) / 2;                // times four numbers of them that a thread stores

__device__ __forceinline__ float to_keep(float z) { return sizeof(NUMBER) == 2 ? clamped_to_half(z) : z; }

// Where a unit of a row is in h_t: so that a thread reads what it multiplies by two tiles at once. In bytes.
__device__ __forceinline__ int place_of(int unit, int row) {
    bool last = INNER % 2 && unit >= 16 * (INNER - 1);
    return unit / 32 * 512 + (last ? row * 32 + unit % 16 * 2 : row * 64 + unit % 32 * 2);
}

// The first of the four units that threads of q multiply in the k-th tile.
__device__ __forceinline__ int first_of(int k, int q) {
    return INNER % 2 && k == INNER - 1 ? 16 * k + 4 * q : 32 * (k / 2) + 8 * q + 4 * (k % 2);
}

extern "C" __global__ void __launch_bounds__(THREADS, TOGETHER) whole_forward(
    NUMBER* pre, const float* inputs, const NUMBER* input_matrix, const NUMBER* matrix, const float* bias_ih, const float* bias_hh,
    const float* p_hat, const float* dt, const int* lengths, const float* first_hidden, const float* first_cell,
    const float* first_age, NUMBER* hidden, float* cells, float* ages, NUMBER* parts, float* last_hidden,
    float* last_cell, float* last_age, int T, int B, float eps, float fixed_p, float beta) {
    // Shared memory: two times h_t; biases, each twice; slices of the matrix of the inputs; inbox and outbox.
    unsigned char* hiddens = shared;
    float4* biases = (float4*)(hiddens + 2 * SENT);
    uint4* input_slices = (uint4*)(biases + PAIRS * H);
    float* inbox = (float*)(input_slices + EIGHTS * PAIRS * THREADS);
    float* outbox = inbox + DEPTH * INBOX;
    const Place me = whereabouts(B);

    // The slice of the matrix: row g is the first block of a pair of unit g, row g + 8 the second.
    matrix += (offset)me.replica * BLOCKS * H * H;
    auto entry_at = [&](int block, int column) {
        return block < BLOCKS ? value_of(matrix[((offset)block * H + me.unit) * H + column]) : 0.0f;
    };
    word largest = 0;
    for (int block = 0; block < BLOCKS; ++block)
#pragma unroll 4
        for (int column = me.q; column < H; column += 4) largest = max(largest, magnitude(entry_at(block, column)));
    const Range range = range_of(largest_of(largest));
    word slice[INNER][PAIRS][4];
#pragma unroll
    for (int k = 0; k < INNER; ++k)
#pragma unroll
        for (int p = 0; p < PAIRS; ++p)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                int block = 2 * p + (e & 1), column = first_of(k, me.q) + (e & 2);
                slice[k][p][e] = as_halves(entry_at(block, column) * range.times, entry_at(block, column + 1) * range.times);
            }

    float apart = 0.0f;
#pragma unroll
    for (int p = 0; p < PAIRS; ++p) {
        float both[2] = {};
#pragma unroll
        for (int e = 0; e < 2 && 2 * p + e < BLOCKS; ++e) {
            offset at = ((offset)me.replica * BLOCKS + 2 * p + e) * H + me.unit;
            float recurrent = entry(bias_hh, at, true);
            both[e] = entry(bias_ih, at, true);
            if (2 * p + e == SPLIT) apart = recurrent; else both[e] += recurrent;
        }
        biases[p * H + me.unit] = {both[0], both[0], both[1], both[1]};
#pragma unroll
        for (int k = 0; k < EIGHTS; ++k) {  // of the inputs, those of q are next to each other
            word four[4];
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                int block = 2 * p + (e & 1), column = 2 * (EIGHTS * me.q + k) + (e >> 1);
                offset at = (((offset)me.replica * BLOCKS + block) * H + me.unit) * INPUTS + column;
                four[e] = as_tf32(block < BLOCKS && column < INPUTS ? value_of(input_matrix[at]) : 0.0f);
            }
            input_slices[(k * PAIRS + p) * THREADS + threadIdx.x] = {four[0], four[1], four[2], four[3]};
        }
    }
    const float p = exponent_of(p_hat, fixed_p, (offset)me.replica * H + me.unit, true);
    State state[2];
    int length[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
        offset at = ((offset)me.replica * B + me.row[j]) * H + me.unit;
        state[j] = {entry(first_hidden, at, me.there[j]), entry(first_cell, at, me.there[j]),
                    HAS_AGE ? entry(first_age, at, me.there[j]) : 0.0f};
        length[j] = HAS_LENGTHS && me.there[j] ? lengths[(offset)me.replica * B + me.row[j]] : 0;
    }
    // This thread's unit and the one beside it, of which one thread sends the first row and the other the second.
    const bool odd = me.g & 1;
    const int own = place_of(me.unit & ~1, 2 * me.q + odd);
    auto leave_hidden = [&](int s) {
        word both = as_halves(clamped_to_half(state[0].hidden), clamped_to_half(state[1].hidden));
        *(word*)(hiddens + (s & 1) * SENT + own) = woven(both, from_partner(both, 4), odd);
    };
    leave_hidden(0);

    const offset first = ((offset)me.replica * T + (REVERSE ? T - 1 : 0)) * B + me.first_row, stride = REVERSE ? -B : B;
    const offset onward = stride * H * (int)sizeof(NUMBER), wide_onward = stride * H * 4;
    const int rows = B - me.first_row;
    // What this thread fetches and stores in every step.
    Route from[WIDE_FOURS], pre_to[WIDE_FOURS], to[LEFT];
#pragma unroll
    for (int i = 0; i < WIDE_FOURS; ++i) {
        int j = threadIdx.x + i * THREADS;
        from[i] = route_of<BLOCKS * H>(j, INPUTS ? nullptr : pre + first * BLOCKS * H, false, false, rows);
        pre_to[i] = route_of<BLOCKS * H>(j, SAVE ? pre + first * BLOCKS * H : nullptr, false, true, rows);
    }
#pragma unroll
    for (int i = 0; i < LEFT; ++i) {
        int j = threadIdx.x + i * THREADS, kind = j / (THREADS / 2);
        const void* memory = kind == 0 ? (const void*)(hidden + first * H) : nullptr;
        if (kind == CELL) memory = cells + first * H;
        if (kind == AGE) memory = ages + first * H;
        if (kind == HN) memory = parts + first * H;
        to[i] = route_of<H>(j % (THREADS / 2), memory, kind == CELL || kind == AGE, true, rows);
        to[i].place += kind * PAGE * 4;
    }
    Single input[SINGLES + !SINGLES], time = dt_of(dt, first, rows);
#pragma unroll
    for (int i = 0; i < SINGLES; ++i) input[i] = input_of<ROW>(i, inputs, first, rows);
    auto fetch_step = [&](int s) {  // one after the other
        if (s < T) {
            word stage = shared_address(inbox) + s % DEPTH * INBOX * 4;
            if (!INPUTS)
#pragma unroll
                for (int i = 0; i < WIDE_FOURS; ++i) fetch_and_go_on(from[i], stage, onward * BLOCKS);
#pragma unroll
            for (int i = 0; i < SINGLES; ++i) fetch_and_go_on(input[i], stage, stride * INPUTS);
            if (HAS_DT) fetch_and_go_on(time, stage + DT * 4, stride);
        }
        end_of_fetches();
    };
    auto store_step = [&](int s) {  // one after the other
        const float* box = outbox + (s & 1) * OUTBOX;
        if (SAVE)
#pragma unroll
            for (int i = 0; i < WIDE_FOURS; ++i) store_and_go_on(pre_to[i], box, onward * BLOCKS);
#pragma unroll
        for (int i = 0; i < LEFT; ++i) store_and_go_on(to[i], box + FIRST_PAGE, to[i].wide ? wide_onward : onward);
    };
    for (int i = threadIdx.x; i < DEPTH * INBOX; i += THREADS) inbox[i] = 0.0f;  // where nothing will come
    __syncthreads();
    for (int s = 0; s < DEPTH - 1; ++s) fetch_step(s);
    wait_for_fetches<DEPTH - 2>();
    __syncthreads();

    const int wide_mine = 2 * me.q * WIDE_PITCH + me.unit, mine = 2 * me.q * PITCH + me.unit;  // in a page of a box
    for (int s = 0; s < T; ++s) {
        if (s > 0) store_step(s - 1);
        fetch_step(s + DEPTH - 1);
        const float* stage = inbox + s % DEPTH * INBOX;
        float sums[PAIRS][4] = {}, given[PAIRS][4];
        const unsigned char* h = hiddens + (s & 1) * SENT;
#pragma unroll
        for (int k = 0; k < INNER; k += 2) {
            uint2 one, other = {};
            if (k + 1 < INNER) {
                uint4 both = *(const uint4*)(h + k * 256 + me.g * 64 + me.q * 16);
                one = {both.x, both.y}, other = {both.z, both.w};
            } else {
                one = *(const uint2*)(h + k * 256 + me.g * 32 + me.q * 8);
            }
#pragma unroll
            for (int p = 0; p < PAIRS; ++p) multiply(sums[p], slice[k][p], one);
            if (k + 1 < INNER)
#pragma unroll
                for (int p = 0; p < PAIRS; ++p) multiply(sums[p], slice[k + 1 < INNER ? k + 1 : k][p], other);
        }
#pragma unroll
        for (int p = 0; p < PAIRS; ++p) {
            float4 four = biases[p * H + me.unit];
            given[p][0] = four.x, given[p][1] = four.y, given[p][2] = four.z, given[p][3] = four.w;
        }
        if (INPUTS) {
#pragma unroll
            for (int k = 0; k < EIGHTS; ++k) {
                float2 x = *(const float2*)(stage + me.g * ROW + 2 * EIGHTS * me.q + 2 * k);
                word first_of_two = as_tf32(x.x), second = as_tf32(x.y);
#pragma unroll
                for (int p = 0; p < PAIRS; ++p) {
                    uint4 four = input_slices[(k * PAIRS + p) * THREADS + threadIdx.x];
                    multiply_tf32(given[p], four.x, four.y, four.z, four.w, first_of_two, second);
                }
            }
        } else {
#pragma unroll
            for (int e = 0; e < 2 * BLOCKS; ++e)
                given[e / 4][e % 4] += value_of(((const NUMBER*)stage)[wide_mine + e % 2 * WIDE_PITCH + e / 2 * H]);
        }

        float* leave_wide = outbox + (s & 1) * OUTBOX + wide_mine;
        float* leave = outbox + (s & 1) * OUTBOX + FIRST_PAGE + mine;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            float z[4] = {0, 0, 0, 0}, hn = 0.0f, step = HAS_DT ? stage[DT + 2 * me.q + j] : 1.0f;
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block) {
                float sum = sums[block / 2][block % 2 * 2 + j], rest = given[block / 2][block % 2 * 2 + j];
                z[block] = block == SPLIT ? rest : fmaf(sum, range.size, rest);
                if (block == SPLIT) hn = fmaf(sum, range.size, apart);
            }
            State next = CELL_FORWARD(z, hn, state[j], p, step, eps, beta);
            if (!HAS_LENGTHS || (REVERSE ? T - 1 - s : s) < length[j]) state[j] = next;
            if (SAVE) {
#pragma unroll
                for (int block = 0; block < BLOCKS; ++block) leave_wide[j * WIDE_PITCH + block * H] = to_keep(z[block]);
                leave[CELL * PAGE + j * PITCH] = state[j].cell;
                if (HAS_AGE) leave[AGE * PAGE + j * PITCH] = state[j].age;
                if (SPLIT >= 0) leave[HN * PAGE + j * PITCH] = to_keep(hn);
            }
            leave[j * PITCH] = state[j].hidden;
        }
        leave_hidden(s + 1);
        wait_for_fetches<DEPTH - 2>();
        __syncthreads();
    }
    store_step(T - 1);
#pragma unroll
    for (int j = 0; j < 2; ++j)
        if (me.there[j]) {
            offset end = ((offset)me.replica * B + me.row[j]) * H + me.unit;
            last_hidden[end] = state[j].hidden;
            last_cell[end] = state[j].cell;
            if (HAS_AGE) last_age[end] = state[j].age;
        }
}
