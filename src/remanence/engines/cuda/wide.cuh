// The scheme of kernels.cuh for layers whose matrix does not fit into registers.
//
// Of the tiles of its slice of the matrix, a thread keeps HELD in registers. Others are in shared memory, on the shelf, and STREAMED
// tiles, which do not fit on chip, are in global memory, in the *overflow*, which stays in L2. Shared memory has no space for staging
// buffers either: threads load the inputs of a step into registers, one step ahead, and store results from registers.

constexpr int SLICED = CLUSTER * WARPS / 4;          // tiles of sixteen units of the layer
static_assert(TILES == 1 || STREAMED == 0 || MORE);  // a tile of the overflow can be taken only once
static_assert(PRE_ROW >= BLOCKS * H);                  // elements in a row of pre-activations, which may end with padding
constexpr int PRODUCTS = (SLICED + WARPS - 1) / WARPS; // of those that a warp computes, backward

// Two or four elements of a row of the matrix, zero past its end. Rows may be unaligned for vector loads.
__device__ __forceinline__ float2 two_in_row(const NUMBER* row, int column) {
    if (H % 2 == 0) return column < H ? two_values(row + column) : float2{0, 0};
    return {column < H ? value_of(row[column]) : 0.0f, column + 1 < H ? value_of(row[column + 1]) : 0.0f};
}

__device__ __forceinline__ float4 four_in_row(const NUMBER* row, int column) {
    if (H % 4 == 0) return column < H ? four_values(row + column) : float4{0, 0, 0, 0};
    float2 one = two_in_row(row, column), other = two_in_row(row, column + 2);
    return {one.x, one.y, other.x, other.y};
}

// Order of the tiles in the multiplication: every four of COUNT chunks (or the remaining ones) come with MORE tiles of the other blocks,
// before or after them. A chunk has sixteen units forward, and four backward, where there are EACH times as many tiles.
template <int COUNT, int EACH, bool BEFORE>
struct Order {
    static constexpr int ALL = EACH * (COUNT + MORE * ((COUNT + 3) / 4));
    __device__ __forceinline__ static constexpr bool is_last(int k) { return k % 4 == 3 || k == COUNT - 1; }
    __device__ __forceinline__ static constexpr int of(int k) { return EACH * (k + MORE * (k / 4 + BEFORE)); }
    // The tile of another block for the four chunks that include the k-th.
    __device__ __forceinline__ static constexpr int more(int k, int block) {
        return EACH * ((BEFORE ? k / 4 * 4 : k / 4 * 4 + 4 < COUNT ? k / 4 * 4 + 4 : COUNT) + MORE * (k / 4) + block);
    }
};

struct Tile { word of[4]; };

// The slice of a thread: ALL tiles, in registers, on the shelf and in the overflow, evenly interleaved.
template <int ALL>
struct Stock {
    static constexpr int NEAR = ALL - STREAMED, KEPT = HELD < NEAR ? HELD : NEAR, SHELVED = NEAR - KEPT;
    static constexpr int SOURCE = STREAMED ? STREAMED : SHELVED, AHEAD = READ_AHEAD < SOURCE ? READ_AHEAD : SOURCE;
    word slice[KEPT][4];
    uint4 ahead[AHEAD + !AHEAD];  // prefetched tiles: the next ones of the overflow, or the first ones of the shelf
    unsigned char* shelf;
    uint4* overflow;

    // How many of the first k tiles are in the overflow, and how many of the rest are on the shelf.
    __device__ __forceinline__ static constexpr int streamed(int k) { return k * STREAMED / ALL; }
    __device__ __forceinline__ static constexpr int shelved(int k) { return (k - streamed(k)) * SHELVED / NEAR; }
    __device__ __forceinline__ static constexpr bool is_streamed(int k) { return streamed(k + 1) > streamed(k); }
    __device__ __forceinline__ static constexpr bool is_shelved(int k) { return shelved(k + 1) > shelved(k); }

    // The overflow is shared by all groups, which write the same data to it.
    __device__ __forceinline__ Stock(unsigned char* shelf, uint4* overflow, const Place& me)
        : shelf(shelf), overflow(overflow + ((offset)me.replica * CLUSTER + me.rank) * STREAMED * THREADS + threadIdx.x) {}

    __device__ __forceinline__ void keep(int k, uint4 tile) {
        if (is_streamed(k)) {
            overflow[streamed(k) * THREADS] = tile;
        } else if (is_shelved(k)) {
            *on_shelf(shelf, shelved(k)) = tile;
        } else {
            word* held = slice[k - streamed(k) - shelved(k)];
            held[0] = tile.x, held[1] = tile.y, held[2] = tile.z, held[3] = tile.w;
        }
    }

    // Prefetch the first tiles while the operands have not arrived yet.
    __device__ __forceinline__ void read_ahead() {
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) ahead[i] = STREAMED ? from_memory(overflow + i * THREADS) : *on_shelf(shelf, i);
    }

    __device__ __forceinline__ uint4 taken(int k) {
        int at = is_streamed(k) ? streamed(k) : shelved(k);
        if (is_streamed(k)) {
            uint4 tile = ahead[at % (AHEAD + !AHEAD)];
            if (at + AHEAD < STREAMED) ahead[at % (AHEAD + !AHEAD)] = from_memory(overflow + (at + AHEAD) * THREADS);
            return tile;
        }
        return !STREAMED && at < AHEAD ? ahead[at < AHEAD ? at : 0] : *on_shelf(shelf, at);
    }

    __device__ __forceinline__ Tile tile(int k) {  // once per step
        const word* held = slice[is_streamed(k) || is_shelved(k) ? 0 : k - streamed(k) - shelved(k)];
        if (!is_streamed(k) && !is_shelved(k)) return {{held[0], held[1], held[2], held[3]}};
        uint4 tile = taken(k);
        return {{tile.x, tile.y, tile.z, tile.w}};
    }

    __device__ __forceinline__ void times(float* sums, int k, uint2 factor) {
        if (is_streamed(k) || is_shelved(k)) {
            uint4 tile = taken(k);
            word words[4] = {tile.x, tile.y, tile.z, tile.w};
            multiply(sums, words, factor);
        } else {
            multiply(sums, slice[k - streamed(k) - shelved(k)], factor);
        }
    }
};
