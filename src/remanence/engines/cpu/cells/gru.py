"""The gated recurrent unit."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ....cells import GRUCell
from ..buffers import Scratch
from ..gate import GateSlopes
from .base import AroundGate, GatePath, Gradients, Track, hold


class GRUKernel(AroundGate):
    """h = f h' + (1 - f) n,  n = tanh(z_n + r q),  q = R_n h' + b'_n, with h' the hidden state before the step.

    Going back, with dh the gradient of the state after the step,

        dz_n = dh (1 - f)(1 - n^2)
        dz_r = dz_n q r (1 - r)
        dq   = dz_n r
        df   = dh (h' - n)
        dh'  = dh f + (dz_r, dz_f, dq) R

    The inputs contribute to z_n where the hidden state contributes to q: both planes enclose those that they share.
    """

    cell: GRUCell
    own_state: ClassVar[tuple[str, ...]] = ()

    @property
    def input_blocks(self) -> tuple[str, ...]:
        return ("candidate", "candidate_reset", *self.gate_rows)

    @property
    def recurrent_blocks(self) -> tuple[str, ...]:
        return (*self.input_blocks[1:], "candidate")

    @property
    def recurrent_planes(self) -> tuple[str, ...]:
        return (*self.input_blocks[1:], "recurrent")

    @property
    def kept(self) -> tuple[str, ...]:
        return ("recurrent", *self.gate.kept)

    @property
    def passed(self) -> str:
        return "hidden"

    def planes(self, extra: tuple[str, ...]) -> tuple[str, ...]:
        return (*self.input_blocks, "recurrent", *self.cell.gate.carries, *extra, self.passed)

    def forward(self, track: Track, weight_hh: Tensor, bias_hh: Tensor, scratch: Scratch) -> None:
        turn, units = track.stretch.in_turn, track.hidden.shape[-1]
        pre = turn(track.pre[:, :, 1:].flatten(2))
        gates = turn(track.pre[:, :, 1 : 2 + self.logistic_rows])
        candidates, resets = (turn(self.block(track.pre, name)) for name in ("candidate", "candidate_reset"))
        recurrent, hidden = turn(track.kept["recurrent"]), turn(track.hidden)
        decide = self.gate.stepper(self.reading(track), turn, scratch)
        padded = None if track.padded is None else turn(track.padded)
        readings = () if padded is None else self.readings(track)
        weight_gates, weight_candidate = weight_hh[:, :-units], weight_hh[:, -units:]

        for t in range(len(track.stretch)):
            pre[t].addmm_(hidden[t], weight_gates)
            torch.addmm(bias_hh, hidden[t], weight_candidate, out=recurrent[t])
            gates[t].sigmoid_()
            candidates[t].addcmul_(resets[t], recurrent[t]).tanh_()
            decision = decide(t)
            torch.mul(decision.forget, hidden[t], out=hidden[t + 1]).addcmul_(decision.written, candidates[t])
            if padded is not None:
                hold(padded[t], (hidden[t], *readings[t].before), (hidden[t + 1], *readings[t].after))

    def backward(self, track: Track, gradients: Gradients, weight_hh: Tensor, scratch: Scratch) -> None:
        slopes = self.slopes(track, gradients, scratch)
        self._coefficients(track, gradients, slopes, scratch)
        self.skip_padding(track, gradients, slopes)

        back, path = track.stretch.back, GatePath(track, gradients, slopes)
        hidden, before = back(gradients.hidden), back(gradients.hidden.squeeze(2))
        planes, passed = back(gradients.planes), back(gradients.span("hidden", "hidden"))
        pre = back(gradients.rows(self.recurrent_planes))

        for t in range(len(track.stretch)):
            planes[t].mul_(hidden[t])
            path.step(t)
            hidden[t + 1].add_(passed[t])
            before[t + 1].addmm_(pre[t], weight_hh)

    def _coefficients(self, track: Track, gradients: Gradients, slopes: GateSlopes, scratch: Scratch) -> None:
        """Fill the planes with the coefficients."""
        steps, plane = len(track.stretch), gradients.plane
        candidate, reset = self.block(track.pre, "candidate"), self.block(track.pre, "candidate_reset")

        decision = self.gate.slopes(self.reading(track), slopes, scratch)
        difference = torch.sub(track.stretch.before(track.hidden), candidate, out=scratch("difference", steps))
        for slope in slopes.forget.values():
            slope.mul_(difference)
        by_candidate = torch.mul(candidate, candidate, out=plane("candidate"))
        torch.addcmul(decision.written, decision.written, by_candidate, value=-1, out=by_candidate)
        torch.mul(by_candidate, reset, out=plane("recurrent"))
        by_reset = torch.addcmul(reset, reset, reset, value=-1, out=plane("candidate_reset"))
        by_reset.mul_(track.kept["recurrent"]).mul_(by_candidate)
        plane("hidden").copy_(decision.forget)
