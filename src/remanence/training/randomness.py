"""Random numbers: every run has streams of its own, so that it gives the same numbers alone and beside others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..tasks.generators import generator_seed


@contextmanager
def kept_aside(device: torch.device) -> Iterator[None]:
    """Leave torch's global generators as they were."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield


class Noise:
    """The global generators as one replica sees them. Dropout knows no others."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.device = device
        with kept_aside(device):
            seed_globally(generator_seed(seed, "noise"), device)
            self.states = self._read()

    def _read(self) -> list[Tensor]:
        states = [torch.default_generator.get_state()]
        return [*states, torch.cuda.get_rng_state(self.device)] if self.device.type == "cuda" else states

    @contextmanager
    def active(self) -> Iterator[None]:
        """Draw from this replica's numbers, and remember how far one has come."""
        torch.default_generator.set_state(self.states[0])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(self.states[1], self.device)
        yield
        self.states = self._read()


def seed_globally(seed: int, device: torch.device) -> None:
    """Seed the generator of the CPU and that of the device; `torch.manual_seed` would touch all devices."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def draws(model: nn.Module) -> bool:
    """Whether a model uses random numbers while it trains: dropout of outputs, between layers or of weights."""
    chances = (getattr(module, name, 0) for module in model.modules() for name in ("p", "dropout", "weight_drop"))
    return any(isinstance(chance, int | float) and chance > 0 for chance in chances)
