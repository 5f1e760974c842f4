"""After `remanence check --warm` a process compiles nothing."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import remanence as rm
from remanence.cells import GatedCell, GRUCell, LSTMCell, PhasedLSTMCell
from remanence.engines import warm
from remanence.engines.cpp import engine
from remanence.engines.cuda import memos, plan, recurrence
from remanence.engines.kernels.run import run_with
from remanence.engines.samples import Sizes, in_evaluation, layers_with, make_task
from remanence.gates import Fast, PowerLaw

CPU = torch.device("cpu")

WARM = """
import sys
from typer.testing import CliRunner
from remanence.cells import JANETCell, PhasedLSTMCell, SRUCell
from remanence.cli.main import app
from remanence.engines import warm
from remanence.gates import Fast

device, engine = sys.argv[1:3]
warm._cells = lambda gate, units: [JANETCell(Fast()), PhasedLSTMCell(Fast()), SRUCell(units, 10)]
sizes = ["--units", "32", "--batch", "4", "--inputs", "16"]
result = CliRunner().invoke(app, ["check", "--warm", "--device", device, "--engines", engine, *sizes])
assert result.exit_code == 0, result.output
"""
USE = """
import importlib
import json
import sys
import torch
import remanence as rm

device, _, folder, name = sys.argv[1:]
compiler = importlib.import_module(f"remanence.engines.{folder}.compiler")
compiled, compile_ = [], getattr(compiler, name)
setattr(compiler, name, lambda *rest: compiled.append(now) or compile_(*rest))
torch.set_default_device(device)
x, dt = torch.randn(5, 4, 16), torch.ones(5, 4)
layers = [rm.JANET(16, 32, gate="fast"), rm.PhasedLSTM(16, 32, gate="fast"), rm.SRU(16, 32)]
steps = [rm.JANETCell.of(layers[0])]
chosen = [rm.engines.explain(layer).engine for layer in layers]
for layer in layers:
    for given in ({}, {"dt": dt}) if layer.cell.takes_dt else ({},):
        now = f"{layer} training {sorted(given)}"
        layer.train()(x, **given)[0].sum().backward()
        layer.eval()
        with torch.no_grad():
            now = f"{layer} inference {sorted(given)}"
            layer(x, **given)
            now = f"{layer} step {sorted(given)}"
            layer(x[:1, :1], **{name: times[:1, :1] for name, times in given.items()})
with torch.no_grad():
    now = "a module for single steps"
    for step in steps:
        step(x[0])
print(json.dumps({"compiled": compiled, "chosen": chosen}))
"""


def said(program, folder, *words):
    folders = os.pathsep.join([str(Path(rm.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"REMANENCE_CACHE": str(folder), "PYTHONPATH": folders}
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


ON_CPU = pytest.param(
    ("cpu", "c++", "cpp", "_compile"),
    marks=[pytest.mark.long, pytest.mark.skipif(engine.lacks() is not None, reason="no C++ compiler")],
    id="cpu",
)
ON_CUDA = pytest.param(
    ("cuda", "cuda", "cuda", "compiled"),
    marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")],
    id="cuda",
)
"""Device, engine, its folder, and the function in its module `compiler` that compiles."""


@pytest.mark.parametrize("words", [ON_CPU, ON_CUDA])
def test_a_later_process_compiles_nothing_for_training_inference_and_single_steps(words, tmp_path):
    said(WARM, tmp_path, *words)
    assert json.loads(said(USE, tmp_path, *words)) == {"compiled": [], "chosen": [words[1]] * 3}


LAYERS = {
    "lstm": [rm.LSTM, lambda *sizes, gate: rm.LSTM(*sizes, gate=gate, input_gate="coupled")],
    "phased": [rm.PhasedLSTM, lambda *sizes, gate: rm.PhasedLSTM(*sizes, gate=gate, input_gate="coupled")],
    "others": [rm.GRU, rm.JANET, rm.GORU],
}


@pytest.mark.parametrize("gate", ["fast", "power_law"])
@pytest.mark.parametrize("kind", LAYERS)
def test_every_layer_with_a_gate_is_covered_in_training_and_evaluation(kind, gate):
    covered = {form(cell) for cell in layers_with(rm.gates.gate_named(gate))}
    then = {form(in_evaluation(cell)) for cell in layers_with(rm.gates.gate_named(gate))}
    for make in LAYERS[kind]:
        layer = make(4, 8, gate=gate)
        assert form(layer.train()._cell_now()) in covered
        assert form(layer.eval()._cell_now()) in then


def form(cell: GatedCell) -> tuple[object, ...]:
    """What the kernels of a cell depend on."""
    return type(cell), cell.gate, getattr(cell, "coupled", None), getattr(cell, "leak", None)


def test_all_cells_are_the_known_ones():
    names = {cell.name for cell in warm._cells(None, 32)}
    assert names == {"lstm", "gru", "janet", "phased", "modrelu_gru", "modrelu", "modrelu_complex", "nru", "sru"}
    assert {cell.gate.name for cell in warm._cells(None, 32) if isinstance(cell, GatedCell)} == set(rm.gates.KNOWN)


@pytest.fixture
def kernels(monkeypatch):
    """The kernels of a GPU that are compiled, by name and constants. They do nothing."""
    found = set()

    def machine_code(name, constants, architecture, cell=()):
        found.add((name, *constants.items(), *map(str, cell)))
        return b""

    monkeypatch.setattr(recurrence, "machine_code", machine_code)
    monkeypatch.setattr(recurrence, "Kernel", lambda *rest: SimpleNamespace(start=lambda *numbers: None))
    monkeypatch.setattr(recurrence, "architecture", lambda device: "sm_90")
    monkeypatch.setattr(recurrence, "processors", lambda device: 132)
    monkeypatch.setattr(recurrence, "largest_cluster", lambda device: plan.LARGEST)
    memos.forget()
    yield found
    memos.forget()


GPU_CELLS = [LSTMCell(Fast()), GRUCell(Fast()), PhasedLSTMCell(PowerLaw(), coupled=True)]


@pytest.mark.parametrize("cell", GPU_CELLS, ids=lambda cell: cell.name)
@pytest.mark.parametrize("inputs", [5, 64])
def test_gpu_kernels_of_a_network_in_both_directions_are_compiled(cell, inputs, kernels):
    of_gpu = SimpleNamespace(name="cuda", run=partial(run_with, "cuda"), refuses=lambda task: None)
    for width in warm._widths(inputs, 64, torch.device("cuda")):
        task = make_task(cell, Sizes(3, 32, width, 64), torch.float32, CPU)
        then = make_task(in_evaluation(cell), Sizes(3, 32, width, 64), torch.float32, CPU)
        warm._compile(warm._Layer(of_gpu, task, then), specialised=True)
    compiled = kernels.copy()
    kernels.clear()
    memos.forget()
    for layer, width in enumerate((inputs, 2 * 64)):
        for reverse in (False, True):
            task = make_task(cell, Sizes(7, 32, width, 64), torch.float32, CPU, reverse=reverse)
            for weight in task.weights.values():
                weight.requires_grad_()
            task.inputs.requires_grad_(layer > 0)
            of_gpu.run(task).output.sum().backward()
            then = make_task(in_evaluation(cell), Sizes(7, 32, width, 64), torch.float32, CPU, reverse=reverse)
            of_gpu.run(then)
    assert kernels <= compiled
    assert len(kernels) >= 6
