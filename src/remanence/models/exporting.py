"""Export of trained models to a file for other programs, checked against the model before it is written.

Two formats: a `torch.export` program (.pt2), which runs in processes that import this package, and ONNX, which does not
need it.
"""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as tree

from .. import files
from ..engines.machine import seeded
from ..names import lookup
from ..nn import GRU, LSTM, Recurrent, built_once
from ..version import DISTRIBUTION
from .language import LanguageModel
from .sequence import Layer, SequenceModel

SHAPE, OTHER_SHAPES = (5, 3), ((12, 2), (1, 1))
"""(T, B) of the example that a program is traced with, and of those on which it is compared with the model."""
TOLERANCE = 1e-4
"""Allowed difference, relative to the largest value of an output, or absolute if all values are below 1."""
ONE_FILE = 2**31
"""Maximum size in bytes of an ONNX file."""

Model = SequenceModel | LanguageModel
Inputs = dict[str, Any]


@dataclass(frozen=True)
class Exported:
    """The result of an export."""

    path: Path
    """The file."""
    inputs: tuple[str, ...]
    """Names of the inputs, in the order of the program."""
    outputs: tuple[str, ...]
    """Names of the outputs, in the order of the program."""
    difference: float
    """Largest difference from the model that was found: relative to the largest value of an output, or absolute if all
    values are below 1."""


def export(model: Model, path: str | Path, to: str, also: Sequence[str] = ()) -> Exported:
    """Export a model in evaluation mode and float32, for any number of steps and sequences.

    The file is written only if the exported program reproduces the outputs of the model on random inputs of other
    shapes.

    Args:
        model: The model, which is not changed.
        path: The file, ending in .onnx or .pt2.
        to: Format: "onnx" or "pt2" (`torch.export`).
        also: Inputs besides the sequences: "state", to continue from a previous call; and for a `SequenceModel`
            "lengths" of padded sequences, "dt", the time between steps, and "mask" of observed values.

    Returns:
        Path, names of inputs and outputs, and the largest difference from the model.

    Raises:
        ValueError: The path or an input does not fit, a package is not installed, the model is too large for ONNX, or
            the exported program differs from the model.
        TypeError: This is not a model of this package.

    Examples:
        >>> import remanence as rm
        >>> model = rm.models.SequenceModel(rm.LSTM(3, 8, gate="fast"), outputs=2)
        >>> exported = rm.models.export(model, "model.pt2", "pt2", also=["state"])
        >>> exported.inputs, exported.outputs  # as ONNX: inputs, hidden_in, cell_in and outputs, hidden_out, cell_out
        (('inputs', 'state'), ('outputs', 'state'))
    """
    maker = lookup("format", to, KNOWN)
    path = expect_path(Path(path), to)
    if not isinstance(model, SequenceModel | LanguageModel):
        raise TypeError(f"expected a SequenceModel or a LanguageModel, got {type(model).__name__}")
    expect_installed(to)
    model = deepcopy(model).to("cpu", torch.float32)
    if isinstance(model, SequenceModel):
        model.layer = of_this_package(model.layer)
    model.eval()
    for layer in model.recurrent_layers():
        layer.engine = "auto"  # chosen where the program runs
    names = expect_inputs(model, also)
    expect_one_file(model, to)
    try:
        with files.whole(path) as temporary, torch.no_grad(), seeded(0), quiet():
            given = example(model, names, *SHAPE)
            run = maker(model, given, dynamic(model, given), temporary)
            found = [held_to(model, run, example(model, names, *shape)) for shape in OTHER_SHAPES]
            difference = float(torch.stack(found).max())
            if not difference <= TOLERANCE:  # NaN included
                raise ValueError(
                    f"expected a program that matches the model to {TOLERANCE:g}, got a difference of "
                    f"{difference:.2g}; {path} was not written"
                )
    except OSError as error:
        raise ValueError(f"expected to write {path}, got: {error.strerror or error}") from None
    if to == "pt2":  # called like the model, with the state as one keyword argument
        return Exported(path, tuple(given), (output_names(model)[0], "state"), difference)
    return Exported(path, tuple(input_names(model, given)), tuple(output_names(model)), difference)


def of_this_package(layer: Layer) -> Recurrent:
    """An equivalent layer of this package, which is one operator in a graph."""
    if isinstance(layer, torch.nn.LSTM):
        return LSTM.from_torch(layer)
    return GRU.from_torch(layer) if isinstance(layer, torch.nn.GRU) else built_once(layer)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the logs and warnings of the exporters."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


# Checks.


def expect_path(path: Path, to: str) -> Path:
    """Refuse a path that cannot be written or has the wrong suffix."""
    if path.suffix != f".{to}":
        raise ValueError(f"expected a file name that ends in .{to}, got {path}")
    if path.is_dir() or not path.parent.is_dir():
        got = "a folder" if path.is_dir() else "no such folder"
        raise ValueError(f"expected a file in a folder that exists, got {path}: {got}")
    return path


def expect_installed(to: str) -> None:
    """Refuse a format whose packages are not installed."""
    for package in ("onnx", "onnxscript", "onnxruntime") if to == "onnx" else ():
        if importlib.util.find_spec(package) is None:
            raise ValueError(
                f"expected {package} to be installed for ONNX, got none (pip install '{DISTRIBUTION}[onnx]')"
            )


def expect_inputs(model: Model, also: Sequence[str]) -> list[str]:
    """Names of the inputs, in the order of the model's arguments."""
    possible = ["state"] if isinstance(model, LanguageModel) else ["lengths", "dt", "state", "mask"]
    for name in also:
        if name not in possible:
            raise ValueError(f"expected inputs of a {type(model).__name__} ({', '.join(possible)}), got {name!r}")
    if isinstance(model, SequenceModel):
        if "dt" in also and not model.takes_dt:
            raise ValueError("expected a model that uses the time between steps, got --with dt for one that does not")
        if "mask" in also and model.missing is None:
            raise ValueError("expected a model with missing='zero' or missing='forward', got --with mask for None")
    return [first_input(model), *(name for name in possible if name in also)]


def expect_one_file(model: Model, to: str) -> None:
    """Refuse weights that do not fit into a file of this format."""
    size = sum(weight.nbytes for weight in model.state_dict().values())
    if to == "onnx" and size >= ONE_FILE:
        raise ValueError(f"expected weights below 2 GiB, the limit of an ONNX file, got {size / 2**30:.1f} GiB")


# Inputs and outputs.


def first_input(model: Model) -> str:
    """The name of the argument that holds the sequences."""
    return "tokens" if isinstance(model, LanguageModel) else "inputs"


def example(model: Model, names: Sequence[str], steps: int, batch: int) -> Inputs:
    """Random inputs by name. The state is a final state of the model on other random inputs."""
    first, *others = names
    found: Inputs = {first: random_sequences(model, steps, batch)}
    sizes = (batch, steps) if batch_first(model) else (steps, batch)
    for name in others:
        if name == "lengths":
            found[name] = torch.arange(steps, steps - batch, -1).clamp(min=1)
        elif name == "dt":
            found[name] = 0.5 + torch.rand(sizes)
        elif name == "mask":
            found[name] = torch.rand(found[first].shape) < 0.7
        else:
            with torch.no_grad():
                found[name] = model(random_sequences(model, steps, batch))[1]
    return found


def random_sequences(model: Model, steps: int, batch: int) -> Tensor:
    """Random sequences for a model."""
    sizes = (batch, steps) if batch_first(model) else (steps, batch)
    if isinstance(model, LanguageModel):
        return torch.randint(model.words, sizes)
    if model.embedding is not None:
        return torch.randint(model.embedding.num_embeddings, sizes)
    return torch.randn(*sizes, model.input_size)


def batch_first(model: Model) -> bool:
    """Whether a model is batch first."""
    return isinstance(model, SequenceModel) and model.batch_first


def dynamic(model: Model, given: Inputs) -> dict[str, Any]:
    """The dynamic dimensions: number of steps T and of sequences B."""
    steps, batch = torch.export.Dim("T"), torch.export.Dim("B")
    first, second = (batch, steps) if batch_first(model) else (steps, batch)
    shapes: dict[str, Any] = {name: {0: first, 1: second} for name in given}
    if "lengths" in given:
        shapes["lengths"] = {0: batch}
    if "state" in given:
        shapes["state"] = tree.tree_map(lambda part: {1: batch}, given["state"])
    return shapes


def input_names(model: Model, given: Inputs) -> Iterator[str]:
    """Names of all input tensors."""
    for name in given:
        yield from (f"{part}_in" for part in state_names(model)) if name == "state" else [name]


def output_names(model: Model) -> list[str]:
    """Names of all output tensors."""
    first = "logits" if isinstance(model, LanguageModel) else "outputs"
    return [first, *(f"{part}_out" for part in state_names(model))]


def state_names(model: Model) -> list[str]:
    """Names of the parts of the state, such as hidden, cell and age; in a language model, per layer."""
    layers: list[Recurrent] = model.recurrent_layers()
    widths = [layer.cell.widths(layer.hidden_size, layer.output_size) for layer in layers]
    if isinstance(model, SequenceModel):
        return list(widths[0])
    return [f"layer{number}_{name}" for number, parts in enumerate(widths) for name in parts]


# The formats: each writes a file and returns a function that runs it.

Run = Callable[[Inputs], list[Tensor]]


def as_program(model: Model, given: Inputs, shapes: dict[str, Any], path: Path) -> Run:
    """A `torch.export` program, loaded back from its file."""
    with path.open("wb") as file:
        torch.export.save(torch.export.export(model, (), given, dynamic_shapes=shapes), file)
    program = torch.export.load(path).module()
    return lambda inputs: tree.tree_leaves(program(**inputs))


def as_onnx(model: Model, given: Inputs, shapes: dict[str, Any], path: Path) -> Run:
    """An ONNX file, run by onnxruntime."""
    import onnxruntime

    names = list(input_names(model, given))
    program = torch.onnx.export(
        model,
        (),
        kwargs=given,
        dynamic_shapes=shapes,
        input_names=names,
        output_names=output_names(model),
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    program.save(path)
    session = onnxruntime.InferenceSession(path.read_bytes())

    def run(inputs: Inputs) -> list[Tensor]:
        values = [value.numpy() for value in tree.tree_leaves(inputs)]
        return [torch.from_numpy(value) for value in session.run(None, dict(zip(names, values, strict=True)))]

    return run


KNOWN = {"onnx": as_onnx, "pt2": as_program}


def held_to(model: Model, run: Run, given: Inputs) -> Tensor:
    """Difference between a program and its model, see `TOLERANCE`."""
    found = []
    for one, other in zip(run(given), tree.tree_leaves(model(**given)), strict=True):
        if one.shape != other.shape:
            raise ValueError(f"expected an output of shape {tuple(other.shape)}, got {tuple(one.shape)}")
        found.append((one - other).abs().max() / other.abs().max().clamp(min=1))
    return torch.stack(found).max()
