// The backward pass; kernels.cuh says how, ../kernels.py what the tensors are.

constexpr int PRODUCTS = (2 * CLUSTER + WARPS - 1) / WARPS;     // tiles of sixteen units of h that a warp computes
constexpr int SENT = CLUSTER * TILES * UNITS * 8 * 4;           // bytes of the shares that a program gets
constexpr int PART = TILES * UNITS * 8 * 8;                     // bytes of its derivatives, or of their finer part
constexpr int DERIVATIVES = PARTS * PART;
constexpr int SIZES = TILES * WARPS * 8 * 4;                    // bytes of what those were divided by
constexpr int D_HIDDEN = BLOCKS, CELL = BLOCKS + 1, AGE = CELL + HAS_AGE, HN = AGE + (SPLIT >= 0), DT = HN + HAS_DT;
constexpr int FETCHED = DT + 1;                                 // numbers that a step needs from memory, of each row

extern "C" __global__ void __launch_bounds__(THREADS, CLUSTER * PARTS <= 4 ? 2 : 1) backward(
    const float* pre, const NUMBER* matrix, const float* p_hat, const float* dt,
    const int* lengths, const float* first_cell, const float* first_age, const float* cells, const float* ages,
    const float* parts, const float* d_hidden, const float* d_last_hidden, const float* d_last_cell,
    const float* d_last_age, NUMBER* d_pre, NUMBER* d_parts, float* d_first_hidden, float* d_first_cell,
    float* d_first_age, float* d_p_hat, float* d_dt, int N, int T, int B, float eps, float fixed_p, float beta) {
    // Shared memory: two letterboxes; two times shares as [program][tile][unit][row], derivatives as [part][tile]
    // [unit][row][block] and what they were divided by as [tile][warp][row]; and a ring of what is fetched.
    unsigned char* shares = shared + 128;
    unsigned char* derivatives = shares + 2 * SENT;
    unsigned char* sizes = derivatives + 2 * DERIVATIVES;
    float* ring = (float*)(sizes + 2 * SIZES);
    const Place me = whereabouts(B);
    const word box = shared_address(shared);
    if (threadIdx.x == 0) {
        make_letterbox(box), make_letterbox(box + 8);
        letterboxes_made();
        expect(box, SENT), expect(box + 8, SENT);
    }

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
    float held[TILES], d_cell[TILES], d_age[TILES], from_later[TILES], d_p = 0.0f;
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
    auto fetch_step = [&](int s) {
        if (s < T) {
            float* stage = ring + (s % DEPTH) * FETCHED * TILES * THREADS + threadIdx.x;
            offset at = first + s * stride;
#pragma unroll
            for (int j = 0; j < TILES; ++j) {
                auto get = [&](int which, const float* from, offset place, bool there) {
                    there = there && me.there[j] && from != nullptr;
                    fetch(shared_address(stage + (j * FETCHED + which) * THREADS), there ? from + place : pre, there);
                };
#pragma unroll
                for (int block = 0; block < BLOCKS; ++block)
                    get(block, pre, (at + me.row[j]) * BLOCKS * H + block * H + me.unit, true);
                get(D_HIDDEN, d_hidden, at * H + here[j], true);
                offset before = s < T - 1 ? (at + stride) * H + here[j] : start + here[j];
                get(CELL, s < T - 1 ? cells : first_cell, before, true);
                if (HAS_AGE) get(AGE, s < T - 1 ? ages : first_age, before, true);
                if (SPLIT >= 0) get(HN, parts, at * H + here[j], true);
                if (HAS_DT) get(DT, dt, at + me.row[j], true);
            }
        }
        end_of_fetches();
    };
    for (int s = 0; s < DEPTH - 1; ++s) fetch_step(s);

    // Where this thread sends to: the shares of a tile of units go to the program that has them. Threads of even q send
    // four rows of unit g, those of odd q of unit g + 8.
    word place[PRODUCTS], boxes[PRODUCTS];
#pragma unroll
    for (int i = 0; i < PRODUCTS; ++i) {
        int tile = me.warp + WARPS * i, unit = 16 * (tile & 1) + me.g + 8 * (me.q & 1);
        word own = shared_address(shares) + ((me.rank * TILES * UNITS + unit) * 8 + 4 * (me.q >> 1)) * 4;
        word rank = tile < 2 * CLUSTER ? tile >> 1 : 0;
        place[i] = address_in(rank, own), boxes[i] = address_in(rank, box);
    }
    __syncthreads();
    meet();

    auto receive = [&](int s) {  // what was sent in step s
        wait_for(box + 8 * (s & 1), (s >> 1) & 1);
        if (threadIdx.x == 0) expect(box + 8 * (s & 1), SENT);
        const float* mine = (const float*)(shares + (s & 1) * SENT) + (me.warp * 4 + (me.g & 3)) * 8 + 2 * me.q + (me.g >> 2);
#pragma unroll
        for (int j = 0; j < TILES; ++j) {
            from_later[j] = 0.0f;
#pragma unroll
            for (int c = 0; c < CLUSTER; ++c) from_later[j] += mine[(c * TILES + j) * UNITS * 8];
        }
    };

    offset at = first;
    for (int s = 0; s < T; ++s, at += stride) {
        fetch_step(s + DEPTH - 1);
        wait_for_fetches<DEPTH - 1>();
        const float* stage = ring + (s % DEPTH) * FETCHED * TILES * THREADS + threadIdx.x;
        CellSlopes slopes[TILES];
        float d_h[TILES];
#pragma unroll
        for (int j = 0; j < TILES; ++j) {
            const float* mine = stage + j * FETCHED * THREADS;
            float z[4] = {0, 0, 0, 0};
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block) z[block] = mine[block * THREADS];
            d_h[j] = mine[D_HIDDEN * THREADS] + held[j];
            State now = {0.0f, mine[CELL * THREADS], HAS_AGE ? mine[AGE * THREADS] : 0.0f};
            slopes[j] = CELL_SLOPES(z, SPLIT >= 0 ? mine[HN * THREADS] : 0.0f, now, p,
                                    HAS_DT ? mine[DT * THREADS] : 1.0f, eps, beta);
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
            if (HAS_AGE && me.there[j]) d_p += back[j].p;

            // As float16, in the range of the warp's units in this row.
            float factor[4];
            word largest = 0;
#pragma unroll
            for (int block = 0; block < 4; ++block) {
                factor[block] = block == SPLIT ? back[j].hn : back[j].z[block];
                largest = max(largest, magnitude(factor[block]));
            }
            largest = max(largest, from_partner(largest, 4));
            largest = max(largest, from_partner(largest, 8));
            Range own = range_of(largest);
            uint2* mine = (uint2*)(derivatives + (s & 1) * DERIVATIVES) + (j * UNITS + me.warp * 4 + (me.g & 3)) * 8 + 2 * me.q + (me.g >> 2);
#pragma unroll
            for (int block = 0; block < 4; ++block) factor[block] *= own.times;
            *mine = {as_halves(factor[0], factor[1]), as_halves(factor[2], factor[3])};
            if (PARTS == 2)
                mine[PART / 8] = {as_halves(finer(factor[0]), finer(factor[1])), as_halves(finer(factor[2]), finer(factor[3]))};
            if ((me.g & 3) == 0)
                ((float*)(sizes + (s & 1) * SIZES))[(j * WARPS + me.warp) * 8 + 2 * me.q + (me.g >> 2)] =
                    own.size;
        }
        __syncthreads();

        float sums[PRODUCTS][TILES][4] = {};
#pragma unroll
        for (int k = 0; k < WARPS; ++k)
#pragma unroll
            for (int j = 0; j < TILES; ++j) {
                const uint2* from = (const uint2*)(derivatives + (s & 1) * DERIVATIVES) + (j * UNITS + 4 * k + me.q) * 8 + me.g;
                uint2 d = *from;
                float2 by = ((const float2*)(sizes + (s & 1) * SIZES))[(j * WARPS + k) * 4 + me.q];
#pragma unroll
                for (int i = 0; i < PRODUCTS; ++i) {
                    float product[4] = {}, fine[4] = {};
                    multiply(product, slice[0][i][k], d);
                    if (PARTS == 2) {
                        multiply(fine, slice[0][i][k], from[PART / 8]);
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
            if (me.warp + WARPS * i < 2 * CLUSTER)
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

#pragma unroll
        for (int j = 0; j < TILES; ++j) {
            if (me.there[j]) {
#pragma unroll
                for (int block = 0; block < BLOCKS; ++block)
                    store(d_pre + (at + me.row[j]) * BLOCKS * H + block * H + me.unit, back[j].z[block]);
                if (SPLIT >= 0) store(d_parts + at * H + here[j], back[j].hn);
            }
            if (HAS_DT && d_dt != nullptr) {
                float d = me.there[j] ? back[j].dt : 0.0f;
                d += from_partner(d, 4);
                d += from_partner(d, 8);
                if ((me.g & 3) == 0 && me.row[j] < B)
                    d_dt[(offset)(me.rank * WARPS + me.warp) * N * T * B + at + me.row[j]] = d;
            }
        }
    }
    receive(T - 1);  // always: nobody may write into the memory of a program that has ended
    if (d_first_hidden != nullptr)
#pragma unroll
        for (int j = 0; j < TILES; ++j)
            if (me.there[j]) {
                d_first_hidden[start + here[j]] = held[j] + from_later[j];
                d_first_cell[start + here[j]] = d_cell[j];
                if (HAS_AGE) d_first_age[start + here[j]] = d_age[j];
            }
    if (HAS_AGE && d_p_hat != nullptr) {
        float slope = d_p * p * (1.0f - p);
        slope += from_partner(slope, 1);
        slope += from_partner(slope, 2);
        slope += from_partner(slope, 16);
        if (me.q == 0 && me.g < 4 && me.unit_there) d_p_hat[(offset)me.group * H + me.unit] = slope;
    }
}
