"""The LSTM with a forget gate only."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ....cells import JANETCell
from ..buffers import Scratch
from ..gate import Decision, GateKernel, GateSlopes, Reading
from .base import AroundGate, GatePath, Gradients, Track, hold, in_turn


class JANETKernel(AroundGate):
    """c = f(s) c' + (1 - f(s - beta)) g,  h = c, with c' the cell before the step.

    Going back, with dh and dc the gradients of the state after the step,

        dc <- dc + dh
        dz_g = dc (1 - f(s - beta))(1 - g^2)
        ds   = dc (c' f'(s) - g f'(s - beta)), and the same for everything else the gate depends on
        dc'  = dc f(s),   dh' = dz R

    Unless beta is zero the gate is asked twice. What it does at s - beta is kept under names with "shifted".
    """

    cell: JANETCell

    def __init__(self, cell: JANETCell, dt: bool, dtype: torch.dtype) -> None:
        self.complement = cell.beta == 0
        super().__init__(cell, dt, dtype)
        self.shifted = None if cell.beta == 0 else GateKernel(cell.gate, True, dt, dtype)

    @property
    def input_blocks(self) -> tuple[str, ...]:
        return (*self.gate_rows, "candidate")

    @property
    def kept(self) -> tuple[str, ...]:
        if self.shifted is None:
            return ()
        return tuple(f"shifted {name}" for name in (*self.cell.gate.rows, *self.cell.gate.carries))

    @property
    def passed(self) -> str:
        return "cell"

    def forward(self, track: Track, weight_hh: Tensor, bias_hh: Tensor, scratch: Scratch) -> None:
        turn = track.stretch.in_turn
        pre = turn(track.pre.flatten(2))
        gates = turn(track.pre[:, :, : self.logistic_rows])
        candidates = turn(self.block(track.pre, "candidate"))
        hidden, cell = turn(track.hidden), turn(track.state["cell"])
        readings, decide = self.readings(track), self.gate.stepper(scratch)
        shifted = None if self.shifted is None else in_turn(self._shifted_reading(track), track)
        write = None if self.shifted is None else self.shifted.stepper(scratch.apart("shifted"))
        padded = None if track.padded is None else turn(track.padded)

        for t in range(len(track.stretch)):
            pre[t].addmm_(hidden[t], weight_hh)
            written = None if shifted is None or write is None else self._write(readings[t], shifted[t], write)
            gates[t].sigmoid_()
            candidates[t].tanh_()
            decision = decide(readings[t])
            torch.mul(decision.forget, cell[t], out=cell[t + 1])
            cell[t + 1].addcmul_(decision.written if written is None else written, candidates[t])
            hidden[t + 1].copy_(cell[t + 1])
            if padded is not None:
                before, after = (hidden[t], cell[t]), (hidden[t + 1], cell[t + 1])
                hold(padded[t], (*before, *readings[t].before), (*after, *readings[t].after))

    def backward(self, track: Track, gradients: Gradients, weight_hh: Tensor, scratch: Scratch) -> None:
        slopes = self.slopes(track, gradients, scratch)
        self._coefficients(track, gradients, slopes, scratch)
        self.skip_padding(track, gradients, slopes)

        back, path, state = track.stretch.back, GatePath(track, gradients, slopes), gradients.state
        hidden, before = back(gradients.hidden), back(gradients.hidden.squeeze(2))
        planes, cells = back(gradients.planes), back(gradients.span("cell", "cell"))
        pre = back(gradients.rows(self.recurrent_blocks))
        padded = None if track.padded is None else back(track.padded.to(before[0].dtype).unsqueeze(-1))

        for t in range(len(track.stretch)):
            cell = state["cell"].add_(hidden[t])
            if padded is not None:
                cell.addcmul_(hidden[t], padded[t], value=-1)
                hidden[t + 1].addcmul_(hidden[t], padded[t])
            planes[t].mul_(cell)
            path.step(t)
            state["cell"] = cells[t]
            before[t + 1].addmm_(pre[t], weight_hh)

    def _coefficients(self, track: Track, gradients: Gradients, slopes: GateSlopes, scratch: Scratch) -> None:
        """Fill the planes."""
        plane = gradients.plane
        candidate, cell = self.block(track.pre, "candidate"), track.stretch.before(track.state["cell"])

        decision = self.gate.slopes(self.reading(track), slopes, scratch)
        if self.shifted is None:
            written = decision.written
            cell = torch.sub(cell, candidate, out=scratch("difference", len(track.stretch)))
        for slope in slopes.forget.values():
            slope.mul_(cell)
        if self.shifted is not None:
            written = self._add_shifted(track, slopes, scratch.apart("shifted"))
        by_candidate = torch.mul(candidate, candidate, out=plane("candidate"))
        torch.addcmul(written, written, by_candidate, value=-1, out=by_candidate)
        plane("cell").copy_(decision.forget)

    # The gate at s - beta.

    def _shifted_reading(self, track: Track) -> Reading:
        assert self.shifted is not None
        gate, own = self.cell.gate, self.reading(track)
        rows, after = (tuple(track.kept[f"shifted {name}"] for name in names) for names in (gate.rows, gate.carries))
        return own._replace(rows=rows, after=after)

    def _write(self, read: Reading, shifted: Reading, write: Callable[[Reading], Decision]) -> Tensor:
        """1 - f(s - beta) at one step, while the rows of the gate are still pre-activations."""
        assert self.shifted is not None
        for index, (row, out) in enumerate(zip(read.rows, shifted.rows, strict=True)):
            sign = self.shifted.signs[index]
            torch.mul(row, sign * self.gate.signs[index], out=out)
            if index == 0:
                out.sub_(sign * self.cell.beta)
            if self.shifted.logistic[index]:
                out.sigmoid_()
        return write(shifted).written

    def _add_shifted(self, track: Track, slopes: GateSlopes, scratch: Scratch) -> Tensor:
        """Add -g f'(s - beta) to the slopes; returns 1 - f(s - beta), `(steps, B, H)`."""
        assert self.shifted is not None
        steps, candidate = len(track.stretch), self.block(track.pre, "candidate")
        own = GateSlopes(
            {name: scratch(f"forget by {name}", steps) for name in slopes.forget},
            {
                state: {name: scratch(f"{state} by {name}", steps) for name in by_source}
                for state, by_source in slopes.state.items()
            },
        )
        written = self.shifted.slopes(self._shifted_reading(track), own, scratch).written
        signs = dict(zip(self.cell.gate.rows, zip(self.gate.signs, self.shifted.signs, strict=True), strict=True))
        for name, slope in slopes.forget.items():
            ours, theirs = signs.get(name, (1, 1))
            slope.addcmul_(own.forget[name], candidate, value=-ours * theirs)
        return written
