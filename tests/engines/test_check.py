"""Comparing engines with the loop: agreement passes, disagreement is reported, and there are no side effects."""

import importlib
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

import remanence as rm
from remanence import gates
from remanence.cells import LSTMCell
from remanence.engines import KNOWN, comparison, loop, samples, self_check
from remanence.engines.machine import float32_products, tf32_in_recurrent_layers

checking = importlib.import_module("remanence.engines.check")
CPU = torch.device("cpu")


def fake(run, refuses=lambda task: None, name="fake"):
    return SimpleNamespace(name=name, run=run, refuses=refuses)


def wrong_values(task):
    result = loop.run(task)
    return result._replace(output=result.output * 1.001)


def wrong_final_state(task):
    result = loop.run(task)
    return result._replace(state=(*result.state[:-1], result.state[-1] * 1.001))


def wrong_input_gradient(task):
    return loop.run(replace(task, inputs=(task.inputs + task.inputs.detach()) / 2))


def wrong_bias_gradient(task):
    return loop.run(replace(task, weights={**task.weights, "bias_ih": task.weights["bias_ih"].detach()}))


def nowhere_a_number(task):
    result = loop.run(task)
    return result._replace(output=result.output * float("nan"))


def broken(task):
    raise RuntimeError("no kernel image is available\nfor this device")


WRONG = {
    wrong_values: "output is off by 1.0e-03",
    wrong_final_state: "is off by 1.0e-03",
    wrong_input_gradient: "gradient of input is off by",
    wrong_bias_gradient: "gradient of bias_ih is off by 1.0e+00",
    nowhere_a_number: "output is off by nan",
    broken: "it raised RuntimeError: no kernel image is available",
}
every_mistake = pytest.mark.parametrize(
    ("run", "words"), WRONG.items(), ids=lambda value: getattr(value, "__name__", "")
)


@pytest.fixture
def fresh(monkeypatch):
    monkeypatch.setattr(self_check, "_seen", {})


@pytest.fixture(scope="module")
def rows():
    before = torch.get_rng_state()
    found = checking.check("cpu")
    assert torch.equal(before, torch.get_rng_state())
    return found


def test_every_gate_in_every_cell_is_checked_in_both_wide_types(rows):
    found = {(row.cell, row.gate, row.dtype) for row in rows if row.engine == "cpu"}
    cells = ("lstm", "lstm coupled", "gru", "janet", "phased")
    pairs = {(cell, gate) for cell in cells for gate in gates.KNOWN}
    pairs |= {("modrelu", ""), ("modrelu_complex", ""), ("modrelu_gru", "sigmoid")}
    assert found == {(*pair, dtype) for pair in pairs for dtype in ("float32", "float64")}


def test_the_engines_of_this_package_agree_with_the_loop(rows):
    assert [row for row in rows if not row.ok] == []
    assert all(max(row.error_values, row.error_gradients) <= row.tolerance for row in rows)
    assert all(row.reason is None and row.device == "cpu" for row in rows)


def test_the_loop_is_not_checked_against_itself(rows):
    assert {row.engine for row in rows} == set(KNOWN) - {"loop"} - set(checking.refusals("cpu"))


def test_power_law_is_checked_with_and_without_dt_and_all_in_both_directions():
    for cell in samples.every_cell():
        first, second = checking.variants(cell, torch.float32, CPU)
        assert first.dt is None
        assert (second.dt is not None) == cell.takes_dt
        assert (first.reverse, second.reverse) == (False, True)
        assert first.lengths is None
        assert second.lengths.min() < second.inputs.shape[0] == second.lengths.max()


@every_mistake
@pytest.mark.parametrize("precision", [comparison.FLOAT64, comparison.FLOAT32], ids=lambda precision: precision.name)
def test_an_engine_that_is_wrong_is_reported(run, words, precision):
    row = checking.compare(fake(run), LSTMCell(gates.Sigmoid()), precision, CPU)
    assert not row.ok
    assert words in row.reason
    assert "\n" not in row.reason


def test_an_engine_that_refuses_has_no_row():
    picky = fake(broken, refuses=lambda task: "it is picky" if task.reverse else None)
    assert (
        checking.compare(fake(broken, lambda task: "it is picky"), LSTMCell(gates.Fast()), comparison.FLOAT32, CPU)
        is None
    )
    assert checking.compare(picky, LSTMCell(gates.Fast()), comparison.FLOAT32, CPU).ok is False


def test_an_engine_that_refuses_everything_is_named_with_its_reason(monkeypatch):
    monkeypatch.setitem(KNOWN, "fake", fake(broken, lambda task: "it is picky"))
    assert checking.refusals("cpu")["fake"] == "it is picky"
    assert "cpu" not in checking.refusals("cpu")


@pytest.mark.parametrize("precision", [comparison.BFLOAT16, comparison.FLOAT16], ids=lambda precision: precision.name)
@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
def test_the_loop_in_a_narrow_type_stays_within_what_is_allowed(precision):
    row = checking.compare(fake(loop.run), LSTMCell(gates.PowerLaw(), coupled=True), precision, CPU)
    assert row.ok
    assert row.error_gradients > precision.tolerance / 100


@pytest.mark.parametrize("device", ["tpu", "mps", "", "meta", "cuda:99"])
def test_a_device_that_is_not_there_is_refused_in_a_sentence(device):
    with pytest.raises(ValueError, match=r"^expected .*device.*, got '.*'"):
        checking.check(device)


# Once per engine and kind of device.


@pytest.mark.usefixtures("fresh")
def test_self_check_trusts_what_agrees():
    before = torch.get_rng_state()
    assert self_check.self_check(KNOWN["cpu"], CPU) is None
    assert torch.equal(before, torch.get_rng_state())


@every_mistake
@pytest.mark.usefixtures("fresh")
def test_self_check_says_what_disagrees(run, words):
    sentence = self_check.self_check(fake(run), CPU)
    assert sentence.startswith(
        'engine "fake" disagrees with the loop engine on cpu (lstm coupled with gate power_law): '
    )
    assert words in sentence


@pytest.mark.usefixtures("fresh")
def test_self_check_checks_cells_with_dedicated_kernels_separately():
    cells = []

    def run(task):
        cells.append(task.cell.name)
        return wrong_values(task) if task.cell.name == "nru" else loop.run(task)

    assert self_check.self_check(fake(run), CPU) is None
    sentence = self_check.self_check(fake(run), CPU, "nru")
    assert sentence.startswith('engine "fake" disagrees with the loop engine on cpu (nru): ')
    assert self_check.self_check(fake(run), CPU) is None
    assert cells == ["lstm", "nru"]


@pytest.mark.usefixtures("fresh")
def test_self_check_allows_a_cell_that_amplifies_the_error_of_the_loop(monkeypatch):
    monkeypatch.setattr(self_check, "own_error", lambda task: 10.0)
    assert self_check.self_check(fake(wrong_values), CPU, "nru") is None
    assert self_check.self_check(fake(wrong_values), CPU) is not None


@pytest.mark.usefixtures("fresh")
def test_self_check_runs_once():
    runs = []

    def run(task):
        runs.append(task)
        return wrong_values(task)

    said = [self_check.self_check(fake(run), CPU) for _ in range(3)]
    assert len(runs) == 1
    assert said[0] == said[1] == said[2] is not None
    assert self_check.self_check(fake(run, name="other"), CPU) is not None
    assert len(runs) == 2


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    "mode",
    [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)],
    ids=["no_grad", "inference", "autocast"],
)
def test_self_check_does_not_depend_on_the_mode_of_the_caller(mode):
    with mode():
        assert self_check.self_check(KNOWN["cpu"], CPU) is None
        assert "gradient of input" in self_check.self_check(fake(wrong_input_gradient), CPU)


@pytest.mark.usefixtures("fresh")
def test_self_check_does_not_call_saved_tensor_hooks_of_the_caller():
    """Such as those of torch.utils.checkpoint, which counts saved tensors."""
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda kept: kept):
        assert self_check.self_check(KNOWN["cpu"], CPU) is None
    assert self_check._seen
    assert not kept


@pytest.mark.usefixtures("fresh")
def test_self_check_is_not_seen_by_selective_checkpointing():
    inputs = torch.randn(3, 3, requires_grad=True)

    def function(inputs):
        self_check.self_check(KNOWN["cpu"], CPU)
        return torch.mm(inputs, inputs).tanh()

    contexts = partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default, torch.ops.aten.addmm.default])
    outputs = checkpoint(function, inputs, use_reentrant=False, context_fn=contexts)
    (found,) = torch.autograd.grad(outputs.sum(), inputs)
    assert self_check._seen
    torch.testing.assert_close(found, torch.autograd.grad(function(inputs).sum(), inputs)[0])


NOT_NOW = {
    "grad": lambda look: torch.func.grad(lambda x: look() or x.sum())(torch.ones(2)),
    "vmap": lambda look: torch.func.vmap(lambda x: look() or x)(torch.ones(2)),
    "forward mode": lambda look: within(torch.autograd.forward_ad.dual_level(), look),
    "fake tensors": lambda look: within(FakeTensorMode(), look),
}


def within(mode, look):
    with mode:
        look()


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("name", NOT_NOW)
def test_self_check_does_nothing_with_transformed_or_fake_tensors(name):
    said = []
    NOT_NOW[name](lambda: said.append(self_check.self_check(fake(broken), CPU)))
    assert said == [None]
    assert not self_check._seen
    assert "it raised" in self_check.self_check(fake(broken), CPU)
    NOT_NOW[name](lambda: said.append(self_check.self_check(fake(broken), CPU)))
    assert "it raised" in said[1]


@pytest.mark.usefixtures("fresh")
def test_self_check_does_nothing_while_a_compiler_traces(monkeypatch):
    with monkeypatch.context() as tracing:
        tracing.setattr(torch.compiler, "is_compiling", lambda: True)
        assert self_check.self_check(fake(broken), CPU) is None
    assert "it raised" in self_check.self_check(fake(broken), CPU)


@pytest.mark.usefixtures("fresh")
def test_self_check_of_an_engine_that_refuses_finds_nothing():
    assert self_check.self_check(fake(broken, lambda task: "it is picky"), CPU) is None


@pytest.mark.usefixtures("fresh")
def test_running_out_of_memory_says_nothing_about_an_engine():
    def full(task):
        raise torch.OutOfMemoryError("full")

    with pytest.raises(torch.OutOfMemoryError):
        self_check.self_check(fake(full), CPU)
    assert self_check._seen == {}


@pytest.mark.parametrize(("tf32", "setting"), [(True, "tf32"), (False, "ieee")])
def test_matmul_precision_is_restored(tf32, setting):
    places = torch.backends.cudnn.rnn, torch.backends.cuda.matmul
    before = [place.fp32_precision for place in places]
    with float32_products(tf32):
        assert tf32_in_recurrent_layers() is tf32
        assert [place.fp32_precision for place in places] == [setting] * 2
    assert [place.fp32_precision for place in places] == before


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.usefixtures("fresh")
def test_engines_on_a_cuda_device_agree_and_leave_its_random_state_alone():
    device = torch.device("cuda", torch.cuda.current_device())
    before = torch.get_rng_state(), torch.cuda.get_rng_state()
    cell = LSTMCell(gates.PowerLaw(), coupled=True)
    for engine in checking.checked():
        for precision in checking.PRECISIONS["cuda"]:
            with float32_products(precision.tf32):
                row = checking.compare(engine, cell, precision, device)
            assert row is None or row.ok, row
        assert self_check.self_check(engine, device) is None
    assert torch.equal(before[0], torch.get_rng_state())
    assert torch.equal(before[1], torch.cuda.get_rng_state())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.usefixtures("fresh")
def test_self_check_does_nothing_during_graph_capture_and_returns_its_last_result():
    device = torch.device("cuda", torch.cuda.current_device())
    count = torch.zeros(1, device=device)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        count += 1
        assert self_check.self_check(fake(broken), device) is None
    assert self_check._seen == {}
    assert "it raised" in self_check.self_check(fake(broken), device)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        count += 1
        assert "it raised" in self_check.self_check(fake(broken), device)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("more", [{"recompute": 3}, {}], ids=["recompute", "checkpoint"])
def test_self_check_may_happen_inside_of_a_checkpoint(more):
    layer = rm.LSTM(5, 40, gate="fast", device="cuda", **more)
    inputs = torch.randn(9, 3, 5, device="cuda", requires_grad=True)
    (layer(inputs) if more else checkpoint(layer, inputs, use_reentrant=False))[0].sum().backward()
    assert self_check._seen
    assert inputs.grad.abs().sum() > 0
