// The forward pass; whole.cuh says how, ../kernels.py what the tensors are. With narrow inputs `pre` is only written, if SAVE.
// `before` is h_{t-1} of all steps, if it is wanted.

constexpr int TILES_OF_UNITS = EACH * PAIRS;         // that a warp multiplies: of a pair of blocks, of a unit
constexpr int SENT = 16 * H;                         // bytes of h_t
constexpr int INPUT_ROW = 8 * EIGHTS * 4;            // bytes for the inputs of a row
constexpr int DT = INPUTS ? 8 * INPUT_ROW : BLOCKS_PAGE;
constexpr int INBOX = DT + 32;                       // bytes of a step: inputs or what they contribute, and dt
// Numbers of a row of an outbox, and its pages in bytes, all float32: pre-activations if SAVE, h, cell, age, hn.
constexpr int WIDE_PITCH = BLOCKS * H + 4, NARROW_PITCH = H + 4;
constexpr int KINDS = SAVE ? 2 + HAS_AGE + (SPLIT >= 0) : 1;
constexpr int PAGES = SAVE ? 32 * WIDE_PITCH : 0, OUT_PAGE = 32 * NARROW_PITCH, OUTBOX = PAGES + KINDS * OUT_PAGE;
constexpr int CELL = 1, AGE = 1 + HAS_AGE, HN = AGE + (SPLIT >= 0), BEFORE = HN + 1;
constexpr int OF_BLOCKS = SAVE ? (2 * BLOCKS * H + THREADS - 1) / THREADS : 0;              // times four that a thread stores
constexpr int OF_PAGES = (2 * H * (SAVE ? KINDS + 1 : 1) + THREADS - 1) / THREADS;          // and, of h, cell, age, hn, h before

// Where in shared memory: two times h_t; biases, each twice; slices of the matrix of the inputs; inbox; two outboxes.
constexpr int BIASES = 2 * SENT, INPUT_SLICES = BIASES + PAIRS * H * 16, IN = INPUT_SLICES + EIGHTS * TILES_OF_UNITS * THREADS * 16;
constexpr int OUT = IN + DEPTH * INBOX;

__device__ __forceinline__ float to_keep(float z) { return sizeof(NUMBER) == 2 ? clamped_to_half(z) : z; }

// Where a unit of a row is in h_t: so that a thread reads what it multiplies by two tiles at once.
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
    float* last_cell, float* last_age, NUMBER* before, int T, int B, float eps, float fixed_p, float beta) {
    const Place me = whereabouts(B);
    const int rows = B - me.first_row;

    // The slice of the matrix, for each unit: row g is the first block of a pair, row g + 8 the second.
    matrix += ((offset)me.replica * BLOCKS * H + me.unit) * H;
    auto four_at = [&](int k, int tile, int e) {
        int block = tile / EACH * 2 + e;
        return block < BLOCKS ? four_values(matrix + (block * H + tile % EACH) * H + first_of(k, me.q)) : float4{0, 0, 0, 0};
    };
    word largest = 0;
#pragma unroll 2
    for (int k = 0; k < INNER; ++k)
#pragma unroll
        for (int i = 0; i < 2 * TILES_OF_UNITS; ++i) largest = max(largest, largest_of_four(four_at(k, i / 2, i % 2)));
    const Range range = range_of(largest_of(largest));
    read_again();
    word slice[INNER][TILES_OF_UNITS][4];
#pragma unroll
    for (int k = 0; k < INNER; ++k)
#pragma unroll
        for (int i = 0; i < 2 * TILES_OF_UNITS; ++i) {
            float4 four = four_at(k, i / 2, i % 2);
            slice[k][i / 2][i % 2] = as_halves(four.x * range.times, four.y * range.times);
            slice[k][i / 2][i % 2 + 2] = as_halves(four.z * range.times, four.w * range.times);
        }

    float apart[EACH] = {}, p[EACH];
#pragma unroll
    for (int i = 0; i < TILES_OF_UNITS; ++i) {
        const int u = i % EACH, pair = i / EACH;
        float both[2] = {0, 0};
#pragma unroll
        for (int e = 0; e < 2 && 2 * pair + e < BLOCKS; ++e) {
            offset at = ((offset)me.replica * BLOCKS + 2 * pair + e) * H + me.unit + u;
            float recurrent = entry(bias_hh, at, true);
            both[e] = entry(bias_ih, at, true);
            if (2 * pair + e == SPLIT) apart[u] = recurrent; else both[e] += recurrent;
        }
        at<float4>(BIASES + (i * H + me.unit) / EACH * 16) = {both[0], both[0], both[1], both[1]};
#pragma unroll
        for (int k = 0; k < EIGHTS; ++k) {  // of the inputs, those of q are next to each other
            word four[4];
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                int block = 2 * pair + (e & 1), column = 2 * (EIGHTS * me.q + k) + (e >> 1);
                offset at = (((offset)me.replica * BLOCKS + block) * H + me.unit + u) * INPUTS + column;
                four[e] = as_tf32(block < BLOCKS && column < INPUTS ? value_of(input_matrix[at]) : 0.0f);
            }
            at<uint4>(INPUT_SLICES + ((k * TILES_OF_UNITS + i) * THREADS + threadIdx.x) * 16) = {four[0], four[1], four[2], four[3]};
        }
    }
    State state[2][EACH];  // of a row, of a unit
    int length[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int u = 0; u < EACH; ++u) {
            offset at = ((offset)me.replica * B + me.row[j]) * H + me.unit + u;
            p[u] = exponent_of(p_hat, fixed_p, (offset)me.replica * H + me.unit + u, true);
            state[j][u] = {entry(first_hidden, at, me.there[j]), entry(first_cell, at, me.there[j]),
                           HAS_AGE ? entry(first_age, at, me.there[j]) : 0.0f};
        }
        length[j] = HAS_LENGTHS && me.there[j] ? lengths[(offset)me.replica * B + me.row[j]] : 0;
    }
    // As halves, two units at a time. With one unit, that and the one beside it, of which one thread leaves the first row and the
    // other the second.
    const bool odd = me.g & 1;
    int hidden_to = pinned(place_of(me.unit & ~1, 2 * me.q + (EACH == 1 && odd)));
    const int next_row = place_of(me.unit, 1) - place_of(me.unit, 0);
    auto leave_hidden = [&](bool bounded) {
        auto half = [&](int j, int u) { float h = state[j][u].hidden; return bounded ? h : clamped_to_half(h); };
        if (EACH == 2) {
            at<word>(hidden_to) = as_halves(half(0, 0), half(0, EACH - 1));
            at<word>(hidden_to + next_row) = as_halves(half(1, 0), half(1, EACH - 1));
        } else {
            word both = as_halves(half(0, 0), half(1, 0));
            at<word>(hidden_to) = woven(both, from_partner(both, 4), odd);
        }
    };
    leave_hidden(false);

    const offset first = ((offset)me.replica * T + (REVERSE ? T - 1 : 0)) * B + me.first_row, stride = REVERSE ? -B : B;
    Single input[SINGLES + !SINGLES], time = dt_of(dt, first - stride, rows);
#pragma unroll
    for (int i = 0; i < SINGLES; ++i) input[i] = input_of<8 * EIGHTS>(i, inputs, first - stride, rows);
    Page<BLOCKS * H, NUMBER> from(INPUTS ? nullptr : pre + first * BLOCKS * H, stride, rows);
    const word inbox = shared_address(shared) + IN;
    auto fetch_step = [&](int s) {  // one after the other
        if (s < T) {
            const word stage = inbox + s % DEPTH * INBOX;
            if (!INPUTS) from.go_on_and_fetch(stage, stride);
#pragma unroll
            for (int i = 0; i < SINGLES; ++i) go_on_and_fetch(input[i], stage, stride * INPUTS);
            if (HAS_DT) go_on_and_fetch(time, stage + DT, stride);
        }
        end_of_fetches();
    };
    Four of_blocks[OF_BLOCKS + !OF_BLOCKS], of_pages[OF_PAGES];
#pragma unroll
    for (int i = 0; i < OF_BLOCKS; ++i) {
        of_blocks[i] = four_of<BLOCKS * H>(threadIdx.x + i * THREADS, pre + first * BLOCKS * H, false, rows);
        go_on(of_blocks[i], -stride * (BLOCKS * H));
    }
#pragma unroll
    for (int i = 0; i < OF_PAGES; ++i) {
        int four = threadIdx.x + i * THREADS, kind = four / (2 * H);
        const void* memory = kind == 0 ? hidden + first * H : nullptr;
        if (SAVE && kind == CELL) memory = cells + first * H;
        if (SAVE && HAS_AGE && kind == AGE) memory = ages + first * H;
        if (SAVE && SPLIT >= 0 && kind == HN) memory = parts + first * H;
        if (SAVE && kind == BEFORE && before != nullptr) memory = before + (first + stride) * H;
        of_pages[i] = four_of<H>(four % (2 * H), memory, kind == CELL || (HAS_AGE && kind == AGE), rows);
        if (kind != BEFORE) of_pages[i].place += kind * OUT_PAGE;
        go_on(of_pages[i], -stride * H);
    }
    auto store_step = [&](int box) {  // one after the other
#pragma unroll
        for (int i = 0; i < OF_BLOCKS; ++i) go_on_and_store(of_blocks[i], box, stride * (BLOCKS * H));
#pragma unroll
        for (int i = 0; i < OF_PAGES; ++i) go_on_and_store(of_pages[i], box + PAGES, stride * H);
    };
    for (int i = threadIdx.x; i < DEPTH * INBOX / 4; i += THREADS) at<float>(IN + 4 * i) = 0.0f;  // where nothing will come
    if (SAVE && before != nullptr)
#pragma unroll
        for (int j = 0; j < 2; ++j)
            if (me.there[j]) leave(before + (first + 2 * me.q + j) * H + me.unit, state[j][0].hidden, state[j][EACH - 1].hidden);
    __syncthreads();
    for (int s = 0; s < DEPTH - 1; ++s) fetch_step(s);
    wait_for_fetches<DEPTH - 3>();
    __syncthreads();

    // In the pages of an outbox.
    const int wide_mine = pinned((2 * me.q * WIDE_PITCH + me.unit) * 4), mine = pinned(PAGES + (2 * me.q * NARROW_PITCH + me.unit) * 4);
    const int bias_at = pinned(BIASES + me.unit / EACH * 16), slice_at = pinned(INPUT_SLICES + (int)threadIdx.x * 16);
    const int given_at = pinned(IN + (INPUTS ? me.g * INPUT_ROW + 8 * EIGHTS * me.q : 2 * me.q * BLOCKS_PITCH + me.unit * SIZE));
    // What inputs contribute, as the tensor cores lay it out.
    auto contribute = [&](int s, float (*given)[4]) {
        const int stage = s % DEPTH * INBOX;
#pragma unroll
        for (int i = 0; i < TILES_OF_UNITS; ++i) {
            float4 four = at<float4>(bias_at + i * (H / EACH * 16));
            given[i][0] = four.x, given[i][1] = four.y, given[i][2] = four.z, given[i][3] = four.w;
        }
#pragma unroll
        for (int k = 0; k < EIGHTS; ++k) {
            float2 x = at<float2>(given_at + stage + 8 * k);
            word one = as_tf32(x.x), other = as_tf32(x.y);
#pragma unroll
            for (int i = 0; i < TILES_OF_UNITS; ++i) {
                uint4 four = at<uint4>(slice_at + (k * TILES_OF_UNITS + i) * THREADS * 16);
                multiply_tf32(given[i], four.x, four.y, four.z, four.w, one, other);
            }
        }
        if (!INPUTS)
#pragma unroll
            for (int e = 0; e < 2 * BLOCKS; ++e) {
                const int j = e & 1, block = e >> 1, tile = block / 2 * EACH, part = block % 2 * 2 + j;
                float2 two = taken<NUMBER>(given_at + stage + j * BLOCKS_PITCH + block * ROW);
                given[tile][part] += two.x;
                if (EACH == 2) given[tile + EACH - 1][part] += two.y;
            }
    };
    float given[TILES_OF_UNITS][4];
    contribute(0, given);
    int hidden_at = pinned(me.g * 64 + me.q * 16), box = pinned(OUT), turn = 1;
    constexpr int LAST = INNER / 2 * 512;  // where a last tile without another is
    for (int s = 0; s < T; ++s) {
        float sums[TILES_OF_UNITS][4] = {};
#pragma unroll
        for (int k = 0; k + 1 < INNER; k += 2) {
            uint4 both = at<uint4>(hidden_at + k * 256);
#pragma unroll
            for (int i = 0; i < TILES_OF_UNITS; ++i) multiply(sums[i], slice[k][i], {both.x, both.y});
#pragma unroll
            for (int i = 0; i < TILES_OF_UNITS; ++i) multiply(sums[i], slice[k + 1 < INNER ? k + 1 : k][i], {both.z, both.w});
        }
        if (INNER % 2) {
            uint2 one = at<uint2>(hidden_at + LAST - (me.g * 64 + me.q * 16) / 2);
#pragma unroll
            for (int i = 0; i < TILES_OF_UNITS; ++i) multiply(sums[i], slice[INNER - 1][i], one);
        }
        fetch_step(s + DEPTH - 1);
        float z[2][EACH][4] = {}, hn[2][EACH] = {};
#pragma unroll
        for (int e = 0; e < 2 * BLOCKS; ++e) {
            const int j = e & 1, block = e >> 1, part = block % 2 * 2 + j;
#pragma unroll
            for (int u = 0; u < EACH; ++u) {
                float sum = sums[block / 2 * EACH + u][part], rest = given[block / 2 * EACH + u][part];
                z[j][u][block] = block == SPLIT ? rest : fmaf(sum, range.size, rest);
                if (block == SPLIT) hn[j][u] = fmaf(sum, range.size, apart[u]);
            }
        }
        if (s > 0) store_step(box + turn * OUTBOX);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            float step = HAS_DT ? at<float>(IN + s % DEPTH * INBOX + DT + (2 * me.q + j) * 4) : 1.0f;
#pragma unroll
            for (int u = 0; u < EACH; ++u) {
                State next = CELL_FORWARD(z[j][u], hn[j][u], state[j][u], p[u], step, eps, beta);
                if (!HAS_LENGTHS || (REVERSE ? T - 1 - s : s) < length[j]) state[j][u] = next;
            }
        }
        hidden_to += turn * SENT;
        leave_hidden(BOUNDED);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const State &one = state[j][0], &other = state[j][EACH - 1];
            auto page = [&](int kind) { return &at<float>(box + mine + kind * OUT_PAGE + j * NARROW_PITCH * 4); };
            leave(page(0), one.hidden, other.hidden);
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block)
                if (SAVE) leave(&at<float>(box + wide_mine + (j * WIDE_PITCH + block * H) * 4), to_keep(z[j][0][block]), to_keep(z[j][EACH - 1][block]));
            if (SAVE) leave(page(CELL), one.cell, other.cell);
            if (SAVE && HAS_AGE) leave(page(AGE), one.age, other.age);
            if (SAVE && SPLIT >= 0) leave(page(HN), to_keep(hn[j][0]), to_keep(hn[j][EACH - 1]));
        }
        contribute(s + 1, given);  // after the last step, of what was there before
        wait_for_fetches<DEPTH - 3>();
        __syncthreads();
        hidden_at += turn * SENT, box += turn * OUTBOX, turn = -turn;
    }
#pragma unroll
    for (int i = 0; i < OF_PAGES; ++i)
        if (((int)threadIdx.x + i * THREADS) / (2 * H) == BEFORE) of_pages[i].there = false;
    store_step(box + turn * OUTBOX);
#pragma unroll
    for (int e = 0; e < 2 * EACH; ++e) {
        const int j = e % 2, u = e / 2;
        if (!me.there[j]) continue;
        offset end = ((offset)me.replica * B + me.row[j]) * H + me.unit + u;
        last_hidden[end] = state[j][u].hidden;
        last_cell[end] = state[j][u].cell;
        if (HAS_AGE) last_age[end] = state[j][u].age;
    }
}
