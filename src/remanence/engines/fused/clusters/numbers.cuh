// Numbers as float16.

// What a float16 leaves of a number, times FINER: a second float16 with the next eleven digits.
constexpr float FINER = 2048.0f;

__device__ __forceinline__ float finer(float x) { return (x - rounded_to_half(x)) * FINER; }

// What numbers whose largest has these bits are multiplied with to be float16 of full precision, a power of two, and
// what undoes it. The largest becomes about 2^14; one that is no number stays none.
struct Range { float times, size; };

__device__ __forceinline__ Range range_of(word largest) {
    word exponent = max(largest >> 23, 15u);
    return {__uint_as_float((268 - exponent) << 23), __uint_as_float((exponent - 14) << 23)};
}

__device__ __forceinline__ word magnitude(float x) { return __float_as_uint(x) & 0x7FFFFFFFu; }

__device__ __forceinline__ float clamped_to_half(float x) {
    return larger_of(smaller_of(x, 65504.0f), -65504.0f);
}
