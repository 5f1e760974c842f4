"""Converts user input (batch first or not, batched or not, packed or not) to time-first batches, and back.

Shapes: T steps, B sequences, I input features, W the width of one part of the state, S layers times directions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from ..engines.transforms import transformed

Inputs = Tensor | PackedSequence
FEW = 16
"""Number of times that Python compares faster than torch."""


@dataclass(frozen=True)
class Sequences:
    """A batch of sequences, and how to return results in the layout of the input."""

    values: Tensor
    """`(T, B, I)`; packed input stays sorted by length, as packed. Zero past the end of a sequence."""
    lengths: Tensor | None
    """`(B,)` on the device of the values, or None if all sequences have T steps."""
    lengths_on_cpu: Tensor | None
    packed: PackedSequence | None
    batched: bool
    batch_first: bool

    @classmethod
    def arrange(cls, input: Inputs, features: int, batch_first: bool, lengths: Any = None) -> Sequences:
        """Check an input and convert it to time first; `lengths` `(B,)` are those of padded sequences."""
        if isinstance(input, PackedSequence):
            if lengths is not None:
                raise ValueError("expected no lengths with a PackedSequence, which has its own, got lengths")
            expect_features(input.data, features, dims=(2,))
            in_order = PackedSequence(input.data, input.batch_sizes)
            values, own = pad_packed_sequence(in_order)
            return cls(values, own.to(values.device), own, input, batched=True, batch_first=batch_first)
        if not isinstance(input, Tensor):
            refuse_proxy(input)
            raise TypeError(f"expected input to be a tensor or a PackedSequence, got {type(input).__name__}")
        expect_features(input, features, dims=(2, 3))
        batched = input.dim() == 3
        values = input if batched else input.unsqueeze(1)
        if batched and batch_first:
            values = input.transpose(0, 1)
        if values.shape[0] == 0:
            raise ValueError("expected sequences of at least one step, got none")
        if lengths is not None:
            if not batched:
                raise ValueError("expected lengths with batched input only, got lengths with a single sequence")
            lengths = expect_lengths(lengths, *values.shape[:2]).to(values.device)
            # Not multiplied by zero: NaN in the padding would give NaN gradients of the weights.
            values = values.masked_fill(~within(lengths, values.shape[0]).unsqueeze(-1), 0)
        return cls(values, lengths, None, None, batched, batch_first)

    @property
    def batch(self) -> int:
        """B."""
        return self.values.shape[1]

    def restore(self, output: Tensor) -> Inputs:
        """`(T, B, W)` in the layout of the input."""
        if self.packed is not None:
            assert self.lengths_on_cpu is not None
            data = pack_padded_sequence(output, self.lengths_on_cpu).data
            return PackedSequence(
                data, self.packed.batch_sizes, self.packed.sorted_indices, self.packed.unsorted_indices
            )
        if not self.batched:
            return output.squeeze(1)
        return output.transpose(0, 1) if self.batch_first else output

    @property
    def lengths_as_given(self) -> Tensor | None:
        """Lengths in the user's order of the sequences."""
        return None if self.lengths is None else self.in_given_order(self.lengths.unsqueeze(0)).squeeze(0)

    def in_given_order(self, values: Tensor) -> Tensor:
        """`(T, B, ...)` with the sequences in the user's order."""
        if self.packed is None or self.packed.unsorted_indices is None:
            return values
        return values.index_select(1, self.packed.unsorted_indices)

    # State: a tuple of (S, B, W), or (S, W) for unbatched input.

    def arrange_state(self, state: Any, widths: dict[str, int], stacked: int, dtypes: dict[str, torch.dtype]) -> Any:
        """Check a state and convert it to a tuple of `(S, B, W)`."""
        parts = (state,) if isinstance(state, Tensor) else state
        expect_state(parts, widths, (stacked, self.batch) if self.batched else (stacked,))
        parts = tuple(
            (part if self.batched else part.unsqueeze(1)).to(dtypes[name])
            for name, part in zip(widths, parts, strict=True)
        )
        if self.packed is not None and self.packed.sorted_indices is not None:
            parts = tuple(part.index_select(1, self.packed.sorted_indices) for part in parts)
        return parts

    def restore_state(self, parts: tuple[Tensor, ...]) -> Any:
        """A state in the layout of the user; a single tensor if it has a single part."""
        parts = tuple(self.in_given_order(part) for part in parts)
        if not self.batched:
            parts = tuple(part.squeeze(1) for part in parts)
        return parts[0] if len(parts) == 1 else parts

    # Time: dt has the shape of the input without its features.

    def arrange_dt(self, dt: Any, dtype: torch.dtype) -> Tensor | None:
        """Check the times between steps and convert them to `(T, B)`; 1 past the end of a sequence."""
        if dt is None:
            return None
        times = self._unpack_dt(dt) if isinstance(dt, PackedSequence) else as_times(dt)
        times = times.to(self.values.device, dtype)
        steps, batch = self.values.shape[:2]
        shape = (batch, steps) if self.batch_first else (steps, batch)
        if self.batched and tuple(times.shape) == shape:
            times = times.transpose(0, 1) if self.batch_first else times
            if self.packed is not None and self.packed.sorted_indices is not None:
                times = times.index_select(1, self.packed.sorted_indices)
        elif tuple(times.shape) == (steps,):
            times = times.unsqueeze(1).expand(steps, batch)
        else:
            either = f"{shape} or " if self.batched else ""
            raise ValueError(f"expected dt of shape {either}({steps},), got {tuple(times.shape)}")
        if self.lengths is not None:
            times = torch.where(within(self.lengths, steps), times, 1)
        return expect_times(times)

    def reversed_dt(self, dt: Tensor) -> Tensor:
        """dt for the backward direction: the step at t follows the one at t + 1, and its first step has dt = 1."""
        steps = torch.arange(dt.shape[0], device=dt.device).unsqueeze(1)
        last = dt.shape[0] - 1 if self.lengths is None else self.lengths - 1
        return torch.where(steps == last, 1, dt.roll(-1, 0))  # not dt[1:]: exported programs must run T = 1

    def _unpack_dt(self, dt: PackedSequence) -> Tensor:
        if self.packed is None:
            raise ValueError("expected dt to be a tensor like the input, got a PackedSequence")
        if dt.data.dim() != 1 or not torch.equal(dt.batch_sizes, self.packed.batch_sizes):
            raise ValueError(
                f"expected packed dt with one value per packed step ({len(self.packed.data)}) and the same lengths as "
                f"the input, got data of shape {tuple(dt.data.shape)}"
            )
        padded, lengths = pad_packed_sequence(dt)  # in the user's order
        if not torch.equal(lengths, pad_packed_sequence(self.packed)[1]):
            raise ValueError(f"expected packed dt of the same lengths as the input, got {lengths.tolist()}")
        return padded.transpose(0, 1) if self.batch_first else padded


def refuse_proxy(value: Any) -> None:
    """Raise an error that names the alternative if torch.fx traces a layer with a proxy for its input."""
    if type(value).__module__ == "torch.fx.proxy":
        raise TypeError("expected torch.export.export, which supports these layers, got torch.fx.symbolic_trace")


def expect_features(values: Tensor, features: int, dims: tuple[int, ...]) -> None:
    """Refuse an input with the wrong dtype, number of dimensions or number of features."""
    if not values.is_floating_point():
        raise TypeError(f"expected input of a floating-point dtype, got {values.dtype}")
    if values.dim() not in dims:
        expected = " or ".join(str(d) for d in dims)
        raise ValueError(f"expected input with {expected} dimensions, got {values.dim()}")
    if values.shape[-1] != features:
        raise ValueError(f"expected input with {features} features in its last dimension, got {values.shape[-1]}")


def expect_lengths(lengths: Any, steps: int, batch: int) -> Tensor:
    """Refuse lengths that are not `(B,)` integers from 1 to T. On a GPU the range is not checked, to avoid a sync."""
    known: Tensor = torch.as_tensor(lengths)
    if known.is_floating_point() or known.is_complex() or known.dtype == torch.bool:
        raise TypeError(f"expected lengths to be integers, got {known.dtype}")
    if tuple(known.shape) != (batch,):
        raise ValueError(f"expected lengths of shape ({batch},), one for each sequence, got {tuple(known.shape)}")
    if batch and known.device.type == "cpu" and not torch.compiler.is_compiling() and not transformed():
        low, high = (int(bound) for bound in torch.aminmax(known))
        if low < 1 or high > steps:
            raise ValueError(f"expected lengths from 1 to {steps}, got values from {low} to {high}")
    return known


def within(lengths: Tensor, steps: int) -> Tensor:
    """`(T, B)` mask: whether a step is within its sequence."""
    return torch.arange(steps, device=lengths.device).unsqueeze(1) < lengths


def expect_state(parts: Any, widths: dict[str, int], lead: tuple[int, ...]) -> None:
    """Refuse a state that is not a tuple of tensors of shape `(*lead, width)`."""
    names = ", ".join(widths)
    if not isinstance(parts, tuple | list) or not all(isinstance(part, Tensor) for part in parts):
        got = type(parts).__name__
        if isinstance(parts, tuple | list):
            got += f" with {next(repr(part) for part in parts if not isinstance(part, Tensor))}"
        raise TypeError(f"expected state to be the tensors ({names}), got {got}")
    if len(parts) != len(widths):
        missing = ", ".join(list(widths)[len(parts) :])
        lacking = f"; {missing} is missing" if missing else ""
        raise ValueError(f"expected state to be the {len(widths)} tensors ({names}), got {len(parts)}{lacking}")
    for (name, width), part in zip(widths.items(), parts, strict=True):
        if tuple(part.shape) != (*lead, width):
            raise ValueError(f"expected {name} state of shape {(*lead, width)}, got {tuple(part.shape)}")


def as_times(dt: Any, name: str = "dt") -> Tensor:
    """Times as a tensor. Refuses values that are not real numbers."""
    if not isinstance(dt, Tensor):
        try:
            dt = torch.from_numpy(numpy.array(dt))  # float64 for a list of floats; torch would make float32
        except TypeError:
            raise TypeError(f"expected {name} to hold real numbers, got {dt!r}") from None
    times: Tensor = dt
    if times.is_complex() or times.dtype == torch.bool:
        raise TypeError(f"expected {name} to hold real numbers, got {times.dtype}")
    return times


def is_ready(dt: Any, values: Tensor) -> bool:
    """Whether dt needs no conversion: a tensor in float32 like the values."""
    return (
        type(dt) is Tensor
        and dt.dtype is torch.float32
        and values.dtype is torch.float32
        and dt.device == values.device
        and dt.is_contiguous()
    )


def expect_times(dt: Tensor) -> Tensor:
    """Refuse negative and non-finite times. On a GPU, where a check would sync, and while tracing they become NaN."""
    if dt.numel() == 0 or dt.is_meta:
        return dt
    if dt.is_cuda or torch.compiler.is_compiling() or transformed():
        return torch.where((dt >= 0) & (dt < float("inf")), dt, float("nan"))
    if dt.numel() <= FEW and all(0 <= each < math.inf for each in dt.flatten().tolist()):  # faster for a single step
        return dt
    low, high = (float(bound) for bound in torch.aminmax(dt.detach()))
    if not (low >= 0 and high < float("inf")):  # a NaN makes both comparisons false
        raise ValueError(f"expected dt to be finite and not negative, got values from {low} to {high}")
    return dt


def expect_times_of_step(dt: Tensor) -> Tensor:
    """`expect_times` for a compiled single step: on a GPU its kernel itself makes these times NaN, without a launch."""
    return dt if dt.is_cuda else expect_times(dt)
