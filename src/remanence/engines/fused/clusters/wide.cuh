// The scheme of kernels.cuh for layers of more units than registers hold.
//
// Of the tiles of its slice of the matrix a thread keeps HELD in registers; all others are on the shelf. That leaves no room in
// shared memory for boxes. What a step needs threads read into registers, a step ahead, and what it leaves they write from there.

constexpr int SLICED = CLUSTER * SQUARES;            // tiles of sixteen units of the layer
constexpr int LOOKED = (SLICED + WARPS - 1) / WARPS; // of those that a warp computes in the backward pass, at most

// Where tile k of `all` is, shelved ones evenly among the others: its number among the held or the shelved ones.
template <int ALL>
struct Stock {
    static constexpr int KEPT = HELD < ALL ? HELD : ALL, SHELVED = ALL - KEPT;
    static constexpr int AHEAD = READ_AHEAD < SHELVED ? READ_AHEAD : SHELVED;
    word slice[KEPT][4];
    uint4 ahead[AHEAD + !AHEAD];

    __device__ __forceinline__ static constexpr int before(int k) { return k * SHELVED / ALL; }  // how many are on the shelf
    __device__ __forceinline__ static constexpr bool shelved(int k) { return before(k + 1) > before(k); }

    __device__ __forceinline__ void keep(unsigned char* shelf, int k, uint4 tile) {
        if (shelved(k)) {
            *on_shelf(shelf, before(k)) = tile;
        } else {
            word* held = slice[k - before(k)];
            held[0] = tile.x, held[1] = tile.y, held[2] = tile.z, held[3] = tile.w;
        }
    }

    // Take the first from the shelf while there is nothing to multiply them with yet.
    __device__ __forceinline__ void read_ahead(unsigned char* shelf) {
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) ahead[k] = *on_shelf(shelf, k);
    }

    __device__ __forceinline__ void times(float* sums, unsigned char* shelf, int k, uint2 factor) const {
        if (shelved(k)) {
            uint4 tile = before(k) < AHEAD ? ahead[before(k) < AHEAD ? before(k) : 0] : *on_shelf(shelf, before(k));
            word words[4] = {tile.x, tile.y, tile.z, tile.w};
            multiply(sums, words, factor);
        } else {
            multiply(sums, slice[k - before(k)], factor);
        }
    }
};
