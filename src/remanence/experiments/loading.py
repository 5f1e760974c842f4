"""Models from the folders of runs."""

from __future__ import annotations

from pathlib import Path

import torch

from ..models import SequenceModel
from ..training import checkpoint
from .models import build_model, from_description, read_description


def load_model(directory: Path | str, device: torch.device | str = "cpu") -> SequenceModel:
    """The model of a run with the weights that were best in validation, or else its last ones, in evaluation mode.

    Args:
        directory: folder of a run, with `config.yaml` and `checkpoints`.
        device: where to put the model.
    """
    directory = Path(directory)
    model = build_model(from_description(read_description(directory)))
    tensors, _ = checkpoint.load(weights_of(directory))
    named = {name.removeprefix("model/"): value for name, value in tensors.items() if name.startswith("model/")}
    try:
        model.load_state_dict(named or tensors)
    except RuntimeError as error:
        problem = " ".join(str(error).split())
        raise ValueError(f"expected weights that fit the configuration in {directory}, got: {problem}") from None
    return model.to(device).eval()


def weights_of(directory: Path) -> Path:
    """The checkpoint with the best weights, or the last one."""
    folder = directory / "checkpoints"
    paths = [
        path for path in (folder / "best.safetensors", *sorted(folder.glob("step-*"), reverse=True)) if path.exists()
    ]
    if not paths:
        raise ValueError(f"expected a run with checkpoints, got {directory}, which has none")
    return paths[0]
