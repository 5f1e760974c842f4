"""Load trained models from run folders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from ..models import LanguageModel, SequenceModel
from ..training import checkpoint, files
from .models import build_model, from_description, read_description


def load_model(directory: Path | str, device: torch.device | str = "cpu") -> SequenceModel | LanguageModel:
    """Load the model of a run in evaluation mode, with the weights it reports: the best in validation, or the last.

    Args:
        directory: Run folder, with `config.yaml` and `checkpoints`.
        device: Device to load the model to.
    """
    directory = Path(directory)
    description = from_description(read_description(directory))
    model = build_model(description)
    path = weights_of(directory, description.training.report)
    put_in(model, checkpoint.load(path)[0], path)
    return model.to(device).eval()


def put_in(model: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Load the weights of a checkpoint (a full one or weights only) into a model; averaged weights if there are any."""
    named = {
        name.removeprefix(kind): value
        for kind in ("model/", "average/")  # training resumes from model/; average/ is evaluated and reported
        for name, value in tensors.items()
        if name.startswith(kind)
    }
    try:
        model.load_state_dict(named or tensors)
    except RuntimeError as error:
        problem = " ".join(str(error).split())
        raise ValueError(f"expected weights that fit the configuration, got {path}: {problem}") from None


def weights_of(directory: Path, wanted: str = "best") -> Path:
    """The checkpoint with the best or the last weights; falls back to the other if there is no such checkpoint."""
    folder = directory / "checkpoints"
    files.expect_best(directory)
    best, last = [folder / "best.safetensors"], sorted(folder.glob("step-*"), reverse=True)
    paths = [path for path in ([*best, *last] if wanted == "best" else [*last, *best]) if path.exists()]
    if not paths:
        raise ValueError(f"expected a run with checkpoints, got {directory}, which has none")
    return paths[0]
