"""The command line: what it prints, where, and with which exit code."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from remanence import engines
from remanence.cells import JANETCell
from remanence.cli.main import KNOWN as COMMANDS
from remanence.cli.main import app
from remanence.engines import loop, self_check, warm
from remanence.engines.cpp import compiler, engine, products, recurrence
from remanence.engines.kernels import cache, one_step
from remanence.version import __version__

TINY = ["bench", "--device", "cpu", "--shapes", "T3-B2-H4", "--gates", "fast", "--budget", "5", "--together"]


def call(*words):
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "200", "NO_COLOR": "1"})


def only_engine(monkeypatch, run, refuses=lambda task: None):
    """Replace all engines except the loop by one that runs LSTMs in float32."""
    fake = SimpleNamespace(name="fake", run=run, refuses=refuses)
    for module in (engines.choice, import_module("remanence.engines.check")):
        monkeypatch.setattr(module, "KNOWN", {"fake": fake, "loop": loop})
    return fake


def few(task):
    return None if str(task.inputs.dtype) == "torch.float32" and task.cell.name == "gru" else "it runs GRUs in float32"


def wrong(task):
    result = loop.run(task)
    return result._replace(output=result.output * 1.01)


def test_version():
    result = call("--version")
    assert (result.exit_code, result.stdout) == (0, f"remanence {__version__}\n")


def test_help_lists_the_commands_in_order():
    result = call("--help")
    assert result.exit_code == 0
    places = [result.stdout.index(f" {name} ") for name in COMMANDS]
    assert places == sorted(places)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command):
    result = call(command, "--help")
    assert result.exit_code == 0
    assert "Usage" in result.stdout


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["check", "--warm", "--units", "many"], "expected units to be whole numbers above zero, such as 128,512, got"),
        (["check", "--warm", "--dtypes", "int8"], "expected dtype to be one of float32, bfloat16, float16, got 'int8'"),
        (["check", "--device", "tpu"], "expected device to be cpu, cuda or cuda:N, got 'tpu'"),
        (["check", "--device", "cuda:99"], "expected a device of this machine, got 'cuda:99', and torch sees"),
        (["bench", "--device", "tpu"], "expected device to be cpu, cuda or cuda:N, got 'tpu'"),
        ([*TINY, "--shapes", "huge"], "expected shape to be one of copy-200,"),
        ([*TINY, "--gates", "fats"], "did you mean 'fast'?"),
        ([*TINY, "--engines", "gpu"], "expected engine to be one of"),
        ([*TINY, "--precision", "tf32"], "expected precision to be full or bf16 on a CPU"),
        ([*TINY, "--json", "/nowhere/at/all.json"], f"{Path('/nowhere/at/all.json')}: No such file or directory"),
        ([*TINY, "--json", "/"], f"expected a file to write to, got the folder {Path('/')}"),
    ],
)
def test_bad_input_is_answered_by_one_sentence_and_exit_code_2(words, answer):
    result = call(*words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("remanence: expected ")
    assert answer in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [["chekc"], ["check", "--fast"], ["bench", "--budget", "long"], ["bench", "cpu"]])
def test_unknown_commands_and_options_are_exit_code_2(words):
    result = call(*words)
    assert result.exit_code == 2
    assert "Error" in result.stderr
    assert "Traceback" not in result.output


# check


def test_check_passes_when_all_agree(monkeypatch):
    only_engine(monkeypatch, loop.run, few)
    result = call("check", "--device", "cpu")
    assert result.exit_code == 0
    assert "power_law" in result.stdout
    assert result.stdout.endswith("6 checked, 0 wrong\n")


def test_check_is_exit_code_1_when_an_engine_is_wrong(monkeypatch):
    only_engine(monkeypatch, wrong, few)
    result = call("check", "--device", "cpu")
    assert result.exit_code == 1
    assert "wrong: fake, gru, fast, float32: plain sequences: output is off by 1.0e-02" in result.stdout
    assert result.stdout.endswith("6 checked, 6 wrong\n")


def test_check_reports_which_engine_was_not_checked_and_why(monkeypatch):
    only_engine(monkeypatch, wrong, lambda task: "it is picky")
    result = call("check", "--device", "cpu")
    assert result.exit_code == 0
    assert "engine fake was not checked: it is picky" in result.stdout


@pytest.fixture
def nothing_compiled(monkeypatch, tmp_path):
    """No kernels compiled yet, and only one cell to compile; the folder of kernels."""
    known = (recurrence.failure, recurrence._forward, recurrence._backward, products.products)
    for each in known:
        each.cache_clear()
    monkeypatch.setenv("REMANENCE_CACHE", str(tmp_path))
    monkeypatch.setattr(self_check, "_seen", {})
    monkeypatch.setattr(self_check, "tasks_of", lambda *_: [])
    monkeypatch.setattr(warm, "layers_with", lambda gate: [JANETCell(gate)])
    monkeypatch.setattr(one_step, "_known", {})
    yield tmp_path / "kernels"
    for each in known:
        each.cache_clear()


@pytest.mark.long
@pytest.mark.skipif(engine.lacks() is not None, reason="no C++ compiler")
def test_check_warm_compiles_ahead_of_time_and_reports_the_kernels_and_their_folder(nothing_compiled, monkeypatch):
    words = ["check", "--warm", "--device", "cpu", "--engines", "c++", "--gate", "fast"]
    result = call(*words)
    assert result.exit_code == 0
    libraries = list(nothing_compiled.glob("*.so"))
    assert len(libraries) >= 5  # products, the backward pass, the forward pass with and without it, a single step
    assert "engine c++ on cpu: kernels for 1 layer configuration(s)\n" in result.stdout
    assert result.stdout.endswith(f"{len(libraries)} kernels in {nothing_compiled}\n")
    monkeypatch.setattr(compiler, "_compile", None)  # nothing is left to do
    for each in (recurrence.failure, recurrence._forward, recurrence._backward, products.products):
        each.cache_clear()
    one_step._known.clear()
    assert call(*words).stdout == result.stdout


def test_check_warm_is_exit_code_1_when_an_engine_is_wrong(monkeypatch, tmp_path):
    fake = only_engine(monkeypatch, wrong)
    fake.made_of = lambda device: ()
    monkeypatch.setattr(self_check, "_seen", {})
    monkeypatch.setenv("REMANENCE_CACHE", str(tmp_path))
    result = call("check", "--warm", "--device", "cpu", "--gate", "fast")
    assert result.exit_code == 1
    assert 'wrong: engine "fake" disagrees with the loop engine on cpu' in result.stdout
    assert result.stdout.endswith(f"0 kernels in {tmp_path / 'kernels'}\n")


def test_check_warm_is_exit_code_1_where_kernels_cannot_be_cached(monkeypatch, tmp_path):
    only_engine(monkeypatch, loop.run)
    (tmp_path / "file").touch()
    monkeypatch.setenv("REMANENCE_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(cache, "_own", {})
    with pytest.warns(UserWarning, match="but it cannot be created"):
        result = call("check", "--warm", "--device", "cpu", "--gate", "fast")
    assert result.exit_code == 1
    assert result.stdout.endswith("wrong: kernels cannot be cached: the warning says why\n")


def test_check_warm_reports_which_engine_has_no_kernels_here_and_why(monkeypatch, tmp_path):
    monkeypatch.setenv("REMANENCE_CACHE", str(tmp_path))
    result = call("check", "--warm", "--device", "cpu", "--engines", "cuda")
    assert result.exit_code == 0
    assert "engine cuda has no kernels here: it runs on CUDA devices, and the input is on cpu\n" in result.stdout


OWN_GATES = """
import torch
from remanence.gates import Forgetting, Gate

class Cauchy(Gate):
    name = "cauchy"
    def __call__(self, pre, carried, weights, dt):
        angle = torch.atan(pre[0]) / torch.pi
        return Forgetting(0.5 + angle, 0.5 - angle)

class Centred(Gate):
    name = "centred"
    def __call__(self, pre, carried, weights, dt):
        z = pre[0] - pre[0].mean(-1, keepdim=True)
        return Forgetting(torch.sigmoid(z), torch.sigmoid(-z))

class Demanding(Cauchy):
    def __init__(self, much):
        pass

class Bare(Gate):
    name = "bare"
    def __call__(self, pre, carried, weights, dt):
        return torch.sigmoid(pre[0])

made = Cauchy()
number = 3

from remanence.cells import LSTMCell
from remanence.gates import Sigmoid

class Squashed(LSTMCell):
    name = "squashed"
    def pointwise(self, projected, recurrent, state, weights, dt):
        (hidden, *rest), seen = super().pointwise(projected, recurrent, state, weights, dt)
        return (torch.atan(hidden), *rest), seen

class Levelled(LSTMCell):
    name = "levelled"
    def pointwise(self, projected, recurrent, state, weights, dt):
        return super().pointwise(projected, recurrent.cumsum(-1), state, weights, dt)

class Greedy(LSTMCell):
    def __init__(self):
        pass

squashed = Squashed(Sigmoid())
"""


@pytest.fixture
def own_gates(monkeypatch, tmp_path):
    """A module with gates in the current folder."""
    (tmp_path / "gates_of_mine.py").write_text(OWN_GATES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    yield
    sys.modules.pop("gates_of_mine", None)


@pytest.mark.parametrize("gate", ["gates_of_mine:Cauchy", "gates_of_mine:made"])
def test_check_of_a_custom_gate(gate, own_gates):
    result = call("check", "--device", "cpu", "--engines", "cpu", "--gate", gate)
    assert result.exit_code == 0
    assert "cauchy" in result.stdout
    assert "sigmoid" not in result.stdout
    assert result.stdout.endswith("10 checked, 0 wrong\n")  # five cells in two precisions


@pytest.mark.parametrize("cell", ["gates_of_mine:Squashed", "gates_of_mine:squashed"])
def test_check_of_a_custom_cell(cell, own_gates):
    result = call("check", "--device", "cpu", "--engines", "cpu", "--cell", cell)
    assert result.exit_code == 0
    assert "squashed" in result.stdout
    assert result.stdout.endswith("2 checked, 0 wrong\n")
    assert len(engines.check("cpu", ["cpu"], cell=sys.modules["gates_of_mine"].squashed)) == 2


def test_check_of_a_custom_cell_with_a_gate(own_gates):
    result = call("check", "--device", "cpu", "--engines", "cpu", "--cell", "gates_of_mine:Squashed", "--gate", "fast")
    assert result.exit_code == 0
    assert "fast" in result.stdout


def test_check_says_why_a_cell_runs_on_the_loop(own_gates):
    result = call("check", "--device", "cpu", "--engines", "cpu", "--cell", "gates_of_mine:Levelled")
    assert result.exit_code == 0
    assert "no kernel can be derived for cell 'levelled': it calls torch.cumsum" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--cell", "lstm"), "expected --cell to be module:Name, got 'lstm'"),
        (("--cell", "no_such_module:Cell"), "expected --cell 'no_such_module:Cell' to name a module"),
        (
            ("--cell", "gates_of_mine:number"),
            "to be a cell or a cell class, got int",
        ),
        (("--cell", "gates_of_mine:Greedy"), "expected 'gates_of_mine:Greedy' to require no argument but a gate"),
        (("--cell", "gates_of_mine:Squashed", "--warm"), "expected --warm alone or with --gate, got --cell"),
    ],
)
def test_a_bad_cell_gives_one_sentence(arguments, sentence, own_gates):
    result = call("check", "--device", "cpu", *arguments)
    assert result.exit_code == 2
    assert sentence in " ".join(result.stderr.split())


def test_check_of_a_named_gate_checks_only_that_gate(monkeypatch):
    only_engine(monkeypatch, wrong, few)
    result = call("check", "--device", "cpu", "--gate", "fast")
    assert result.exit_code == 1
    assert result.stdout.endswith("1 checked, 1 wrong\n")


def test_check_says_why_a_gate_runs_on_the_loop(own_gates):
    result = call("check", "--device", "cpu", "--engines", "cpu", "--gate", "gates_of_mine:Centred")
    assert result.exit_code == 0
    assert "no kernel can be derived for gate 'centred': it calls torch.mean" in result.stdout
    assert result.stdout.endswith("0 checked, 0 wrong\n")


@pytest.mark.parametrize(
    ("gate", "sentence"),
    [
        ("sigmid", "expected gate to be one of"),
        ("no_such_module:Gate", "to name a module that can be imported, got No module named 'no_such_module'"),
        ("gates_of_mine:Missing", "to be a gate or a gate class, got nothing of that name"),
        ("gates_of_mine:number", "to be a gate or a gate class, got int"),
        ("gates_of_mine:Demanding", "to require no arguments, got"),
        ("gates_of_mine:Bare", "expected gate 'bare' to return a Forgetting, got Tensor"),
    ],
)
def test_check_of_something_that_is_not_a_gate_gives_one_sentence(gate, sentence, own_gates):
    result = call("check", "--device", "cpu", "--gate", gate)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.output


def test_check_of_a_gate_in_a_module_that_fails_gives_one_sentence(own_gates, tmp_path, monkeypatch):
    (tmp_path / "broken_gates.py").write_text("this is no Python")
    monkeypatch.syspath_prepend(tmp_path)
    result = call("check", "--device", "cpu", "--gate", "broken_gates:Gate")
    assert result.exit_code == 2
    assert "to name a module that can be imported, got SyntaxError: " in result.stderr
    assert "Traceback" not in result.output


# bench


def test_bench_prints_machine_command_and_ratios():
    result = call(*TINY)
    assert result.exit_code == 0
    assert "remanence bench --device cpu --shapes T3-B2-H4 --gates fast --budget 5" in result.stdout
    for word in ("threads", "torch.nn.LSTM", "T3 B2 H4", "ratio", "KiB/step"):
        assert word in result.stdout


def test_bench_prints_markdown():
    result = call(*TINY, "--markdown")
    assert result.exit_code == 0
    assert "| layer | engine | forward | ratio |" in result.stdout
    assert "\n| torch.nn.LSTM |  | " in result.stdout


def test_bench_writes_json(tmp_path):
    path = tmp_path / "numbers.json"
    result = call(*TINY, "--engines", "cpu,loop", "--gates", "power_law", "--json", str(path))
    assert result.exit_code == 0
    found = json.loads(path.read_text())
    assert found["command"].startswith("remanence bench --device cpu --shapes T3-B2-H4 --gates fast --gates power_law ")
    assert found["precision"] == "full"
    assert found["machine"]["threads"]
    assert [(row["layer"], row["ran"]) for row in found["timings"]] == [
        ("torch.nn.LSTM", "torch"),
        *((layer, engine) for layer in ("fast", "power_law") for engine in ("cpu", "loop")),
    ]
    for row in found["timings"]:
        assert row["sizes"] == {"steps": 3, "batch": 2, "inputs": 10, "units": 4}
        assert row["training_ratio"] == pytest.approx(row["torch_training_ms"] / row["training_ms"])


def test_bench_prints_its_tables_even_if_the_json_file_cannot_be_written(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    result = call(*TINY, "--json", str(tmp_path / "numbers.json"))
    assert result.exit_code == 2
    assert result.stderr.endswith("numbers.json: No space left on device\n")
    assert "torch.nn.LSTM" in result.stdout
    assert list(tmp_path.iterdir()) == []


# As it is really called.


def test_the_command_as_a_process():
    done = subprocess.run(
        [sys.executable, "-m", "remanence", "check", "--device", "tpu"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "remanence: expected device to be cpu, cuda or cuda:N, got 'tpu'\n"
