// What cuda/chip.cuh is for a GPU, for the processor of this machine: as plain arithmetic, of which the compiler makes
// vectors. Accurate to a few units in the last place; NaN stays NaN.

// C's, not that of C++, which takes the compiler longer than a step.
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <math.h>
#undef _GLIBCXX_INCLUDE_NEXT_C_HEADERS

__forceinline__ float from_bits(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}

__forceinline__ uint32_t bits_of(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}

__forceinline__ float reciprocal(float x) { return 1.0f / x; }

__forceinline__ float square_root(float x) { return sqrtf(x); }

__forceinline__ float where_below(float x, float bound, float then, float otherwise) { return x < bound ? then : otherwise; }

// The smaller and the larger of two numbers; of a first that is none, that.
__forceinline__ float smaller_of(float x, float y) { return x > y ? y : x; }

__forceinline__ float larger_of(float x, float y) { return x < y ? y : x; }

// Added to a number, it leaves the nearest whole number in the lowest bits.
constexpr float WHOLE = 12582912.0f;

// 2^n from n + WHOLE, for n from -126 to 127.
__forceinline__ float scale_of(float shifted) { return from_bits((bits_of(shifted) << 23) + 0x3F800000u); }

// exp(x), at most about 2^127 and at least 2^-126: the series of exp(f), with f = x - n log(2) next to zero.
__forceinline__ float exponential(float x) {
    x = smaller_of(larger_of(x, -87.3f), 88.0f);
    float shifted = fmaf(x, 1.4426950408889634f, WHOLE), n = shifted - WHOLE;
    float f = fmaf(n, 2.12194440e-4f, fmaf(n, -0.693359375f, x));
    float series = fmaf(f, fmaf(f, fmaf(f, fmaf(f, fmaf(f, 1.9875691500e-4f, 1.3981999507e-3f), 8.3334519073e-3f), 4.1665795894e-2f),
                                1.6666665459e-1f), 5.0000001201e-1f);
    return fmaf(f * f, series, f + 1.0f) * scale_of(shifted);
}

__forceinline__ float squared_exponential(float x) { return exponential(2.0f * x); }

__forceinline__ float power_of_two(float x) { return exponential(0.6931471805599453f * x); }

// log2(x) for x that is at least 1: the exponent, and 2 artanh((m - 1) / (m + 1)) / log(2) of what is left, next to one.
__forceinline__ float binary_logarithm(float x) {
    int32_t bits = (int32_t)bits_of(x), exponent = (bits - 0x3F3504F3) >> 23;
    float m = from_bits((uint32_t)(bits - exponent * (1 << 23)));
    float s = (m - 1.0f) / (m + 1.0f), s2 = s * s;
    float series = fmaf(s2, fmaf(s2, fmaf(s2, fmaf(s2, 2.0f / 9, 2.0f / 7), 2.0f / 5), 2.0f / 3), 2.0f);
    return x < INFINITY ? fmaf(1.4426950408889634f * s, series, (float)exponent) : x;
}

__forceinline__ float infinity() { return from_bits(0x7F800000u); }

// The same for numbers that may be anything, see functions.cuh.
__forceinline__ float exponential_of(float x) {
    float shifted = fmaf(smaller_of(larger_of(x, -86.6f), 89.5f), 1.4426950408889634f, WHOLE), n = shifted - WHOLE;
    float f = fmaf(n, 2.12194440e-4f, fmaf(n, -0.693359375f, smaller_of(larger_of(x, -86.6f), 89.5f)));
    float series = fmaf(f, fmaf(f, fmaf(f, fmaf(f, fmaf(f, 1.9875691500e-4f, 1.3981999507e-3f), 8.3334519073e-3f), 4.1665795894e-2f),
                                1.6666665459e-1f), 5.0000001201e-1f);
    float found = fmaf(f * f, series, f + 1.0f) * 2.0f * scale_of(shifted - 1.0f);
    return x < -86.6f ? 0.0f : found;
}

__forceinline__ float binary_logarithm_of(float x) {
    float found = binary_logarithm(x), other = x == 0.0f ? -infinity() : from_bits(0x7FC00000u);  // of what is negative, or no number
    return x > 0.0f ? found : other;
}

__forceinline__ float logarithm_of(float x) {
    float tiny = x < 1.1754944e-38f ? 16777216.0f : 1.0f;
    return 0.6931471805599453f * (binary_logarithm_of(x * tiny) - (tiny > 1.0f ? 24.0f : 0.0f));
}
