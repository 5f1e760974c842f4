"""Open a trained model from a run folder, one of its checkpoints, or a model that was saved by itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from ..models import LanguageModel, SequenceModel
from ..models import saving as language_models
from ..pretrained import is_pretrained, opened
from ..tasks import Described, Task
from ..training import checkpoint
from .loading import load_model, put_in
from .models import build_model, from_description, read_description
from .own_tasks import is_own
from .resolve import make_task

WHAT = "expected a run folder, one of its checkpoints, or a model written by LanguageModel.save or save_pretrained"
LONGEST_HEADER = 100_000_000
"""Bytes, the limit of safetensors itself."""


@dataclass(frozen=True)
class Checkpoint:
    """A trained model with its path and the configuration of its run."""

    path: Path
    model: SequenceModel | LanguageModel
    """In evaluation mode, on the CPU."""
    description: Mapping[str, Any] = field(default_factory=dict)
    """The configuration of its run; empty for a model that was saved by itself."""

    @property
    def title(self) -> str:
        """Short description of the model."""
        if not self.description:
            kind = "language model" if isinstance(self.model, LanguageModel) else "model"
            return f"{kind} {self.path.name}"
        known = [str(self.description[name]) for name in ("experiment", "preset", "model") if name in self.description]
        return ", ".join([*known, f"seed {self.description['seed']}"] if "seed" in self.description else known)

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Names and values to display."""
        names = ("experiment", "preset", "model", "seed")
        known = [(name, str(self.description[name])) for name in names if name in self.description]
        weights = sum(weight.numel() for weight in self.model.parameters())
        return [("file", str(self.path)), *known, ("weights", f"{weights:,}")]

    def task(self, own: str | None = None) -> Task:
        """The task that the model was trained on.

        Args:
            own: `module:Class` of a user-defined task, as in the run. Its code is imported only because the caller
                names it here, never because a file does.
        """
        if not self.description:
            raise ValueError(f"expected a run, which has a task, got {self.path}, which is only a model")
        name = self.description["task"].get("name")
        if own is not None:
            if own != name:
                raise ValueError(f"expected the task of {self.path}, {name!r}, got {own!r}")
            return make_task({key: value for key, value in self.description["task"].items() if key != "data"}, "task")
        task = from_description(self.description).task
        if isinstance(task, Described):
            remedy = f"--task {name} imports it" if is_own(name) else "in Python, call rm.record(model, input)"
            raise ValueError(
                f"expected a task of this package, whose sequences can be loaded again, got {name!r}; {remedy}"
            )
        return task


def open_checkpoint(path: Path | str) -> Checkpoint:
    """Open the model in a folder or file."""
    path = Path(path)
    try:
        if not path.exists():
            raise ValueError(f"{WHAT}, got {path}, which does not exist")
        found = _of_run(path) if path.is_dir() else _of_file(path)
    except OSError as error:
        raise ValueError(f"{WHAT}, got {path}: {error.strerror or error}") from None
    except (LookupError, TypeError, AttributeError, RuntimeError) as error:
        # A header or configuration that was edited manually can cause any of these.
        problem = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"{WHAT}, got {path}, whose configuration builds no model ({problem})") from None
    except ValueError as error:
        raise ValueError(" ".join(str(error).split())) from None
    if not all(bool(value.isfinite().all()) for value in found.model.state_dict().values()):
        raise ValueError(
            f"expected finite weights, got NaN or inf in {path}: the model diverged or the file is damaged"
        )
    return found


def _of_run(path: Path) -> Checkpoint:
    if is_pretrained(path):
        return Checkpoint(path, _expect_model(opened(path), path))
    folder = path.parent if path.name == "checkpoints" else path
    if not (folder / "config.yaml").is_file():
        raise ValueError(f"{WHAT}, got {path}, a folder without config.yaml")
    return Checkpoint(path, _expect_model(load_model(folder), path), read_description(folder))


def _of_file(path: Path) -> Checkpoint:
    kind = _kind_of(path)
    if kind == language_models.KEY:
        return Checkpoint(path, LanguageModel.load(path).eval())
    if kind != checkpoint.KEY:
        raise ValueError(f"{WHAT}, got {path}, which is none of these")
    tensors, plain = checkpoint.load(path)
    folder = path.parent.parent
    # best.safetensors contains the configuration, so that it can be moved out of its folder.
    description = plain.get("config") or (read_description(folder) if (folder / "config.yaml").is_file() else None)
    if description is None:
        raise ValueError(f"expected a checkpoint in its run folder, got {path}, without a config.yaml next to it")
    if not {"model", "task", "layer", "training"} <= description.keys():
        raise ValueError(f"expected the checkpoint of an experiment, got {path}, whose configuration names no model")
    model = build_model(from_description(description))
    put_in(model, tensors, path)
    return Checkpoint(path, _expect_model(model, path).eval(), description)


def _expect_model(model: nn.Module, path: Path) -> SequenceModel | LanguageModel:
    if not isinstance(model, SequenceModel | LanguageModel):
        raise ValueError(f"{WHAT}, got {path}, which holds a {type(model).__name__}")
    return model


def _kind_of(path: Path) -> str | None:
    """The key in the header of a safetensors file that names its content; None for any other file."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= LONGEST_HEADER:
            return None
        try:
            header = json.loads(file.read(length))
            keys = list(header["__metadata__"])
        except (LookupError, TypeError, ValueError, RecursionError):
            return None
    return next((key for key in (checkpoint.KEY, language_models.KEY) if key in keys), None)
