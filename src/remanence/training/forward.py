"""The forward pass of replicas side by side, in the configured precision, each with its own random numbers.

Every run has its own random streams, so that it gives the same results alone and beside others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from ..cells import wide
from ..models import LanguageModel, SequenceModel, forward_together
from ..tasks.base import Batch
from ..tasks.generators import generator_seed
from .config import Training

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class ForwardOutput(NamedTuple):
    """The result of a forward pass."""

    outputs: Tensor
    """`(R, T, B, O)` or `(R, B, O)`, float32 or wider."""
    states: list[Any]
    """The state of every replica."""
    penalties: Tensor | None
    """`(R,)`: regularisation terms that the models add to the loss in training."""


class Runnable(Protocol):
    """A model with its own random numbers, as a `Replica` is."""

    @property
    def model(self) -> SequenceModel | LanguageModel:
        """The model."""

    @property
    def noise(self) -> Noise:
        """Its random numbers."""


class Forward:
    """The forward pass of replicas with one configuration."""

    def __init__(self, config: Training, device: torch.device) -> None:
        if config.precision not in PRECISIONS:
            raise ValueError(
                f"expected training.precision to be one of {', '.join(PRECISIONS)}, got {config.precision!r}"
            )
        self.dtype = PRECISIONS[config.precision]
        self.device = device
        self.compiled = config.compile

    def __call__(
        self, replicas: Sequence[Runnable], batch: Batch, states: Sequence[Any] | None = None
    ) -> ForwardOutput:
        """Run replicas, each from its own state; None for zeros."""
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32):
            if isinstance(replicas[0].model, LanguageModel):
                return self._language(replicas, batch, states)
            outputs, after = self._run(replicas, batch, states)
        return ForwardOutput(outputs.to(wide(outputs.dtype)), after, None)

    def _language(self, replicas: Sequence[Runnable], batch: Batch, states: Sequence[Any] | None) -> ForwardOutput:
        """One replica after the other: a single language model fills the device."""
        outputs, after, penalties = [], [], []
        for number, replica in enumerate(replicas):
            model = replica.model
            assert isinstance(model, LanguageModel)
            with replica.noise.active() if model.training else nullcontext():
                logits, state, extra = model.penalised(batch.inputs[number], None if states is None else states[number])
            outputs.append(logits.to(wide(logits.dtype)))
            after.append(state)
            penalties.append(sum(extra.values(), torch.zeros((), device=self.device)))
        one = outputs[0].unsqueeze(0) if len(outputs) == 1 else torch.stack(outputs)  # no copy: may be gigabytes
        return ForwardOutput(one, after, torch.stack(penalties))

    def _run(
        self, replicas: Sequence[Runnable], batch: Batch, states: Sequence[Any] | None
    ) -> tuple[Tensor, list[Any]]:
        models = [replica.model for replica in replicas if isinstance(replica.model, SequenceModel)]
        first = models[0]
        if not first.takes_dt:
            batch = replace(batch, dt=None)  # tasks may provide dt for models that use it
        noisy = first.training and is_stochastic(first)
        if not (noisy or self.compiled):
            return forward_together(models, batch.inputs, batch.lengths, batch.dt, states, batch.mask)
        # One replica after the other: dropout draws from torch's global generators, whose state differs by replica, and
        # torch.compile compiles single models.
        outputs, after = [], []
        for number, (replica, model) in enumerate(zip(replicas, models, strict=True)):
            rows = slice(number, number + 1)
            lengths, dt, mask = (None if part is None else part[rows] for part in (batch.lengths, batch.dt, batch.mask))
            with replica.noise.active() if noisy else nullcontext():
                own = None if states is None else states[rows]
                output, state = forward_together([model], batch.inputs[rows], lengths, dt, own, mask)
            outputs.append(output)
            after += state
        return torch.cat(outputs), after


@contextmanager
def forked_rng(device: torch.device) -> Iterator[None]:
    """Save torch's global generators and restore them afterwards."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield


class Noise:
    """The states of torch's global generators for one replica: dropout draws from these generators."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.device = device
        with forked_rng(device):
            seed_globally(generator_seed(seed, "noise"), device)
            found = [torch.default_generator.get_state()]
            if device.type == "cuda":
                found.append(torch.cuda.get_rng_state(device))
        self.states = found

    @property
    def states(self) -> list[Tensor]:
        """The states of the generators: of the CPU, and of the GPU if it is trained on one."""
        return [self._on_cpu, *([] if self._on_gpu is None else [self._on_gpu.get_state()])]

    @states.setter
    def states(self, states: Sequence[Tensor]) -> None:
        self._on_cpu = states[0]
        self._on_gpu: torch.Generator | None = None
        if self.device.type == "cuda":
            self._on_gpu = torch.Generator(self.device)
            self._on_gpu.set_state(states[1])

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let the global generators continue from this replica's states, and save the states afterwards.

        The global generator of a GPU shares its state with this object meanwhile: it is not copied, which a CUDA graph
        could not capture.
        """
        torch.default_generator.set_state(self._on_cpu)
        if self._on_gpu is None:
            yield
        else:
            whole = global_generator(self.device)
            before = whole.graphsafe_get_state()
            whole.graphsafe_set_state(self._on_gpu)
            try:
                yield
            finally:
                whole.graphsafe_set_state(before)
        self._on_cpu = torch.default_generator.get_state()


def global_generator(device: torch.device) -> torch.Generator:
    """The generator that dropout on this GPU draws from."""
    torch.cuda.init()  # type: ignore[no-untyped-call]
    index = torch.cuda.current_device() if device.index is None else device.index
    return torch.cuda.default_generators[index]


def seed_globally(seed: int, device: torch.device) -> None:
    """Seed the generators of the CPU and of this device; `torch.manual_seed` would seed all devices."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def is_stochastic(model: nn.Module) -> bool:
    """Whether a model draws random numbers in training: dropout of outputs, between layers or of weights."""
    chances = (getattr(module, name, 0) for module in model.modules() for name in ("p", "dropout", "weight_drop"))
    return any(isinstance(chance, int | float) and chance > 0 for chance in chances)
