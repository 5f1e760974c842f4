// Wrappers of PTX instructions. All other files are plain C++.

typedef unsigned int word;           // 32 bits; also an address in shared memory
typedef unsigned short half_bits;    // bits of a float16 or bfloat16
typedef long long offset;

extern __shared__ __align__(128) unsigned char shared[];

__device__ __forceinline__ word shared_address(const void* place) {
    return (word)__cvta_generic_to_shared(place);
}

__device__ __forceinline__ word rank_in_cluster() {
    word rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Barrier for all threads of the cluster.
__device__ __forceinline__ void meet() {
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

#if defined(CLUSTER) && CLUSTER == 1

// A cluster of one thread block sends to itself: a plain store, and a barrier of all threads. (memcheck of compute-sanitizer
// rejects st.async in such a cluster.)

__device__ __forceinline__ word address_in(word, word address) { return address; }

__device__ __forceinline__ void make_letterbox(word) {}

__device__ __forceinline__ void letterboxes_made() {}

__device__ __forceinline__ void expect(word, word) {}

__device__ __forceinline__ void wait_for(word, word) { __syncthreads(); }

__device__ __forceinline__ void deliver(word there, word, word a, word b, word c, word d) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(there), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

#else

// Maps an address in this thread block's shared memory to that of another thread block of the cluster.
__device__ __forceinline__ word address_in(word rank, word address) {
    word there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

// A letterbox is an mbarrier whose phase completes when the expected number of bytes has arrived.

__device__ __forceinline__ void make_letterbox(word box) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(box) : "memory");
}

__device__ __forceinline__ void letterboxes_made() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void expect(word box, word bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(box), "r"(bytes) : "memory");
}

// The data arrives in this thread block's own shared memory, so the wait has CTA scope: cluster scope would invalidate L1
// every time.
__device__ __forceinline__ void wait_for(word box, word parity) {
    word open;
    do {
        asm volatile(
            "{\n.reg .pred open;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 open, [%1], %2;\n"
            "selp.u32 %0, 1, 0, open;\n}"
            : "=r"(open) : "r"(box), "r"(parity) : "memory");
    } while (!open);
}

// Stores sixteen bytes to the shared memory of a thread block of the cluster, and signals its mbarrier.
__device__ __forceinline__ void deliver(word there, word box, word a, word b, word c, word d) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];"
                 ::"r"(there), "r"(a), "r"(b), "r"(c), "r"(d), "r"(box) : "memory");
}

#endif

// sums += a b in float16, a 16 x 16 and b 16 x 8; kernels.cuh describes the fragments.
__device__ __forceinline__ void multiply(float* sums, const word* a, uint2 b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
}

// sums += a b in TF32, a 16 x 8 and b 8 x 8. Fragments: rows g and g + 8, columns q and q + 4 of a; rows q and q + 4, column g of b.
__device__ __forceinline__ void multiply_tf32(float* sums, word a0, word a1, word a2, word a3, word b0, word b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ word as_tf32(float x) {
    word rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
    return rounded;
}

// Accurate to one or two ULP; subnormals are flushed to zero.
__device__ __forceinline__ float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float exponential(float x) { return power_of_two(x * 1.4426950408889634f); }

__device__ __forceinline__ float binary_logarithm(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// The same for arguments of any size and sign, see functions.cuh.
__device__ __forceinline__ float exponential_of(float x) { return exponential(x); }

__device__ __forceinline__ float binary_logarithm_of(float x) { return binary_logarithm(x); }

__device__ __forceinline__ float logarithm_of(float x) { return logf(x); }

__device__ __forceinline__ float infinity() { return __uint_as_float(0x7F800000u); }

__device__ __forceinline__ float square_root(float x) {
    float y;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// A select without a branch, so that the compiler can interleave the units of a thread.
__device__ __forceinline__ float where_below(float x, float bound, float then, float otherwise) {
    float y;
    asm("{\n.reg .pred below;\nsetp.lt.f32 below, %1, %2;\nselp.f32 %0, %3, %4, below;\n}"
        : "=f"(y) : "f"(x), "f"(bound), "f"(then), "f"(otherwise));
    return y;
}

// exp(2 x)
__device__ __forceinline__ float squared_exponential(float x) { return power_of_two(x * 2.8853900817779268f); }

// Minimum and maximum; NaN if one argument is NaN.
__device__ __forceinline__ float smaller_of(float x, float y) {
    float z;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}

__device__ __forceinline__ float larger_of(float x, float y) {
    float z;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}

// Two floats as packed float16, the first in the lower half.
__device__ __forceinline__ word as_halves(float low, float high) {
    word both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

// Elementwise product of two pairs of float16.
__device__ __forceinline__ word times_halves(word x, word y) {
    word both;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(both) : "r"(x), "r"(y));
    return both;
}

// Packs one half of each of two words: the lower halves, own first, or if `upper` the upper halves, the other's first.
__device__ __forceinline__ word woven(word own, word other, bool upper) { return __byte_perm(own, other, upper ? 0x3276 : 0x5410); }

// One half of a word, the lower or the upper one, in both halves.
__device__ __forceinline__ word one_half(word both, bool upper) { return __byte_perm(both, 0, upper ? 0x3232 : 0x1010); }

__device__ __forceinline__ word upper_halves(word low, word high) { return __byte_perm(low, high, 0x7632); }

// Elementwise maximum of two pairs of 16-bit unsigned integers.
__device__ __forceinline__ word larger_halves(word x, word y) {
    word larger;
    asm("max.u16x2 %0, %1, %2;" : "=r"(larger) : "r"(x), "r"(y));
    return larger;
}

__device__ __forceinline__ word as_bfloats(float low, float high) {
    word both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ __forceinline__ float rounded_to_half(float x) {
    float rounded;
    asm("{\n.reg .f16 half;\ncvt.rn.f16.f32 half, %1;\ncvt.f32.f16 %0, half;\n}" : "=f"(rounded) : "f"(x));
    return rounded;
}

// Elements in memory.

struct float16 { half_bits bits; };
struct bfloat16 { half_bits bits; };

// Asynchronous copies (cp.async) of one or four elements from global to shared memory.
__device__ __forceinline__ void fetch(word place, const float* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(place), "l"(from) : "memory");
}

__device__ __forceinline__ void fetch_four(word place, const float* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(from) : "memory");
}

__device__ __forceinline__ void fetch_four_halves(word place, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(place), "l"(from) : "memory");
}

__device__ __forceinline__ void fetch_four(word place, const float16* from) { fetch_four_halves(place, from); }

__device__ __forceinline__ void fetch_four(word place, const bfloat16* from) { fetch_four_halves(place, from); }

__device__ __forceinline__ void end_of_fetches() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all but the latest N groups of this thread's asynchronous copies have arrived.
template <int N>
__device__ __forceinline__ void wait_for_fetches() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

__device__ __forceinline__ float value_of(float number) { return number; }

__device__ __forceinline__ float value_of(float16 number) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(number.bits));
    return value;
}

__device__ __forceinline__ float value_of(bfloat16 number) { return __uint_as_float((word)number.bits << 16); }

__device__ __forceinline__ void store(float* to, float x) { *to = x; }

__device__ __forceinline__ void store(float16* to, float x) { to->bits = (half_bits)as_halves(x, 0.0f); }

__device__ __forceinline__ void store(bfloat16* to, float x) { to->bits = (half_bits)as_bfloats(x, 0.0f); }

// Two adjacent elements.
__device__ __forceinline__ void store_two(float* to, float x, float y) { *(float2*)to = {x, y}; }

__device__ __forceinline__ void store_two(float16* to, float x, float y) { *(word*)to = as_halves(x, y); }

__device__ __forceinline__ void store_two(bfloat16* to, float x, float y) { *(word*)to = as_bfloats(x, y); }

__device__ __forceinline__ float2 two_values(const float* numbers) { return *(const float2*)numbers; }

__device__ __forceinline__ float2 two_values(const float16* numbers) {
    word both = *(const word*)numbers;
    return {value_of(float16{(half_bits)both}), value_of(float16{(half_bits)(both >> 16)})};
}

__device__ __forceinline__ float2 two_values(const bfloat16* numbers) {
    word both = *(const word*)numbers;
    return {__uint_as_float(both << 16), __uint_as_float(both & 0xFFFF0000u)};
}

// Four adjacent elements.
__device__ __forceinline__ float4 four_values(const float* numbers) { return *(const float4*)numbers; }

template <typename Half>
__device__ __forceinline__ float4 four_values(const Half* numbers) {
    uint2 four = *(const uint2*)numbers;
    float2 one = two_values((const Half*)&four.x), other = two_values((const Half*)&four.y);
    return {one.x, one.y, other.x, other.y};
}

__device__ __forceinline__ void store_four(float* to, float4 four) { *(float4*)to = four; }

__device__ __forceinline__ void store_four(float16* to, float4 four) {
    *(uint2*)to = {as_halves(four.x, four.y), as_halves(four.z, four.w)};
}

__device__ __forceinline__ void store_four(bfloat16* to, float4 four) {
    *(uint2*)to = {as_bfloats(four.x, four.y), as_bfloats(four.z, four.w)};
}

// Loads sixteen bytes from L2, bypassing L1. Volatile, so that the compiler does not move the load to its use.
__device__ __forceinline__ uint4 from_memory(const uint4* place) {
    uint4 four;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(four.x), "=r"(four.y), "=r"(four.z), "=r"(four.w) : "l"(place));
    return four;
}

// Keeps a value in a register: hides how it was computed, so that the compiler does not recompute it at every use.
__device__ __forceinline__ int pinned(int x) { asm("" : "+r"(x)); return x; }

__device__ __forceinline__ offset pinned(offset x) { asm("" : "+l"(x)); return x; }

// Compiler barrier: values are reloaded from memory rather than kept in registers, and no load moves across it.
__device__ __forceinline__ void read_again() { asm volatile("" ::: "memory"); }

__device__ __forceinline__ word from_partner(word value, int bits) { return __shfl_xor_sync(0xFFFFFFFFu, value, bits); }

__device__ __forceinline__ float from_partner(float value, int bits) { return __shfl_xor_sync(0xFFFFFFFFu, value, bits); }

__device__ __forceinline__ float from_lane(float value, int lane) { return __shfl_sync(0xFFFFFFFFu, value, lane); }
