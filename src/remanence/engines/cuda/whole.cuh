// A whole layer of up to 128 units in one thread block, for large batches; kernels.cuh distributes a layer over a cluster instead.
//
// A thread block has eight rows of one replica, all units, and the whole recurrent matrix in the registers of its warps. A thread has
// one unit, or two adjacent ones in the backward pass, in two rows, with all of their blocks. So nothing is sent to other thread blocks,
// and the overhead of non-arithmetic instructions is shared by more work per thread: with more work than the GPU can run at once,
// kernels are bound by instruction issue. Fragments, operands and staging buffers are those of kernels.cuh. Offsets in shared
// memory are in bytes.

constexpr int PAIRS = (BLOCKS + 1) / 2;      // pairs of blocks
constexpr int PLACES = BLOCKS > 4 ? BLOCKS : 4;  // size of arrays with a value per block
constexpr int EACH = H / (8 * WARPS);        // units per thread
constexpr int SIZE = sizeof(NUMBER);
// Bytes of a row and of a page of eight rows in a staging buffer: of all blocks, of one, and of one in float32. Rows are padded to
// start in different banks.
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

// Offset of the i-th carried value of this thread's first unit in its j-th row, in a state (N, CARRIED, B, H).
__device__ __forceinline__ offset carried_at(const Place& me, int i, int j, int B) {
    return (((offset)me.replica * CARRIED + i) * B + me.row[j]) * H + me.unit;
}

template <typename Value>
__device__ __forceinline__ Value& at(int place) { return *(Value*)(shared + place); }

// Up to eight rows of WIDTH elements each, contiguous in global memory; a thread moves vectors of four of them.
template <int WIDTH, typename Number>
struct Page {
    static constexpr int SIZE = sizeof(Number), PITCH = WIDTH * SIZE + 16;
    static constexpr int FOURS = (2 * WIDTH + THREADS - 1) / THREADS;
    static constexpr bool EVEN = FOURS * THREADS == 2 * WIDTH;   // all threads have the same number of vectors
    static constexpr bool REGULAR = THREADS % (WIDTH / 4) == 0;  // a thread's vectors are all in the same column

    __device__ __forceinline__ static int row_of(int i) { return (int)((threadIdx.x + i * THREADS) / (word)(WIDTH / 4)); }

    // Offset of the i-th vector of this thread in a staging buffer.
    __device__ __forceinline__ static int place_of(int i) {
        return row_of(i) * PITCH + (int)((threadIdx.x + i * THREADS) % (word)(WIDTH / 4)) * 4 * SIZE;
    }

    // Fetches the rows from row `row` of `memory` on. (A 32-bit index of vectors suffices, see recurrence.py, so that no 64-bit
    // addresses occupy registers.)
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
