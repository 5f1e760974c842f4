"""torch.export: layers for any number of steps and sequences, saved, and run in a fresh process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

import remanence as rm
from remanence.cells.text import as_text, from_text
from remanence.engines.cpp.engine import lacks
from remanence.gates import Forgetting, Gate
from remanence.models import SequenceModel

INPUTS, UNITS = 3, 4
LAYERS: dict[str, Callable[..., rm.nn.Recurrent]] = {
    "LSTM": rm.LSTM,
    "LSTM refine": lambda *sizes, **more: rm.LSTM(*sizes, gate="refine", **more),
    "LSTM projected": lambda *sizes, **more: rm.LSTM(*sizes, proj_size=2, **more),
    "PowerLawLSTM": lambda *sizes, **more: rm.PowerLawLSTM(*sizes, p=0.3, **more),
    "GRU": rm.GRU,
    "JANET": lambda *sizes, **more: rm.JANET(*sizes, **more),
    "NRU": rm.NRU,
    "PhasedLSTM": rm.PhasedLSTM,
    "ExpRNN": rm.ExpRNN,
    "UnitaryRNN": rm.UnitaryRNN,
}
pytestmark = pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning")
every_layer = pytest.mark.parametrize("name", LAYERS)
SHAPES = ((7, 3), (1, 1), (2, 5))


def made(name: str, **keywords: Any) -> rm.nn.Recurrent:
    torch.manual_seed(1)
    return LAYERS[name](INPUTS, UNITS, **keywords).eval()


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def exported(layer: nn.Module, *more: Tensor, **keywords: Any) -> ExportedProgram:
    sizes = {0: Dim("T"), 1: Dim("B")}
    given = (numbers(4, 2, INPUTS), *more)
    return torch.export.export(layer, given, dynamic_shapes=(sizes,) * len(given), **keywords)


@every_layer
def test_a_program_takes_any_number_of_steps_and_sequences(name: str) -> None:
    layer = made(name, bidirectional=True)
    program = exported(layer)
    for steps, rows in SHAPES:
        x = numbers(steps, rows, INPUTS)
        torch.testing.assert_close(program.module()(x), layer(x))


@pytest.mark.long
@every_layer
def test_strict_export(name: str) -> None:
    layer = made(name)
    x = numbers(9, 3, INPUTS)
    torch.testing.assert_close(exported(layer, strict=True).module()(x), layer(x))


@every_layer
def test_exported_program_does_not_depend_on_the_engine_of_this_machine(name: str) -> None:
    called = [node for node in exported(made(name)).graph.nodes if node.op == "call_function"]
    operators = [node for node in called if "remanence" in str(node.target)]
    assert [str(node.target) for node in operators] == ["remanence.recurrence.default"]
    assert operators[0].args[-2] == "auto"


def test_states_times_and_lengths() -> None:
    class Timed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = made("PowerLawLSTM", bidirectional=True)

        def forward(self, x: Tensor, dt: Tensor, lengths: Tensor, *state: Tensor) -> Any:
            return self.layer(x, state, dt, lengths=lengths)

    def given(steps: int, rows: int) -> tuple[Tensor, ...]:
        state = (numbers(2, rows, UNITS), numbers(2, rows, UNITS), numbers(2, rows, UNITS).abs())
        return numbers(steps, rows, INPUTS), numbers(steps, rows).abs(), torch.arange(1, rows + 1), *state

    model, steps, rows = Timed(), Dim("T"), Dim("B")
    of_state = {1: rows}
    shapes = ({0: steps, 1: rows}, {0: steps, 1: rows}, {0: rows}, (of_state,) * 3)
    program = torch.export.export(model, given(6, 5), dynamic_shapes=shapes)
    for sizes in ((9, 3), (4, 4)):
        torch.testing.assert_close(program.module()(*given(*sizes)), model(*given(*sizes)))


def test_a_program_is_differentiable_twice() -> None:
    layer = made("LSTM refine")
    program = exported(layer).module()
    found = []
    for run in (program, layer):
        x = numbers(5, 3, INPUTS).requires_grad_()
        weights = dict(run.named_parameters())
        (first,) = torch.autograd.grad(run(x)[0].square().sum(), x, create_graph=True)
        again = torch.autograd.grad(first.square().sum(), [x, *(weights[name] for name in sorted(weights))])
        found.append([first.detach(), *again])
    for value, other in zip(*found, strict=True):
        torch.testing.assert_close(value, other, rtol=1e-4, atol=1e-6)


PROGRAM = """
import sys, torch, remanence
from safetensors.torch import load_file
program = torch.export.load(sys.argv[1]).module()
known = load_file(sys.argv[2])
for number in range(int(sys.argv[3])):
    torch.testing.assert_close(program(known[f"given {number}"])[0], known[f"output {number}"])
print("the same")
"""
PACKAGE = PROGRAM.replace("torch.export.load(sys.argv[1]).module()", "torch._inductor.aoti_load_package(sys.argv[1])")


def in_a_fresh_process(code: str, program: Path, layer: nn.Module, folder: Path) -> str:
    from safetensors.torch import save_file

    known = {}
    for number, (steps, rows) in enumerate(SHAPES):
        known[f"given {number}"] = numbers(steps, rows, INPUTS)
        known[f"output {number}"] = layer(known[f"given {number}"])[0].detach().contiguous()
    save_file(known, folder / "known.safetensors")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, program, folder / "known.safetensors", str(len(SHAPES))],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "PowerLawLSTM" else pytest.mark.slow) for name in LAYERS]
)
def test_a_saved_program_runs_in_a_fresh_process(name: str, tmp_path: Path) -> None:
    model = nn.Sequential(made(name, num_layers=2))
    torch.export.save(exported(model), tmp_path / "model.pt2")
    assert "the same" in in_a_fresh_process(PROGRAM, tmp_path / "model.pt2", model, tmp_path)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(lacks() is not None, reason="no C++ compiler")
@pytest.mark.parametrize("name", ["LSTM", "PowerLawLSTM", "NRU", "PhasedLSTM"])
def test_a_package_of_aotinductor_runs_in_a_fresh_process(name: str, tmp_path: Path) -> None:
    layer = made(name)
    with torch.no_grad():
        program = exported(layer)
        path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
    assert "the same" in in_a_fresh_process(PACKAGE, Path(path), layer, tmp_path)


@pytest.mark.long
def test_models_of_the_package() -> None:
    torch.manual_seed(1)
    model = SequenceModel(rm.PowerLawLSTM(INPUTS, UNITS, bidirectional=True), 2, readout="last", symbols=5).eval()
    steps, rows = Dim("T"), Dim("B")
    given = torch.randint(5, (4, 3)), torch.tensor([4, 2, 3])
    program = torch.export.export(model, given, dynamic_shapes=({0: steps, 1: rows}, {0: rows}))
    other = torch.randint(5, (9, 2)), torch.tensor([1, 9])
    torch.testing.assert_close(program.module()(*other), model(*other))


# Cells as text.


@every_layer
def test_a_cell_is_found_again_from_its_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = made(name).recurrence
    monkeypatch.setattr("remanence.cells.text._known", {})
    assert from_text(as_text(cell)) == cell
    assert from_text(as_text(cell)) is not cell


def test_error_names_a_class_that_was_not_imported() -> None:
    with pytest.raises(ValueError, match="expected elsewhere:Peephole to be imported"):
        from_text('{"class": "elsewhere:Peephole", "gate": {"class": "sigmoid"}}')
    with pytest.raises(ValueError, match="expected a cell or gate of this package or a registered one"):
        from_text('{"class": "peephole"}')


class Shifted(Gate):
    """A custom gate with a setting."""

    name: ClassVar[str] = "exported-shifted"

    def __init__(self, shift: Any) -> None:
        self.shift = shift

    def __call__(
        self, pre: tuple[Tensor, ...], carried: tuple[Tensor, ...], weights: Mapping[str, Tensor], dt: Tensor | None
    ) -> Forgetting:
        z = pre[0] + (self.shift if isinstance(self.shift, float) else self.shift())
        return Forgetting(torch.sigmoid(z), torch.sigmoid(-z))


def test_a_custom_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = rm.LSTM(INPUTS, UNITS, gate=Shifted(0.5))
    program = exported(layer)
    monkeypatch.setattr("remanence.cells.text._known", {})  # as in a fresh process
    x = numbers(9, 3, INPUTS)
    torch.testing.assert_close(program.module()(x), layer(x))
    monkeypatch.setattr("remanence.cells.text._subclasses", lambda kind: [])
    monkeypatch.setattr("remanence.cells.text._known", {})
    with pytest.raises(ValueError, match=r"expected .*test_export:Shifted to be imported before the program"):
        program.module()(x)


def test_a_gate_with_settings_that_are_not_plain_data_is_refused() -> None:
    layer = rm.LSTM(INPUTS, UNITS, gate=Shifted(lambda: 0.5))
    with pytest.raises(ValueError, match=r"^expected settings of LSTMCell and its gate that are plain data"):
        exported(layer)
