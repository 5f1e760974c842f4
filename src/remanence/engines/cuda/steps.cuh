// What the kernels of both schemes (kernels.cuh, whole.cuh) have in common: what a thread begins with, and what it fetches in
// every step for rows, not units.

constexpr int THREADS = 32 * WARPS;
constexpr int DEPTH = 4;                          // steps that an inbox holds
constexpr int EIGHTS = (INPUTS + 7) / 8;          // tiles of eight inputs
constexpr int SINGLES = (TILES * 8 * INPUTS + THREADS - 1) / THREADS;  // inputs that a thread fetches

// What a unit has of the gate's own weights, as (N, OWN, H). A unit that is not there has what the last one has: its numbers go
// nowhere, but must be numbers.
struct Own { float weights[OWN + !OWN]; };

__device__ __forceinline__ Own own_of(const BIAS* weights, int replica, int unit) {
    Own own = {};
    for (int i = 0; i < OWN; ++i) own.weights[i] = value_of(weights[((offset)replica * OWN + i) * H + (unit < H ? unit : H - 1)]);
    return own;
}

// And what these come to, which is the same in every step.
struct Fixed { float values[FIXED + !FIXED]; };

__device__ __forceinline__ Fixed fixed_of(const Own& own) {
    Fixed fixed = {};
    gate_fixed(own.weights, fixed.values);
    return fixed;
}

__device__ __forceinline__ State state_before(float cell, const float* carried) {
    State state = {0.0f, cell};
    for (int i = 0; i < CARRIED; ++i) state.carried[i] = carried[i];
    return state;
}

// An entry of a state, or of a bias; zero where there is none.
template <typename Number>
__device__ __forceinline__ float entry(const Number* state, offset at, bool there) {
    return state != nullptr && there ? value_of(state[at]) : 0.0f;
}

// The largest of a warp.
__device__ __forceinline__ word largest_of(word mine) {
    for (int bits = 1; bits < 32; bits *= 2) mine = max(mine, from_partner(mine, bits));
    return mine;
}

// A pre-activation as it is kept for the backward pass, in the range of a float16 where it has 16 bits.
__device__ __forceinline__ float to_keep(float z) { return sizeof(NUMBER) == 2 ? clamped_to_half(z) : z; }

// A single number of a row that this thread fetches in every step: where it is, and, in bytes, where among its kind in a box.
struct Single { bool there; const float* memory; int place; };

// The i-th of its narrow inputs, if any; `at` is the first row of the group in the first step, ROW the places for those of a row.
template <int ROW>
__device__ __forceinline__ Single input_of(int i, const float* inputs, offset at, int rows) {
    i = threadIdx.x + i * THREADS;
    int row = i / (INPUTS + !INPUTS), input = i % (INPUTS + !INPUTS);
    return {row < TILES * 8 && row < rows, inputs + at * INPUTS + i, (row * ROW + input) * 4};
}

__device__ __forceinline__ Single dt_of(const float* dt, offset at, int rows) {
    return {HAS_DT && threadIdx.x < TILES * 8 && (int)threadIdx.x < rows, dt + at + threadIdx.x, (int)threadIdx.x * 4};
}

__device__ __forceinline__ void fetch_and_go_on(Single& single, word box, offset onward) {
    if (single.there) fetch(box + single.place, single.memory);
    single.memory += onward;
}
