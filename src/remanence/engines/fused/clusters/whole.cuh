// A whole layer of up to 128 units in one program, for many rows at once: what kernels.cuh spreads over a cluster.
//
// A program has eight rows of one replica, all units, and all of the recurrent matrix, in the registers of its H / 8 warps. A
// thread has one unit in two rows, with all of its blocks. So nothing is sent to other programs, and a thread does twice
// as much with every instruction that is not arithmetic: with more to do than the chip can do at once, instructions are
// what takes the time. The tensor cores, numbers and boxes are those of kernels.cuh.
//
// Warps w and w + HALF have the units of one tile of sixteen. Backward, each multiplies the derivatives of half of the
// warps, and they give each other what is of the other's units.

constexpr int HALF = WARPS / 2;
constexpr int PAIRS = (BLOCKS + 1) / 2;      // of blocks
constexpr int INNER = H / 16;                // tiles of sixteen units
constexpr int WIDE_PITCH = BLOCKS * H + 4, PITCH = H + 4;    // of a row in a box, of all blocks and of one
constexpr int WIDE_PAGE = 8 * WIDE_PITCH, PAGE = 8 * PITCH;  // numbers of one kind in a box
constexpr int WIDE_FOURS = (BLOCKS + 1) / 2;                 // times four of all blocks that a thread moves in a step

struct Place {
    int lane, warp, g, q, unit, replica, group, first_row;
    int row[2];
    bool there[2];
};

__device__ __forceinline__ Place whereabouts(int B) {
    Place me;
    me.lane = threadIdx.x & 31;
    me.warp = threadIdx.x >> 5;
    me.g = me.lane >> 2;
    me.q = me.lane & 3;
    me.group = blockIdx.x;
    int row_tiles = (B + 7) / 8;
    me.replica = me.group / row_tiles;
    me.unit = 16 * (me.warp % HALF) + 8 * (me.warp / HALF) + me.g;
    me.first_row = (me.group % row_tiles) * 8;
    for (int j = 0; j < 2; ++j) {
        me.row[j] = me.first_row + 2 * me.q + j;
        me.there[j] = me.row[j] < B;
    }
    return me;
}

// Four numbers that a thread moves in every step, if any: where they are in global memory, float32 if `wide`, else as all else, and
// where in a page, in bytes.
struct Route { bool there, wide; char* memory; int place; };

// The j-th four of a page with WIDTH numbers a row, which are one after the other in memory.
template <int WIDTH>
__device__ __forceinline__ Route route_of(int j, const void* memory, bool wide, bool in_box, int rows) {
    int row = j / (WIDTH / 4), place = row * (WIDTH + 4) + j % (WIDTH / 4) * 4;
    int size = wide ? 4 : (int)sizeof(NUMBER);
    return {memory != nullptr && row < 8 && row < rows, wide, (char*)memory + (offset)j * 4 * size, place * (in_box ? 4 : size)};
}

__device__ __forceinline__ void fetch_and_go_on(Route& route, word box, offset step) {
    if (route.there) {
        if (sizeof(NUMBER) == 4 || route.wide) fetch_four(box + route.place, (const float*)route.memory);
        else fetch_four(box + route.place, (const NUMBER*)route.memory);
    }
    route.memory += step;
}

__device__ __forceinline__ void store_and_go_on(Route& route, const float* box, offset step) {
    if (route.there) {
        float4 numbers = *(const float4*)((const char*)box + route.place);
        if (sizeof(NUMBER) == 4 || route.wide) store_four((float*)route.memory, numbers);
        else store_four((NUMBER*)route.memory, numbers);
    }
    route.memory += step;
}
