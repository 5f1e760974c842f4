"""Replicas: models that differ only in their seed and are trained side by side.

R is the number of replicas, P the number of parameters of one replica including padding. The parameters of all replicas
are one tensor `(R, P)`, and the parameters of a model are views into its row. Clipping, the optimiser step and copying
the best weights are therefore a few kernels, however many replicas and parameters there are. When a replica ends, its
row is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..models import LanguageModel, SequenceModel, states
from ..tasks.base import Source
from . import optimisers
from .batches import make_order
from .config import Run, Training
from .directory import Directory
from .forward import Noise, seed_globally
from .optimisers import Averages, LossScale
from .ranks import Ranks, Share, expect_own_dropout

ALIGNED = 64
"""Alignment of every parameter, in elements: kernels load aligned memory faster."""


class Replica:
    """One run while it is trained.

    Args:
        run: Run to train.
        directory: Folder of the run.
        device: Device to train on.
        source: Training sequences.
    """

    def __init__(self, run: Run, directory: Directory, device: torch.device, source: Source) -> None:
        self.run = run
        self.directory = directory
        seed_globally(run.seed, device)
        self.model = run.make_model().to(device).train()
        if run.config.compile:
            self.model.compile()
        self.order = make_order(source, run.config, run.seed, device)
        self.noise = Noise(run.seed, device)
        self.validation = run.task.source("validation", run.seed, device)
        if self.validation is None and run.config.optimiser.average != "never":
            raise ValueError(
                f"expected validation sequences with training.optimiser.average {run.config.optimiser.average!r}, "
                "which starts when their loss no longer improves, got none"
            )
        self.state: Any = None
        """State carried from batch to batch in stateful training."""
        self.engines: list[str] = []
        """Engines of its recurrent layers, once chosen."""
        self.best_written = 0
        """The update whose weights best.safetensors holds."""


LAYER = re.compile(r"_l\d+(_reverse)?$")
"""The suffix of a parameter name that gives its layer and direction."""


class Layout:
    """Offset and shape of every parameter in a row."""

    def __init__(self, model: nn.Module) -> None:
        self.places: dict[str, tuple[int, torch.Size]] = {}
        self.pieces: list[tuple[str | None, int]] = []
        """In the order of the row: parameter name, or None for padding, and number of elements."""
        offset = 0
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            self.places[name] = (offset, parameter.shape)
            padding = -parameter.numel() % ALIGNED
            self.pieces.append((name, parameter.numel()))
            if padding:
                self.pieces.append((None, padding))
            offset += parameter.numel() + padding
        self.size = offset

    def named(self, name: str) -> list[slice]:
        """The slices of a row that hold the parameters of this name, in all layers and directions."""
        places = [
            slice(at, at + shape.numel())
            for full, (at, shape) in self.places.items()
            if LAYER.sub("", full.rpartition(".")[2]) == name
        ]
        if not places:
            known = sorted({LAYER.sub("", full.rpartition(".")[2]) for full in self.places})
            raise ValueError(
                f"expected training.optimiser.lr_factors for parameters of the model ({', '.join(known)}), got {name!r}"
            )
        return places

    def split(self, row: Tensor) -> dict[str, Tensor]:
        """Views of a row `(P,)` by parameter name."""
        return {name: row[at : at + shape.numel()].view(shape) for name, (at, shape) in self.places.items()}

    def join(self, parts: dict[str, Tensor], device: torch.device) -> Tensor:
        """The row `(P,)` of these parameters."""
        row = torch.zeros(self.size, device=device)
        for name, view in self.split(row).items():
            view.copy_(parts[name].detach())
        return row


class Population:
    """Replicas with their parameters, gradients and optimiser. Every rank holds the same."""

    def __init__(
        self,
        replicas: Sequence[Replica],
        config: Training,
        device: torch.device,
        window: int,
        ranks: Ranks | None = None,
    ) -> None:
        self.ranks = ranks or Ranks()
        self.share = Share(self.ranks, config.batch)
        self.replicas = list(replicas)
        expect_own_dropout(self.replicas[0].model, self.ranks)
        self.config = config
        self.device = device
        self.layout = Layout(self.replicas[0].model)
        for name in config.optimiser.lr_factors:
            self.layout.named(name)
        rows = [self.layout.join(dict(replica.model.named_parameters()), device) for replica in self.replicas]
        self.losses = torch.zeros(len(self.replicas), window, device=device)
        """`(R, updates between evaluations)`: loss of every update since the last evaluation."""
        self.best = torch.stack(rows)
        """`(R, P)`: the best parameters by validation score."""
        self.averages = None if config.optimiser.average == "never" else Averages(self.best)
        self.scale = LossScale(len(self.replicas), device) if config.precision == "float16" else None
        self._own(torch.stack(rows), {})

    def _own(self, parameters: Tensor, state: dict[str, Tensor]) -> None:
        """Make the parameters of all models views into this tensor, and set the optimiser state."""
        self.parameters = nn.Parameter(parameters)
        self.parameters.grad = torch.zeros_like(parameters)
        self.optimiser = optimisers.make(self.config.optimiser, self.parameters)
        optimisers.set_state(self.optimiser, self.parameters, state)
        padding = torch.zeros(ALIGNED, device=self.device)
        self._leaves: list[nn.Parameter] = []
        self._pieces: list[Tensor | None] = []
        """Pieces of all rows in order: None for the next leaf, or padding."""
        for replica, row in zip(self.replicas, self.parameters.data, strict=True):
            own = dict(replica.model.named_parameters())
            for name, view in self.layout.split(row).items():
                own[name].data = view
            self._leaves += [own[name] for name in self.layout.places]
            self._pieces += [padding[:size] if name is None else None for name, size in self.layout.pieces]

    @property
    def models(self) -> list[SequenceModel | LanguageModel]:
        return [replica.model for replica in self.replicas]

    @property
    def gradients(self) -> Tensor:
        """The gradients `(R, P)` that `differentiate` computed last."""
        assert self.parameters.grad is not None
        return self.parameters.grad

    def differentiate(self, losses: Tensor) -> None:
        """Compute the gradient of the loss `(R,)` of every replica, multiplied by the loss scale if there is one.

        With several ranks, gradients are summed over all of them.
        """
        total = (losses if self.scale is None else losses * self.scale.value).sum()
        parts = iter(torch.autograd.grad(total, self._leaves, materialize_grads=True))
        pieces = [next(parts).reshape(-1) if piece is None else piece for piece in self._pieces]
        torch.cat(pieces, out=self.gradients.view(-1))
        self.ranks.add_up(self.gradients)

    @torch.no_grad()
    def step(self) -> None:
        """Clip the gradients and let the optimiser update the parameters."""
        config, gradients = self.config.optimiser, self.gradients
        finite = None if self.scale is None else self.scale.unscale(gradients)
        if config.clip_value is not None:
            gradients.clamp_(-config.clip_value, config.clip_value)
        if config.clip_norm is not None:
            # In float64: in float32, squares of 1e19 overflow, and an infinite norm would clip gradients to zero.
            norms = torch.linalg.vector_norm(gradients, dim=1, keepdim=True, dtype=torch.float64)
            gradients.mul_((config.clip_norm / (norms + 1e-6)).clamp(max=1).to(gradients.dtype))
        if self.scale is None or finite is None:
            self.step_optimiser()
            return
        slots = optimisers.state_of(self.optimiser, self.parameters).values()
        with self.scale.skipping(finite, [self.parameters.data, *(slot for slot in slots if slot.dim() == 2)]):
            self.step_optimiser()

    def step_optimiser(self) -> None:
        """Step the optimiser, with the learning rate multipliers of `Optimiser.lr_factors`.

        The change of a parameter is proportional to the learning rate, so it can be scaled after the step.
        """
        moving = [
            (part, part.clone(), factor)
            for name, factor in self.config.optimiser.lr_factors.items()
            for part in (self.parameters.data[:, place] for place in self.layout.named(name))
        ]
        self.optimiser.step()
        for part, before, factor in moving:
            part.copy_(before.lerp(part, factor))

    def keep(self, numbers: Sequence[int]) -> None:
        """Keep only these replicas."""
        chosen = torch.tensor(list(numbers), dtype=torch.long, device=self.device)
        rows = len(self.replicas)
        state = {
            name: value[chosen] if value.dim() == 2 and len(value) == rows else value
            for name, value in optimisers.state_of(self.optimiser, self.parameters).items()
        }
        self.replicas = [self.replicas[number] for number in numbers]
        self.losses = self.losses[chosen]
        self.best = self.best[chosen]
        if self.averages is not None:
            self.averages.keep(numbers)
        if self.scale is not None:
            self.scale.keep(chosen)
        if self.replicas:
            self._own(self.parameters.data[chosen], state)

    def evaluated(self, update: int) -> Tensor:
        """The weights to evaluate after `update` updates, `(R, P)`: averages where they exist."""
        weights = self.parameters.data
        return weights if self.averages is None else self.averages.evaluated(weights, update)

    @contextmanager
    def with_weights(self, weights: Tensor) -> Iterator[None]:
        """Temporarily replace the parameters of the models by `weights` `(R, P)`."""
        if weights.data_ptr() == self.parameters.data_ptr():
            yield
            return
        own = self.parameters.data.clone()
        self.parameters.data.copy_(weights)
        try:
            yield
        finally:
            self.parameters.data.copy_(own)

    # For checkpoints: the tensors of one replica, by name.

    def checkpoint_tensors(self) -> list[dict[str, Tensor]]:
        """All tensors of each replica, on the CPU: model, optimiser, random number generators, carried state."""
        parameters = self.parameters.data.cpu()
        slots = {name: value.cpu() for name, value in optimisers.state_of(self.optimiser, self.parameters).items()}
        taken = []
        for number, replica in enumerate(self.replicas):
            parts = {f"model/{name}": value.cpu() for name, value in replica.model.state_dict().items()}
            parts |= {f"model/{name}": value for name, value in self.layout.split(parameters[number]).items()}
            for slot, value in slots.items():
                if value.dim() == 2:
                    parts |= {
                        f"optimiser/{slot}/{name}": part for name, part in self.layout.split(value[number]).items()
                    }
                else:
                    parts[f"optimiser/{slot}"] = value
            parts["order"] = replica.order.generator_state
            parts |= {f"noise/{index}": state for index, state in enumerate(replica.noise.states)}
            parts |= {name: part.cpu() for name, part in states.named(self.share.joined(replica.state)).items()}
            if self.averages is not None and self.averages.since[number] is not None:
                mean = self.averages.values[number].cpu()
                parts |= {f"average/{name}": part for name, part in self.layout.split(mean).items()}
            if self.scale is not None:
                parts |= {f"scale/{name}": value for name, value in self.scale.of(number).items()}
            taken.append(parts)
        return taken

    def load_tensors(self, taken: Sequence[dict[str, Tensor]], positions: Sequence[int]) -> None:
        """Restore what `checkpoint_tensors` returned, with every order at its position."""
        rows, slots = [], {}
        for number, (replica, parts) in enumerate(zip(self.replicas, taken, strict=True)):
            rows.append(self.layout.join(_under(parts, "model/"), self.device))
            replica.order.resume_at(parts["order"], positions[number])
            replica.noise.states = list(_under(parts, "noise/").values())
            state = self.share.of_state(states.unnamed(parts))
            replica.state = None if state is None else states.each(lambda part: part.to(self.device), state)
            averaged = _under(parts, "average/")
            if self.averages is not None and averaged:
                self.averages.values[number] = self.layout.join(averaged, self.device)
            if self.scale is not None:
                self.scale.set(number, _under(parts, "scale/"))
        names = {name.split("/")[0]: "/" in name for name in _under(taken[0], "optimiser/")}
        for slot, is_row in names.items():
            if is_row:
                slots[slot] = torch.stack(
                    [self.layout.join(_under(parts, f"optimiser/{slot}/"), self.device) for parts in taken]
                )
            else:  # the step count: its device depends on the optimiser
                slots[slot] = taken[0][f"optimiser/{slot}"].clone()
        self._own(torch.stack(rows), self._placed(slots))

    def _placed(self, slots: dict[str, Tensor]) -> dict[str, Tensor]:
        group = self.optimiser.param_groups[0]
        counts_there = group.get("fused") or group.get("capturable")
        return {
            name: value.to(self.device) if value.dim() == 2 or counts_there else value for name, value in slots.items()
        }


def _under(parts: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The entries with this prefix, by the rest of their name, sorted."""
    return {name.removeprefix(prefix): parts[name] for name in sorted(parts) if name.startswith(prefix)}
