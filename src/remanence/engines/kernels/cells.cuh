// Every cell as three functions around a gate: one step, its slopes, and the backward step that uses them. The equations are those of
// remanence/cells, here for one unit of one sequence. The gate's functions, inserted before this file, are derived from its equation:
//
//     gate_fixed(own, fixed)                          values that depend only on the gate's per-unit weights, the same in every step
//     gate_forward(z, carried, fixed, dt)             forget value, complement, and carried values after the step
//     gate_slopes(z, carried, fixed, dt)              forget value, complement, and slopes
//     gate_slopes_of_kept(z, carried, fixed, dt)      the same, where z[0] is the value that gate_forward returned as `kept`
//     gate_backward(slopes, d_forget, d_carried)      gradients; d_forget includes the gradient of the complement, which is 1 - forget
//     gate_own(own, d_fixed, d_own)                   from gradients of the fixed values to those of the per-unit weights
//
// Slopes are the local derivatives of a step: everything that can be computed before its incoming gradients are known.

struct CellSlopes { float own[6], of_gate[SLOPES + !SLOPES], of_writing[SLOPES + !SLOPES]; };

constexpr int FORGET = COUPLED ? 0 : 1;     // the LSTM's block of the forget gate
constexpr int EXTRA = BLOCKS - (ROWS - 1);  // first block of the gate's other rows, if it has any

// The pre-activations of a gate whose first row is `first`.
struct GateRows { float z[ROWS]; };

__device__ __forceinline__ GateRows gate_rows(float first, const float* blocks) {
    GateRows rows = {{first}};
    for (int row = 1; row < ROWS; ++row) rows.z[row] = blocks[EXTRA + row - 1];
    return rows;
}

// Copies a gate's gradients into those of a cell whose block `first` is the gate's first row.
__device__ __forceinline__ void take_gate(CellBack& back, const GateBack& gate, int first) {
    back.z[first] = gate.z[0];
    for (int row = 1; row < ROWS; ++row) back.z[EXTRA + row - 1] = gate.z[row];
    for (int i = 0; i < CARRIED; ++i) back.carried[i] = gate.carried[i];
    for (int i = 0; i < FIXED; ++i) back.fixed[i] = gate.fixed[i];
    back.dt = gate.dt;
}

__device__ __forceinline__ State state_of(float hidden, float cell, const GateStep& gate) {
    State state = {hidden, cell};
    for (int i = 0; i < CARRIED; ++i) state.carried[i] = gate.carried[i];
    return state;
}

// If ACTIVATED, z is overwritten with the activations of the input gate, the candidate and the output gate, which are saved for the
// backward pass, and with the value `kept` of the forget gate. `after` is the cell state after the step, which is then not recomputed. In
// float32 this loses no more precision than cuDNN does; in 16 bits it would.
__device__ __forceinline__ State lstm_forward(float* z, float hn, State now, const float* fixed, float dt, float beta) {
    GateStep gate = gate_forward(gate_rows(z[FORGET], z).z, now.carried, fixed, dt);
    if (ACTIVATED) {
        Pair writing = {gate.complement, 0.0f};
        if (COUPLED) writing.other = hyperbolic_tangent(z[FORGET + 1]);
        else writing = sigmoid_and_tangent(z[0], z[FORGET + 1]), z[0] = writing.of;
        float cell = gate.forget * now.cell + writing.of * writing.other;
        Pair reading = sigmoid_and_tangent(z[FORGET + 2], cell);
        z[FORGET] = gate.kept, z[FORGET + 1] = writing.other, z[FORGET + 2] = reading.of;
        return state_of(reading.of * reading.other, cell, gate);
    }
    float written = COUPLED ? gate.complement * hyperbolic_tangent(z[FORGET + 1]) : sigmoid_times_tangent(z[0], z[FORGET + 1]);
    float cell = gate.forget * now.cell + written;
    return state_of(sigmoid_times_tangent(z[FORGET + 2], cell), cell, gate);
}

__device__ __forceinline__ CellSlopes lstm_slopes(
    const float* z, float hn, State now, float after, const float* fixed, float dt, float beta) {
    const GateRows rows = gate_rows(z[FORGET], z);
    GateSlopes gate = ACTIVATED ? gate_slopes_of_kept(rows.z, now.carried, fixed, dt) : gate_slopes(rows.z, now.carried, fixed, dt);
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
    for (int i = 0; i < SLOPES; ++i) slopes.of_gate[i] = gate.own[i];
    return slopes;
}

__device__ __forceinline__ CellBack lstm_backward(const CellSlopes& slopes, float d_hidden, float d_cell, const float* d_carried) {
    d_cell += d_hidden * slopes.own[0];
    CellBack back = {};
    back.cell = d_cell * slopes.own[2];
    take_gate(back, gate_backward(slopes.of_gate, d_cell * slopes.own[3], d_carried), FORGET);
    if (!COUPLED) back.z[0] = d_cell * slopes.own[5];
    back.z[FORGET + 1] = d_cell * slopes.own[4];
    back.z[FORGET + 2] = d_hidden * slopes.own[1];
    return back;
}

__device__ __forceinline__ State gru_forward(const float* z, float hn, State now, const float* fixed, float dt, float beta) {
    GateStep gate = gate_forward(gate_rows(z[1], z).z, now.carried, fixed, dt);
    float cell = gate.forget * now.cell + gate.complement * hyperbolic_tangent(z[2] + sigmoid(z[0]) * hn);
    return state_of(cell, cell, gate);
}

__device__ __forceinline__ CellSlopes gru_slopes(
    const float* z, float hn, State now, float after, const float* fixed, float dt, float beta) {
    GateSlopes gate = gate_slopes(gate_rows(z[1], z).z, now.carried, fixed, dt);
    Pair reset = sigmoids(z[0]);
    float candidate = hyperbolic_tangent(z[2] + reset.of * hn);
    CellSlopes slopes = {{gate.forget, now.cell - candidate, gate.complement * (1.0f - candidate * candidate),
                          hn * reset.of * reset.other, reset.of}};
    for (int i = 0; i < SLOPES; ++i) slopes.of_gate[i] = gate.own[i];
    return slopes;
}

__device__ __forceinline__ CellBack gru_backward(const CellSlopes& slopes, float d_hidden, float d_cell, const float* d_carried) {
    d_cell += d_hidden;
    float d_candidate = d_cell * slopes.own[2];
    CellBack back = {};
    back.hn = d_candidate * slopes.own[4];
    back.cell = d_cell * slopes.own[0];
    take_gate(back, gate_backward(slopes.of_gate, d_cell * slopes.own[1], d_carried), 1);
    back.z[0] = d_candidate * slopes.own[3];
    back.z[2] = d_candidate;
    return back;
}

__device__ __forceinline__ State janet_forward(const float* z, float hn, State now, const float* fixed, float dt, float beta) {
    float written = gate_forward(gate_rows(z[0] - beta, z).z, now.carried, fixed, dt).complement;
    GateStep gate = gate_forward(gate_rows(z[0], z).z, now.carried, fixed, dt);
    float cell = gate.forget * now.cell + written * hyperbolic_tangent(z[1]);
    return state_of(cell, cell, gate);
}

__device__ __forceinline__ CellSlopes janet_slopes(
    const float* z, float hn, State now, float after, const float* fixed, float dt, float beta) {
    GateSlopes writing = gate_slopes(gate_rows(z[0] - beta, z).z, now.carried, fixed, dt);
    GateSlopes gate = gate_slopes(gate_rows(z[0], z).z, now.carried, fixed, dt);
    float candidate = hyperbolic_tangent(z[1]);
    CellSlopes slopes = {{gate.forget, now.cell, candidate, writing.complement * (1.0f - candidate * candidate)}};
    for (int i = 0; i < SLOPES; ++i) slopes.of_gate[i] = gate.own[i], slopes.of_writing[i] = writing.own[i];
    return slopes;
}

__device__ __forceinline__ CellBack janet_backward(const CellSlopes& slopes, float d_hidden, float d_cell, const float* d_carried) {
    d_cell += d_hidden;
    const float none[CARRIED + !CARRIED] = {};
    GateBack gate = gate_backward(slopes.of_gate, d_cell * slopes.own[1], d_carried);
    GateBack writing = gate_backward(slopes.of_writing, -d_cell * slopes.own[2], none);
    for (int row = 0; row < ROWS; ++row) gate.z[row] += writing.z[row];
    for (int i = 0; i < CARRIED; ++i) gate.carried[i] += writing.carried[i];
    for (int i = 0; i < FIXED; ++i) gate.fixed[i] += writing.fixed[i];
    gate.dt += writing.dt;
    CellBack back = {};
    back.cell = d_cell * slopes.own[0];
    take_gate(back, gate, 0);
    back.z[1] = d_cell * slopes.own[3];
    return back;
}
