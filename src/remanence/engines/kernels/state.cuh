// What a step of every cell takes and leaves, by hand or derived. CELL_FORWARD, CELL_SLOPES and CELL_BACKWARD are the names of its three
// functions: one step, its slopes, which are all that can be computed before the derivatives of a step are known, and the way back.

struct State { float hidden, cell, carried[CARRIED + !CARRIED]; };
struct CellBack { float z[BLOCKS > 4 ? BLOCKS : 4], hn, cell, carried[CARRIED + !CARRIED], fixed[FIXED + !FIXED], dt; };

// Of a sequence that has ended: the derivatives by its state go on as they are.
__device__ __forceinline__ CellBack handed_on(float d_cell, const float* d_carried) {
    CellBack back = {};
    back.cell = d_cell;
    for (int i = 0; i < CARRIED; ++i) back.carried[i] = d_carried[i];
    return back;
}
