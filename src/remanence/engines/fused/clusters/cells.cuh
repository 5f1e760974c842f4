// Every cell as three functions around a gate: one step, its slopes, and the derivative from these. See ../cells.py,
// whose equations, names and conventions these are; here they are of one unit of one sequence.

struct State { float hidden, cell, age; };
struct CellSlopes { float own[6], of_gate[6], of_writing[6]; };
struct CellBack { float z[BLOCKS > 4 ? BLOCKS : 4], hn, cell, age, p, dt; };

constexpr int FORGET = COUPLED ? 0 : 1;  // the LSTM's block of the forget gate
constexpr int EXTRA = BLOCKS - 1;        // the gate's second row, of gates that have one

// If ACTIVATED, what is kept for the backward pass of the input gate, the candidate and the output gate is what came out of their
// functions, in z; of the forget gate, what it says. `after` is the cell after the step: then it need not be computed again. In float32
// nothing is lost by that which cuDNN does not lose; in 16 bits it would be.
__device__ __forceinline__ State lstm_forward(float* z, float hn, State now, float p, float dt, float eps, float beta) {
    Step gate = GATE_FORWARD(z[FORGET], z[EXTRA], now.age, p, dt, eps);
    if (ACTIVATED) {
        Pair writing = {gate.complement, 0.0f};
        if (COUPLED) writing.other = hyperbolic_tangent(z[FORGET + 1]);
        else writing = sigmoid_and_tangent(z[0], z[FORGET + 1]), z[0] = writing.of;
        float cell = gate.forget * now.cell + writing.of * writing.other;
        Pair reading = sigmoid_and_tangent(z[FORGET + 2], cell);
        z[FORGET] = gate.kept, z[FORGET + 1] = writing.other, z[FORGET + 2] = reading.of;
        return {reading.of * reading.other, cell, gate.age};
    }
    float written = COUPLED ? gate.complement * hyperbolic_tangent(z[FORGET + 1]) : sigmoid_times_tangent(z[0], z[FORGET + 1]);
    float cell = gate.forget * now.cell + written;
    return {sigmoid_times_tangent(z[FORGET + 2], cell), cell, gate.age};
}

__device__ __forceinline__ CellSlopes lstm_slopes(
    const float* z, float hn, State now, float after, float p, float dt, float eps, float beta) {
    GateSlopes gate = GATE_SLOPES(z[FORGET], z[EXTRA], now.age, p, dt, eps);
    float candidate = ACTIVATED ? z[FORGET + 1] : hyperbolic_tangent(z[FORGET + 1]);
    Pair output = ACTIVATED ? Pair{z[FORGET + 2], 1.0f - z[FORGET + 2]} : sigmoids(z[FORGET + 2]);
    float by_forget = now.cell, written, by_input;
    if (COUPLED) {
        by_forget -= candidate;
        written = by_input = gate.complement;
    } else {
        Pair input = ACTIVATED ? Pair{z[0], 1.0f - z[0]} : sigmoids(z[0]);
        written = input.of;
        by_input = candidate * input.of * input.other;
    }
    float squashed = hyperbolic_tangent(ACTIVATED ? after : gate.forget * now.cell + written * candidate);
    CellSlopes slopes = {{output.of * (1.0f - squashed * squashed), squashed * output.of * output.other, gate.forget,
                          by_forget, written * (1.0f - candidate * candidate), by_input}};
    for (int i = 0; i < 6; ++i) slopes.of_gate[i] = gate.own[i];
    return slopes;
}

__device__ __forceinline__ CellBack lstm_backward(const CellSlopes& slopes, float d_hidden, float d_cell, float d_age) {
    d_cell += d_hidden * slopes.own[0];
    GateBack gate = GATE_BACKWARD(slopes.of_gate, d_cell * slopes.own[3], d_age);
    CellBack back = {{0, 0, 0, 0}, 0, d_cell * slopes.own[2], gate.age, gate.p, gate.dt};
    if (BLOCKS > FORGET + 3) back.z[EXTRA] = gate.z2;
    if (!COUPLED) back.z[0] = d_cell * slopes.own[5];
    back.z[FORGET] = gate.z;
    back.z[FORGET + 1] = d_cell * slopes.own[4];
    back.z[FORGET + 2] = d_hidden * slopes.own[1];
    return back;
}

__device__ __forceinline__ State gru_forward(const float* z, float hn, State now, float p, float dt, float eps, float beta) {
    Step gate = GATE_FORWARD(z[1], z[EXTRA], now.age, p, dt, eps);
    float cell = gate.forget * now.cell + gate.complement * hyperbolic_tangent(z[2] + sigmoid(z[0]) * hn);
    return {cell, cell, gate.age};
}

__device__ __forceinline__ CellSlopes gru_slopes(
    const float* z, float hn, State now, float after, float p, float dt, float eps, float beta) {
    GateSlopes gate = GATE_SLOPES(z[1], z[EXTRA], now.age, p, dt, eps);
    Pair reset = sigmoids(z[0]);
    float candidate = hyperbolic_tangent(z[2] + reset.of * hn);
    CellSlopes slopes = {{gate.forget, now.cell - candidate, gate.complement * (1.0f - candidate * candidate),
                          hn * reset.of * reset.other, reset.of}};
    for (int i = 0; i < 6; ++i) slopes.of_gate[i] = gate.own[i];
    return slopes;
}

__device__ __forceinline__ CellBack gru_backward(const CellSlopes& slopes, float d_hidden, float d_cell, float d_age) {
    d_cell += d_hidden;
    GateBack gate = GATE_BACKWARD(slopes.of_gate, d_cell * slopes.own[1], d_age);
    float d_candidate = d_cell * slopes.own[2];
    CellBack back = {{0, 0, 0, 0}, d_candidate * slopes.own[4], d_cell * slopes.own[0], gate.age, gate.p, gate.dt};
    if (BLOCKS > 3) back.z[EXTRA] = gate.z2;
    back.z[0] = d_candidate * slopes.own[3];
    back.z[1] = gate.z;
    back.z[2] = d_candidate;
    return back;
}

__device__ __forceinline__ State janet_forward(const float* z, float hn, State now, float p, float dt, float eps, float beta) {
    float written = GATE_FORWARD(z[0] - beta, z[EXTRA], now.age, p, dt, eps).complement;
    Step gate = GATE_FORWARD(z[0], z[EXTRA], now.age, p, dt, eps);
    float cell = gate.forget * now.cell + written * hyperbolic_tangent(z[1]);
    return {cell, cell, gate.age};
}

__device__ __forceinline__ CellSlopes janet_slopes(
    const float* z, float hn, State now, float after, float p, float dt, float eps, float beta) {
    GateSlopes writing = GATE_SLOPES(z[0] - beta, z[EXTRA], now.age, p, dt, eps);
    GateSlopes gate = GATE_SLOPES(z[0], z[EXTRA], now.age, p, dt, eps);
    float candidate = hyperbolic_tangent(z[1]);
    CellSlopes slopes = {{gate.forget, now.cell, candidate, writing.complement * (1.0f - candidate * candidate)}};
    for (int i = 0; i < 6; ++i) slopes.of_gate[i] = gate.own[i], slopes.of_writing[i] = writing.own[i];
    return slopes;
}

__device__ __forceinline__ CellBack janet_backward(const CellSlopes& slopes, float d_hidden, float d_cell, float d_age) {
    d_cell += d_hidden;
    GateBack gate = GATE_BACKWARD(slopes.of_gate, d_cell * slopes.own[1], d_age);
    GateBack writing = GATE_BACKWARD(slopes.of_writing, -d_cell * slopes.own[2], 0.0f);
    CellBack back = {{0, 0, 0, 0}, 0, d_cell * slopes.own[0], gate.age + writing.age, gate.p + writing.p, gate.dt + writing.dt};
    if (BLOCKS > 2) back.z[EXTRA] = gate.z2 + writing.z2;
    back.z[0] = gate.z + writing.z;
    back.z[1] = d_cell * slopes.own[3];
    return back;
}
