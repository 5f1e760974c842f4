// The scheme of kernels.cuh for layers of more units than registers hold.
//
// Of the tiles of its slice of the matrix a thread keeps HELD in registers; others are on the shelf, and STREAMED, for which there
// is no room on the chip, in its L2 cache, in the *overflow*. There is no room in shared memory for boxes either: what a step needs
// threads read into registers, a step ahead, and what it leaves they write from there.

constexpr int SLICED = CLUSTER * WARPS / 4;          // tiles of sixteen units of the layer
static_assert(TILES == 1 || STREAMED == 0 || MORE);  // what comes from the overflow is taken once
static_assert(PRE_ROW >= BLOCKS * H);                  // numbers in a row of pre-activations, which may end with others
constexpr int PRODUCTS = (SLICED + WARPS - 1) / WARPS; // of those that a warp computes, backward

// Two or four numbers of a row of the matrix, zero after its end. Rows may start where no vector does.
__device__ __forceinline__ float2 two_in_row(const NUMBER* row, int column) {
    if (H % 2 == 0) return column < H ? two_values(row + column) : float2{0, 0};
    return {column < H ? value_of(row[column]) : 0.0f, column + 1 < H ? value_of(row[column + 1]) : 0.0f};
}

__device__ __forceinline__ float4 four_in_row(const NUMBER* row, int column) {
    if (H % 4 == 0) return column < H ? four_values(row + column) : float4{0, 0, 0, 0};
    float2 one = two_in_row(row, column), other = two_in_row(row, column + 2);
    return {one.x, one.y, other.x, other.y};
}

// Tiles in the order in which they are multiplied: with those of four of COUNT chunks, or as many as are left, come MORE of the other
// blocks, before them or after. Chunks are of sixteen units forward; of four backward, where there are EACH times as many tiles.
template <int COUNT, int EACH, bool BEFORE>
struct Order {
    static constexpr int ALL = EACH * (COUNT + MORE * ((COUNT + 3) / 4));
    __device__ __forceinline__ static constexpr bool is_last(int k) { return k % 4 == 3 || k == COUNT - 1; }
    __device__ __forceinline__ static constexpr int of(int k) { return EACH * (k + MORE * (k / 4 + BEFORE)); }
    // That of the four among which the k-th is.
    __device__ __forceinline__ static constexpr int more(int k, int block) {
        return EACH * ((BEFORE ? k / 4 * 4 : k / 4 * 4 + 4 < COUNT ? k / 4 * 4 + 4 : COUNT) + MORE * (k / 4) + block);
    }
};

struct Tile { word of[4]; };

// The slice of a thread: ALL tiles, those of each place evenly among the others.
template <int ALL>
struct Stock {
    static constexpr int NEAR = ALL - STREAMED, KEPT = HELD < NEAR ? HELD : NEAR, SHELVED = NEAR - KEPT;
    static constexpr int SOURCE = STREAMED ? STREAMED : SHELVED, AHEAD = READ_AHEAD < SOURCE ? READ_AHEAD : SOURCE;
    word slice[KEPT][4];
    uint4 ahead[AHEAD + !AHEAD];  // tiles that have been asked for: of the overflow the next, of the shelf the first
    unsigned char* shelf;
    uint4* overflow;

    // How many of the first k tiles are in the overflow, and how many of those that are not on the shelf.
    __device__ __forceinline__ static constexpr int streamed(int k) { return k * STREAMED / ALL; }
    __device__ __forceinline__ static constexpr int shelved(int k) { return (k - streamed(k)) * SHELVED / NEAR; }
    __device__ __forceinline__ static constexpr bool is_streamed(int k) { return streamed(k + 1) > streamed(k); }
    __device__ __forceinline__ static constexpr bool is_shelved(int k) { return shelved(k + 1) > shelved(k); }

    // The overflow is shared by all groups, which put the same into it.
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

    // Ask for the first while there is nothing to multiply them with yet.
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

    __device__ __forceinline__ Tile tile(int k) {  // once
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
