"""Replicas run side by side, in the precision and with the random numbers of each."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..models import forward_together
from ..tasks.base import Batch
from .config import Training
from .population import Replica
from .randomness import draws

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Forward:
    """How replicas of one configuration are run."""

    def __init__(self, config: Training, device: torch.device) -> None:
        if config.precision not in PRECISIONS:
            raise ValueError(
                f"expected training.precision to be one of {', '.join(PRECISIONS)}, got {config.precision!r}"
            )
        self.dtype = PRECISIONS[config.precision]
        self.device = device
        self.compiled = config.compile

    def __call__(
        self, replicas: Sequence[Replica], batch: Batch, states: Sequence[Any] | None = None
    ) -> tuple[Tensor, list[Any]]:
        """Outputs `(R, T, B, O)` or `(R, B, O)` in float32, and the state of every replica."""
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32):
            outputs, after = self._run(replicas, batch, states)
        return outputs.float(), after

    def _run(self, replicas: Sequence[Replica], batch: Batch, states: Sequence[Any] | None) -> tuple[Tensor, list[Any]]:
        first = replicas[0].model
        if not first.layer.cell.takes_dt:
            batch = replace(batch, dt=None)  # a task gives the times to whoever has a use for them
        noisy = first.training and draws(first)
        if not (noisy or self.compiled):
            models = [replica.model for replica in replicas]
            return forward_together(models, batch.inputs, batch.lengths, batch.dt, states)
        # One replica after the other: dropout takes torch's global random numbers, of which each has its own, and what
        # is compiled is a model.
        outputs, after = [], []
        for number, replica in enumerate(replicas):
            rows = slice(number, number + 1)
            lengths, dt = (None if part is None else part[rows] for part in (batch.lengths, batch.dt))
            with replica.noise.active() if noisy else nullcontext():
                output, state = forward_together(
                    [replica.model], batch.inputs[rows], lengths, dt, None if states is None else states[rows]
                )
            outputs.append(output)
            after += state
        return torch.cat(outputs), after


def detached(state: Any) -> Any:
    """A state that gradients do not flow through."""
    return tuple(part.detach() for part in state) if isinstance(state, tuple) else state.detach()
