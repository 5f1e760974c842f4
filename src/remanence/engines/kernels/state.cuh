// Inputs and outputs of a step, the same for hand-written and derived cells. CELL_FORWARD, CELL_SLOPES and CELL_BACKWARD are the names of
// its three functions: one step; its slopes (local derivatives), everything that can be computed before the incoming gradients of the step
// are known; and the backward step.

struct State { float hidden, cell, carried[CARRIED + !CARRIED]; };
struct CellBack { float z[BLOCKS > 4 ? BLOCKS : 4], hn, cell, carried[CARRIED + !CARRIED], fixed[FIXED + !FIXED], dt; };

// For a sequence that has ended: the gradients of its state pass through unchanged.
__device__ __forceinline__ CellBack handed_on(float d_cell, const float* d_carried) {
    CellBack back = {};
    back.cell = d_cell;
    for (int i = 0; i < CARRIED; ++i) back.carried[i] = d_carried[i];
    return back;
}
