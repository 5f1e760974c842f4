"""Any cell whose step is one recurrent matmul and a pointwise update, from its derived formulas."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ....cells import PointwiseCell, Weights
from ...kernels.derive import derived_cell
from ...kernels.derive.evaluate import evaluated
from ...kernels.derive.expression import Expression, apply, constant, ordered, substituted, variable
from ..buffers import Scratch
from ..gate import logistic_sign
from ..program import FormulaProgram, program
from .base import CellKernel, Gradients, Track, hold

ORDER = ("sigmoid", "tanh", None)
"""Order of blocks in memory, by the function that is applied to them in place."""


class Activated(NamedTuple):
    """Formulas of blocks whose activation function has been applied already."""

    after: tuple[Expression, ...]
    slopes: tuple[Expression, ...]
    signs: dict[str, int]
    """Blocks that go through it with the opposite sign."""
    activations: dict[str, str]
    """The function, by block."""


@lru_cache(maxsize=256)
def activated(after: tuple[Expression, ...], slopes: tuple[Expression, ...], blocks: tuple[str, ...]) -> Activated:
    """Formulas in which blocks that are only used through a sigmoid or tanh are replaced by its result."""
    forward, backward = list(after), list(slopes)
    signs: dict[str, int] = {}
    activations: dict[str, str] = {}
    for name in blocks:
        z = variable(name)
        replaced: dict[Expression, Expression] = {}
        if (sign := logistic_sign(z, forward)) is not None:
            passed, other = ("sigmoid", "sigmoid_complement") if sign > 0 else ("sigmoid_complement", "sigmoid")
            replaced = {apply(passed, z): z, apply(other, z): constant(1.0) - z}
            activations[name] = "sigmoid"
            signs |= {name: -1} if sign < 0 else {}
        elif {node.operation for node in ordered(forward) if z in node.inputs} == {"tanh"} and z not in forward:
            replaced, activations[name] = {apply("tanh", z): z}, "tanh"
        forward, backward = substituted(forward, replaced), substituted(backward, replaced)
    return Activated(tuple(forward), tuple(backward), signs, activations)


MOST_FOUND = 2
"""Maximum number of intermediate values that a step saves for its slopes: each is as large as the cell state."""
DEAR = frozenset(
    {"sigmoid", "sigmoid_complement", "tanh", "sinh", "cosh", "asinh", "exp", "expm1", "log", "log1p", "pow", "erf"}
    | {"sin", "cos", "tan", "atan"}
)
"""Functions that take longer than loading their saved result."""


class FoundAgain(NamedTuple):
    """Formulas of slopes that reuse intermediate values of the forward step."""

    kept: tuple[Expression, ...]
    """Values that a step saves, `found0`, ... in the slopes."""
    slopes: tuple[Expression, ...]


@lru_cache(maxsize=256)
def found_again(after: tuple[Expression, ...], slopes: tuple[Expression, ...]) -> FoundAgain:
    """Slopes that reuse the expensive functions that the step also computes, outermost first."""
    needed = set(ordered(slopes))
    common = [node for node in ordered(after) if node.operation in DEAR and node in needed]
    kept: list[Expression] = []
    found = list(slopes)
    for node in reversed(common):
        if node in ordered(found) and len(kept) < MOST_FOUND:
            name = variable(f"found{len(kept)}")
            replaced = {node: name}
            if node.operation in ("sigmoid", "sigmoid_complement"):
                other = "sigmoid_complement" if node.operation == "sigmoid" else "sigmoid"
                replaced[apply(other, *node.inputs)] = constant(1.0) - name
            found = substituted(found, replaced)
            kept.append(node)
    return FoundAgain(tuple(kept), tuple(found))


class SharedFactors(NamedTuple):
    """A backward step in which several planes can be multiplied by a common factor at once."""

    scaled: dict[str, tuple[int, int]]
    """Planes of the form slope times factor: the index of the slope, and the sign."""
    factors: dict[str, int]
    """For these, the index of the factor among the outputs of the program."""
    others: tuple[str, ...]
    """Planes that the program writes."""
    run: FormulaProgram


@lru_cache(maxsize=256)
def shared_factors(back: tuple[tuple[str, Expression], ...]) -> SharedFactors:
    """Gradients by name, with those separated that are a factor times a slope that nothing else uses."""
    outputs_of = [by for _, by in back]
    uses = Counter(part for node in ordered(outputs_of) for part in node.inputs) + Counter(outputs_of)
    scaled: dict[str, tuple[int, int]] = {}
    factors: dict[str, Expression] = {}
    for name, by in back:
        product, sign = (by.inputs[0], -1) if by.operation == "neg" else (by, 1)
        if product.operation != "mul" or uses[by] > 1 or uses[product] > 1:  # shared with another name
            continue
        for slope, other in (product.inputs, product.inputs[::-1]):
            if slope.operation == "variable" and str(slope.value).startswith("slope") and uses[slope] == 1:
                scaled[name] = int(str(slope.value).removeprefix("slope")), sign
                factors[name] = other
                break
    others = {name: by for name, by in back if name not in scaled}
    outputs = (*others.values(), *dict.fromkeys(factors.values()))
    first = len(others)
    numbers = {factor: first + i for i, factor in enumerate(outputs[first:])}
    where = {name: numbers[factor] for name, factor in factors.items()}
    return SharedFactors(scaled, where, tuple(others), program(outputs, tuple(range(first)), "back"))


class DerivedKernel(CellKernel):
    """The formulas of `kernels.derive.cell`: a step, the slopes of a whole stretch, and a backward step.

    Blocks are called z0, z1, ... as in formulas. If the input and recurrent part of one block are separate, the input
    part is first and the recurrent part, hn, last, so that each is contiguous with the blocks they share. Blocks that
    are only used through a sigmoid are adjacent, as are those through a tanh: these functions are applied in place, and
    their results are saved.
    """

    def __init__(self, cell: PointwiseCell, dt: bool, dtype: torch.dtype) -> None:
        super().__init__(cell, dt, dtype)
        self.derived = derived = derived_cell(cell, dt, dtype)
        self._state = tuple(cell.widths(2, 2))[1:]
        carried = [f"carried{i}" for i in range(derived.carries)]
        self.names = dict(zip(self._state, carried if derived.twice else ["cell", *carried], strict=True))
        """Names of the state in formulas."""
        after = (derived.hidden, *(() if derived.twice else (derived.cell,)), *derived.carried)
        parts = activated(after, derived.slopes, self._others)
        self.signs, self.activations = parts.signs, parts.activations
        again = found_again(parts.after, parts.slopes)
        self._found = tuple(f"found{i}" for i in range(len(again.kept)))
        forward = (*parts.after, *again.kept)
        self._forward = program(forward, tuple(range(len(forward))), "forward")
        self._slopes = program(again.slopes, tuple(range(len(derived.slopes))), "slopes")
        self._back = {name: -by if self.signs.get(name) == -1 else by for name, by in derived.back.items()}
        if derived.twice:  # the hidden state has a single gradient
            none = {variable("d_cell"): constant(0.0)}
            self._back = dict(zip(self._back, substituted(self._back.values(), none), strict=True))

    @property
    def block_names(self) -> tuple[str, ...]:
        return tuple(f"z{i}" for i in range(self.derived.blocks))

    @property
    def input_blocks(self) -> tuple[str, ...]:
        split = self.derived.split
        return self._others if split < 0 else (f"z{split}", *self._others)

    @property
    def _others(self) -> tuple[str, ...]:
        names = (name for name in self.block_names if name != f"z{self.derived.split}")
        kinds = getattr(self, "activations", {})
        return tuple(sorted(names, key=lambda name: ORDER.index(kinds.get(name))))

    @property
    def recurrent_blocks(self) -> tuple[str, ...]:
        split = self.derived.split
        return self._others if split < 0 else (*self._others, f"z{split}")

    @property
    def recurrent_planes(self) -> tuple[str, ...]:
        return self._others if self.derived.split < 0 else (*self._others, "hn")

    @property
    def kept(self) -> tuple[str, ...]:
        return (*self._apart_plane, *self._found)

    @property
    def _apart_plane(self) -> tuple[str, ...]:
        return () if self.derived.split < 0 else ("hn",)

    @property
    def state(self) -> tuple[str, ...]:
        return self._state

    def planes(self, extra: tuple[str, ...]) -> tuple[str, ...]:
        hidden = ("hidden",) if self.derived.twice else ()
        return (*self.input_blocks, *self._apart_plane, *self.state, *extra, *hidden)

    def per_unit(self, weights: Weights) -> dict[str, Tensor]:
        if not self.derived.fixed:
            return {}
        own = {f"own{i}": weights[name].to(self.dtype) for i, name in enumerate(self.derived.own)}
        return {f"fixed{i}": value for i, value in enumerate(evaluated(self.derived.fixed, own))}

    # Forward and backward.

    def forward(self, track: Track, weight_hh: Tensor, bias_hh: Tensor, scratch: Scratch) -> None:
        turn, units, split = track.stretch.in_turn, track.hidden.shape[-1], self.derived.split >= 0
        pre = turn(track.pre[:, :, int(split) :].flatten(2))
        recurrent = turn(track.kept["hn"]) if split else ()
        weight, weight_apart = (weight_hh[:, :-units], weight_hh[:, -units:]) if split else (weight_hh, weight_hh)
        hidden, state = turn(track.hidden), [turn(track.state[name]) for name in self.state]
        padded = None if track.padded is None else turn(track.padded)
        run, given = self._forward.bound(scratch), self._given(track, self._forward)
        found = [turn(track.kept[name]) for name in self._found]
        places = (hidden[1:], *(slots[1:] for slots in state), *found)
        arguments = list(zip(*map(turn, given), *places, strict=True))
        spans = [turn(track.pre[:, :, span]) for span in self._spans()]
        sigmoids, tangents = (() if not span[0].numel() else span for span in spans)

        for t in range(len(track.stretch)):
            pre[t].addmm_(hidden[t], weight)
            if split:
                torch.addmm(bias_hh, hidden[t], weight_apart, out=recurrent[t])
            if sigmoids:
                sigmoids[t].sigmoid_()
            if tangents:
                tangents[t].tanh_()
            run(*arguments[t])
            if padded is not None:
                after = (hidden[t + 1], *(slots[t + 1] for slots in state))
                hold(padded[t], (hidden[t], *(slots[t] for slots in state)), after)

    def backward(self, track: Track, gradients: Gradients, weight_hh: Tensor, scratch: Scratch) -> None:
        back, state, steps = track.stretch.back, gradients.state, len(track.stretch)
        names = self._names_of_planes(gradients)
        for name in names.keys() - self._back.keys():
            gradients.plane(names[name]).zero_()
        way = shared_factors(tuple((name, self._back[name]) for name in names if name in self._back))
        slopes = [scratch(f"slope {i}", steps) for i in range(len(self.derived.slopes))]
        for name, (slope, _) in way.scaled.items():
            slopes[slope] = gradients.plane(names[name])
        self._slopes.bound(scratch, steps)(*self._given(track, self._slopes), *slopes)
        for name, (_, sign) in way.scaled.items():
            if sign < 0:
                gradients.plane(names[name]).neg_()

        run = way.run.bound(Scratch(tuple(track.hidden.shape[1:]), track.hidden))
        places = [back(gradients.plane(names[name])) for name in way.others]
        spans = [(number, back(span)) for number, span in self._spans_of(way, gradients, names)]
        known = {f"slope{i}": back(slope) for i, slope in enumerate(slopes)}
        hidden, planes = back(gradients.hidden.squeeze(2)), back(gradients.planes)
        passed = back(gradients.plane("hidden")) if self.derived.twice else None
        # Gradients of the state: the incoming one at the last step, and the one that each step passes to the previous.
        states = {name: (state[name].squeeze(1), *back(gradients.plane(name))) for name in self.state}
        known |= {f"d_{self.names[name]}": parts for name, parts in states.items()} | {"d_hidden": hidden}
        arguments = list(zip(*(known[name][:steps] for name in way.run.variables), *places, strict=True))
        rows = back(gradients.rows(self.recurrent_planes))
        padded = None if track.padded is None else back(track.padded)

        for t in range(steps):
            found = run(*arguments[t]) if arguments else ()
            for number, span in spans:
                span[t].mul_(found[number].unsqueeze(1))
            if padded is not None:  # sequences that have ended pass all gradients on unchanged
                planes[t].masked_fill_(padded[t].unsqueeze(-1), 0)
                for parts in states.values():
                    parts[t + 1].add_(parts[t] * padded[t])
                hidden[t + 1].add_(hidden[t] * padded[t])
            if passed is not None:
                hidden[t + 1].add_(passed[t])
            hidden[t + 1].addmm_(rows[t], weight_hh)
        state.update({name: parts[steps].unsqueeze(1) for name, parts in states.items()})

    def _spans_of(self, way: SharedFactors, gradients: Gradients, names: dict[str, str]) -> list[tuple[int, Tensor]]:
        """Adjacent planes with a common factor: the index of the factor, and `(steps, B, planes, H)`."""
        factors = {gradients.names.index(names[name]): number for name, number in way.factors.items()}
        found: list[tuple[int, int, int]] = []
        for at, number in sorted(factors.items()):
            if found and found[-1][0] == number and found[-1][2] == at:
                found[-1] = (number, found[-1][1], at + 1)
            else:
                found.append((number, at, at + 1))
        return [(number, gradients.planes[:, :, first:end]) for number, first, end in found]

    def _spans(self) -> tuple[slice, slice]:
        """The blocks that go through a sigmoid, and those that go through a tanh."""
        kinds = [self.activations.get(name) for name in self.input_blocks]
        first = int(self.derived.split >= 0)
        many, more = kinds.count("sigmoid"), kinds.count("tanh")
        return slice(first, first + many), slice(first + many, first + many + more)

    def _names_of_planes(self, gradients: Gradients) -> dict[str, str]:
        """Names of the planes, by their names in formulas."""
        own = {name: name for name in (*self.block_names, *self._apart_plane, *gradients.extra)}
        own |= {formula: name for name, formula in self.names.items()}
        return own | ({"cell": "hidden"} if self.derived.twice else {})

    def _given(self, track: Track, run: FormulaProgram) -> list[Tensor]:
        """The arguments of a program over the stretch, `(steps, B, H)` each."""
        stretch, like = track.stretch, track.pre.select(-2, 0)
        values: dict[str, Tensor] = {name: self.block(track.pre, name) for name in self.block_names}
        values |= {name: track.kept[name] for name in self.kept}
        values |= {self.names[name]: stretch.before(track.state[name]) for name in self.state}
        if self.derived.twice:
            values["cell"] = stretch.before(track.hidden)
        values |= {name: value.expand_as(like) for name, value in track.per_unit.items()}
        if track.dt is not None:
            values["dt"] = track.dt.expand_as(like)
        return [values[name] for name in run.variables]
