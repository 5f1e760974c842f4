"""The NRU for wide layers: steps are launched one by one, and torch multiplies.

A program of `kernels` reads all matrices from the L2 cache at every step; those of a wide layer have megabytes. Here
all SMs share each matmul, and a step takes four launches:

    forward     [h, m] -> pre-activations,  -> h,   [h, m] -> writes,  -> m
    backward    gradient of m -> of the writes,  -> of [h, m],   gradient of h -> of the pre-activations,  -> of [h, m]

Tensors are those of `kernels`, all float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ...kernels.layout import padded
from ...machine import lacking, matrix_products
from .. import starting
from .wide_kernels import rectify_back_kernel, rectify_kernel, write_back_kernel, write_kernel

Constants = Callable[..., dict[str, Any]]
"""Constants of the kernels for units, or for writes."""
Kind = tuple[int, int, bool, str, int, int]
"""Arguments of the constants: heads, side, reverse, precision, size of the memory, units."""


def forward(
    for_units: Constants,
    for_writes: Constants,
    kind: Kind,
    grid: tuple[int],
    projected: Tensor,
    from_state: Tensor,
    to_writes: Tensor,
    bias: Tensor | None,
    write_bias: Tensor | None,
    lengths: Tensor | None,
    hidden: Tensor,
    memory: Tensor,
    writes: Tensor,
    norms: Tensor,
) -> None:
    """Compute all h_t and m_t, the writes and the norms of their outer products; changes `projected`."""
    (count, steps, rows, _), (_, _, _, precision, size, units) = writes.shape, kind
    to_pre, to_write = (_whole_rows(one).mT for one in (from_state, to_writes))
    to_write = to_write[..., : writes.shape[-1]]
    width, columns = to_pre.shape[-2:]
    pre = padded(projected, (0, columns - units)).view(count, steps, rows, columns)
    if bias is not None:
        pre[..., :units] += bias[:, None, None]
    writes[:] = 0.0 if write_bias is None else write_bias[:, None, None]
    state = hidden.new_zeros(count, rows, width)
    state[..., :units], state[..., units : units + size] = hidden[:, 0], memory[:, 0]
    of_units, of_writes = (pre, hidden, state, lengths), (memory, writes, norms, state, lengths)
    with matrix_products(precision == "tf32"):
        for step, (sums, wrote) in enumerate(zip(pre.unbind(1), writes.unbind(1), strict=True)):
            numbers = (step, steps, rows, units)
            sums.baddbmm_(state, to_pre)
            starting.start(rectify_kernel, for_units, kind, grid, of_units, numbers)
            wrote.baddbmm_(state, to_write)
            starting.start(write_kernel, for_writes, kind, grid, of_writes, numbers)


def backward(
    for_units: Constants,
    for_writes: Constants,
    kind: Kind,
    grid: tuple[int],
    from_state: Tensor,
    to_writes: Tensor,
    lengths: Tensor | None,
    hidden: Tensor,
    writes: Tensor,
    norms: Tensor,
    d_outputs: Tensor,
    d_hidden: Tensor,
    d_memory: Tensor,
    d_pre: Tensor,
    d_writes: Tensor,
    reach: Tensor,
) -> None:
    """Propagate gradients of all h_t and the final state back to the initial state, pre-activations and writes."""
    (count, steps, rows, _), (_, _, _, precision, size, units) = writes.shape, kind
    from_state, to_writes = _whole_rows(from_state), _whole_rows(to_writes)
    slopes = d_memory.new_zeros(count, rows, from_state.shape[-1])
    d_h, d_m = slopes[..., :units], slopes[..., units : units + size]
    d_h.copy_(d_hidden)
    d_m.copy_(d_memory)
    by_unit, by_write = (slopes.new_zeros(count, rows, one.shape[-2]) for one in (from_state, to_writes))
    of_writes = (writes, norms, slopes, d_writes, by_write, reach, lengths)
    of_units = (hidden, d_outputs, slopes, d_pre, by_unit, lengths)
    with matrix_products(precision == "tf32"):
        for step in reversed(range(steps)):
            numbers = (step, steps, rows, units)
            starting.start(write_back_kernel, for_writes, kind, grid, of_writes, numbers)
            slopes.baddbmm_(by_write, to_writes)
            starting.start(rectify_back_kernel, for_units, kind, grid, of_units, numbers)
            slopes.baddbmm_(by_unit, from_state)
    d_hidden.copy_(d_h)
    d_memory.copy_(d_m)


def _whole_rows(matrix: Tensor) -> Tensor:
    """A matrix with both sizes padded to whole vectors."""
    outputs, inputs = matrix.shape[-2:]
    return padded(matrix, (0, lacking(inputs, matrix.itemsize), 0, lacking(outputs, matrix.itemsize)))
