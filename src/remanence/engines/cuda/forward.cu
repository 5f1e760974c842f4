// The forward pass. kernels.cuh describes the scheme, ../triton/kernels.py the tensors. With narrow inputs `pre` is only written, if
// SAVE.

constexpr int INNER = CLUSTER * SQUARES;             // tiles of sixteen columns of the matrix
constexpr int PART = CHUNKS * 64 * TILES;            // bytes of h_t, or of its residual
constexpr int SENT = PARTS * PART;
constexpr int ROW = 8 * EIGHTS;                      // row stride of the inputs in the inbox
constexpr int DT = INPUTS ? TILES * 8 * ROW : BLOCKS * PAGE;
constexpr int INBOX = DT + TILES * 8;                // elements per step: inputs or pre-activations, and dt
constexpr int CELL = SAVE ? BLOCKS : -1, HN = SAVE && SPLIT >= 0 ? CELL + CARRIED + 1 : -1;  // carried values come after the cell
constexpr int HIDDEN = SAVE ? CELL + CARRIED + (SPLIT >= 0) + 1 : 0;
constexpr int OUTBOX = (HIDDEN + 1) * PAGE;          // elements that a step stores: pre-activations, cell, carried values, hn, h
constexpr int GIVEN = INPUTS ? 0 : (BLOCKS * FOURS + THREADS - 1) / THREADS;  // vectors of four that a thread fetches
constexpr int LEFT = ((HIDDEN + 1) * FOURS + THREADS - 1) / THREADS;     // and stores
constexpr int CHAINS = TILES * PARTS == 1 ? 4 : 2;   // independent accumulators, to hide the latency of mma
constexpr int MORE_TILES = (INNER + 3) / 4;          // tiles of each of the other blocks

extern "C" __global__ void __launch_bounds__(THREADS, TOGETHER) forward(
    NUMBER* pre, const float* inputs, const NUMBER* input_matrix, const NUMBER* matrix, const BIAS* bias_ih, const BIAS* bias_hh,
    const BIAS* own_weights, const float* dt, const int* lengths, const float* first_hidden, const float* first_cell,
    const float* first_carried, NUMBER* hidden, float* cells, float* carried, NUMBER* parts, float* last_hidden,
    float* last_cell, float* last_carried, int T, int B, float beta) {
    // Shared memory: two mbarriers, the shelf, two buffers of h_t as [part][tile][chunk][row][unit], inbox and outbox.
    unsigned char* shelf = shared + 128;
    unsigned char* hiddens = shelf + SHELF;
    float* inbox = (float*)(hiddens + 2 * SENT);
    float* outbox = inbox + DEPTH * INBOX;
    const Place me = whereabouts(B);
    const word box = two_letterboxes(SENT);

    // The slice of the matrix: row g is block g / 4 of unit g % 4 of this warp, row g + 8 is two blocks further.
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
    // The other blocks: column g is of unit g / 2 and has one half of every four columns.
    auto more_at = [&](int block, int column) {
        int unit = me.rank * UNITS + me.warp * 4 + (me.g >> 1);
        return unit < H && column < H ? value_of(matrix[((offset)(4 + block) * H + unit) * H + column]) : 0.0f;
    };
    for (int block = 0; block < MORE; ++block)
#pragma unroll 4
        for (int k = 0; k < 2 * INNER; ++k) largest = max(largest, magnitude(more_at(block, 8 * k + 4 * (me.g & 1) + me.q)));
    const Range range = range_of(largest_of(largest));
    word slice[IN_HAND][INNER][4];
#pragma unroll
    for (int k = 0; k < INNER; ++k) {
        word fine[4];
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int pair = 0; pair < 2; ++pair) {
                int column = 16 * k + 4 * me.q + 2 * pair;
                float low = entry_at(half, column) * range.times, high = entry_at(half, column + 1) * range.times;
                slice[0][k][half + 2 * pair] = as_halves(low, high);
                fine[half + 2 * pair] = as_halves(finer(low), finer(high));
                if (IN_HAND == 2) slice[IN_HAND - 1][k][half + 2 * pair] = fine[half + 2 * pair];
            }
        if (ON_SHELF) *on_shelf(shelf, k) = {fine[0], fine[1], fine[2], fine[3]};
    }
    word more[IN_HAND][MORE + !MORE][MORE_TILES][4];
#pragma unroll
    for (int i = 0; i < MORE * MORE_TILES; ++i) {
        const int block = i / MORE_TILES, k = i % MORE_TILES;
        word fine[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            int column = 16 * (4 * k + e) + 4 * me.q + 2 * (me.g & 1);
            float low = more_at(block, column) * range.times, high = more_at(block, column + 1) * range.times;
            more[0][block][k][e] = as_halves(low, high);
            fine[e] = as_halves(finer(low), finer(high));
            if (IN_HAND == 2) more[IN_HAND - 1][block][k][e] = fine[e];
        }
        if (ON_SHELF) *on_shelf(shelf, INNER + i) = {fine[0], fine[1], fine[2], fine[3]};
        const word* coarse = more[0][block][k];
        if (ASIDE) *on_shelf(shelf, i) = {coarse[0], coarse[1], coarse[2], coarse[3]};
    }
    // The half tile of another block that belongs to the k-th tile and the one before it.
    auto half_tile = [&](int place, const word* tile, bool there, int k) {
        const int e = k / 2 % 2;
        return there ? ((const uint2*)on_shelf(shelf, place))[e] : uint2{tile[2 * e], tile[2 * e + 1]};
    };

    // The slice of the input matrix; the columns of q are adjacent.
    Factor input_slice[EIGHTS + !EIGHTS][4];
#pragma unroll
    for (int k = 0; k < EIGHTS; ++k)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            int block = (me.g >> 2) + 2 * (e & 1), column = 2 * (EIGHTS * me.q + k) + (e >> 1);
            bool there = block < BLOCKS && me.unit_there && column < INPUTS;
            offset at = (((offset)me.replica * BLOCKS + block) * H + me.unit) * INPUTS + column;
            input_slice[k][e] = factor_of(there ? value_of(input_matrix[at]) : 0.0f);
        }
    Factor input_more[(MORE + 1) / 2 + !MORE][EIGHTS + !EIGHTS][2];  // column g is unit g / 2 of one of two blocks
#pragma unroll
    for (int i = 0; i < (MORE + 1) / 2 * EIGHTS * 2; ++i) {
        const int two = i / (2 * EIGHTS + !EIGHTS), k = i / 2 % (EIGHTS + !EIGHTS), e = i % 2;
        int block = 4 + 2 * two + (me.g & 1), column = 2 * (EIGHTS * me.q + k) + e, unit = me.rank * UNITS + me.warp * 4 + (me.g >> 1);
        bool there = block < BLOCKS && unit < H && column < INPUTS;
        offset at = (((offset)me.replica * BLOCKS + block) * H + unit) * INPUTS + column;
        input_more[two][k][e] = factor_of(there ? value_of(input_matrix[at]) : 0.0f);
    }

    const Bias bias = bias_of(bias_ih, bias_hh, me);
    const Fixed fixed = fixed_of(own_of(own_weights, me.replica, me.unit));
    State state[TILES];
    int length[TILES];
    take_states(state, length, first_hidden, first_cell, first_carried, lengths, me, B);
    fill_with_first(hiddens, first_hidden, me, B);

    const offset first = ((offset)me.replica * T + (REVERSE ? T - 1 : 0)) * B, stride = REVERSE ? -B : B;
    // The vectors that this thread fetches and stores in every step.
    Route from[GIVEN + !GIVEN];
#pragma unroll
    for (int i = 0; i < GIVEN; ++i) {
        Four four = four_of(i, me, B);
        bool there = four.there && four.kind < BLOCKS;
        NUMBER* memory = there ? pre + ((first + four.row) * BLOCKS + four.kind) * H + four.unit : nullptr;
        from[i] = route_of(memory, false, stride * (BLOCKS * H), four.kind * PAGE * 4 + four.place * (int)sizeof(NUMBER));
    }
    Single input[SINGLES + !SINGLES], time = dt_of(dt, first + me.first_row, B - me.first_row);
#pragma unroll
    for (int i = 0; i < SINGLES; ++i) {
        input[i] = input_of<ROW>(i, inputs, first + me.first_row, B - me.first_row);
        input[i].place = steady(input[i].place);
    }
    auto fetch_step = [&](int s) {  // in order: addresses advance by one step per call
        if (s < T) {
            word stage = shared_address(inbox) + s % DEPTH * INBOX * 4;
#pragma unroll
            for (int i = 0; i < GIVEN; ++i) fetch_and_go_on(from[i], stage);
#pragma unroll
            for (int i = 0; i < SINGLES; ++i) fetch_and_go_on(input[i], stage, stride * INPUTS);
            if (HAS_DT) fetch_and_go_on(time, stage + DT * 4, stride);
        }
        end_of_fetches();
    };
    Route to[LEFT];
#pragma unroll
    for (int i = 0; i < LEFT; ++i) {
        Four four = four_of(i, me, B);
        offset at = (first + four.row) * H + four.unit;
        void* memory = nullptr;
        if (four.there) {
            if (four.kind == HIDDEN) memory = hidden + at;
            else if (four.kind == CELL) memory = cells + at;
            else if (SAVE && four.kind > CELL && four.kind <= CELL + CARRIED)
                memory = carried + (first * CARRIED + (offset)(four.kind - CELL - 1) * B + four.row) * H + four.unit;
            else if (four.kind == HN) memory = parts + at;
            else if (four.kind < HIDDEN) memory = pre + ((first + four.row) * BLOCKS + four.kind) * H + four.unit;
        }
        const bool of_state = SAVE && four.kind >= CELL && four.kind <= CELL + CARRIED;
        offset step = stride * (SAVE && four.kind < BLOCKS ? BLOCKS * H : of_state && four.kind > CELL ? CARRIED * H : H);
        to[i] = route_of(memory, of_state, step, (four.kind * PAGE + four.place) * 4);
    }
    auto store_step = [&](int s) {  // in order, too
#pragma unroll
        for (int i = 0; i < LEFT; ++i) store_and_go_on(to[i], outbox + (s & 1) * OUTBOX);
    };
    for (int i = threadIdx.x; i < DEPTH * INBOX; i += THREADS) inbox[i] = 0.0f;  // for elements that are never fetched
    __syncthreads();
    for (int s = 0; s < DEPTH - 1; ++s) fetch_step(s);

    // Destinations of this thread: the lanes of one g send the 64 bytes of their warp and tile to thread blocks g and g + 8.
    const word own = shared_address(hiddens) + (me.rank * WARPS + me.warp) * 64 + turned(2 * me.q, me.warp) * 8;
    word place[(CLUSTER + 7) / 8], boxes[(CLUSTER + 7) / 8];
#pragma unroll
    for (int i = 0; i < (CLUSTER + 7) / 8; ++i) {
        word rank = me.g + 8 * i < CLUSTER ? me.g + 8 * i : 0;
        place[i] = address_in(rank, own), boxes[i] = address_in(rank, box);
    }
    wait_for_fetches<DEPTH - 2>();
    __syncthreads();
    meet();

    const int mine = steady((2 * me.q + (me.g >> 2)) * PITCH + me.warp * 4 + (me.g & 3));  // offset in a page
    const int factor_at = steady(me.q * 8 + turned(me.g, me.q)), input_at = steady(me.g * ROW + 2 * EIGHTS * me.q);
    for (int s = 0; s < T; ++s) {
        if (s > 0) store_step(s - 1);
        fetch_step(s + DEPTH - 1);
        const float* stage = inbox + s % DEPTH * INBOX;
        const bool upper = me.g >= 4;
        float z[TILES][PLACES] = {}, of_inputs[TILES][4] = {}, hn[TILES], step[TILES];
        float more_of_inputs[TILES][(MORE + 1) / 2 + !MORE][4] = {};
#pragma unroll
        for (int j = 0; j < TILES; ++j) {
            if (INPUTS) {
#pragma unroll
                for (int k = 0; k < EIGHTS; ++k) {
                    float2 x = *(const float2*)(stage + j * 8 * ROW + input_at + 2 * k);
                    if (PARTS == 2) x = {clamped(x.x, 3e38f), clamped(x.y, 3e38f)};  // the residual of infinity would be NaN
                    Factor two[2] = {factor_of(x.x), factor_of(x.y)};
                    multiply(of_inputs[j], input_slice[k], two);
                    const Factor rows[4] = {two[0], {0, 0}, two[1], {0, 0}};
#pragma unroll
                    for (int i = 0; i < (MORE + 1) / 2; ++i) multiply(more_of_inputs[j][i], rows, input_more[i][k]);
                }
                if (SPLIT >= 0) share_out(of_inputs[j], upper, z[j]);
            }
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block) {
                if (!INPUTS) z[j][block] = value_of(((const NUMBER*)(stage + block * PAGE))[j * 8 * PITCH + mine]);
                z[j][block] += bias.of[block];
            }
            step[j] = HAS_DT ? stage[DT + me.row[j] - me.first_row] : 1.0f;
        }
        if (s > 0) {
            wait_for(box + 8 * (s & 1), ((s - 1) >> 1) & 1);
            if (threadIdx.x == 0) expect(box + 8 * (s & 1), SENT);
        }
        float sums[TILES][CHAINS][4] = {}, fine[TILES][PARTS][4] = {};
        float more_sums[TILES][MORE + !MORE][CHAINS / 2][4] = {}, more_fine[TILES][MORE + !MORE][PARTS][4] = {};
        uint2 one[TILES], finer_one[TILES];  // operands of an even tile, kept for the odd one after it
        const uint2* factor = (const uint2*)(hiddens + (s & 1) * SENT) + factor_at;
#pragma unroll
        for (int k = 0; k < INNER; ++k)
#pragma unroll
            for (int j = 0; j < TILES; ++j) {
                uint2 h = factor[(j * CHUNKS + 4 * k) * 8];
                multiply(sums[j][k % CHAINS], slice[0][k], h);
                if (PARTS == 2) {
                    multiply(fine[j][0], slice[0][k], factor[(j * CHUNKS + 4 * k) * 8 + PART / 8]);
                    if (ON_SHELF) {
                        uint4 four = *on_shelf(shelf, k);
                        word rest[4] = {four.x, four.y, four.z, four.w};
                        multiply(fine[j][PARTS - 1], rest, h);
                    } else
                        multiply(fine[j][PARTS - 1], slice[IN_HAND - 1][k], h);
                }
                if constexpr (MORE > 0) {
                    const uint2 none = {0, 0}, finer_h = PARTS == 2 ? factor[(j * CHUNKS + 4 * k) * 8 + PART / 8] : none;
                    if (k % 2 == 0) one[j] = h, finer_one[j] = finer_h;
                    if (k % 2 == 1 || k == INNER - 1) {
                        const uint2 other = k % 2 ? h : none, finer_other = k % 2 ? finer_h : none;
                        const word both[4] = {one[j].x, one[j].y, other.x, other.y};
                        const word finer_both[4] = {finer_one[j].x, finer_one[j].y, finer_other.x, finer_other.y};
#pragma unroll
                        for (int block = 0; block < MORE; ++block) {
                            const int at = block * MORE_TILES + k / 4;
                            const uint2 coarse = half_tile(at, more[0][block][k / 4], ASIDE, k);
                            multiply(more_sums[j][block][k / 2 % (CHAINS / 2)], both, coarse);
                            if (PARTS == 2) {
                                multiply(more_fine[j][block][0], finer_both, coarse);
                                multiply(more_fine[j][block][PARTS - 1], both, half_tile(INNER + at, more[IN_HAND - 1][block][k / 4], ON_SHELF, k));
                            }
                        }
                    }
                }
            }

#pragma unroll
        for (int j = 0; j < TILES; ++j) {
            float* sum = sums[j][0];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (CHAINS == 4) sum[i] += sums[j][CHAINS - 2][i] + sums[j][CHAINS - 1][i];
                sum[i] += sums[j][1][i];
                if (PARTS == 2) sum[i] += (fine[j][0][i] + fine[j][PARTS - 1][i]) * (1.0f / FINER);
                sum[i] = INPUTS && SPLIT < 0 ? fmaf(sum[i], range.size, of_inputs[j][i]) : sum[i] * range.size;
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
                auto of = [&](const float* four) { return four[0] + four[3]; };
                float (*chains)[4] = more_sums[j][block];
                float total = of(chains[0]);
                if (CHAINS == 4) total += of(chains[CHAINS / 2 - 1]);
                if (PARTS == 2) total += (of(more_fine[j][block][0]) + of(more_fine[j][block][PARTS - 1])) * (1.0f / FINER);
                total *= range.size;
                if (INPUTS) total += more_of_inputs[j][block / 2][block % 2];
                z[j][4 + block] += handed_over(total, me);
            }
            State next = CELL_FORWARD(z[j], hn[j], state[j], fixed.values, step[j], beta);
            if (!HAS_LENGTHS || (REVERSE ? T - 1 - s : s) < length[j]) state[j] = next;
        }

        if (s < T - 1)
#pragma unroll
            for (int j = 0; j < TILES; ++j) {  // sixteen bytes: the four units of the warp in two rows
                float value = clamped_to_half(state[j].hidden);
                word halves[PARTS];
                halves[0] = as_halves(value, 0.0f);
                if (PARTS == 2) halves[PARTS - 1] = as_halves(finer(value), 0.0f);
#pragma unroll
                for (int part = 0; part < PARTS; ++part) {
                    const uint4 sent = gathered(halves[part], me);
                    word shift = ((s + 1) & 1) * SENT + part * PART + j * CHUNKS * 64;
#pragma unroll
                    for (int i = 0; i < (CLUSTER + 7) / 8; ++i)
                        if (me.g + 8 * i < CLUSTER)
                            deliver(place[i] + shift, boxes[i] + 8 * ((s + 1) & 1), sent.x, sent.y, sent.z, sent.w);
                }
            }

        float* leave = outbox + (s & 1) * OUTBOX + mine;
#pragma unroll
        for (int j = 0; j < TILES; ++j, leave += 8 * PITCH) {
            if (SAVE) {
#pragma unroll
                for (int block = 0; block < BLOCKS; ++block) leave[block * PAGE] = to_keep(z[j][block]);
                leave[CELL * PAGE] = state[j].cell;
#pragma unroll
                for (int i = 0; i < CARRIED; ++i) leave[(CELL + 1 + i) * PAGE] = state[j].carried[i];
                if (SPLIT >= 0) leave[HN * PAGE] = to_keep(hn[j]);
            }
            leave[HIDDEN * PAGE] = state[j].hidden;
        }
        wait_for_fetches<DEPTH - 2>();
        __syncthreads();
    }
    store_step(T - 1);
    leave_states(state, last_hidden, last_cell, last_carried, me, B);
}
