// The forward pass. whole.cuh describes the scheme, ../triton/kernels.py the tensors. With narrow inputs `pre` is only written, if SAVE.
// `before` is h_{t-1} of all steps, or null.

constexpr int INNER = H / 16;                        // tiles of sixteen units
constexpr int SENT = 16 * H;                         // bytes of h_t
constexpr int INPUT_ROW = 8 * EIGHTS * 4;            // bytes of the inputs of a row
constexpr int DT = INPUTS ? 8 * INPUT_ROW : BLOCKS_PAGE;
constexpr int INBOX = DT + 32;                       // bytes per step: inputs or pre-activations, and dt
// If two padding inputs are left, they are set to 1 and their weights to the biases, each split into two TF32 values.
constexpr bool ONES = EIGHTS && 8 * EIGHTS - INPUTS >= 2;
// Row strides of the outbox in elements, and its pages in bytes, all float32: pre-activations if SAVE, h, cell, carried values, hn.
constexpr int WIDE_PITCH = BLOCKS * H + 4, NARROW_PITCH = H + 4;
constexpr int KINDS = SAVE ? 2 + CARRIED + (SPLIT >= 0) : 1;
constexpr int PAGES = SAVE ? 32 * WIDE_PITCH : 0, OUT_PAGE = 32 * NARROW_PITCH, OUTBOX = PAGES + KINDS * OUT_PAGE;
constexpr int CELL = 1, HN = CELL + CARRIED + (SPLIT >= 0), BEFORE = HN + 1;
// Vectors of four that a thread stores: of pre-activations; of h, cell, carried values, hn, and h before the step.
constexpr int OF_BLOCKS = SAVE ? (2 * BLOCKS * H + THREADS - 1) / THREADS : 0;
constexpr int OF_PAGES = (2 * H * (SAVE ? KINDS + 1 : 1) + THREADS - 1) / THREADS;

// With an odd number of more than four blocks, the last block has no partner. Its tile has two tiles of units, one in its upper rows
// and one in its lower rows. It is multiplied by the operands of both, and half of each product is used. With ASIDE, it is in shared
// memory.
constexpr bool ODD = BLOCKS > 4 && BLOCKS % 2;
constexpr int REAL_PAIRS = PAIRS - ODD, SINGLE = ODD ? (INNER + 1) / 2 : 0;

// Layout of shared memory: two buffers of h_t; biases, each twice; slices of the input matrix; inbox; two outboxes; with ASIDE, the
// tiles of the last block.
constexpr int BIASES = 2 * SENT, INPUT_SLICES = BIASES + PAIRS * H * 16, IN = INPUT_SLICES + EIGHTS * PAIRS * THREADS * 16;
constexpr int OUT = IN + DEPTH * INBOX, LAST_BLOCK = OUT + 2 * OUTBOX;

// A vector of four elements that a thread stores in every step, if `there`: its global address (float32 if `wide`, else NUMBER), and its
// offset in the outbox.
struct Four { bool there, wide; char* memory; int place; };

template <int WIDTH>
__device__ __forceinline__ Four four_of(int i, const void* memory, bool wide, int rows) {
    int row = i / (WIDTH / 4);
    return {memory != nullptr && row < 8 && row < rows, wide, (char*)memory + (offset)i * 4 * (wide ? 4 : SIZE),
            row * (WIDTH + 4) * 4 + i % (WIDTH / 4) * 16};
}

// (The address advances before the store, not after it: its register is in use until the store has been issued.)
__device__ __forceinline__ void go_on_and_store(Four& four, int box, offset numbers) {
    four.memory += numbers * (SIZE == 4 || four.wide ? 4 : SIZE);
    if (four.there) {
        float4 content = at<float4>(box + four.place);
        if (SIZE == 4 || four.wide) store_four((float*)four.memory, content);
        else store_four((NUMBER*)four.memory, content);
    }
}

// Offset of a unit of a row in h_t: a thread reads its operands of two tiles with one load, and pairs of rows are in different banks.
__device__ __forceinline__ int place_of(int unit, int row) {
    bool last = INNER % 2 && unit >= 16 * (INNER - 1);
    return unit / 32 * 512 + (last ? row * 32 + unit % 16 * 2 : row * 64 + (unit % 32 * 2 ^ row / 2 * 16));
}

// The first of the four units that lanes of q multiply in the k-th tile.
__device__ __forceinline__ int first_of(int k, int q) {
    return INNER % 2 && k == INNER - 1 ? 16 * k + 4 * q : 32 * (k / 2) + 8 * q + 4 * (k % 2);
}

extern "C" __global__ void __launch_bounds__(THREADS, TOGETHER) whole_forward(
    NUMBER* pre, const float* inputs, const NUMBER* input_matrix, const NUMBER* matrix, const BIAS* bias_ih, const BIAS* bias_hh,
    const BIAS* own_weights, const float* dt, const int* lengths, const float* first_hidden, const float* first_cell,
    const float* first_carried, NUMBER* hidden, float* cells, float* carried, NUMBER* parts, float* last_hidden,
    float* last_cell, float* last_carried, NUMBER* before, int T, int B, float beta) {
    const Place me = whereabouts(B);
    const int rows = B - me.first_row;

    // The slice of the matrix: row g is the first block of a pair, row g + 8 the second.
    matrix += ((offset)me.replica * BLOCKS * H + me.unit) * H;
    auto four_at = [&](int k, int block) {
        return block < BLOCKS ? four_values(matrix + block * H * H + first_of(k, me.q)) : float4{0, 0, 0, 0};
    };
    word largest = 0;
#pragma unroll 2
    for (int k = 0; k < INNER; ++k)
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block) largest = max(largest, largest_of_four(four_at(k, block)));
    const Range range = range_of(largest_of(largest));
    read_again();
    word slice[INNER][REAL_PAIRS][4];
#pragma unroll
    for (int k = 0; k < INNER; ++k)
#pragma unroll
        for (int block = 0; block < 2 * REAL_PAIRS; ++block) {
            float4 four = four_at(k, block);
            slice[k][block / 2][block % 2] = as_halves(four.x * range.times, four.y * range.times);
            slice[k][block / 2][block % 2 + 2] = as_halves(four.z * range.times, four.w * range.times);
        }
    word last[SINGLE + !SINGLE][4];
#pragma unroll
    for (int k = 0; k < 2 * SINGLE; ++k) {
        float4 four = k < INNER ? four_at(k, BLOCKS - 1) : float4{0, 0, 0, 0};
        last[k / 2][k % 2] = as_halves(four.x * range.times, four.y * range.times);
        last[k / 2][k % 2 + 2] = as_halves(four.z * range.times, four.w * range.times);
    }
#pragma unroll
    for (int k = 0; k < SINGLE; ++k)
        if (ASIDE) at<uint4>(LAST_BLOCK + (k * THREADS + (int)threadIdx.x) * 16) = {last[k][0], last[k][1], last[k][2], last[k][3]};

    float apart = 0.0f;
#pragma unroll
    for (int pair = 0; pair < PAIRS; ++pair) {
        float both[2] = {0, 0};
#pragma unroll
        for (int e = 0; e < 2 && 2 * pair + e < BLOCKS; ++e) {
            offset at = ((offset)me.replica * BLOCKS + 2 * pair + e) * H + me.unit;
            float recurrent = entry(bias_hh, at, true);
            both[e] = entry(bias_ih, at, true);
            if (2 * pair + e == SPLIT) apart = recurrent; else both[e] += recurrent;
        }
        at<float4>(BIASES + (pair * H + me.unit) * 16) = {both[0], both[0], both[1], both[1]};
#pragma unroll
        for (int k = 0; k < EIGHTS; ++k) {  // input columns of q are adjacent
            word four[4];
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                int block = 2 * pair + (e & 1), column = 2 * (EIGHTS * me.q + k) + (e >> 1);
                offset at = (((offset)me.replica * BLOCKS + block) * H + me.unit) * INPUTS + column;
                four[e] = as_tf32(block < BLOCKS && column < INPUTS ? value_of(input_matrix[at]) : 0.0f);
                const word coarse = as_tf32(both[e & 1]);
                const float rest = both[e & 1] - __uint_as_float(coarse);
                if (ONES && column == INPUTS) four[e] = coarse;
                if (ONES && column == INPUTS + 1) four[e] = fabsf(rest) < 1e38f ? as_tf32(rest) : 0;  // rest is NaN for an infinite bias
            }
            at<uint4>(INPUT_SLICES + ((k * PAIRS + pair) * THREADS + threadIdx.x) * 16) = {four[0], four[1], four[2], four[3]};
        }
    }
    const Fixed fixed = fixed_of(own_of(own_weights, me.replica, me.unit));
    State state[2];  // per row
    int length[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
        offset at = ((offset)me.replica * B + me.row[j]) * H + me.unit;
        state[j] = {entry(first_hidden, at, me.there[j]), entry(first_cell, at, me.there[j])};
        for (int i = 0; i < CARRIED; ++i)
            state[j].carried[i] = entry(first_carried, carried_at(me, i, j, B), me.there[j]);
        length[j] = HAS_LENGTHS && me.there[j] ? lengths[(offset)me.replica * B + me.row[j]] : 0;
    }
    // Store as float16, in pairs with the neighbouring unit: one lane stores the first row of both units, the other lane the second.
    const bool odd = me.g & 1;
    int hidden_to = pinned(place_of(me.unit & ~1, 2 * me.q + odd));
    auto leave_hidden = [&](bool bounded) {
        float one = state[0].hidden, other = state[1].hidden;
        word both = bounded ? as_halves(one, other) : as_halves(clamped_to_half(one), clamped_to_half(other));
        at<word>(hidden_to) = woven(both, from_partner(both, 4), odd);
    };
    leave_hidden(false);

    const offset first = ((offset)me.replica * T + (REVERSE ? T - 1 : 0)) * B + me.first_row, stride = REVERSE ? -B : B;
    Single input[SINGLES + !SINGLES], time = dt_of(dt, first, rows);
#pragma unroll
    for (int i = 0; i < SINGLES; ++i) input[i] = input_of<8 * EIGHTS>(i, inputs, first, rows);
    const word inbox = shared_address(shared) + IN;
    auto fetch_step = [&](int s) {  // in order: addresses advance by one step per call
        if (s < T) {
            const word stage = inbox + s % DEPTH * INBOX;
            if (!INPUTS) Page<BLOCKS * H, NUMBER>::fetch(stage, pre, (word)(first + s * stride), rows);
#pragma unroll
            for (int i = 0; i < SINGLES; ++i) fetch_and_go_on(input[i], stage, stride * INPUTS);
            if (HAS_DT) fetch_and_go_on(time, stage + DT, stride);
        }
        end_of_fetches();
    };
    Four of_blocks[OF_BLOCKS + !OF_BLOCKS], of_pages[OF_PAGES];
#pragma unroll
    for (int i = 0; i < OF_BLOCKS; ++i) of_blocks[i] = four_of<BLOCKS * H>(threadIdx.x + i * THREADS, pre + (first - stride) * BLOCKS * H, false, rows);
#pragma unroll
    for (int i = 0; i < OF_PAGES; ++i) {
        int four = threadIdx.x + i * THREADS, kind = four / (2 * H);
        const void* memory = kind == 0 ? hidden + (first - stride) * H : nullptr;
        if (SAVE && kind == CELL) memory = cells + (first - stride) * H;
        const bool is_carried = SAVE && kind > CELL && kind <= CELL + CARRIED;
        // Step first - stride, without its first row: the step stride of carried values is CARRIED times as long.
        if (is_carried)
            memory = carried + ((first - stride - me.first_row) * CARRIED + (offset)(kind - CELL - 1) * B + me.first_row) * H;
        if (SAVE && SPLIT >= 0 && kind == HN) memory = parts + (first - stride) * H;
        if (SAVE && kind == BEFORE && before != nullptr) memory = before + first * H;
        of_pages[i] = four_of<H>(four % (2 * H), memory, kind == CELL || is_carried, rows);
        if (kind != BEFORE) of_pages[i].place += kind * OUT_PAGE;
    }
    auto store_step = [&](int box) {  // in order, too
#pragma unroll
        for (int i = 0; i < OF_BLOCKS; ++i) go_on_and_store(of_blocks[i], box, stride * (BLOCKS * H));
#pragma unroll
        for (int i = 0; i < OF_PAGES; ++i) {
            const int kind = ((int)threadIdx.x + i * THREADS) / (2 * H);
            const bool several = CARRIED > 1 && SAVE && kind > CELL && kind <= CELL + CARRIED;
            go_on_and_store(of_pages[i], box + PAGES, stride * (several ? CARRIED * H : H));
        }
    };
    for (int i = threadIdx.x; i < DEPTH * INBOX / 4; i += THREADS) at<float>(IN + 4 * i) = 0.0f;  // for elements that are never fetched
    __syncthreads();
    for (int i = threadIdx.x; ONES && i < DEPTH * 16; i += THREADS)
        at<float>(IN + i / 16 * INBOX + i / 2 % 8 * INPUT_ROW + (INPUTS + i % 2) * 4) = 1.0f;
    if (SAVE && before != nullptr)
#pragma unroll
        for (int j = 0; j < 2; ++j)
            if (me.there[j]) store(before + (first + 2 * me.q + j) * H + me.unit, state[j].hidden);
    __syncthreads();
    for (int s = 0; s < DEPTH - 1; ++s) fetch_step(s);
    wait_for_fetches<DEPTH - 3>();
    __syncthreads();

    // Offsets in the pages of the outbox.
    const int wide_mine = pinned((2 * me.q * WIDE_PITCH + me.unit) * 4), mine = pinned(PAGES + (2 * me.q * NARROW_PITCH + me.unit) * 4);
    const int bias_at = pinned(BIASES + me.unit * 16), slice_at = pinned(INPUT_SLICES + (int)threadIdx.x * 16);
    const int given_at = pinned(IN + (INPUTS ? me.g * INPUT_ROW + 8 * EIGHTS * me.q : 2 * me.q * BLOCKS_PITCH + me.unit * SIZE));
    // Pre-activations of the inputs, in the accumulator layout of the tensor cores.
    auto contribute = [&](int s, float (*given)[4]) {
        const int stage = s % DEPTH * INBOX;
#pragma unroll
        for (int pair = 0; pair < PAIRS; ++pair) {
            float4 four = ONES ? float4{0, 0, 0, 0} : at<float4>(bias_at + pair * H * 16);
            given[pair][0] = four.x, given[pair][1] = four.y, given[pair][2] = four.z, given[pair][3] = four.w;
        }
#pragma unroll
        for (int k = 0; k < EIGHTS; ++k) {
            float2 x = at<float2>(given_at + stage + 8 * k);
            word one = as_tf32(x.x), other = as_tf32(x.y);
#pragma unroll
            for (int pair = 0; pair < PAIRS; ++pair) {
                uint4 four = at<uint4>(slice_at + (k * PAIRS + pair) * THREADS * 16);
                multiply_tf32(given[pair], four.x, four.y, four.z, four.w, one, other);
            }
        }
        if (!INPUTS)
#pragma unroll
            for (int e = 0; e < 2 * BLOCKS; ++e)
                given[e / 4][e % 4] += value_of(at<NUMBER>(given_at + stage + e % 2 * BLOCKS_PITCH + e / 2 * ROW));
    };
    float given[PAIRS][4];
    contribute(0, given);
    int hidden_at = pinned(place_of(8 * me.q, me.g)), box = pinned(OUT), turn = 1;
    const int last_on = place_of(16 * (INNER - 1) + 4 * me.q, me.g) - place_of(8 * me.q, me.g);  // offset of an unpaired last tile
    for (int s = 0; s < T; ++s) {
        float sums[PAIRS][4] = {}, lower[4] = {};  // the last block's upper rows are in sums[PAIRS - 1]
        auto tile_of_last = [&](int k) {
            uint4 four = {};
            if (ASIDE) four = at<uint4>(LAST_BLOCK + (k * THREADS + (int)threadIdx.x) * 16);
            return ASIDE ? four : uint4{last[k][0], last[k][1], last[k][2], last[k][3]};
        };
#pragma unroll
        for (int k = 0; k + 1 < INNER; k += 2) {
            uint4 both = at<uint4>(hidden_at + k * 256);
#pragma unroll
            for (int pair = 0; pair < REAL_PAIRS; ++pair) multiply(sums[pair], slice[k][pair], {both.x, both.y});
#pragma unroll
            for (int pair = 0; pair < REAL_PAIRS; ++pair) multiply(sums[pair], slice[k + 1 < INNER ? k + 1 : k][pair], {both.z, both.w});
            if constexpr (ODD) {
                const uint4 tile = tile_of_last(k / 2);
                const word four[4] = {tile.x, tile.y, tile.z, tile.w};
                multiply(sums[PAIRS - 1], four, {both.x, both.y});
                multiply(lower, four, {both.z, both.w});
            }
        }
        if (INNER % 2) {
            uint2 one = at<uint2>(hidden_at + last_on);
#pragma unroll
            for (int pair = 0; pair < REAL_PAIRS; ++pair) multiply(sums[pair], slice[INNER - 1][pair], one);
            if constexpr (ODD) {
                const uint4 tile = tile_of_last(INNER / 2);
                const word four[4] = {tile.x, tile.y, tile.z, tile.w};
                multiply(sums[PAIRS - 1], four, one);
            }
        }
        if constexpr (ODD) sums[PAIRS - 1][0] += lower[2], sums[PAIRS - 1][1] += lower[3];
        fetch_step(s + DEPTH - 1);
        float z[2][PLACES] = {}, hn[2] = {};  // per row
#pragma unroll
        for (int e = 0; e < 2 * BLOCKS; ++e) {
            const int j = e & 1, block = e >> 1;
            float sum = sums[e / 4][e % 4], rest = given[e / 4][e % 4];
            z[j][block] = block == SPLIT ? rest : fmaf(sum, range.size, rest);
            if (block == SPLIT) hn[j] = fmaf(sum, range.size, apart);
        }
        if (s > 0) store_step(box + turn * OUTBOX);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            float step = HAS_DT ? at<float>(IN + s % DEPTH * INBOX + DT + (2 * me.q + j) * 4) : 1.0f;
            State next = CELL_FORWARD(z[j], hn[j], state[j], fixed.values, step, beta);
            if (!HAS_LENGTHS || (REVERSE ? T - 1 - s : s) < length[j]) state[j] = next;
        }
        hidden_to += turn * SENT;
        leave_hidden(BOUNDED && !(REVERSE && HAS_LENGTHS));  // reverse with lengths: padding comes first and keeps an initial state of any size
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            auto page = [&](int kind) -> float& { return at<float>(box + mine + kind * OUT_PAGE + j * NARROW_PITCH * 4); };
            page(0) = state[j].hidden;
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block)
                if (SAVE) at<float>(box + wide_mine + (j * WIDE_PITCH + block * H) * 4) = to_keep(z[j][block]);
            if (SAVE) page(CELL) = state[j].cell;
#pragma unroll
            for (int i = 0; i < CARRIED; ++i)
                if (SAVE) page(CELL + 1 + i) = state[j].carried[i];
            if (SAVE && SPLIT >= 0) page(HN) = to_keep(hn[j]);
        }
        contribute(s + 1, given);  // after the last step, of stale data that is not used
        wait_for_fetches<DEPTH - 3>();
        __syncthreads();
        hidden_at += turn * SENT, box += turn * OUTBOX, turn = -turn;
    }
#pragma unroll
    for (int i = 0; i < OF_PAGES; ++i)
        if (((int)threadIdx.x + i * THREADS) / (2 * H) == BEFORE) of_pages[i].there = false;
    store_step(box + turn * OUTBOX);
#pragma unroll
    for (int j = 0; j < 2; ++j)
        if (me.there[j]) {
            offset end = ((offset)me.replica * B + me.row[j]) * H + me.unit;
            last_hidden[end] = state[j].hidden;
            last_cell[end] = state[j].cell;
            for (int i = 0; i < CARRIED; ++i) last_carried[carried_at(me, i, j, B)] = state[j].carried[i];
        }
}
