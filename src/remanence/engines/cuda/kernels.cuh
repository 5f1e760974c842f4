// A whole sequence in one launch, forward and backward, by clusters of thread blocks that write to each other's shared
// memory (distributed shared memory).
//
// N replicas, T steps, B rows (sequences), H units, BLOCKS blocks of pre-activations. ("Block" alone always means one of
// these; CUDA's blocks are called thread blocks.) A *group* is TILES tiles of eight rows of one replica, computed by one
// cluster of CLUSTER thread blocks. Each of the WARPS warps of a thread block has four units, and a thread has one of them
// in TILES rows. A thread block keeps its slice of the recurrent matrix and the state of its units in registers: nothing of
// the recurrence goes through global memory, and no cluster waits for another.
//
// The scheme is that of ../triton/kernels.py. Forward, thread blocks send each other h_t. Backward, every thread block
// multiplies the gradients of its own units by its slice of the matrix, which gives its share of d h_{t-1} for all units,
// sends every thread block the part for its units, and sums the shares that it receives, always in the same order. Data is
// sent by st.async, which signals an mbarrier of the receiver: a step waits for one mbarrier and nothing else. There are two
// receive buffers, used alternately. A thread block writes to a buffer again only after it has received the next data from
// all others, who send it after they have read that buffer; so nobody reads it any more. All threads of a thread block wait
// equally often, so that a cluster of one thread block needs no mbarrier, only __syncthreads (chip.cuh).
//
// Matmuls have float16 operands and float32 accumulators. Float16 has the precision of TF32. To have its range too, the
// part of the matrix that a warp keeps is scaled by a power of two, and so are the gradients of the four units of a warp in
// one row; h is between -1 and 1, and JANET's is not far beyond. Full float32 takes two float16 values per operand (PARTS)
// and three products.
//
// The fragments of mma.m16n8k16: lane 4 g + q of a warp has, of the first operand, rows g and g + 8 in the four columns of
// q; of the second, column g in the same four rows; of the accumulators, rows g and g + 8 in columns 2 q and 2 q + 1.
// (Which four belong to q is arbitrary as long as both operands agree.)
//
// The first four blocks of a warp's four units are sixteen rows of the matrix, one tile. Of each of the MORE other blocks
// they have only four rows, so that a tile (four words per thread) holds these for four times as many columns. Forward, the
// matrix is then the second operand: its even columns hold one half of a unit's inner dimension, its odd ones the other,
// and the first operand has h of both halves, one below the other. Half of the product is unused, and the sum of the rest is
// the result of the unit. Backward, where columns become rows, such a tile has sixteen units of four warps in one block:
// lanes of q have those of one warp, and all are rescaled to the largest scale of the four warps.
//
// Narrow inputs, up to sixteen (INPUTS, else 0), are multiplied by the input matrix inside the forward kernel, and the
// backward kernel accumulates the gradient of that matrix; both in TF32, which has the range they need. Wider inputs come
// already multiplied, as pre-activations.
//
// All loads and stores of a step are staged in shared memory, four units of a row at a time: the layout of a warp, four
// units of eight rows, would take eight times as many global memory transactions. The *inbox* is the staging buffer for
// loads, a cp.async pipeline of DEPTH steps. The *outbox* is the one for stores, a double buffer: it is filled in one step
// and emptied in the next, while the data for other thread blocks is in flight.

constexpr int UNITS = 4 * WARPS;
constexpr int CHUNKS = CLUSTER * WARPS;           // chunks of four units in the whole layer
constexpr int SQUARES = WARPS / 4;                // tiles of sixteen units per thread block
constexpr int PITCH = UNITS + 4;                  // row stride in a staging buffer, padded against bank conflicts
constexpr int PAGE = TILES * 8 * PITCH;           // elements of one kind in a staging buffer
constexpr int FOURS = TILES * 8 * (UNITS / 4);    // vectors of four elements in a page
constexpr int MORE = BLOCKS > 4 ? BLOCKS - 4 : 0; // blocks after the fourth
constexpr int PLACES = 4 + MORE;                  // size of arrays with a value per block
constexpr int QUARTERS = (WARPS + 3) / 4;         // groups of four warps, backward

// SLICE registers of a thread hold its slice of the matrix. If none are left for the residuals of full float32, those are in
// shared memory, on the *shelf*, and with SHELVE_FINER in any case; with ASIDE, the blocks after the fourth are there.
constexpr bool ON_SHELF = PARTS == 2 && (SHELVE_FINER || CLUSTER * WARPS > 64 || CLUSTER * WARPS * PLACES > 320);
constexpr int IN_HAND = ON_SHELF ? 1 : PARTS;  // parts of an operand in registers
constexpr int SLICE = CLUSTER * WARPS * IN_HAND * (ASIDE ? 4 : PLACES) / 4;
constexpr int SHELF = (CLUSTER + 3) / 4 * (ON_SHELF * WARPS + (ON_SHELF || ASIDE) * MORE * QUARTERS) * THREADS * 16;  // bytes

// Address of the k-th tile of this thread's slice on the shelf.
__device__ __forceinline__ uint4* on_shelf(unsigned char* shelf, int k) { return (uint4*)shelf + k * THREADS + threadIdx.x; }

__device__ __forceinline__ void take(const uint4* place, word* tile) {
    uint4 four = *place;
    tile[0] = four.x, tile[1] = four.y, tile[2] = four.z, tile[3] = four.w;
}

// Whether a thread has registers left to keep addresses in.
constexpr bool ROOM = SLICE <= 64 && TOGETHER * THREADS <= 512;

template <typename Number>
__device__ __forceinline__ Number steady(Number x) { return ROOM ? pinned(x) : x; }

// Swizzled position of a row among eight, of a unit or of four units: a warp reads four of these at once without bank conflicts.
__device__ __forceinline__ int turned(int row, int column) { return row ^ (column & 2) * 2; }

struct Place {
    int lane, warp, g, q, rank, unit, replica, group, first_row;
    bool unit_there;
    int row[TILES];
    bool there[TILES];
};

__device__ __forceinline__ Place whereabouts(int B) {
    Place me;
    me.lane = threadIdx.x & 31;
    me.warp = threadIdx.x >> 5;
    me.g = me.lane >> 2;
    me.q = me.lane & 3;
    me.rank = rank_in_cluster();
    me.group = blockIdx.x / CLUSTER;
    int row_tiles = (B + 8 * TILES - 1) / (8 * TILES);
    me.replica = me.group / row_tiles;
    me.unit = me.rank * UNITS + me.warp * 4 + (me.g & 3);
    me.unit_there = me.unit < H;
    me.first_row = (me.group % row_tiles) * 8 * TILES;
    for (int j = 0; j < TILES; ++j) {
        me.row[j] = me.first_row + 8 * j + 2 * me.q + (me.g >> 2);
        me.there[j] = me.unit_there && me.row[j] < B;
    }
    return me;
}

// The i-th vector of four elements that this thread moves to or from a staging buffer: its kind, row and first unit, whether
// these exist, and its offset in the page. Kinds below BLOCKS have BLOCKS * H elements per row in global memory, the others H.
struct Four { int kind, row, unit, place; bool there; };

__device__ __forceinline__ Four four_of(int i, const Place& me, int B) {
    i = threadIdx.x + i * THREADS;
    int unit = i % (UNITS / 4) * 4, row = i / (UNITS / 4) % (TILES * 8);
    int place = row * PITCH + unit;
    row += me.first_row, unit += me.rank * UNITS;
    return {i / FOURS, row, unit, place, row < B && unit < H};
}

// A vector of four elements that a thread moves in every step, if `there`: its global address (float32 if `wide`, else NUMBER),
// the stride to the next step in bytes, and its offset in a staging buffer in bytes.
struct Route { bool there, wide; char* memory; offset step; int place; };

__device__ __forceinline__ Route route_of(const void* memory, bool wide, offset step, int place) {
    return {memory != nullptr, wide, (char*)memory, steady(step * (wide ? 4 : (int)sizeof(NUMBER))), steady(place)};
}

__device__ __forceinline__ void fetch_and_go_on(Route& route, word box) {
    if (route.there) {
        if (sizeof(NUMBER) == 4 || route.wide) fetch_four(box + route.place, (const float*)route.memory);
        else fetch_four(box + route.place, (const NUMBER*)route.memory);
    }
    route.memory += route.step;
}

__device__ __forceinline__ void store_and_go_on(Route& route, const float* box) {
    if (route.there) {
        float4 numbers = *(const float4*)((const char*)box + route.place);
        if (sizeof(NUMBER) == 4 || route.wide) store_four((float*)route.memory, numbers);
        else store_four((NUMBER*)route.memory, numbers);
    }
    route.memory += route.step;
}

// In the accumulators, lanes of the lower half of a warp have blocks 0 and 2 of rows 2 q and 2 q + 1, those of the upper half
// blocks 1 and 3. This exchanges them so that a lane has all four blocks of one row; it is its own inverse.
__device__ __forceinline__ void share_out(const float* sum, bool upper, float* blocks) {
    float one = from_partner(upper ? sum[0] : sum[1], 16), other = from_partner(upper ? sum[2] : sum[3], 16);
    blocks[0] = upper ? one : sum[0], blocks[1] = upper ? sum[1] : one;
    blocks[2] = upper ? other : sum[2], blocks[3] = upper ? sum[3] : other;
}

// The product of another block is in the lane of unit q and row g; this fetches the one of this thread's unit and row.
__device__ __forceinline__ float handed_over(float sum, const Place& me) {
    return from_lane(sum, 4 * (2 * me.q + (me.g >> 2)) + (me.g & 3));
}

// The ratio of a scale to the largest one. All scales are powers of two; below 2^-126 it is zero.
__device__ __forceinline__ float ratio_of(word mine, word most) { return __uint_as_float((word)max((int)(mine - most) + (127 << 23), 0)); }

// The ratio of this lane's scale to the largest of the four lanes of a g, as a pair of float16.
__device__ __forceinline__ word of_largest(float size) {
    word mine = __float_as_uint(size), most = max(mine, from_partner(mine, 1));
    most = max(most, from_partner(most, 2));
    const float by = ratio_of(mine, most);
    return as_halves(by, by);
}

// Backward: the scales of a thread block's warps in one row, as float16 in proportion to the largest one.
struct Scales {
    float largest;
    word pairs[2 * QUARTERS];

    __device__ __forceinline__ word of(int warp) const { return one_half(pairs[warp / 2], warp & 1); }  // twice

    // That of the q-th warp of the n-th four.
    __device__ __forceinline__ word of_quarter(int n, int q) const { return one_half(q & 2 ? pairs[2 * n + 1] : pairs[2 * n], q & 1); }
};

// `sizes` are those of all warps, rounded up to a multiple of four.
__device__ __forceinline__ Scales scales_of(const float* sizes) {
    Scales scales;
    word size[4 * QUARTERS], most = 0;
#pragma unroll
    for (int k = 0; k < 4 * QUARTERS; k += 4) take((const uint4*)(sizes + k), size + k);
#pragma unroll
    for (int k = 0; k < WARPS; ++k) most = max(most, size[k]);
#pragma unroll
    for (int k = 0; k < 4 * QUARTERS; k += 2)
        scales.pairs[k / 2] = as_halves(k < WARPS ? ratio_of(size[k], most) : 0.0f, k + 1 < WARPS ? ratio_of(size[k + 1], most) : 0.0f);
    scales.largest = __uint_as_float(most);
    return scales;
}

// The largest scales of the rows 2 q and 2 q + 1, from the lanes that have the scales of row g.
__device__ __forceinline__ float2 of_two_rows(float largest, int q) { return {from_lane(largest, 8 * q), from_lane(largest, 8 * q + 4)}; }

__device__ __forceinline__ uint2 times_halves(uint2 four, word by) { return {times_halves(four.x, by), times_halves(four.y, by)}; }

__device__ __forceinline__ float2 larger_of_both(float2 x, float2 y) { return {fmaxf(x.x, y.x), fmaxf(x.y, y.y)}; }

// Two mbarriers at the start of shared memory, each expecting this many bytes.
__device__ __forceinline__ word two_letterboxes(word bytes) {
    const word box = shared_address(shared);
    if (threadIdx.x == 0) {
        make_letterbox(box), make_letterbox(box + 8);
        letterboxes_made();
        expect(box, bytes), expect(box + 8, bytes);
    }
    return box;
}

// Biases of a unit; `apart` is that of the separate recurrent part (the GRU's candidate).
struct Bias { float of[PLACES], apart; };

__device__ __forceinline__ Bias bias_of(const BIAS* bias_ih, const BIAS* bias_hh, const Place& me) {
    Bias bias = {};
#pragma unroll
    for (int block = 0; block < BLOCKS; ++block) {
        offset at = ((offset)me.replica * BLOCKS + block) * H + me.unit;
        float recurrent = entry(bias_hh, at, me.unit_there);
        bias.of[block] = entry(bias_ih, at, me.unit_there);
        if (block == SPLIT) bias.apart = recurrent; else bias.of[block] += recurrent;
    }
    return bias;
}

// Fills this thread block's copy of h_0 of all units from global memory, as [part][tile][chunk][row][unit].
__device__ __forceinline__ void fill_with_first(unsigned char* hiddens, const float* first_hidden, const Place& me, int B) {
    for (int i = threadIdx.x; i < TILES * CHUNKS * 8; i += THREADS) {
        int row = me.first_row + i / (CHUNKS * 8) * 8 + i % 8, unit = i / 8 % CHUNKS * 4;
        float four[4];
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            offset at = ((offset)me.replica * B + row) * H + unit + u;
            four[u] = clamped_to_half(entry(first_hidden, at, row < B && unit + u < H));
        }
        int place = i / 8 * 8 + turned(i % 8, i / 8);
        ((uint2*)hiddens)[place] = {as_halves(four[0], four[1]), as_halves(four[2], four[3])};
        if (PARTS == 2)
            ((uint2*)(hiddens + TILES * CHUNKS * 64))[place] = {
                as_halves(finer(four[0]), finer(four[1])), as_halves(finer(four[2]), finer(four[3]))};
    }
}

// Offset of the i-th carried value of this thread's unit in a state (N, CARRIED, B, H).
__device__ __forceinline__ offset carried_at(const Place& me, int i, int row, int B) {
    return (((offset)me.replica * CARRIED + i) * B + row) * H + me.unit;
}

__device__ __forceinline__ void take_states(
    State* state, int* length, const float* first_hidden, const float* first_cell, const float* first_carried, const int* lengths,
    const Place& me, int B) {
#pragma unroll
    for (int j = 0; j < TILES; ++j) {
        offset at = ((offset)me.replica * B + me.row[j]) * H + me.unit;
        state[j] = {entry(first_hidden, at, me.there[j]), entry(first_cell, at, me.there[j])};
        for (int i = 0; i < CARRIED; ++i) state[j].carried[i] = entry(first_carried, carried_at(me, i, me.row[j], B), me.there[j]);
        length[j] = HAS_LENGTHS && me.row[j] < B ? lengths[(offset)me.replica * B + me.row[j]] : 0;
    }
}

// Gathers a float16 of every lane (the lower half of a word) into the warp's four units of the two rows of q.
__device__ __forceinline__ uint4 gathered(word half, const Place& me) {
    const bool upper = me.g >= 4;
    word other = from_partner(half, 4);
    word two = me.g & 1 ? other | half << 16 : half | other << 16;
    other = from_partner(two, 8);
    word low = me.g & 2 ? other : two, high = me.g & 2 ? two : other;
    word low2 = from_partner(low, 16), high2 = from_partner(high, 16);
    return {upper ? low2 : low, upper ? high2 : high, upper ? low : low2, upper ? high : high2};
}

__device__ __forceinline__ void leave_states(
    const State* state, float* last_hidden, float* last_cell, float* last_carried, const Place& me, int B) {
#pragma unroll
    for (int j = 0; j < TILES; ++j)
        if (me.there[j]) {
            offset end = ((offset)me.replica * B + me.row[j]) * H + me.unit;
            last_hidden[end] = state[j].hidden;
            last_cell[end] = state[j].cell;
            for (int i = 0; i < CARRIED; ++i) last_carried[carried_at(me, i, me.row[j], B)] = state[j].carried[i];
        }
}

// Reduces a value over the rows of a unit and stores the sum.
__device__ __forceinline__ void leave_total(const Place& me, float* totals, int kind, float total) {
    total += from_partner(total, 1);
    total += from_partner(total, 2);
    total += from_partner(total, 16);
    if (me.q == 0 && me.g < 4 && me.unit_there) totals[kind * H] = total;
}

// Gradients of the gate's own weights, from those of the fixed values.
__device__ __forceinline__ void leave_own(const Place& me, float* totals, int kind, const BIAS* own_weights, const float* d_fixed) {
    Own d_own = {};
    if (OWN) gate_own(own_of(own_weights, me.replica, me.unit).weights, d_fixed, d_own.weights);
#pragma unroll
    for (int i = 0; i < OWN; ++i) leave_total(me, totals, kind + i, d_own.weights[i]);
}
