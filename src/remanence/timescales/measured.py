"""Timescales of a layer: from its biases, and from its forget values on data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, Protocol

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from ..gates import Gate
from .conversions import logit_to_timescale

Inputs = Tensor | PackedSequence
Batch = Inputs | tuple[Inputs, Any]


class Measurable(Protocol):
    """The interface of a layer whose timescales can be measured."""

    training: bool

    def forget_biases(self) -> list[tuple[Tensor, ...]]: ...

    @property
    def gate(self) -> Gate: ...

    def watch(
        self, input: Inputs, state: Any = None, dt: Any = None
    ) -> tuple[list[dict[str, Tensor]], Any, Tensor | None]: ...

    def train(self, mode: bool = True) -> Any: ...


def of(layer: Measurable) -> list[Tensor]:
    """Timescale of every unit from its biases, -1/log phi(b_f): how long it remembers without input.

    Args:
        layer: A layer with a forget gate, or a `remanence.models.LanguageModel`.

    Returns:
        One float64 `(H,)` tensor per layer and direction, in the order l0, l0_reverse, l1, ...

    Raises:
        ValueError: The layer has no forget gate, or its gate has no timescale (power_law).
        TypeError: This is not a layer of remanence.

    Examples:
        >>> import remanence as rm
        >>> layer = rm.LSTM(8, 3, forget_bias=1.0)
        >>> rm.timescales.of(layer)
        [tensor([3.1922, 3.1922, 3.1922], dtype=torch.float64)]
    """
    _expect_layer(layer)
    gate = layer.gate
    return [logit_to_timescale(gate.logit(*(b.double() for b in biases))) for biases in layer.forget_biases()]


@torch.no_grad()
def estimate(
    layer: Measurable,
    batches: Inputs | Iterable[Batch],
    *,
    mean: Literal["arithmetic", "geometric"] = "arithmetic",
    carry_state: bool = False,
) -> list[Tensor]:
    """Timescale of every unit from its forget values on data, -1/log(mean f).

    The layer runs in evaluation mode, on the loop engine.

    Args:
        layer: Any layer with a forget gate.
        batches: One input of the layer, or an iterable of inputs or of pairs `(input, dt)`.
        mean: Mean over all sequences and steps. "arithmetic" is the definition of the multi-timescale paper,
            "geometric" that of the fast-gate paper.
        carry_state: Whether every batch starts from the final state of the previous one.

    Returns:
        One float64 `(H,)` tensor per layer and direction, in the order l0, l0_reverse, l1, ...

    Raises:
        ValueError: The layer has no forget gate, or there are no steps.
        TypeError: This is not a layer of remanence, or a batch is not an input or a pair.

    Examples:
        >>> import torch
        >>> import remanence as rm
        >>> layer = rm.PowerLawLSTM(3, 16)
        >>> (timescales,) = rm.timescales.estimate(layer, torch.randn(100, 4, 3))
        >>> timescales.shape
        torch.Size([16])
    """
    _expect_layer(layer)
    if mean not in ("arithmetic", "geometric"):
        raise ValueError(f"expected mean to be 'arithmetic' or 'geometric', got {mean!r}")
    layer.gate  # noqa: B018  raises for a layer without one
    was_training = layer.training
    layer.train(False)
    totals: list[Tensor] = []
    steps = 0
    state = None
    try:
        for input, dt in _each(batches):
            records, after, lengths = layer.watch(input, state, dt)
            state = after if carry_state else None
            time, batch = records[0]["forget"].shape[:2]
            steps += time * batch if lengths is None else int(lengths.sum())
            sums = [_sums(values, mean) for values in records]
            totals = sums if not totals else [total + more for total, more in zip(totals, sums, strict=True)]
    finally:
        layer.train(was_training)
    if steps == 0:
        raise ValueError("expected at least one batch with at least one step, got none")
    if mean == "arithmetic":
        # The smaller of the two sums is the more accurate one.
        return [
            -1 / torch.where(kept < lost, (kept / steps).log(), torch.log1p(-lost / steps)) for kept, lost in totals
        ]
    return [steps / total for total in totals]


def _sums(values: dict[str, Tensor], mean: str) -> Tensor:
    """Sums over steps and sequences: of f and of 1 - f for the arithmetic mean, of -log f for the geometric one."""
    forget, complement = values["forget"].double(), values["complement"].double()
    if mean == "arithmetic":
        return torch.stack((forget.sum((0, 1)), complement.sum((0, 1))))
    past_the_end = (forget == 0) & (complement == 0)  # the loop engine records zeros there
    logs = torch.where(forget < complement, forget.log(), torch.log1p(-complement))
    return torch.where(past_the_end, 0, -logs).sum((0, 1))  # +0, not -0, if nothing is forgotten


def _each(batches: Inputs | Iterable[Batch]) -> Iterator[tuple[Inputs, Any]]:
    if isinstance(batches, Tensor | PackedSequence):
        yield batches, None
        return
    if not isinstance(batches, Iterable):
        raise TypeError(f"expected batches to be an input or an iterable of them, got {type(batches).__name__}")
    for batch in batches:
        if isinstance(batch, Tensor | PackedSequence):
            yield batch, None
        elif isinstance(batch, tuple | list) and len(batch) == 2:
            yield batch[0], batch[1]
        else:
            raise TypeError(f"expected every batch to be an input or a pair (input, dt), got {type(batch).__name__}")


def _expect_layer(layer: object) -> None:
    if not hasattr(layer, "forget_biases"):
        raise TypeError(
            f"expected a recurrent layer of remanence, got {type(layer).__module__}.{type(layer).__name__}; "
            "LSTM.from_torch and GRU.from_torch convert torch's"
        )
