// Operands of matmuls as float16 and as TF32.

// The residual of rounding to float16, times FINER: a second float16 with the next eleven significand bits.
constexpr float FINER = 2048.0f;

__device__ __forceinline__ float finer(float x) { return (x - rounded_to_half(x)) * FINER; }

// Scaling of values to float16 without losing precision: a power of two (`times`) and its inverse (`size`), from the bits of
// the largest magnitude, which becomes about 2^14. NaN stays NaN.
struct Range { float times, size; };

__device__ __forceinline__ Range range_of(word largest) {
    word exponent = max(largest >> 23, 15u);
    return {__uint_as_float((268 - exponent) << 23), __uint_as_float((exponent - 14) << 23)};
}

__device__ __forceinline__ word magnitude(float x) { return __float_as_uint(x) & 0x7FFFFFFFu; }

__device__ __forceinline__ word largest_of_four(float4 x) {
    return max(max(magnitude(x.x), magnitude(x.y)), max(magnitude(x.z), magnitude(x.w)));
}

__device__ __forceinline__ float clamped(float x, float most) { return larger_of(smaller_of(x, most), -most); }

__device__ __forceinline__ float clamped_to_half(float x) { return clamped(x, 65504.0f); }

// An operand in TF32 and, for full float32, its rounding residual.
struct Factor { word coarse, fine; };

__device__ __forceinline__ Factor factor_of(float x) {
    word coarse = as_tf32(x);
    return {coarse, PARTS == 2 ? as_tf32(x - __uint_as_float(coarse)) : 0};
}

__device__ __forceinline__ void multiply(float* sums, const Factor* a, const Factor* b) {
    if (PARTS == 2) {
        multiply_tf32(sums, a[0].fine, a[1].fine, a[2].fine, a[3].fine, b[0].coarse, b[1].coarse);
        multiply_tf32(sums, a[0].coarse, a[1].coarse, a[2].coarse, a[3].coarse, b[0].fine, b[1].fine);
    }
    multiply_tf32(sums, a[0].coarse, a[1].coarse, a[2].coarse, a[3].coarse, b[0].coarse, b[1].coarse);
}
