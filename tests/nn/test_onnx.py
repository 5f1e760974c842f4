"""ONNX: layers run by onnxruntime for any number of steps and sequences match to 1e-5."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import remanence as rm
from remanence.gates import Forgetting, Gate
from remanence.models import SequenceModel

pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]  # the exporter's own

INPUTS, UNITS = 3, 4
SHAPES = ((7, 3), (1, 1), (2, 5))


class Cauchy(Gate):
    """A gate of one's own."""

    name: ClassVar[str] = "onnx-cauchy"

    def __call__(
        self, pre: tuple[Tensor, ...], carried: tuple[Tensor, ...], weights: Mapping[str, Tensor], dt: Tensor | None
    ) -> Forgetting:
        angle = torch.atan(pre[0]) / torch.pi
        return Forgetting(0.5 + angle, 0.5 - angle)


PLAIN: dict[str, Callable[..., rm.nn.Recurrent]] = {"LSTM": rm.LSTM, "GRU": rm.GRU}
SCANNED: dict[str, Callable[..., rm.nn.Recurrent]] = {
    **{
        f"LSTM {gate}": lambda *sizes, gate=gate, **more: rm.LSTM(*sizes, gate=gate, **more)
        for gate in ("fast", "softsign", "refine", "ur", "power_law")
    },
    "LSTM coupled": lambda *sizes, **more: rm.LSTM(*sizes, input_gate="coupled", **more),
    "LSTM projected": lambda *sizes, **more: rm.LSTM(*sizes, proj_size=2, **more),
    "GRU power_law": lambda *sizes, **more: rm.GRU(*sizes, gate="power_law", **more),
    "JANET": rm.JANET,
    "NRU": rm.NRU,
    "PhasedLSTM": rm.PhasedLSTM,
    "EURNN": rm.EURNN,
    "GORU": rm.GORU,
    "SRU": rm.SRU,
    "own gate": lambda *sizes, **more: rm.LSTM(*sizes, gate=Cauchy(), **more),
}
LAYERS = PLAIN | SCANNED
SOME = ("LSTM", "GRU", "LSTM power_law")


def made(name: str, **keywords: Any) -> rm.nn.Recurrent:
    torch.manual_seed(1)
    return LAYERS[name](INPUTS, UNITS, **keywords).eval()


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def flat(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else [part for one in result for part in flat(one)]


def written(model: nn.Module, given: tuple[Tensor, ...], shapes: Any, folder: Path) -> Any:
    program = torch.onnx.export(model, given, dynamic_shapes=shapes, dynamo=True, verbose=False)
    program.save(folder / "model.onnx")
    return program.model.graph


def assert_same(folder: Path, model: nn.Module, *given: Tensor) -> None:
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    named = {one.name: value.numpy() for one, value in zip(session.get_inputs(), given, strict=True)}
    with torch.no_grad():
        expected = flat(model(*given))
    for found, value in zip(session.run(None, named), expected, strict=True):
        numpy.testing.assert_allclose(found, value.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SOME else pytest.mark.slow) for name in LAYERS]
)
def test_any_number_of_steps_and_sequences(name: str, tmp_path: Path) -> None:
    layer = made(name, bidirectional=name in ("GRU", "LSTM", "LSTM power_law", "NRU"))
    graph = written(layer, (numbers(4, 2, INPUTS),), ({0: Dim("T"), 1: Dim("B")},), tmp_path)
    operators = [node.op_type for node in graph]
    assert operators.count(name if name in PLAIN else "Scan") == 1 + layer.bidirectional
    assert "Loop" not in operators
    for steps, rows in SHAPES:
        assert_same(tmp_path, layer, numbers(steps, rows, INPUTS))


class WithAll(nn.Module):
    """A layer with all that it takes."""

    def __init__(self, layer: rm.nn.Recurrent) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, lengths: Tensor, hidden: Tensor, *others: Tensor) -> Any:
        dt = others[-1] if self.layer.cell.takes_dt else None
        state = (hidden, *(others if dt is None else others[:-1]))
        return self.layer(x, state[0] if len(state) == 1 else state, dt, lengths=lengths)


@pytest.mark.parametrize(
    "name", ["GRU", *(pytest.param(name, marks=pytest.mark.slow) for name in ("LSTM", "LSTM power_law"))]
)
def test_states_times_and_lengths_in_both_directions(name: str, tmp_path: Path) -> None:
    layer = made(name, bidirectional=True)
    parts = len(layer.cell.widths(UNITS, UNITS))
    timed = layer.cell.takes_dt

    def given(steps: int, rows: int) -> tuple[Tensor, ...]:
        state = [numbers(2, rows, UNITS).abs() for _ in range(parts)]
        lengths = torch.arange(1, rows + 1).clamp(max=steps)
        return numbers(steps, rows, INPUTS), lengths, *state, *([numbers(steps, rows).abs()] if timed else [])

    steps, rows = Dim("T"), Dim("B")
    whole = {0: steps, 1: rows}
    others = [{1: rows}] * (parts - 1) + [whole] * timed
    written(WithAll(layer), given(6, 5), (whole, {0: rows}, {1: rows}, *([tuple(others)] if others else [])), tmp_path)
    for sizes in ((9, 3), (4, 7)):
        assert_same(tmp_path, WithAll(layer), *given(*sizes))


@pytest.mark.slow
def test_a_model_around_a_layer(tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = SequenceModel(rm.PowerLawLSTM(INPUTS, UNITS, num_layers=2), 2, readout="last").eval()
    written(model, (numbers(4, 2, INPUTS),), ({0: Dim("T"), 1: Dim("B")},), tmp_path)
    for steps, rows in SHAPES:
        assert_same(tmp_path, model, numbers(steps, rows, INPUTS))


def test_the_older_exporter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"^expected torch\.onnx\.export with dynamo=True, got dynamo=False$"):
        torch.onnx.export(
            nn.Sequential(made("LSTM")), (numbers(4, 2, INPUTS),), str(tmp_path / "model.onnx"), dynamo=False
        )
