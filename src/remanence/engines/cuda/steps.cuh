// Shared by the kernels of both schemes (kernels.cuh, whole.cuh): initial values of a thread, and per-row data (inputs, dt) that
// is fetched in every step.

constexpr int THREADS = 32 * WARPS;
constexpr int DEPTH = 4;                          // steps in the inbox (stages of the prefetch pipeline)
constexpr int EIGHTS = (INPUTS + 7) / 8;          // tiles of eight inputs
constexpr int SINGLES = (TILES * 8 * INPUTS + THREADS - 1) / THREADS;  // inputs that a thread fetches per step

// A unit's own weights of the gate, from (N, OWN, H). A unit beyond the last gets those of the last one: its results are
// discarded, but must not be NaN.
struct Own { float weights[OWN + !OWN]; };

__device__ __forceinline__ Own own_of(const BIAS* weights, int replica, int unit) {
    Own own = {};
    for (int i = 0; i < OWN; ++i) own.weights[i] = value_of(weights[((offset)replica * OWN + i) * H + (unit < H ? unit : H - 1)]);
    return own;
}

// Values precomputed from them, the same in every step.
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

// An element of a state or a bias; zero if it does not exist.
template <typename Number>
__device__ __forceinline__ float entry(const Number* state, offset at, bool there) {
    return state != nullptr && there ? value_of(state[at]) : 0.0f;
}

// Maximum over a warp.
__device__ __forceinline__ word largest_of(word mine) {
    for (int bits = 1; bits < 32; bits *= 2) mine = max(mine, from_partner(mine, bits));
    return mine;
}

// A pre-activation as saved for the backward pass: clamped to the range of float16 if NUMBER has 16 bits.
__device__ __forceinline__ float to_keep(float z) { return sizeof(NUMBER) == 2 ? clamped_to_half(z) : z; }

// A single element of a row that this thread fetches in every step: its global address, and its offset in bytes in its part of
// the inbox.
struct Single { bool there; const float* memory; int place; };

// The i-th of this thread's narrow inputs, if any; `at` is the first row of the group in the first step, ROW the row stride.
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
