// Linear layers from narrow hidden states to few outputs, each replica with its own weights: outputs = hidden weight^T + bias.
//
// There are many rows, and the kernels are bound by memory bandwidth. A thread has four units of every row of its warp, and
// these columns of the matrix in registers. A warp processes ROWS rows at a time and prefetches the next ones: every thread
// fetches what it will use itself, so that no synchronisation is needed. (Full float32 on tensor cores takes three products,
// which is slower than plain FMAs.)

constexpr int THREADS = 32 * WARPS;

struct Place { int warp, lane, unit, replica, part; };

__device__ __forceinline__ Place whereabouts(int parts) {
    const int program = blockIdx.x, lane = threadIdx.x & 31;
    return {(int)threadIdx.x >> 5, lane, 4 * lane, program / parts, program % parts};
}

// This thread's columns of a matrix with H columns.
__device__ __forceinline__ void read_columns(float4* columns, const NUMBER* matrix, const Place& me) {
    for (int output = 0; output < O; ++output)
        columns[output] = me.unit < H ? four_values(matrix + output * H + me.unit) : float4{0.0f, 0.0f, 0.0f, 0.0f};
}

// The prefetch buffer of a thread: four elements of each of ROWS rows, STAGES times.
struct Ahead {
    NUMBER* places;

    __device__ __forceinline__ Ahead(const Place& me) : places((NUMBER*)shared + (me.warp * STAGES * ROWS * 32 + me.lane) * 4) {}

    __device__ __forceinline__ NUMBER* at(int stage, int row) const { return places + (stage * ROWS + row) * 128; }

    __device__ __forceinline__ void fetch(int stage, const NUMBER* hidden, int start, int rows, const Place& me) const {
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
            if (start + row < rows && me.unit < H)
                fetch_four(shared_address(at(stage, row)), hidden + (offset)(start + row) * H + me.unit);
            else
                store_four(at(stage, row), {0.0f, 0.0f, 0.0f, 0.0f});
        }
        end_of_fetches();
    }
};
