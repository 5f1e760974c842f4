"""The long short-term memory cell."""

from __future__ import annotations

import torch
from torch import Tensor

from ....cells import LSTMCell
from ..buffers import Scratch
from ..gate import GateSlopes
from .base import AroundGate, GatePath, Gradients, Track, hold


class LSTMKernel(AroundGate):
    """c = f c' + i g,  h = o tanh(c), with c' the cell before the step, and i = 1 - f if coupled.

    Going back, with dh and dc the gradients of the state after the step,

        dc <- dc + dh o (1 - tanh^2 c)            o (1 - tanh^2 c) = o - h (h / o)
        dz_o = dh tanh(c) o (1 - o)               = dh h (1 - o)
        dz_g = dc i (1 - g^2)
        dz_i = dc g i (1 - i)                     unless coupled
        df   = dc c', or dc (c' - g) if coupled
        dc'  = dc f,   dh' = dz R

    Both forms with h save the backward pass a tanh.
    """

    cell: LSTMCell

    def __init__(self, cell: LSTMCell, dt: bool, dtype: torch.dtype) -> None:
        self.complement = cell.coupled
        super().__init__(cell, dt, dtype)

    @property
    def input_blocks(self) -> tuple[str, ...]:
        inputs = () if self.cell.coupled else ("input",)
        return ("output", *inputs, *self.gate_rows, "candidate")

    @property
    def passed(self) -> str:
        return "cell"

    def forward(self, track: Track, weight_hh: Tensor, bias_hh: Tensor, scratch: Scratch) -> None:
        turn, steps = track.stretch.in_turn, len(track.stretch)
        pre = turn(track.pre.flatten(2))
        gates = turn(track.pre[:, :, : len(self.input_blocks) - 1 - len(self.gate_rows) + self.logistic_rows])
        outputs, candidates = (turn(self.block(track.pre, name)) for name in ("output", "candidate"))
        inputs = None if self.cell.coupled else turn(self.block(track.pre, "input"))
        hidden, cell = turn(track.hidden), turn(track.state["cell"])
        decide = self.gate.stepper(self.reading(track), turn, scratch)
        padded = None if track.padded is None else turn(track.padded)
        readings = () if padded is None else self.readings(track)

        for t in range(steps):
            pre[t].addmm_(hidden[t], weight_hh)
            gates[t].sigmoid_()
            candidates[t].tanh_()
            decision = decide(t)
            written = decision.written if inputs is None else inputs[t]
            torch.mul(decision.forget, cell[t], out=cell[t + 1]).addcmul_(written, candidates[t])
            torch.tanh(cell[t + 1], out=hidden[t + 1]).mul_(outputs[t])
            if padded is not None:
                before, after = (hidden[t], cell[t]), (hidden[t + 1], cell[t + 1])
                hold(padded[t], (*before, *readings[t].before), (*after, *readings[t].after))

    def backward(self, track: Track, gradients: Gradients, weight_hh: Tensor, scratch: Scratch) -> None:
        slopes = self.slopes(track, gradients, scratch)
        squash = self._coefficients(track, gradients, slopes, scratch)
        self.skip_padding(track, gradients, slopes)

        back, path, state = track.stretch.back, GatePath(track, gradients, slopes), gradients.state
        hidden, squashes = back(gradients.hidden), back(squash.unsqueeze(2))
        outputs, others = back(gradients.span("output", "output")), back(gradients.planes[:, :, 1:])
        cells = back(gradients.span("cell", "cell"))
        pre = back(gradients.rows(self.recurrent_blocks))
        before = back(gradients.hidden.squeeze(2))
        padded = None if track.padded is None else back(track.padded.to(squash.dtype).unsqueeze(-1))

        for t in range(len(track.stretch)):
            cell = state["cell"].addcmul_(hidden[t], squashes[t])
            outputs[t].mul_(hidden[t])
            others[t].mul_(cell)
            path.step(t)
            state["cell"] = cells[t]
            before[t + 1].addmm_(pre[t], weight_hh)
            if padded is not None:
                hidden[t + 1].addcmul_(hidden[t], padded[t])

    def _coefficients(self, track: Track, gradients: Gradients, slopes: GateSlopes, scratch: Scratch) -> Tensor:
        """Fill the planes with the coefficients; returns o (1 - tanh^2 c), `(steps, B, H)`."""
        steps, plane = len(track.stretch), gradients.plane
        output, candidate = self.block(track.pre, "output"), self.block(track.pre, "candidate")
        hidden, cell = track.stretch.after(track.hidden), track.stretch.before(track.state["cell"])

        decision = self.gate.slopes(self.reading(track), slopes, scratch)
        if self.cell.coupled:
            written = decision.written
            cell = torch.sub(cell, candidate, out=scratch("difference", steps))
        else:
            written = self.block(track.pre, "input")
            torch.addcmul(written, written, written, value=-1, out=plane("input")).mul_(candidate)
        for slope in slopes.forget.values():
            slope.mul_(cell)
        torch.mul(candidate, candidate, out=plane("candidate"))
        torch.addcmul(written, written, plane("candidate"), value=-1, out=plane("candidate"))
        torch.addcmul(hidden, hidden, output, value=-1, out=plane("output"))
        plane("cell").copy_(decision.forget)

        squash = torch.clamp(output, min=torch.finfo(output.dtype).tiny, out=scratch("squash", steps))
        torch.div(hidden, squash, out=squash)
        torch.addcmul(output, hidden, squash, value=-1, out=squash)
        return squash if track.padded is None else squash.masked_fill_(track.padded, 0)
