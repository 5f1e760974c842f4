// A whole layer of up to 128 units in one program, for many rows at once: what kernels.cuh spreads over a cluster.
//
// A program has eight rows of one replica, all units, and all of the recurrent matrix, in the registers of its warps. A thread has one
// unit, or two next to each other in the backward pass, in two rows, with all of their blocks. So nothing is sent to other
// programs, and a thread does more with every instruction that is not arithmetic: with more to do than the chip can do at
// once, instructions are what takes the time. The tensor cores, numbers and boxes are those of kernels.cuh. Places in shared
// memory are in bytes.

constexpr int PAIRS = (BLOCKS + 1) / 2;      // of blocks
constexpr int PLACES = BLOCKS > 4 ? BLOCKS : 4;  // for numbers of all blocks
constexpr int EACH = H / (8 * WARPS);        // units of a thread
constexpr int SIZE = sizeof(NUMBER);
// Bytes of a row and a page of eight in a box: of all blocks, of one, and of one in float32. Rows begin in different banks.
constexpr int BLOCKS_ROW = BLOCKS * H * SIZE, ROW = H * SIZE, STATE_ROW = H * 4;
constexpr int BLOCKS_PITCH = BLOCKS_ROW + 16, PITCH = ROW + 16, STATE_PITCH = STATE_ROW + 16;
constexpr int BLOCKS_PAGE = 8 * BLOCKS_PITCH, PAGE = 8 * PITCH, STATE_PAGE = 8 * STATE_PITCH;

struct Place {
    int warp, g, q, unit, replica, group, first_row;
    int row[2];
    bool there[2];
};

__device__ __forceinline__ Place whereabouts(int B) {
    Place me;
    me.warp = threadIdx.x >> 5;
    me.g = (threadIdx.x & 31) >> 2;
    me.q = threadIdx.x & 3;
    me.group = blockIdx.x;
    int row_tiles = (B + 7) / 8;
    me.replica = me.group / row_tiles;
    me.unit = EACH * (8 * me.warp + me.g);  // the first
    me.first_row = (me.group % row_tiles) * 8;
    for (int j = 0; j < 2; ++j) {
        me.row[j] = me.first_row + 2 * me.q + j;
        me.there[j] = me.row[j] < B;
    }
    return me;
}

// Where in a state (N, CARRIED, B, H) the i-th value is that this thread's first unit carries in its j-th row.
__device__ __forceinline__ offset carried_at(const Place& me, int i, int j, int B) {
    return (((offset)me.replica * CARRIED + i) * B + me.row[j]) * H + me.unit;
}

template <typename Value>
__device__ __forceinline__ Value& at(int place) { return *(Value*)(shared + place); }

// Eight rows, or as many as there are, of WIDTH numbers each, which are one after the other in memory: a thread has fours of them.
template <int WIDTH, typename Number>
struct Page {
    static constexpr int SIZE = sizeof(Number), PITCH = WIDTH * SIZE + 16;
    static constexpr int FOURS = (2 * WIDTH + THREADS - 1) / THREADS;
    static constexpr bool EVEN = FOURS * THREADS == 2 * WIDTH;   // so that all threads have as many
    static constexpr bool REGULAR = THREADS % (WIDTH / 4) == 0;  // so that a thread's fours are below each other

    __device__ __forceinline__ static int row_of(int i) { return (int)((threadIdx.x + i * THREADS) / (word)(WIDTH / 4)); }

    // Where the i-th four of this thread are in a box.
    __device__ __forceinline__ static int place_of(int i) {
        return row_of(i) * PITCH + (int)((threadIdx.x + i * THREADS) % (word)(WIDTH / 4)) * 4 * SIZE;
    }

    // From row `row` of `memory` on. (There are less than 2^32 fours, see recurrence.py: a thread has no addresses to keep.)
    __device__ __forceinline__ static void fetch(word box, const Number* memory, word row, int rows) {
        const int first = place_of(0);
#pragma unroll
        for (int i = 0; i < FOURS; ++i) {
            const int place = REGULAR ? first + i * (THREADS / (WIDTH / 4)) * PITCH : place_of(i);
            const word four = row * (WIDTH / 4) + i * THREADS + threadIdx.x;
            if (row_of(i) < rows && (EVEN || row_of(i) < 8)) fetch_four(box + place, memory + (offset)four * 4);
        }
    }
};

__device__ __forceinline__ void go_on_and_fetch(Single& single, word box, offset onward) {
    single.memory += onward;
    if (single.there) fetch(box + single.place, single.memory);
}
