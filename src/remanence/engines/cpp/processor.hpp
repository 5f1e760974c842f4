// The CPU counterpart of cuda/chip.cuh: math functions in plain arithmetic that the compiler can vectorise. Accurate to a
// few ULP; NaN inputs give NaN outputs.

// The C header, because the C++ one takes longer to compile than a step.
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

// Minimum and maximum. If the first argument is NaN, the result is NaN.
__forceinline__ float smaller_of(float x, float y) { return x > y ? y : x; }

__forceinline__ float larger_of(float x, float y) { return x < y ? y : x; }

// Adding 1.5 * 2^23 to a float leaves its nearest integer in the lowest bits.
constexpr float WHOLE = 12582912.0f;

// 2^n from n + WHOLE, for n from -126 to 127.
__forceinline__ float scale_of(float shifted) { return from_bits((bits_of(shifted) << 23) + 0x3F800000u); }

// exp(x), clamped to about 2^-126 .. 2^127: a polynomial in f = x - n log(2), which is near zero, times 2^n.
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

// log2(x) for x >= 1: the exponent plus 2 artanh((m - 1) / (m + 1)) / log(2) of the significand m, which is near one.
__forceinline__ float binary_logarithm(float x) {
    int32_t bits = (int32_t)bits_of(x), exponent = (bits - 0x3F3504F3) >> 23;
    float m = from_bits((uint32_t)(bits - exponent * (1 << 23)));
    float s = (m - 1.0f) / (m + 1.0f), s2 = s * s;
    float series = fmaf(s2, fmaf(s2, fmaf(s2, fmaf(s2, 2.0f / 9, 2.0f / 7), 2.0f / 5), 2.0f / 3), 2.0f);
    return x < INFINITY ? fmaf(1.4426950408889634f * s, series, (float)exponent) : x;
}

__forceinline__ float infinity() { return from_bits(0x7F800000u); }

// The same for arguments of any size and sign, see functions.cuh.
__forceinline__ float exponential_of(float x) {
    float shifted = fmaf(smaller_of(larger_of(x, -86.6f), 89.5f), 1.4426950408889634f, WHOLE), n = shifted - WHOLE;
    float f = fmaf(n, 2.12194440e-4f, fmaf(n, -0.693359375f, smaller_of(larger_of(x, -86.6f), 89.5f)));
    float series = fmaf(f, fmaf(f, fmaf(f, fmaf(f, fmaf(f, 1.9875691500e-4f, 1.3981999507e-3f), 8.3334519073e-3f), 4.1665795894e-2f),
                                1.6666665459e-1f), 5.0000001201e-1f);
    float found = fmaf(f * f, series, f + 1.0f) * 2.0f * scale_of(shifted - 1.0f);
    return x < -86.6f ? 0.0f : found;
}

__forceinline__ float binary_logarithm_of(float x) {
    float found = binary_logarithm(x), other = x == 0.0f ? -infinity() : from_bits(0x7FC00000u);  // NaN for negative x and NaN
    return x > 0.0f ? found : other;
}

__forceinline__ float logarithm_of(float x) {
    float tiny = x < 1.1754944e-38f ? 16777216.0f : 1.0f;
    return 0.6931471805599453f * (binary_logarithm_of(x * tiny) - (tiny > 1.0f ? 24.0f : 0.0f));
}
