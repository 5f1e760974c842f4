// Transcendental functions, accurate in float32 to a few ulp. The usual short forms of log(1 + x) and exp(x) - 1 are inaccurate for small
// x, and long memories depend on exactly those bits. The functions are on the critical path of a step, so they are short: series are
// summed in pairs of terms. Those whose names end in `of` accept any argument, as formulas of user-defined gates need: overflow gives
// infinity.

constexpr float LOG_2 = 0.6931471805599453f;

struct Pair { float of, other; };

// sigmoid(x) and sigmoid(-x), both accurate to the last bit, from one exponential that does not overflow.
__device__ __forceinline__ Pair sigmoids(float x) {
    float e = exponential(-larger_of(x, -87.0f));
    float sigmoid = reciprocal(1.0f + e);
    return {sigmoid, e * sigmoid};
}

// sigmoid(x) alone: if the exponential overflows, its reciprocal is zero, as it should be.
__device__ __forceinline__ float sigmoid(float x) { return reciprocal(1.0f + exponential(-x)); }

// exp(x) - 1, by its series where the subtraction would cancel.
__device__ __forceinline__ float exponential_less_one(float x) {
    float x2 = x * x;
    float last = fmaf(x, 1.0f / 5040, 1.0f / 720), middle = fmaf(x, 1.0f / 120, 1.0f / 24);
    float series = fmaf(x2, fmaf(x2, fmaf(x2, last, middle), fmaf(x, 1.0f / 6, 1.0f / 2)), x);
    return fabsf(x) < 0.3f ? series : exponential_of(x) - 1.0f;
}

// log(1 + x / y): where the sum would round, 2 artanh(x / (2 y + x)) by a minimax polynomial (relative error 2.4e-8). It does not wait for
// the quotient.
__device__ __forceinline__ float logarithm_of_one_and_ratio(float x, float y) {
    float s = x * reciprocal(fmaf(2.0f, y, x)), ratio = x * reciprocal(y);
    float s2 = s * s;
    float series = fmaf(s2, fmaf(s2, fmaf(s2, 0.15838562f, 0.19937842f), 0.33334032f), 1.0f);
    return where_below(fabsf(ratio - 0.145f), 0.555f, 2.0f * s * series, LOG_2 * binary_logarithm_of(1.0f + ratio));
}

__device__ __forceinline__ float logarithm_of_one_and(float x) { return logarithm_of_one_and_ratio(x, 1.0f); }

// tanh(x), by its series where the difference would cancel.
__device__ __forceinline__ float hyperbolic_tangent(float x) {
    float e = squared_exponential(-fabsf(x));
    float tanh = copysignf((1.0f - e) * reciprocal(1.0f + e), x);
    float x2 = x * x;
    float series = fmaf(x2, fmaf(x2, fmaf(x2, 62.0f / 2835, -17.0f / 315), 2.0f / 15), -1.0f / 3);
    return fabsf(x) < 0.25f ? fmaf(x * x2, series, x) : tanh;
}

// sigmoid(x) tanh(y), with one reciprocal for both.
__device__ __forceinline__ float sigmoid_times_tangent(float x, float y) {
    float e = squared_exponential(-fabsf(y)), less = 1.0f + exponential(-x);
    float y2 = y * y;
    float series = fmaf(y2, fmaf(y2, fmaf(y2, 62.0f / 2835, -17.0f / 315), 2.0f / 15), -1.0f / 3);
    bool small = fabsf(y) < 0.25f;
    float above = small ? fmaf(y * y2, series, y) : copysignf(1.0f - e, y);
    return above * reciprocal(small ? less : less * (1.0f + e));
}

// sigmoid(x) and tanh(y), with one reciprocal for both; the first is accurate down to exp(-80).
__device__ __forceinline__ Pair sigmoid_and_tangent(float x, float y) {
    float e = squared_exponential(-fabsf(y)), less = 1.0f + exponential(-larger_of(x, -80.0f)), more = 1.0f + e;
    float both = reciprocal(less * more);
    float y2 = y * y;
    float series = fmaf(y2, fmaf(y2, fmaf(y2, 62.0f / 2835, -17.0f / 315), 2.0f / 15), -1.0f / 3);
    return {more * both, fabsf(y) < 0.25f ? fmaf(y * y2, series, y) : copysignf((1.0f - e) * (less * both), y)};
}

// sinh(x), by its series where the difference would cancel, and cosh(x), from the same exponential.
__device__ __forceinline__ float hyperbolic_sine_of(float x) {
    float e = exponential_of(fabsf(x));
    float x2 = x * x;
    float series = fmaf(x2, fmaf(x2, 1.0f / 5040, 1.0f / 120), 1.0f / 6);
    return fabsf(x) < 0.3f ? fmaf(x * x2, series, x) : copysignf(0.5f * (e - reciprocal(e)), x);
}

__device__ __forceinline__ float hyperbolic_cosine_of(float x) {
    float e = exponential_of(fabsf(x));
    return 0.5f * (e + reciprocal(e));
}

// atan(x): reduced to a quarter of the angle, then its series, without branches so that compilers vectorise it on a CPU.
__device__ __forceinline__ float arctangent_of(float x) {
    float a = fabsf(x), y = a > 1.0f ? reciprocal(a) : a;
    y *= reciprocal(1.0f + square_root(fmaf(y, y, 1.0f)));
    y *= reciprocal(1.0f + square_root(fmaf(y, y, 1.0f)));
    float y2 = y * y;
    float last = fmaf(y2, -1.0f / 11, 1.0f / 9), middle = fmaf(y2, -1.0f / 7, 1.0f / 5);
    float series = fmaf(y2, fmaf(y2, fmaf(y2 * y2, last, middle), -1.0f / 3), 1.0f);
    float angle = 4.0f * y * series;
    return copysignf(a > 1.0f ? 1.5707963267948966f - angle : angle, x);
}

// x modulo y, with the sign of y. The quotient may be off by one next to an integer, which is corrected; if it exceeds the integers that
// float32 represents, the result is zero.
__device__ __forceinline__ float remainder_of(float x, float y) {
    float left = fmaf(-floorf(x * reciprocal(y)), y, x);
    left = left != 0.0f && (left < 0.0f) != (y < 0.0f) ? left + y : left;
    left = fabsf(left) >= fabsf(y) ? left - y : left;
    return fabsf(left) >= fabsf(y) ? 0.0f : left;
}

__device__ __forceinline__ float sign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == x ? 0.0f : x; }

// Maximum and minimum of two numbers; NaN if either is NaN.
__device__ __forceinline__ float maximum(float x, float y) { return x > y || x != x ? x : y; }

__device__ __forceinline__ float minimum(float x, float y) { return x < y || x != x ? x : y; }
