"""The two persistent kernels: a whole sequence in one launch, forward and backward.

Layout. N replicas, T steps, B batch rows (sequences), H units, G blocks of pre-activations. A *group* is one tile of
rows of one replica, a *program* is one tile of units of a group. Tensors are (N, T, B, ...), contiguous.

Each program keeps its slice of the recurrent matrix on chip for the whole sequence, and the state of its units in
registers. Once per step the programs of a group exchange data through the L2 cache. In the forward pass, this is h_t:
every program writes its units and reads all of them. In the backward pass, it is partial sums: every program multiplies
the gradients of its own units by its slice of the matrix, which gives its share of d h_{t-1} for all units, and then
sums the shares of all programs for its own units, always in the same order. The slice is the same in both directions.

The programs of a group synchronise on a counter: they increment it with release semantics after writing, and poll it
with acquire semantics before reading. (Words that carry the number of their step, polled until all are right, take one
round trip instead of two but twice the bytes; they measured slower at every size.)

The inputs of a step are prefetched at the end of the previous step, so that they arrive during the exchange. The
backward pass computes everything that does not depend on incoming gradients before it waits for them.

Names in capitals are compile-time constants. ROW_TILE and UNIT_TILE are the rows and units of a program; CHUNK and
CHUNKS tile the inner dimension H of a matmul. ALONE: one program holds all units of its group and exchanges nothing.
RESIDENT: number of blocks of the slice that stay on chip; the others are read from L2 at every step.

Pointers may be None: no biases, a zero initial state, gradients that were not requested or are zero.
"""

# ruff: noqa: N803, N806, RUF005, SIM102, SIM108, B007
# mypy: ignore-errors

import triton
import triton.language as tl

from .cells import added, zeros_like_all


@triton.jit
def own_tile(first_group, B, ROW_TILE: tl.constexpr, UNIT_TILE: tl.constexpr, UNIT_TILES: tl.constexpr):
    """The tile of a program: group, replica, index within the group, rows within the tile and within B, units."""
    program = tl.program_id(0)
    group = first_group + program // UNIT_TILES
    row_tiles = tl.cdiv(B, ROW_TILE)
    replica = (group // row_tiles).to(tl.int64)
    local = tl.arange(0, ROW_TILE)
    row = (group % row_tiles) * ROW_TILE + local
    own = program % UNIT_TILES
    unit = own * UNIT_TILE + tl.arange(0, UNIT_TILE)
    return group, replica, own, local, row, unit


@triton.jit
def inside_of(row, unit, B, H):
    """Masks of the rows and units of a tile; offsets of its entries in a (B, H) tensor, and their mask."""
    row_ok = row < B
    unit_ok = unit < H
    here = row[:, None] * H + unit[None, :]
    ok = row_ok[:, None] & unit_ok[None, :]
    return row_ok, unit_ok, here, ok


@triton.jit
def first_step(replica, T, B, FROM_END: tl.constexpr):
    """Index of the first row of the first step, among the rows of all steps, and the stride to the next step."""
    stride = B
    at = replica * T * B
    if FROM_END:
        stride = -B
        at = (replica * T + T - 1) * B
    return at, stride


@triton.jit
def arrived(counter):
    """Acquire load of the counter: number of parts written. Writes before their release are visible afterwards."""
    return tl.inline_asm_elementwise(
        "ld.acquire.gpu.global.s32 $0, [$1];", "=r,l", [counter], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def wait(counter, target, UNIT_TILES: tl.constexpr):
    """Spin until that many parts have been written."""
    if UNIT_TILES > 1:
        while arrived(counter) < target:
            pass
    else:
        tl.debug_barrier()


@triton.jit
def signal(counter, UNIT_TILES: tl.constexpr):
    """Signal to the group that this program has written its part."""
    if UNIT_TILES > 1:
        tl.debug_barrier()
        tl.atomic_add(counter, 1, sem="release", scope="gpu")


@triton.jit
def sum_shares(shares, base, inner, mask, stride, UNIT_TILES: tl.constexpr):
    """The sum of the shares of all programs, in a fixed order."""
    total = tl.load(shares + base + inner, mask=mask, other=0.0, cache_modifier=".cg")
    for program in tl.static_range(1, UNIT_TILES):
        total += tl.load(shares + base + program * stride + inner, mask=mask, other=0.0, cache_modifier=".cg")
    return total


@triton.jit
def factor(value, like, PRECISION: tl.constexpr):
    """Convert to the dtype of the matrix; for TF32, round to nearest: truncation by tensor cores doubles the error."""
    value = value.to(like.dtype.element_ty)
    if PRECISION == "tf32":
        if like.dtype.element_ty == tl.float32:
            bits = (value.to(tl.int32, bitcast=True) + 0x1000) & -0x2000
            value = bits.to(tl.float32, bitcast=True)
    return value


@triton.jit
def matrix_slice(matrix, block, chunk, unit, H, CHUNK: tl.constexpr, PRECISION: tl.constexpr, READY: tl.constexpr):
    """Rows `unit` of a block, columns of a chunk, as (CHUNK, units): the slice transposed, ready for tl.dot."""
    column = chunk * CHUNK + tl.arange(0, CHUNK)
    mask = (column[:, None] < H) & (unit[None, :] < H)
    piece = tl.load(matrix + (block * H + unit[None, :]) * H + column[:, None], mask=mask, other=0.0)
    if not READY:
        piece = factor(piece, matrix, PRECISION)
    return piece


@triton.jit
def resident_slices(
    matrix,
    unit,
    H,
    RESIDENT: tl.constexpr,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    PRECISION: tl.constexpr,
    READY: tl.constexpr,
):
    """The blocks that stay on chip, split into chunks."""
    slices = ()
    for block in tl.static_range(RESIDENT):
        for chunk in tl.static_range(CHUNKS):
            slices = slices + (matrix_slice(matrix, block, chunk, unit, H, CHUNK, PRECISION, READY),)
    return slices


@triton.jit
def vector(values, at, mask):
    """Entries of a vector as float32, as one row; zeros if the pointer is None."""
    return tile(values, at, mask)[None, :]


@triton.jit
def tile(values, at, mask):
    """Entries of a tensor as float32; zeros if the pointer is None."""
    if values is not None:
        found = tl.load(values + at, mask=mask, other=0.0).to(tl.float32)
    else:
        found = mask.to(tl.float32) * 0.0
    return found


@triton.jit
def own_weights(own, replica, unit, H, zero, OWN: tl.constexpr):
    """The gate's per-unit weights, one tile each. Units out of range get those of the last unit, to stay finite."""
    tiles = ()
    for i in tl.static_range(OWN):
        found = tl.load(own + (replica * OWN + i) * H + tl.minimum(unit, H - 1)).to(tl.float32)
        tiles = tiles + (zero + found[None, :],)
    if OWN == 0:
        tiles = (zero,)
    return tiles


@triton.jit
def carried_values(values, first_row, stride, here, mask, zero, CARRIED: tl.constexpr):
    """The carried values of the gate, one tile each, from offset `first_row` on, `stride` entries apart."""
    tiles = ()
    for i in tl.static_range(CARRIED):
        tiles = tiles + (tile(values, first_row + i * stride + here, mask),)
    if CARRIED == 0:
        tiles = (zero,)
    return tiles


@triton.jit
def chosen(condition, these, those):
    """tl.where on every entry of two tuples."""
    tiles = ()
    for i in tl.static_range(len(these)):
        tiles = tiles + (tl.where(condition, these[i], those[i]),)
    return tiles


@triton.jit
def stream(
    matrix,
    chunk,
    unit,
    H,
    RESIDENT: tl.constexpr,
    G: tl.constexpr,
    CHUNK: tl.constexpr,
    PRECISION: tl.constexpr,
    READY: tl.constexpr,
):
    """A chunk of the blocks that are not resident; prefetched one ahead, it arrives during the previous matmul."""
    tiles = ()
    for block in tl.static_range(RESIDENT, G):
        tiles = tiles + (matrix_slice(matrix, block, chunk, unit, H, CHUNK, PRECISION, READY),)
    return tiles


@triton.jit
def load_blocks(pre, at, row, unit, ok, H, G: tl.constexpr):
    """The pre-activations of a program for one step, one tile per block."""
    tiles = ()
    for block in tl.static_range(G):
        found = tl.load(pre + at * G * H + row[:, None] * (G * H) + block * H + unit[None, :], ok, 0.0)
        tiles = tiles + (found.to(tl.float32),)
    return tiles


@triton.jit
def kept(value, like):
    """Convert to the dtype in which a value is saved, clamped to the range of float16, 65504."""
    if like.dtype.element_ty != tl.float32:
        value = tl.clamp(value, -65504.0, 65504.0, propagate_nan=tl.PropagateNan.ALL)
    return value.to(like.dtype.element_ty)


@triton.jit(do_not_specialize=["first_group", "T", "B"])
def forward_kernel(
    pre,  # (N, T, B, G H) compute dtype: contribution of the inputs; overwritten by the whole sum if SAVE
    matrix,  # (N, G H, H)
    scale,  # (N,) float32: scale of the products, if the matrix was divided by it
    bias_ih,  # (N, G H)
    bias_hh,  # (N, G H)
    gate_weights,  # (N, OWN, H)
    dt,  # (N, T, B) float32
    lengths,  # (N, B) int32
    first_hidden,  # (N, B, H)
    first_cell,  # (N, B, H)
    first_carried,  # (N, CARRIED, B, H)
    hidden,  # (N, T, B, H) compute dtype: h_t, held past the end of a sequence
    cells,  # (N, T, B, H) float32, if SAVE
    carried_steps,  # (N, T, CARRIED, B, H) float32, if SAVE
    parts,  # (N, T, B, H) compute dtype, GRU only, if SAVE: the recurrent part of the candidate
    last_hidden,  # (N, B, H) float32
    last_cell,  # (N, B, H) float32
    last_carried,  # (N, CARRIED, B, H) float32
    counters,  # (groups, 32) int32, zero
    first_group,
    T,
    B,
    H,
    CELL: tl.constexpr,
    GATE: tl.constexpr,
    GATE_FIXED: tl.constexpr,
    ROWS: tl.constexpr,
    CARRIED: tl.constexpr,
    OWN: tl.constexpr,
    G: tl.constexpr,
    SPLIT: tl.constexpr,  # index of the block whose recurrent part is kept separate (GRU's candidate), or -1
    COUPLED: tl.constexpr,
    BETA: tl.constexpr,
    REVERSE: tl.constexpr,
    SAVE: tl.constexpr,
    ALONE: tl.constexpr,
    RESIDENT: tl.constexpr,
    PRECISION: tl.constexpr,
    READY: tl.constexpr,  # whether the matrix has been rounded already
    ROW_TILE: tl.constexpr,
    UNIT_TILE: tl.constexpr,
    UNIT_TILES: tl.constexpr,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """Run all steps of one tile of units of one group."""
    HAS_DT: tl.constexpr = dt is not None
    HAS_LENGTHS: tl.constexpr = lengths is not None
    group, replica, _, local, row, unit = own_tile(first_group, B, ROW_TILE, UNIT_TILE, UNIT_TILES)
    counter = counters + group * 32
    row_ok, unit_ok, here, ok = inside_of(row, unit, B, H)
    at, stride = first_step(replica, T, B, REVERSE)

    matrix += replica * G * H * H
    start = replica * B * H
    if scale is not None:
        size = tl.load(scale + replica)
    own_hidden = tile(first_hidden, start + here, ok)
    cell = tile(first_cell, start + here, ok)
    zero = tl.zeros((ROW_TILE, UNIT_TILE), tl.float32)
    step = zero
    apart = zero
    carried = carried_values(first_carried, start * CARRIED, B * H, here, ok, zero, CARRIED)
    fixed = GATE_FIXED(own_weights(gate_weights, replica, unit, H, zero, OWN))
    if HAS_DT:
        step += tl.load(dt + at + row, mask=row_ok, other=1.0)[:, None]
    length = tl.zeros((ROW_TILE,), tl.int32)
    if HAS_LENGTHS:
        length = tl.load(lengths + replica * B + row, mask=row_ok, other=0)
    biases = ()
    for block in tl.static_range(G):
        entry = (replica * G + block) * H + unit
        recurrent = vector(bias_hh, entry, unit_ok)
        if block == SPLIT:
            apart += recurrent
            biases = biases + (vector(bias_ih, entry, unit_ok),)
        else:
            biases = biases + (vector(bias_ih, entry, unit_ok) + recurrent,)
    slices = resident_slices(matrix, unit, H, RESIDENT, CHUNK, CHUNKS, PRECISION, READY)

    z = load_blocks(pre, at, row, unit, ok, H, G)
    for s in range(T):
        products = ()
        for block in tl.static_range(G):
            products = products + (tl.zeros((ROW_TILE, UNIT_TILE), tl.float32),)
        streamed = stream(matrix, 0, unit, H, RESIDENT, G, CHUNK, PRECISION, READY)
        source = first_hidden + start
        if s > 0:
            source = hidden + (at - stride) * H
            if not ALONE:
                wait(counter, s * UNIT_TILES, UNIT_TILES)
        for chunk in tl.static_range(CHUNKS):
            column = chunk * CHUNK + tl.arange(0, CHUNK)
            inside = row_ok[:, None] & (column[None, :] < H)
            if ALONE:
                h = own_hidden
            else:
                h = tl.load(source + row[:, None] * H + column[None, :], inside, 0.0, cache_modifier=".cg")
            if scale is not None:  # an initial state from the user may be out of range
                h = tl.clamp(h.to(tl.float32), -65504.0, 65504.0, propagate_nan=tl.PropagateNan.ALL)
            h = factor(h, matrix, PRECISION)
            now = streamed
            if chunk + 1 < CHUNKS:
                streamed = stream(matrix, chunk + 1, unit, H, RESIDENT, G, CHUNK, PRECISION, READY)
            more = ()
            for block in tl.static_range(G):
                if block < RESIDENT:
                    r = slices[block * CHUNKS + chunk]
                else:
                    r = now[block - RESIDENT]
                more = more + (tl.dot(h, r, products[block], input_precision=PRECISION),)
            products = more

        hn = apart
        sums = ()
        for block in tl.static_range(G):
            product = products[block]
            if scale is not None:
                product = product * size
            if block == SPLIT:
                hn = apart + product
                sums = sums + (z[block] + biases[block],)
            else:
                sums = sums + (z[block] + biases[block] + product,)
        h, c, a = CELL(sums, hn, cell, carried, fixed, step, GATE, ROWS, COUPLED, BETA)
        if HAS_LENGTHS:
            t = s
            if REVERSE:
                t = T - 1 - s
            real = (t < length)[:, None]
            h = tl.where(real, h, own_hidden)
            c = tl.where(real, c, cell)
            a = chosen(real, a, carried)
        own_hidden, cell = h, c
        if ALONE:  # the matmul includes padding, which must be zero
            own_hidden = tl.where(ok, h, 0.0)
        if CARRIED > 0:
            carried = a
        tl.store(hidden + at * H + here, h.to(hidden.dtype.element_ty), mask=ok)
        if not ALONE:
            signal(counter, UNIT_TILES)
        if SAVE:
            for block in tl.static_range(G):
                place = pre + at * G * H + row[:, None] * (G * H) + block * H + unit[None, :]
                tl.store(place, kept(sums[block], pre), mask=ok)
            tl.store(cells + at * H + here, c, mask=ok)
            for i in tl.static_range(CARRIED):
                tl.store(carried_steps + (at * CARRIED + i * B) * H + here, a[i], mask=ok)
            if SPLIT >= 0:
                tl.store(parts + at * H + here, kept(hn, parts), mask=ok)
        at += stride
        row_coming = row_ok & (local * 0 + s < T - 1)
        z = load_blocks(pre, at, row, unit, ok & row_coming[:, None], H, G)
        if HAS_DT:
            step = tl.zeros_like(cell) + tl.load(dt + at + row, mask=row_coming, other=1.0)[:, None]

    tl.store(last_hidden + start + here, own_hidden, mask=ok)
    tl.store(last_cell + start + here, cell, mask=ok)
    for i in tl.static_range(CARRIED):
        tl.store(last_carried + start * CARRIED + i * B * H + here, carried[i], mask=ok)


@triton.jit(do_not_specialize=["first_group", "groups", "T", "B"])
def backward_kernel(
    pre,  # (N, T, B, G H) compute dtype: pre-activations saved by the forward pass
    matrix,  # (N, G H, H)
    gate_weights,  # (N, OWN, H)
    dt,  # (N, T, B) float32
    lengths,  # (N, B) int32
    first_cell,  # (N, B, H)
    first_carried,  # (N, CARRIED, B, H)
    cells,  # (N, T, B, H) float32, saved
    carried_steps,  # (N, T, CARRIED, B, H) float32, saved
    parts,  # (N, T, B, H) compute dtype, saved, GRU only
    d_hidden,  # (N, T, B, H) compute dtype
    d_last_hidden,  # (N, B, H) float32
    d_last_cell,  # (N, B, H) float32
    d_last_carried,  # (N, CARRIED, B, H) float32
    d_pre,  # (N, T, B, G H) compute dtype; may be `pre` itself: an entry is read before it is written
    d_parts,  # (N, T, B, H) compute dtype, GRU only; may be `parts` itself
    d_first_hidden,  # (N, B, H) float32
    d_first_cell,  # (N, B, H) float32
    d_first_carried,  # (N, CARRIED, B, H) float32
    d_gate_weights,  # (groups, OWN, H) float32: each group's share
    d_dt,  # (UNIT_TILES, N, T, B) float32: each tile's share
    shares,  # (2, groups, UNIT_TILES, ROW_TILE, H), float32: partial sums that programs exchange, double-buffered
    counters,  # (groups, 32) int32, zero
    first_group,
    groups,
    T,
    B,
    H,
    CELL_SLOPES: tl.constexpr,
    CELL_BACK: tl.constexpr,
    GATE_SLOPES: tl.constexpr,
    GATE_BACK: tl.constexpr,
    GATE_FIXED: tl.constexpr,
    GATE_OWN: tl.constexpr,
    ROWS: tl.constexpr,
    CARRIED: tl.constexpr,
    OWN: tl.constexpr,
    G: tl.constexpr,
    SPLIT: tl.constexpr,
    COUPLED: tl.constexpr,
    BETA: tl.constexpr,
    REVERSE: tl.constexpr,
    ALONE: tl.constexpr,
    BY_STEPS: tl.constexpr,  # one step per launch: d_first_hidden does not include the shares, the host adds them
    RESIDENT: tl.constexpr,
    PRECISION: tl.constexpr,
    READY: tl.constexpr,  # whether the matrix has been rounded already
    ROW_TILE: tl.constexpr,
    UNIT_TILE: tl.constexpr,
    UNIT_TILES: tl.constexpr,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """Run all steps of one tile of units of one group backward."""
    HAS_DT: tl.constexpr = dt is not None
    HAS_LENGTHS: tl.constexpr = lengths is not None
    group, replica, own, local, row, unit = own_tile(first_group, B, ROW_TILE, UNIT_TILE, UNIT_TILES)
    counter = counters + group * 32
    row_ok, unit_ok, here, ok = inside_of(row, unit, B, H)
    at, stride = first_step(replica, T, B, not REVERSE)

    matrix += replica * G * H * H
    start = replica * B * H
    zero = tl.zeros((ROW_TILE, UNIT_TILE), tl.float32)
    held = tile(d_last_hidden, start + here, ok)
    d_cell = tile(d_last_cell, start + here, ok)
    step = zero
    hn = zero
    d_carried = carried_values(d_last_carried, start * CARRIED, B * H, here, ok, zero, CARRIED)
    weights = own_weights(gate_weights, replica, unit, H, zero, OWN)
    fixed = GATE_FIXED(weights)
    d_fixed = zeros_like_all(fixed)
    length = tl.zeros((ROW_TILE,), tl.int32)
    if HAS_LENGTHS:
        length = tl.load(lengths + replica * B + row, mask=row_ok, other=0)

    upright = resident_slices(matrix, unit, H, RESIDENT, CHUNK, CHUNKS, PRECISION, READY)
    slices = ()
    for piece in tl.static_range(RESIDENT * CHUNKS):
        slices = slices + (tl.trans(upright[piece]),)

    # Loads of the first step. Those of every other step are at the end of the step before it.
    inner = local[:, None] * H + unit[None, :]
    share_stride = ROW_TILE * H
    z = load_blocks(pre, at, row, unit, ok, H, G)
    d_h = tile(d_hidden, at * H + here, ok)
    inside = ok & (local * 0 + T > 1)[:, None]
    outside = ok & (local * 0 + T == 1)[:, None]
    cell = tl.load(cells + (at + stride) * H + here, inside, 0.0) + tile(first_cell, start + here, outside)
    carried = added(
        carried_values(carried_steps, (at + stride) * CARRIED * H, B * H, here, inside, zero, CARRIED),
        carried_values(first_carried, start * CARRIED, B * H, here, outside, zero, CARRIED),
    )
    if HAS_DT:
        step = zero + tl.load(dt + at + row, mask=row_ok, other=1.0)[:, None]
    if SPLIT >= 0:
        hn = tile(parts, at * H + here, ok)

    from_later = zero
    for s in range(T):
        slopes, of_gate = CELL_SLOPES(z, hn, cell, carried, fixed, step, GATE_SLOPES, ROWS, COUPLED, BETA)
        if not ALONE:
            if s > 0:
                base = (((s - 1) % 2) * groups + group).to(tl.int64) * UNIT_TILES * ROW_TILE * H
                wait(counter, s * UNIT_TILES, UNIT_TILES)
                from_later = sum_shares(shares, base, inner, ok, share_stride, UNIT_TILES)
        d_h += held + from_later
        d_z, d_hn, d_c, d_a, d_q, d_step = CELL_BACK(slopes, of_gate, d_h, d_cell, d_carried, GATE_BACK, ROWS, COUPLED)
        held = zero
        if HAS_LENGTHS:
            t = T - 1 - s
            if REVERSE:
                t = s
            real = (t < length)[:, None]
            held = tl.where(real, 0.0, d_h)
            d_c = tl.where(real, d_c, d_cell)
            d_a = chosen(real, d_a, d_carried)
            d_q = chosen(real, d_q, zeros_like_all(d_q))
            d_step = tl.where(real, d_step, 0.0)
            d_hn = tl.where(real, d_hn, 0.0)
            masked = ()
            for block in tl.static_range(G):
                masked = masked + (tl.where(real, d_z[block], 0.0),)
            d_z = masked
        d_cell = d_c
        if CARRIED > 0:
            d_carried = d_a
        if OWN > 0:
            d_fixed = added(d_fixed, chosen(row_ok[:, None], d_q, zeros_like_all(d_q)))

        # This program's share of d h_{t-1} for all units.
        factors = ()
        for block in tl.static_range(G):
            if block == SPLIT:
                factors = factors + (factor(d_hn, matrix, PRECISION),)
            else:
                factors = factors + (factor(d_z[block], matrix, PRECISION),)
        streamed = stream(matrix, 0, unit, H, RESIDENT, G, CHUNK, PRECISION, READY)
        for chunk in tl.static_range(CHUNKS):
            now = streamed
            if chunk + 1 < CHUNKS:
                streamed = stream(matrix, chunk + 1, unit, H, RESIDENT, G, CHUNK, PRECISION, READY)
            share = tl.zeros((ROW_TILE, CHUNK), tl.float32)
            for block in tl.static_range(G):
                if block < RESIDENT:
                    r = slices[block * CHUNKS + chunk]
                else:
                    r = tl.trans(now[block - RESIDENT])
                share = tl.dot(factors[block], r, share, input_precision=PRECISION)
            if ALONE:
                from_later = share
            else:
                column = chunk * CHUNK + tl.arange(0, CHUNK)
                place = (((s % 2) * groups + group).to(tl.int64) * UNIT_TILES + own) * ROW_TILE * H
                place = place + local[:, None] * H + column[None, :]
                writes = (column[None, :] < H) & row_ok[:, None]
                tl.store(shares + place, share, mask=writes)
        if not ALONE:
            signal(counter, UNIT_TILES)

        for block in tl.static_range(G):
            tl.store(
                d_pre + at * G * H + row[:, None] * (G * H) + block * H + unit[None, :],
                d_z[block].to(d_pre.dtype.element_ty),
                mask=ok,
            )
        if SPLIT >= 0:
            tl.store(d_parts + at * H + here, d_hn.to(d_parts.dtype.element_ty), mask=ok)
        if d_dt is not None:
            d_step = tl.sum(tl.where(ok, d_step, 0.0), 1)
            replicas = groups // tl.cdiv(B, ROW_TILE)
            tl.store(d_dt + own.to(tl.int64) * replicas * T * B + at + row, d_step, mask=row_ok)

        at += stride
        row_coming = row_ok & (local * 0 + s < T - 1)
        coming = ok & row_coming[:, None]
        inside = ok & (local * 0 + s < T - 2)[:, None]
        outside = ok & (local * 0 + s == T - 2)[:, None]
        z = load_blocks(pre, at, row, unit, coming, H, G)
        d_h = tile(d_hidden, at * H + here, coming)
        cell = tl.load(cells + (at + stride) * H + here, inside, 0.0) + tile(first_cell, start + here, outside)
        if CARRIED > 0:
            carried = added(
                carried_values(carried_steps, (at + stride) * CARRIED * H, B * H, here, inside, zero, CARRIED),
                carried_values(first_carried, start * CARRIED, B * H, here, outside, zero, CARRIED),
            )
        if HAS_DT:
            step = zero + tl.load(dt + at + row, mask=row_coming, other=1.0)[:, None]
        if SPLIT >= 0:
            hn = tile(parts, at * H + here, coming)

    if not ALONE and not BY_STEPS:
        base = (((T - 1) % 2) * groups + group).to(tl.int64) * UNIT_TILES * ROW_TILE * H
        wait(counter, T * UNIT_TILES, UNIT_TILES)
        from_later = sum_shares(shares, base, inner, ok, share_stride, UNIT_TILES)
    if d_first_hidden is not None:
        tl.store(d_first_hidden + start + here, held + from_later, mask=ok)
        tl.store(d_first_cell + start + here, d_cell, mask=ok)
        for i in tl.static_range(CARRIED):
            tl.store(d_first_carried + start * CARRIED + i * B * H + here, d_carried[i], mask=ok)
    if d_gate_weights is not None:
        slopes_of_own = GATE_OWN(weights, d_fixed)
        for i in tl.static_range(OWN):
            tl.store(
                d_gate_weights + (group.to(tl.int64) * OWN + i) * H + unit, tl.sum(slopes_of_own[i], 0), mask=unit_ok
            )
