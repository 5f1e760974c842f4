"""Sequences of one's own, checked and padded once.

Users give sequences first, `(N, T, I)`; here time comes first, `(T, N, I)`, as batches have it.
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
"""A tensor, an array, or a list with an entry for every sequence."""


class SequenceData:
    """Sequences to learn from, with what is to be learned: N sequences of up to T steps.

    What is learned follows from the targets: whole numbers are classes, floats a regression, and without targets the
    model predicts the next step of its own inputs (of whole numbers, the next symbol).

    Args:
        inputs: `(N, T, I)`, or a list of N sequences `(T, I)` that may differ in length; without I for one feature.
            Whole numbers `(N, T)` are symbols.
        targets: one for every sequence, `(N,)`, or `(N, O)` floats; or one for every step, `(N, T)` whole numbers,
            `(N, T, O)` floats, or a list of these. None to predict the next step.
        readout: "last" for targets of sequences, "every" for targets of steps. None to tell by their shape, where
            floats `(N, O)` are O numbers for every sequence.
        lengths: `(N,)` steps of every sequence, where inputs are padded at the end. A list has its own.
        dt: `(N, T)` or `(T,)` time since the previous step, or a list.
        times: when steps are, in place of dt; the first step counts as 1.
        mask: `(N, T, I)` booleans, true where a value was seen; "nan" if missing values are NaN.
        counts: `(N, T)` booleans: the steps whose targets count, where not all do.
        classes: number of classes, or of symbols to predict; None for one more than the largest.
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
                raise ValueError("expected no lengths with a list of sequences, which has its own, got some")
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
        """Sequences from a `torch.utils.data.Dataset`, or anything else that has items.

        Args:
            dataset: each item is an input `(T, I)`, a pair of input and target, or a mapping of `inputs` and, as far
                as they are there, `targets`, `dt`, `times`, `mask` and `counts`.
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
        """Sequences from columns of a table: one of Hugging Face `datasets` or pandas, or a mapping of lists.

        Args:
            table: a row is a sequence, with lists in its cells; or, with `sequence`, a row is a step.
            inputs: the column of inputs, or several, which become features side by side. null is NaN.
            targets: the column of targets, or several side by side; None to predict the next step.
            sequence: the column that says which sequence a step belongs to. Steps are in the order of the rows.
            dt: the column of times since the previous step.
            times: the column of times.
            mask: "nan" if values that are null or NaN are missing.
            readout: as of `SequenceData`. Where a row is a step, "last" takes the target of the last one.
            classes: as of `SequenceData`.
        """
        found = reading.from_table(table, inputs, targets, sequence, readout, dt=dt, times=times)
        return cls(**found, mask=mask, classes=classes)

    def _predict_next(self, present: Tensor) -> None:
        """Let the targets be the inputs of the next step. What is missing there does not count."""
        if present.shape[1] < 2 or not bool(present[:, 1].all()):
            raise ValueError("expected sequences of two steps or more to predict the next one, got one of one step")
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
        """Take targets of sequences or of steps."""
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
                raise ValueError("expected counts with targets of steps, got them with targets of sequences")
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
        """How many classes or symbols there are to choose from; 0 for numbers."""
        if self.learned == "regression" or (self.learned == "next step" and not self.symbols):
            if classes is not None:
                raise ValueError(f"expected classes for targets that are whole numbers, got {classes} for floats")
            return 0
        found = int(self.batch.targets.max()) + 1
        if self.learned == "next step":
            found = max(found, self.input_size)
        if classes is not None and classes < found:
            raise ValueError(f"expected classes to be {found} or more, since the largest is {found - 1}, got {classes}")
        return classes or found

    def __len__(self) -> int:
        return self.batch.inputs.shape[1]

    def __repr__(self) -> str:
        inputs = f"{self.input_size} {'symbol' if self.symbols else 'feature'}{'' if self.input_size == 1 else 's'}"
        return f"SequenceData({len(self)} sequences of up to {len(self.batch.inputs)} steps, {inputs}, {self.learned})"

    @property
    def input_size(self) -> int:
        """Features, or symbols."""
        return int(self.batch.inputs.max()) + 1 if self.symbols else self.batch.inputs.shape[2]

    @property
    def output_size(self) -> int:
        """Numbers that a model has to give."""
        return self.classes or self.batch.targets.shape[-1]

    @property
    def digest(self) -> str:
        """SHA-256 of everything: other data have another."""
        found = hashlib.sha256(f"{self.learned} {self.readout} {self.classes}".encode())
        for name, value in vars(self.batch).items():
            if value is not None:
                found.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
                found.update(value.contiguous().numpy().tobytes())
        return found.hexdigest()

    def __getitem__(self, numbers: Tensor | Sequence[int] | slice) -> Self:
        """Some of the sequences."""
        chosen = torch.arange(len(self))[numbers] if isinstance(numbers, slice) else torch.as_tensor(numbers)
        part = object.__new__(type(self))
        vars(part).update(vars(self), batch=picked(self.batch, chosen, self.readout))
        return part

    def split(self, fraction: float, seed: int = 0) -> tuple[Self, Self]:
        """Two parts, drawn at random: the rest, and this fraction of the sequences; at least one each."""
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 < fraction < 1:
            raise ValueError(f"expected the fraction of a split to be above 0 and below 1, got {fraction!r}")
        if len(self) < 2:
            raise ValueError("expected two sequences or more to split, got one")
        size = min(max(1, round(fraction * len(self))), len(self) - 1)
        order = torch.randperm(len(self), generator=generator(seed, "own split"))
        return self[order[size:].sort().values], self[order[:size].sort().values]


class KeptData:
    """The source of these sequences, which it keeps on a device."""

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
    """The sequences with these numbers."""
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
    """Inputs that are known to be fine; zero where they are padding or missing."""
    if not values.is_floating_point():
        if bool((values[present] < 0).any()):
            raise ValueError(f"expected symbols of 0 or more, got {int(values[present].min())}")
        return torch.where(present, values, 0).long()
    real = present.unsqueeze(2).expand(values.shape) if seen is None else present.unsqueeze(2) & seen
    bad = (real & ~values.isfinite()).nonzero()
    if len(bad):
        sequence, step, feature = bad[0].tolist()
        remedy = "" if seen is not None else "; mask='nan' says that values which are NaN are missing"
        raise ValueError(
            f"expected finite inputs, got {values[sequence, step, feature]} in sequence {sequence} at step {step}, "
            f"feature {feature}{remedy}"
        )
    return torch.where(real, values, 0).float()


def _expect_dt(dt: Values, times: Values, inputs: Tensor, lengths: Tensor | None) -> Tensor | None:
    """`(T, N)` times since the previous step, one past the end of a sequence; None where there are none."""
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
        raise ValueError("expected a step that counts, got none")
    return kept


def _expect_targets(values: Tensor, kept: Tensor, readout: Readout) -> Tensor:
    """Targets that are known to be fine where they are kept; zero elsewhere."""
    real = kept.view(*kept.shape, *(1,) * (values.dim() - kept.dim()))
    if not values.is_floating_point():
        if bool((values[kept] < 0).any()):
            raise ValueError(f"expected classes of 0 or more, got {int(values[kept].min())}")
        return torch.where(real, values, 0).long()
    bad = (real & ~values.isfinite()).nonzero()
    if len(bad):
        sequence, step, *_ = bad[0].tolist()
        at = f" at step {step}; counts= leaves steps out" if readout == "every" else ""
        raise ValueError(f"expected finite targets, got {values[tuple(bad[0])]} in sequence {sequence}{at}")
    return torch.where(real, values, 0).float()
