// Every forget gate as three functions: one step, its slopes, and the derivative from these. See ../gates.py, whose
// equations, names and conventions these are; here they are of one unit of one sequence.

// `kept` is what is kept of z for the slopes, if ACTIVATED: z itself, or what is nearer to them.
struct Step { float forget, complement, age, kept; };
struct GateSlopes { float forget, complement, own[6]; };
struct GateBack { float z, z2, age, p, dt; };

constexpr float LOG_2 = 0.6931471805599453f;
constexpr float SATURATED = 10.0f;
constexpr float SMALLEST = 1.1754943508222875e-38f;

__device__ __forceinline__ GateBack one_row_backward(const float* slopes, float d_forget, float d_age) {
    return {d_forget * slopes[0], 0, 0, 0, 0};
}

__device__ __forceinline__ Step sigmoid_forward(float z, float z2, float age, float p, float dt, float eps) {
    Pair f = sigmoids(z);
    return {f.of, f.other, age, z};
}

__device__ __forceinline__ GateSlopes sigmoid_slopes(float z, float z2, float age, float p, float dt, float eps) {
    Pair f = sigmoids(z);
    return {f.of, f.other, {f.of * f.other}};
}

#define sigmoid_backward one_row_backward

__device__ __forceinline__ Step fast_forward(float z, float z2, float age, float p, float dt, float eps) {
    float sine = hyperbolic_sine(smaller_of(larger_of(z, -SATURATED), SATURATED));
    Pair f = sigmoids(sine);
    return {f.of, f.other, age, sine};
}

__device__ __forceinline__ GateSlopes fast_slopes(float z, float z2, float age, float p, float dt, float eps) {
    if (ACTIVATED) {
        Pair f = sigmoids(z);
        return {f.of, f.other, {f.of * f.other * square_root(fmaf(z, z, 1.0f))}};
    }
    float clamped = smaller_of(larger_of(z, -SATURATED), SATURATED);
    Pair f = sigmoids(hyperbolic_sine(clamped));
    return {f.of, f.other, {f.of * f.other * hyperbolic_cosine(clamped)}};
}

#define fast_backward one_row_backward

__device__ __forceinline__ Step softsign_forward(float z, float z2, float age, float p, float dt, float eps) {
    float smaller = reciprocal(2.0f + fabsf(z));
    return z >= 0 ? Step{1.0f - smaller, smaller, age, z} : Step{smaller, 1.0f - smaller, age, z};
}

__device__ __forceinline__ GateSlopes softsign_slopes(float z, float z2, float age, float p, float dt, float eps) {
    Step step = softsign_forward(z, z2, age, p, dt, eps);
    float smaller = reciprocal(2.0f + fabsf(z));
    return {step.forget, step.complement, {smaller * smaller}};
}

#define softsign_backward one_row_backward

__device__ __forceinline__ Step refine_forward(float z, float z2, float age, float p, float dt, float eps) {
    Pair f = sigmoids(z), r = sigmoids(z2);
    float kept = f.of, lost = f.other;
    return {r.of * kept * (1.0f + lost) + (1.0f - r.of) * kept * kept,
            r.of * lost * lost + r.other * lost * (1.0f + kept), age, z};
}

__device__ __forceinline__ GateSlopes refine_slopes(float z, float z2, float age, float p, float dt, float eps) {
    Pair f = sigmoids(z), r = sigmoids(z2);
    Step step = refine_forward(z, z2, age, p, dt, eps);
    float turn = 2.0f * f.of * f.other;
    return {step.forget, step.complement, {(r.of * f.other + r.other * f.of) * turn, turn * r.of * r.other}};
}

__device__ __forceinline__ GateBack refine_backward(const float* slopes, float d_forget, float d_age) {
    return {d_forget * slopes[0], d_forget * slopes[1], 0, 0, 0};
}

#define ur_forward refine_forward
#define ur_slopes refine_slopes
#define ur_backward refine_backward

__device__ __forceinline__ Step power_law_forward(float z, float z2, float age, float p, float dt, float eps) {
    Pair r = sigmoids(z);
    float reset = r.of, keep = r.other;
    float held = larger_of(keep * (age + 1.0f) + eps, SMALLEST);
    float lost = 1.0f - eps;
    if (HAS_DT) lost = larger_of(reset + keep * dt - eps, 0.0f);
    float exponent = -p * binary_logarithm_of_one_and(lost, held).of;
    return {power_of_two(exponent), -exponential_less_one(LOG_2 * exponent), keep * (age + (HAS_DT ? dt : 1.0f)), z};
}

__device__ __forceinline__ GateSlopes power_law_slopes(float z, float z2, float age, float p, float dt, float eps) {
    Pair r = sigmoids(z);
    float reset = r.of, keep = r.other, turn = reset * keep;
    float raw = keep * (age + 1.0f) + eps, held = larger_of(raw, SMALLEST);
    float elapsed = reset + keep * dt;
    float lost = HAS_DT ? larger_of(elapsed - eps, 0.0f) : 1.0f - eps;
    Pair both = binary_logarithm_of_one_and(lost, held);
    float logarithm = both.of, ratio = both.other;
    float forget = power_of_two(-p * logarithm);
    float by_lost = -forget * p * reciprocal(held + lost);
    float by_held = raw >= SMALLEST ? -by_lost * ratio : 0.0f;
    float aged_by_z = -(age + (HAS_DT ? dt : 1.0f)) * turn;
    float by_z = by_held * aged_by_z, by_dt = 0.0f;
    if (HAS_DT) {
        float by_elapsed = elapsed >= eps ? by_lost : 0.0f;
        by_z = (by_elapsed * (1.0f - dt) - by_held * (age + 1.0f)) * turn;
        by_dt = by_elapsed * keep;
    }
    return {forget, -exponential_less_one(-LOG_2 * p * logarithm),
            {by_z, by_held * keep, -LOG_2 * (forget * logarithm), by_dt, aged_by_z, keep}};
}

__device__ __forceinline__ GateBack power_law_backward(const float* slopes, float d_forget, float d_age) {
    float by_z = slopes[0], by_age = slopes[1], by_p = slopes[2], by_dt = slopes[3], aged_by_z = slopes[4];
    float kept = d_age * slopes[5];
    return {d_forget * by_z + d_age * aged_by_z, 0, d_forget * by_age + kept, d_forget * by_p,
            HAS_DT ? d_forget * by_dt + kept : 0.0f};
}
