"""The user's own sequences, validated and padded once.

Users pass tensors batch first, `(N, T, I)`; here time comes first, `(T, N, I)`, as in `Batch`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Self

import torch
from torch import Tensor

from ...nn.sequence import expect_lengths, expect_times, within
from ...nn.times import between
from ..base import Batch, Readout
from ..generators import generator
from ..sources import refusal
from . import reading
from .reading import padded

Learned = Literal["classification", "regression", "next step"]
Values = Any
"""A tensor, an array, or a list with one entry per sequence."""


class SequenceData:
    """N sequences of up to T steps with their targets.

    The targets determine the kind of task: integers are classes, floats a regression. Without targets the model
    predicts the next step of its own inputs (for integers, the next symbol).

    Args:
        inputs: `(N, T, I)`, or a list of N sequences `(T, I)` that may differ in length; I may be omitted for a single
            feature. Integers `(N, T)` are symbols.
        targets: one per sequence, `(N,)`, or `(N, O)` floats; or one per step, `(N, T)` integers,
            `(N, T, O)` floats, or a list of these. None to predict the next step.
        readout: "last" for one target per sequence, "every" for one per step. None to infer it from the shape of the
            targets, where floats `(N, O)` are O values per sequence.
        lengths: `(N,)` length of every sequence, if inputs are padded at the end. Not needed for a list.
        dt: `(N, T)` or `(T,)` time since the previous step, or a list.
        times: times of the steps, instead of dt; the first step has dt = 1.
        mask: `(N, T, I)` booleans, true where a value was observed; "nan" if missing values are NaN.
        counts: `(N, T)` booleans: the steps whose targets count in the loss, if not all do.
        classes: number of classes, or of symbols to predict; None for the largest target plus one.
    """

    learned: Learned
    readout: Readout
    batch: Batch
    """All sequences as one batch, on the CPU."""

    def __init__(
        self,
        inputs: Values,
        targets: Values = None,
        *,
        readout: Readout | None = None,
        lengths: Values = None,
        dt: Values = None,
        times: Values = None,
        mask: Values = None,
        counts: Values = None,
        classes: int | None = None,
    ) -> None:
        if readout not in (None, "every", "last"):
            raise ValueError(f"expected readout to be 'every' or 'last', got {readout!r}")
        values, own = padded("inputs", inputs)
        if values.dim() not in (2, 3) or not values.numel():
            raise ValueError(f"expected inputs of shape (N, T, I) or (N, T), got {tuple(values.shape)}")
        self.symbols = not values.is_floating_point()
        if self.symbols and values.dim() == 3:
            raise TypeError(f"expected inputs (N, T, I) of a floating dtype, got {values.dtype}")
        if not self.symbols and values.dim() == 2:
            values = values.unsqueeze(2)
        count, steps = values.shape[:2]
        if lengths is not None:
            if own is not None:
                raise ValueError("expected no lengths with a list of sequences, whose lengths are known, got lengths")
            own = expect_lengths(lengths, steps, count).long().cpu()
        if own is not None and bool((own == steps).all()):
            own = None
        present = torch.ones(count, steps, dtype=torch.bool) if own is None else within(own, steps).T
        seen = _expect_mask(mask, values, self.symbols)
        values = _expect_inputs(values, present, seen)
        self.batch = Batch(
            _time_first(values),
            torch.empty(0),
            dt=_expect_dt(dt, times, values, own),
            lengths=own,
            mask=None if seen is None else _time_first(seen & present.unsqueeze(2)),
        )
        if targets is None:
            if readout == "last" or counts is not None:
                raise ValueError("expected targets with readout='last' or counts, got none")
            self._predict_next(present)
        else:
            self._learn(targets, readout, present, counts)
        self.classes = self._expect_classes(classes)

    @classmethod
    def from_dataset(cls, dataset: Iterable[Any], **keywords: Any) -> Self:
        """Make sequences from a `torch.utils.data.Dataset`, or any other iterable of items.

        Args:
            dataset: each item is an input `(T, I)`, an (input, target) pair, or a mapping with `inputs` and optionally
                `targets`, `dt`, `times`, `mask` and `counts`.
            keywords: further arguments of `SequenceData`.
        """
        return cls(**{**reading.from_dataset(dataset), **keywords})

    @classmethod
    def from_table(
        cls,
        table: Any,
        inputs: str | Sequence[str],
        targets: str | Sequence[str] | None = None,
        *,
        sequence: str | None = None,
        dt: str | None = None,
        times: str | None = None,
        mask: Literal["nan"] | None = None,
        readout: Readout | None = None,
        classes: int | None = None,
    ) -> Self:
        """Make sequences from the columns of a table: a Hugging Face dataset, a pandas DataFrame or a mapping of lists.

        Args:
            table: each row is a sequence, with lists in its cells; or, with `sequence`, each row is a step.
            inputs: column of inputs, or several columns, which are stacked as features. null becomes NaN.
            targets: column of targets, or several columns; None to predict the next step.
            sequence: column with the id of the sequence that a step belongs to. Steps keep the order of the rows.
            dt: column of times since the previous step.
            times: column of times.
            mask: "nan" to treat null and NaN as missing values.
            readout: as in `SequenceData`. If each row is a step, "last" takes the target of the last step.
            classes: as in `SequenceData`.
        """
        found = reading.from_table(table, inputs, targets, sequence, readout, dt=dt, times=times)
        return cls(**found, mask=mask, classes=classes)

    def _predict_next(self, present: Tensor) -> None:
        """Use the inputs of the next step as targets. Missing values do not count."""
        if present.shape[1] < 2 or not bool(present[:, 1].all()):
            raise ValueError(
                "expected sequences of at least two steps to predict the next one, got a sequence of one step"
            )
        self.learned, self.readout = "next step", "every"
        whole = self.batch
        counts = whole.mask
        if counts is None and whole.lengths is not None:
            counts = _time_first(present)
        self.batch = Batch(
            whole.inputs[:-1],
            whole.inputs[1:],
            dt=None if whole.dt is None else whole.dt[:-1],
            lengths=None if whole.lengths is None else whole.lengths - 1,
            counts=None if counts is None else counts[1:],
            mask=None if whole.mask is None else whole.mask[:-1],
        )

    def _learn(self, targets: Values, readout: Readout | None, present: Tensor, counts: Values) -> None:
        """Use targets per sequence or per step."""
        values, own = padded("targets", targets)
        whole = not values.is_floating_point()
        if readout is None:
            readout = "every" if values.dim() == (2 if whole else 3) else "last"
        self.learned, self.readout = "classification" if whole else "regression", readout
        lead = tuple(present.shape) if readout == "every" else (len(present),)
        widths = (0,) if whole else (0, 1)
        if tuple(values.shape[: len(lead)]) != lead or values.dim() - len(lead) not in widths:
            shape = ", ".join(map(str, lead)) + ("," if len(lead) == 1 else "")
            or_wide = "" if whole else f" or ({shape.rstrip(',')}, O)"
            raise ValueError(
                f"expected targets of shape ({shape}){or_wide} for readout {readout!r}, got {tuple(values.shape)}"
            )
        if not whole and values.dim() == len(lead):
            values = values.unsqueeze(-1)
        if readout == "last":
            if counts is not None:
                raise ValueError(
                    "expected counts only with one target per step, got counts with one target per sequence"
                )
            kept, counted = torch.ones(lead, dtype=torch.bool), None
        else:
            if own is not None and not torch.equal(own, present.sum(1)):
                number = int((own != present.sum(1)).nonzero()[0])
                raise ValueError(
                    f"expected a target for each of the {int(present[number].sum())} steps of sequence {number}, "
                    f"got {int(own[number])}"
                )
            kept = present if counts is None else _expect_counts(counts, present)
            counted = None if bool(kept.all()) else _time_first(kept)
        values = _expect_targets(values, kept, readout)
        parts = vars(self.batch) | {
            "targets": _time_first(values) if readout == "every" else values,
            "counts": counted,
        }
        self.batch = Batch(**parts)

    def _expect_classes(self, classes: int | None) -> int:
        """Number of classes or symbols; 0 for a regression."""
        if self.learned == "regression" or (self.learned == "next step" and not self.symbols):
            if classes is not None:
                raise ValueError(f"expected classes only with integer targets, got classes={classes} with floats")
            return 0
        found = int(self.batch.targets.max()) + 1
        if self.learned == "next step":
            found = max(found, self.input_size)
        if classes is not None and classes < found:
            raise ValueError(
                f"expected classes to be at least {found}, since the largest is {found - 1}, got {classes}"
            )
        return classes or found

    def __len__(self) -> int:
        return self.batch.inputs.shape[1]

    def __repr__(self) -> str:
        inputs = f"{self.input_size} {'symbol' if self.symbols else 'feature'}{'' if self.input_size == 1 else 's'}"
        return f"SequenceData({len(self)} sequences of up to {len(self.batch.inputs)} steps, {inputs}, {self.learned})"

    @property
    def input_size(self) -> int:
        """Number of features or symbols."""
        return int(self.batch.inputs.max()) + 1 if self.symbols else self.batch.inputs.shape[2]

    @property
    def output_size(self) -> int:
        """Number of outputs of a model."""
        return self.classes or self.batch.targets.shape[-1]

    @property
    def digest(self) -> str:
        """SHA-256 of all data and settings."""
        found = hashlib.sha256(f"{self.learned} {self.readout} {self.classes}".encode())
        for name, value in vars(self.batch).items():
            if value is not None:
                found.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
                found.update(value.contiguous().numpy().tobytes())
        return found.hexdigest()

    def __getitem__(self, numbers: Tensor | Sequence[int] | slice) -> Self:
        """A subset of the sequences."""
        chosen = torch.arange(len(self))[numbers] if isinstance(numbers, slice) else torch.as_tensor(numbers)
        part = object.__new__(type(self))
        vars(part).update(vars(self), batch=picked(self.batch, chosen, self.readout))
        return part

    def split(self, fraction: float, seed: int = 0) -> tuple[Self, Self]:
        """Split at random into the rest and this fraction of the sequences; at least one sequence each."""
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 < fraction < 1:
            raise ValueError(f"expected the fraction of a split to be above 0 and below 1, got {fraction!r}")
        if len(self) < 2:
            raise ValueError("expected at least two sequences to split, got one")
        size = min(max(1, round(fraction * len(self))), len(self) - 1)
        order = torch.randperm(len(self), generator=generator(seed, "own split"))
        return self[order[size:].sort().values], self[order[:size].sort().values]


class KeptData:
    """A source of these sequences, kept on a device."""

    def __init__(self, data: SequenceData, device: torch.device) -> None:
        self.size: int | None = len(data)
        self.readout = data.readout
        there = {name: value.to(device) for name, value in vars(data.batch).items() if value is not None}
        self.batch = Batch(**there)

    def pick(self, numbers: Tensor) -> Batch:
        return picked(self.batch, numbers, self.readout)

    def draw(self, count: int, generator: torch.Generator) -> Batch:
        raise refusal("pick", "draw")


def picked(batch: Batch, numbers: Tensor, readout: Readout) -> Batch:
    """The sequences with these indices."""
    of_sequences = ("lengths", "targets") if readout == "last" else ("lengths",)
    parts = {
        name: value.index_select(0 if name in of_sequences else 1, numbers)
        for name, value in vars(batch).items()
        if value is not None
    }
    return Batch(**parts)


def _time_first(values: Tensor) -> Tensor:
    return values.transpose(0, 1).contiguous()


def _expect_mask(mask: Values, values: Tensor, symbols: bool) -> Tensor | None:
    """`(N, T, I)` booleans."""
    if mask is None:
        return None
    if symbols:
        raise ValueError("expected no mask for inputs that are symbols, got one")
    if isinstance(mask, str):
        if mask != "nan":
            raise ValueError(f"expected mask to be booleans or 'nan', got {mask!r}")
        return ~values.isnan()
    seen, _ = padded("mask", mask)
    seen = seen.unsqueeze(2) if seen.dim() == 2 and values.shape[2] == 1 else seen
    if seen.shape != values.shape:
        raise ValueError(f"expected a mask of the shape of the inputs, {tuple(values.shape)}, got {tuple(seen.shape)}")
    return seen.bool()


def _expect_inputs(values: Tensor, present: Tensor, seen: Tensor | None) -> Tensor:
    """Validated inputs; zero where they are padding or missing."""
    if not values.is_floating_point():
        if bool((values[present] < 0).any()):
            raise ValueError(f"expected symbols of 0 or more, got {int(values[present].min())}")
        return torch.where(present, values, 0).long()
    real = present.unsqueeze(2).expand(values.shape) if seen is None else present.unsqueeze(2) & seen
    bad = (real & ~values.isfinite()).nonzero()
    if len(bad):
        sequence, step, feature = bad[0].tolist()
        remedy = "" if seen is not None else "; use mask='nan' if NaN marks missing values"
        raise ValueError(
            f"expected finite inputs, got {values[sequence, step, feature]} in sequence {sequence} at step {step}, "
            f"feature {feature}{remedy}"
        )
    return torch.where(real, values, 0).float()


def _expect_dt(dt: Values, times: Values, inputs: Tensor, lengths: Tensor | None) -> Tensor | None:
    """`(T, N)` times since the previous step, 1 at padded steps; None if not given."""
    if dt is None and times is None:
        return None
    if dt is not None and times is not None:
        raise ValueError("expected dt or times, got both")
    name, given = ("dt", dt) if times is None else ("times", times)
    found, own = padded(name, given)
    count, steps = inputs.shape[:2]
    if found.dim() == 1:
        found = found.expand(count, -1)
    expected = torch.full((count,), steps) if lengths is None else lengths
    if tuple(found.shape) != (count, steps) or (own is not None and not torch.equal(own, expected)):
        raise ValueError(
            f"expected {name} for every step of every sequence, ({count}, {steps}) or ({steps},), "
            f"got {tuple(found.shape)}"
        )
    found = found.double()
    if times is not None:
        found = between(found, inputs, True, lengths)
    if lengths is not None:
        found = torch.where(within(lengths, steps).T, found, 1)
    return _time_first(expect_times(found)).float()


def _expect_counts(counts: Values, present: Tensor) -> Tensor:
    """`(N, T)` booleans."""
    found, _ = padded("counts", counts)
    if found.shape != present.shape:
        raise ValueError(f"expected counts of shape {tuple(present.shape)}, got {tuple(found.shape)}")
    kept = found.bool() & present
    if not bool(kept.any()):
        raise ValueError("expected at least one step that counts, got none")
    return kept


def _expect_targets(values: Tensor, kept: Tensor, readout: Readout) -> Tensor:
    """Validated targets; zero where they do not count."""
    real = kept.view(*kept.shape, *(1,) * (values.dim() - kept.dim()))
    if not values.is_floating_point():
        if bool((values[kept] < 0).any()):
            raise ValueError(f"expected classes of 0 or more, got {int(values[kept].min())}")
        return torch.where(real, values, 0).long()
    bad = (real & ~values.isfinite()).nonzero()
    if len(bad):
        sequence, step, *_ = bad[0].tolist()
        at = f" at step {step}; exclude steps with counts=" if readout == "every" else ""
        raise ValueError(f"expected finite targets, got {values[tuple(bad[0])]} in sequence {sequence}{at}")
    return torch.where(real, values, 0).float()
