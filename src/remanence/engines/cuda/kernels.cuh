// A whole sequence in one launch, forward and backward, by clusters of programs that write into each other's memory.
//
// N replicas, T steps, B rows (sequences), H units, BLOCKS blocks of pre-activations. A *group* is TILES tiles of eight
// rows of one replica, and a cluster of CLUSTER programs computes it. Each of a program's WARPS warps has four units, a
// thread one of them in TILES rows. A program keeps its slice of the recurrent matrix in registers and the state of
// its units too; nothing of the recurrence goes through global memory, and no cluster waits for another.
//
// The scheme is that of ../triton/kernels.py. Forward, programs send each other h_t. Backward, every program multiplies the
// derivatives of its own units by its slice of the matrix, which gives its share of d h_{t-1} for all units, sends
// every program the part that is of its units, and sums those it gets, always in the same order. What is sent comes
// with word of its arrival: a step waits for one delivery, and for nothing else. There are two places for what arrives,
// used in turn: who sends something for the second time has received all of the first, so nobody reads it any more.
//
// Products are of float16 numbers with float32 sums. Those have the digits of TF32, and to have its range too what a
// warp keeps of the matrix is multiplied with a power of two, and so are the derivatives of the four units of a warp in
// one row; h is between -1 and 1, JANET's not far beyond. Full float32 takes two such numbers for each (PARTS), and three products.
//
// The tensor cores multiply a 16 x 16 by a 16 x 8 matrix. Thread 4 g + q of a warp has rows g and g + 8 of the first,
// of its columns the four of q, column g of the second in the same four, and of the product rows g and g + 8, columns
// 2 q and 2 q + 1. (Which four columns are those of q is free as long as both factors agree.)
//
// A warp's four units have sixteen rows in four blocks, which are a tile. Of each of MORE other blocks they have four rows, and a tile
// of four words a thread takes these for four times as many columns: forward the matrix is the second factor, in whose even columns a
// unit has one half of what is multiplied, in its odd ones the other, and h of both halves is the first factor, one below the other.
// Of the product half is of no use, and the sum of the rest is what the unit needs. Backward, where columns become rows, such a tile
// has sixteen units of four warps in one block; those of a warp are of thread q, and divided by the largest size of the four warps.
//
// Narrow inputs, of up to sixteen numbers (INPUTS, else 0), are multiplied by their matrix on the way, and derivatives by that
// matrix are summed on the way back; in TF32, which has their range. Wider ones come multiplied, as pre-activations.
//
// What a step needs from global memory, and what it leaves there, goes through shared memory, four units of a row at a
// time: what a warp's threads have, four units of eight rows, would take eight times as many accesses. An *inbox* holds
// DEPTH steps, asked for ahead; an *outbox* two, written in one step and emptied in the next, while what it sent is on
// its way.

constexpr int UNITS = 4 * WARPS;
constexpr int CHUNKS = CLUSTER * WARPS;           // of four units, of the whole layer
constexpr int SQUARES = WARPS / 4;                // tiles of sixteen units that a program has
constexpr int PITCH = UNITS + 4;                  // of a row in a box, which lets a warp's threads all read at once
constexpr int PAGE = TILES * 8 * PITCH;           // numbers of one kind in a box
constexpr int FOURS = TILES * 8 * (UNITS / 4);    // how many times four they are
constexpr int MORE = BLOCKS > 4 ? BLOCKS - 4 : 0; // blocks after the fourth
constexpr int PLACES = 4 + MORE;                  // for numbers of all blocks
constexpr int QUARTERS = (WARPS + 3) / 4;         // times four warps, backward

// Registers of a thread that hold its slice of the matrix. Where there are none left for the finer parts, those are in shared
// memory, on a *shelf*; and if ASIDE, the blocks after the fourth.
constexpr bool ON_SHELF = PARTS == 2 && (CLUSTER * WARPS > 64 || CLUSTER * WARPS * PLACES > 320);
constexpr int IN_HAND = ON_SHELF ? 1 : PARTS;  // parts in registers
constexpr int SLICE = CLUSTER * WARPS * IN_HAND * (ASIDE ? 4 : PLACES) / 4;
constexpr int SHELF = (CLUSTER + 3) / 4 * (ON_SHELF * WARPS + (ON_SHELF || ASIDE) * MORE * QUARTERS) * THREADS * 16;  // bytes

// The place of the k-th tile of this thread's slice on the shelf.
__device__ __forceinline__ uint4* on_shelf(unsigned char* shelf, int k) { return (uint4*)shelf + k * THREADS + threadIdx.x; }

// Whether a thread has registers left for addresses beside its slice.
constexpr bool ROOM = SLICE <= 64 && TOGETHER * THREADS <= 512;

template <typename Number>
__device__ __forceinline__ Number steady(Number x) { return ROOM ? pinned(x) : x; }

// Where a row of eight stands, of a unit or of four units: a warp reads four of these at once, each in banks of its own.
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

// What the i-th of this thread's fours of a box is: kind, row and first unit, whether there are such, and its place in its
// page. Kinds below BLOCKS have BLOCKS times H numbers a row in global memory, the others H.
struct Four { int kind, row, unit, place; bool there; };

__device__ __forceinline__ Four four_of(int i, const Place& me, int B) {
    i = threadIdx.x + i * THREADS;
    int unit = i % (UNITS / 4) * 4, row = i / (UNITS / 4) % (TILES * 8);
    int place = row * PITCH + unit;
    row += me.first_row, unit += me.rank * UNITS;
    return {i / FOURS, row, unit, place, row < B && unit < H};
}

// What a thread moves in every step, four numbers at a time, if anything: where they are in global memory, float32 if `wide`,
// else as all else; how many bytes further in the next step; and where in a box, in bytes.
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

// Products have blocks 0 and 2 of rows 2 q and 2 q + 1 in threads of the lower half of a warp, 1 and 3 in those of the
// upper. This shares out the rows, and puts what was shared out together again.
__device__ __forceinline__ void share_out(const float* sum, bool upper, float* blocks) {
    float one = from_partner(upper ? sum[0] : sum[1], 16), other = from_partner(upper ? sum[2] : sum[3], 16);
    blocks[0] = upper ? one : sum[0], blocks[1] = upper ? sum[1] : one;
    blocks[2] = upper ? other : sum[2], blocks[3] = upper ? sum[3] : other;
}

// Products of the other blocks are of unit q and row g; this takes those of this thread's unit and row.
__device__ __forceinline__ float handed_over(float sum, const Place& me) {
    return from_lane(sum, 4 * (2 * me.q + (me.g >> 2)) + (me.g & 3));
}

// What of four sizes in a row, one of each q, a thread's own is of the largest, as a factor of two halves. All are powers of two.
__device__ __forceinline__ word of_largest(float size) {
    word mine = __float_as_uint(size), most = max(mine, from_partner(mine, 1));
    most = max(most, from_partner(most, 2));
    const int ratio = (int)(mine - most) + (127 << 23);
    const float by = ratio > 0 ? __uint_as_float((word)ratio) : 0.0f;
    return as_halves(by, by);
}

__device__ __forceinline__ uint2 times_halves(uint2 four, word by) { return {times_halves(four.x, by), times_halves(four.y, by)}; }

__device__ __forceinline__ float2 larger_of_both(float2 x, float2 y) { return {fmaxf(x.x, y.x), fmaxf(x.y, y.y)}; }

// Two letterboxes at the start of shared memory, each for so many bytes.
__device__ __forceinline__ word two_letterboxes(word bytes) {
    const word box = shared_address(shared);
    if (threadIdx.x == 0) {
        make_letterbox(box), make_letterbox(box + 8);
        letterboxes_made();
        expect(box, bytes), expect(box + 8, bytes);
    }
    return box;
}

// Biases of a unit; that of the recurrent part which is kept apart is.
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

// h_0 of all units, from memory, as [part][tile][chunk][row][unit]: every program fills its own.
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

// Where in a state (N, CARRIED, B, H) the i-th value is that a unit carries.
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

// Of the warp's four units two rows, those of q, from a float16 of every thread, in the lower half of a word.
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

// A sum over the rows of a unit.
__device__ __forceinline__ void leave_total(const Place& me, float* totals, int kind, float total) {
    total += from_partner(total, 1);
    total += from_partner(total, 2);
    total += from_partner(total, 16);
    if (me.q == 0 && me.g < 4 && me.unit_there) totals[kind * H] = total;
}

// Derivatives by the gate's own weights, from those by what they come to.
__device__ __forceinline__ void leave_own(const Place& me, float* totals, int kind, const BIAS* own_weights, const float* d_fixed) {
    Own d_own = {};
    if (OWN) gate_own(own_of(own_weights, me.replica, me.unit).weights, d_fixed, d_own.weights);
#pragma unroll
    for (int i = 0; i < OWN; ++i) leave_total(me, totals, kind + i, d_own.weights[i]);
}
