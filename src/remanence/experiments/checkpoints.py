"""A trained model from what one has of it: the folder of a run, one of its checkpoints, a model saved by itself."""

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

WHAT = "expected the folder of a run, one of its checkpoints, or what LanguageModel.save or save_pretrained wrote"
LONGEST_HEADER = 100_000_000
"""Bytes, as safetensors itself has it."""


@dataclass(frozen=True)
class Checkpoint:
    """A trained model, and what is known of it."""

    path: Path
    model: SequenceModel | LanguageModel
    """In evaluation mode, on the CPU."""
    description: Mapping[str, Any] = field(default_factory=dict)
    """The configuration of its run; empty for a model that was saved by itself."""

    @property
    def title(self) -> str:
        """In a few words."""
        if not self.description:
            kind = "language model" if isinstance(self.model, LanguageModel) else "model"
            return f"{kind} {self.path.name}"
        known = [str(self.description[name]) for name in ("experiment", "preset", "model") if name in self.description]
        return ", ".join([*known, f"seed {self.description['seed']}"] if "seed" in self.description else known)

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Names and values, in words."""
        names = ("experiment", "preset", "model", "seed")
        known = [(name, str(self.description[name])) for name in names if name in self.description]
        weights = sum(weight.numel() for weight in self.model.parameters())
        return [("file", str(self.path)), *known, ("weights", f"{weights:,}")]

    def task(self, own: str | None = None) -> Task:
        """What it was trained on.

        Args:
            own: of a task of one's own its `module:Class`, as the run has it. It is imported because it is said here,
                not because the run says so.
        """
        if not self.description:
            raise ValueError(f"expected a run, which knows its task, got {self.path}, which is a model alone")
        name = self.description["task"].get("name")
        if own is not None:
            if own != name:
                raise ValueError(f"expected the task of {self.path}, {name!r}, got {own!r}")
            return make_task({key: value for key, value in self.description["task"].items() if key != "data"}, "task")
        task = from_description(self.description).task
        if isinstance(task, Described):
            remedy = f"--task {name} imports it" if is_own(name) else "in Python, rm.record takes model and input"
            raise ValueError(
                f"expected a task of this package, whose sequences can be read again, got {name!r}; {remedy}"
            )
        return task


def open_checkpoint(path: Path | str) -> Checkpoint:
    """The model in a folder or file."""
    path = Path(path)
    try:
        if not path.exists():
            raise ValueError(f"{WHAT}, got {path}, where there is nothing")
        found = _of_run(path) if path.is_dir() else _of_file(path)
    except OSError as error:
        raise ValueError(f"{WHAT}, got {path}: {error.strerror or error}") from None
    except (LookupError, TypeError, AttributeError, RuntimeError) as error:
        # Whoever changed a header or a configuration by hand can bring about any of these.
        problem = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"{WHAT}, got {path}, whose configuration makes no model ({problem})") from None
    except ValueError as error:
        raise ValueError(" ".join(str(error).split())) from None
    if not all(bool(value.isfinite().all()) for value in found.model.state_dict().values()):
        raise ValueError(f"expected finite weights, got {path} with others: the model diverged, or the file is damaged")
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
        raise ValueError(f"{WHAT}, got {path}, which is none of them")
    tensors, plain = checkpoint.load(path)
    folder = path.parent.parent
    # The best weights hold their configuration, so that they can be taken out of their folder.
    description = plain.get("config") or (read_description(folder) if (folder / "config.yaml").is_file() else None)
    if description is None:
        raise ValueError(f"expected a checkpoint in the folder of its run, got {path}, beside which there is no config")
    if not {"model", "task", "layer", "training"} <= description.keys():
        raise ValueError(f"expected the checkpoint of an experiment, got {path}, which does not say of which model")
    model = build_model(from_description(description))
    put_in(model, tensors, path)
    return Checkpoint(path, _expect_model(model, path).eval(), description)


def _expect_model(model: nn.Module, path: Path) -> SequenceModel | LanguageModel:
    if not isinstance(model, SequenceModel | LanguageModel):
        raise ValueError(f"{WHAT}, got {path}, which holds a {type(model).__name__}")
    return model


def _kind_of(path: Path) -> str | None:
    """The key in the header of a safetensors file that says what it holds; None where it is no such file."""
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
