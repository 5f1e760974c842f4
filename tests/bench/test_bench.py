"""Benchmarks: plans, timings, and layers that cannot be measured."""

import json
import os
import time
from dataclasses import fields, replace

import pytest
import torch
from torch import nn

from remanence import bench, engines, gates
from remanence.bench import apart, growth, measure, replicas, sections, shapes, timings, work

CPU = torch.device("cpu")


def tiny(**changes):
    arguments = {"device": "cpu", "shapes": ["T3-B2-H4"], "layers": ["fast"], "budget": 60.0} | changes
    return bench.plan(**arguments)


def run(plan):
    return bench.run(plan, "remanence bench")


# Plans.


def test_the_shapes_of_the_goals_are_all_there():
    sizes = {shape.name: (shape.steps, shape.batch, shape.units) for shape in shapes.KNOWN.values()}
    assert sizes["copy-200"] == (220, 128, 128)
    assert sizes["copy-1000"] == (1020, 128, 128)
    assert sizes["adding-5000"] == (5000, 50, 128)
    assert sizes["pixel-256"] == (784, 100, 256)
    assert sizes["pixel-512"] == (784, 100, 512)
    assert sizes["char-ptb"] == (150, 128, 716)
    assert sizes["word-ptb"] == (70, 20, 1150)
    assert [sizes[shape.name][1:] for shape in shapes.CPU] == [(32, 128), (128, 128), (100, 256)]


def test_a_plan_has_every_gate_and_full_precision_on_a_cpu_unless_told_otherwise():
    plan = bench.plan("cpu")
    assert plan.layers == (*gates.KNOWN, "gru", "janet", "phased", "nru", "proj-fast", "proj-power_law")
    assert (plan.precision, plan.dtype, plan.engines) == ("full", torch.float32, None)
    assert plan.shapes == shapes.CPU
    assert plan.budget < 300
    assert bench.plan("cpu", quick=True).budget < 30


def test_growth_is_measured_if_its_shape_is_among_the_chosen_ones():
    base = bench.plan("cpu").growth
    assert base.name == "cpu-small-batch"
    assert bench.plan("cpu", ["T20-B16-H32", base.name]).growth == base
    assert bench.plan("cpu", ["T20-B16-H32"]).growth is None


def test_a_shape_can_be_spelled_out():
    assert shapes.shape_named("T7-B3-H5") == shapes.Shape("T7-B3-H5", 7, 3, 10, 5)
    assert shapes.shape_named("t7-b3-i2-h5").inputs == 2


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"device": "tpu"}, "expected device to be cpu, cuda or cuda:N, got 'tpu'"),
        ({"shapes": ["pixel-255"]}, "did you mean 'pixel-256'"),
        ({"shapes": ["T0-B1-H1"]}, "expected shape to be one of"),
        ({"layers": ["powerlaw"]}, "did you mean 'power_law'"),
        ({"engine_names": ["loops"]}, "did you mean 'loop'"),
        ({"precision": "fp8"}, "expected precision to be one of tf32, full, bf16, got 'fp8'"),
        ({"precision": "tf32"}, "expected precision to be full or bf16 on a CPU, got 'tf32'"),
        ({"budget": 0.0}, "expected budget to be a positive number of seconds, got 0"),
    ],
)
def test_a_wrong_argument_is_answered_by_a_sentence(wrong, words):
    with pytest.raises(ValueError, match=r"^expected ") as caught:
        tiny(**wrong)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("device", "options", "apart"),
    [
        ("cpu", {"apart": True}, True),
        ("cpu", {}, False),
        ("cpu", {"apart": True, "quick": True}, False),
        ("cuda", {"apart": True}, False),
    ],
)
def test_layers_have_processes_of_their_own_on_a_cpu_if_asked_for(monkeypatch, device, options, apart):
    monkeypatch.setattr(shapes, "device_named", torch.device)
    assert bench.plan(device, **options).apart == apart


# Time and memory.


def test_calls_are_taken_in_turn():
    order = []
    calls = {name: (lambda name=name: order.append(name)) for name in "ab"}
    times = measure.milliseconds(measure.timed(calls, CPU), seconds=1.0)
    rounds = [tuple(order[i : i + 2]) for i in range(0, len(order), 2)]
    assert len(rounds) == measure.MOST
    assert set(rounds) == {("a", "b"), ("b", "a")}  # not always the same one first
    assert set(times) == {"a", "b"}


def test_slow_calls_are_not_repeated_for_long(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    made = []

    def call():
        made.append(1)
        now[0] += 2.0

    timers = measure.timed({"slow": call}, CPU)
    assert measure.milliseconds(timers, seconds=2.0)["slow"] == 2000
    assert len(made) == 3
    made.clear()
    measure.milliseconds(timers, seconds=0.1)
    assert len(made) == 1


def test_quick_calls_are_repeated_even_where_the_time_is_over():
    made = []
    measure.milliseconds(measure.timed({"quick": lambda: made.append(1)}, CPU), seconds=-3.0)
    assert len(made) == measure.MOST


def test_memory_is_what_the_backward_pass_keeps_beyond_weights_and_inputs():
    layer = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Tanh())
    inputs = torch.ones(7, 3, requires_grad=True)
    assert measure.training_bytes(layer, inputs, lambda: None) == 2 * 7 * 5 * 4


# Rows.


def test_every_row_has_times_ratios_and_memory():
    plan = tiny(layers=["fast", "power_law", "gru"], engine_names=["auto", "cpu", "loop"])
    found = run(plan)
    rows = found.timings
    assert [(row.layer, row.engine) for row in rows] == [
        ("torch.nn.LSTM", ""),
        *((layer, engine) for layer in ("fast", "power_law", "gru") for engine in ("auto", "cpu", "loop")),
    ]
    torchs = rows[0]
    for row in rows:
        assert row.reason is None
        assert row.forward_ratio == pytest.approx(torchs.forward_ms / row.forward_ms)
        assert row.training_ratio == pytest.approx(torchs.training_ms / row.training_ms)
        assert row.memory_ratio == pytest.approx(torchs.bytes_per_step / row.bytes_per_step)
        assert row.bytes_per_step > 0


def test_by_default_every_engine_that_can_run_is_measured_once():
    rows = run(tiny()).timings[1:]
    automatic = rows[0]
    assert automatic.engine == "auto"
    task = work.blank_task("fast", tiny().shapes[0], tiny())
    able = {name for name, engine in engines.KNOWN.items() if engine.refuses(task) is None}
    assert sorted(row.ran for row in rows) == sorted(able)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_projected_layers_are_compared_to_projected_ones_and_others_to_others():
    found = run(tiny(layers=["fast", "proj-fast"], engine_names=["loop"]))
    plain, projected, ours, ours_projected = found.timings
    assert (plain.layer, projected.layer) == (work.TORCH, work.TORCH_PROJECTED)
    assert (ours.torch_training_ms, ours.torch_forward_ms) == (plain.training_ms, plain.forward_ms)
    assert ours_projected.torch_training_ms == projected.training_ms
    assert ours_projected.torch_bytes_per_step == projected.bytes_per_step
    table = bench.tables(found)[0]
    assert [row[0] for row in table.rows] == ["torch.nn.LSTM", "torch.nn.LSTM, projected", "fast", "proj-fast"]


def test_only_projected_layers_need_no_plain_rival():
    assert list(work.rivals(tiny(layers=["proj-fast"]))) == [work.TORCH_PROJECTED]


def test_an_nru_has_the_memory_of_its_size():
    shape = shapes.shape_named("T3-B2-H128")
    assert work.blank_task("nru", shape, tiny()).cell.memory_size == 64


def test_the_loop_is_skipped_on_long_sequences_unless_requested():
    long = tiny(shapes=["T200-B1-H1"])
    assert "loop" not in {row.engine for row in timings.candidates(long.shapes[0], long)}
    asked = tiny(shapes=["T200-B1-H1"], engine_names=["loop"])
    assert [row.engine for row in timings.candidates(asked.shapes[0], asked)] == ["loop"]


def test_an_engine_that_refuses_is_a_row_with_the_reason(monkeypatch):
    monkeypatch.setattr(engines.KNOWN["cpu"], "refuses", lambda task: "it is picky")
    found = run(tiny(engine_names=["cpu", "loop"]))
    refused, measured = found.timings[1:]
    assert (refused.reason, refused.forward_ms, refused.training_ratio) == ("it is picky", None, None)
    assert measured.training_ratio > 0
    assert "fast cpu: it is picky" in bench.tables(found)[0].notes


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried"), "out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you"), "out of memory"),
        (RuntimeError("a kernel failed\nsomewhere"), "RuntimeError: a kernel failed"),
    ],
)
def test_a_layer_that_fails_is_a_row_with_the_reason_and_the_others_are_measured(monkeypatch, error, reason):
    plan = tiny(layers=["fast", "gru"], engine_names=["cpu"])
    train = work.Work.train

    def fail(self):
        if type(self.layer).__name__ == "GRU":
            raise error
        train(self)

    monkeypatch.setattr(work.Work, "train", fail)
    torchs, fast, gru = run(plan).timings
    assert (torchs.reason, fast.reason, gru.reason) == (None, None, reason)
    assert gru.training_ms is None
    assert fast.training_ratio > 0


def test_rows_beyond_the_budget_are_skipped_with_a_reason():
    found = run(replace(tiny(budget=1e-9), growth=shapes.Shape("tiny", 3, 2, 4, 5)))
    assert len(found.growth) == 2
    for row in (*found.timings, *found.growth):
        assert row.reason == "not measured: the budget of 0 s was spent"
        assert row.training_ms is None


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
def test_bfloat16_is_compared_with_the_faster_of_torchs_dtypes():
    rows = run(tiny(precision="bf16", engine_names=["loop"])).timings
    assert [row.layer for row in rows] == ["torch.nn.LSTM bfloat16", "torch.nn.LSTM float32", "fast"]
    assert rows[2].torch_training_ms == min(rows[0].training_ms, rows[1].training_ms)


def test_growth_compares_twice_the_size_with_the_size(monkeypatch):
    asked = {}

    def fixed(calls, seconds):
        asked.update({name: tuple(call.__self__.inputs.shape) for name, call in calls.items()})
        factor = {"base": 1.0, "steps": 2.0, "batch": 1.5, "units": 3.0}
        return {name: 10 * factor[name.split("/")[1]] for name in calls}

    monkeypatch.setattr(growth, "milliseconds", fixed)
    plan = replace(tiny(), growth=shapes.Shape("tiny", 3, 2, 4, 5))
    with apart.makers(plan) as make:
        rows = list(growth.growth(plan, make, measure.Clock(60), lambda words: None))
    assert [row.layer for row in rows] == ["torch.nn.LSTM", "fast"]
    assert {(row.training_ms, row.steps, row.batch, row.units) for row in rows} == {(10.0, 2.0, 1.5, 3.0)}
    base = plan.growth
    assert asked["fast/steps"] == (2 * base.steps, base.batch, base.inputs)
    assert asked["fast/batch"] == (base.steps, 2 * base.batch, base.inputs)


def test_replicas_are_left_out_where_the_engine_runs_one_after_the_other():
    plan = tiny(shapes=[], quick=True)
    assert not any(replicas.takes_replicas(layer, plan.growth, plan) for layer in plan.layers)
    assert list(replicas.replicas(plan, measure.Clock(1), print)) == []


def test_replicas_are_compared_with_one(monkeypatch):
    plan = replace(tiny(), growth=shapes.Shape("tiny", 3, 2, 4, 5))
    monkeypatch.setattr(engines.choice, "runs_side_by_side", lambda engine: False)
    monkeypatch.setattr(engines, "runs_side_by_side", lambda engine: True)
    rows = list(replicas.replicas(plan, measure.Clock(1), lambda words: None))
    assert [(row.count, row.reason) for row in rows] == [(count, None) for count in replicas.COUNTS]
    assert rows[0].ratio == 1
    assert "replicas" in sections.replica_table(rows).title


def test_a_step_of_replicas_gives_each_its_own_gradients():
    plan = replace(tiny(layers=["power_law"]), growth=shapes.Shape("tiny", 3, 2, 4, 5))
    step = replicas.Together("power_law", 2, plan.growth, plan)
    step()
    first, second = step.task.weights["weight_hh"].grad
    assert first.norm() > 0
    assert not torch.equal(first, second)


# Processes of their own.


def test_every_layer_has_a_process_of_its_own_if_asked_for():
    plan = tiny(apart=True)
    (shape,) = plan.shapes
    with apart.makers(plan) as make:
        works = [make(work.TORCH, "", shape), make("fast", "auto", shape), make("fast", "loop", shape)]
        torchs, fast, same = (one.process.submit(os.getpid).result() for one in works)
        assert len({os.getpid(), torchs, fast}) == 3
        assert same == fast
        assert works[0].process.submit(torch.get_num_threads).result() == torch.get_num_threads()
        assert [one.warm() for one in works] == [work.make_work(*one.name, plan).warm() for one in works]
        assert all(one.infer_ms() > 0 and one.train_ms() > 0 for one in works)


def test_the_first_call_of_a_turn_is_not_measured(monkeypatch):
    (shape,) = tiny().shapes
    name, times = ("fast", "auto", shape), iter([9.0, 1.0])
    monkeypatch.setitem(apart._works, name, None)
    assert apart._there(name, lambda work: next(times), apart.IN_A_ROW) == 1.0


def test_a_report_from_processes_has_the_same_rows():
    together = run(replace(tiny(), growth=shapes.Shape("tiny", 3, 2, 4, 5)))
    found = run(replace(tiny(apart=True), growth=shapes.Shape("tiny", 3, 2, 4, 5)))
    assert found.machine["processes"] == "one for every layer"
    for name in ("timings", "growth"):
        rows, others = getattr(found, name), getattr(together, name)
        assert [(row.layer, row.ran, row.reason) for row in rows] == [
            (row.layer, row.ran, row.reason) for row in others
        ]
        assert all(row.training_ms > 0 for row in rows)


def test_a_process_that_dies_is_a_row_with_the_reason():
    plan = tiny(layers=["fast"], engine_names=["loop"], apart=True)
    with apart.makers(plan) as make:

        def killed(layer, engine, shape):
            one = make(layer, engine, shape)
            if engine:
                one.process.submit(os._exit, 1)
            return one

        torchs, fast = timings.at(plan.shapes[0], plan, killed, measure.Clock(60), 1, lambda words: None)
    assert torchs.training_ms > 0
    assert fast.training_ms is None
    assert fast.reason.startswith("BrokenProcessPool: ")


# Reports.


def test_a_run_leaves_the_random_state_alone_and_describes_the_machine():
    before = torch.get_rng_state()
    found = run(tiny())
    assert torch.equal(before, torch.get_rng_state())
    assert {"device", "threads", "python", "torch", "triton", "remanence", "date"} <= found.machine.keys()
    assert found.machine["torch"] == torch.__version__


def test_numbers_survive_json(tmp_path):
    found = run(tiny())
    bench.save(found, tmp_path / "numbers.json")
    assert [path.name for path in tmp_path.iterdir()] == ["numbers.json"]
    assert json.loads((tmp_path / "numbers.json").read_text()) == json.loads(json.dumps(found.plain()))
    again = bench.load(tmp_path / "numbers.json")
    assert again.plain() == found.plain()
    assert bench.tables(again) == bench.tables(found)


def test_every_list_of_a_report_is_a_section():
    lists = [field.name for field in fields(bench.BenchReport) if field.default_factory is list]
    assert lists == [section.name for section in sections.SECTIONS]
    empty = bench.BenchReport({}, "remanence bench", "full", 1.0)
    assert bench.tables(empty) == []
    assert bench.reading(empty).startswith("One layer in full float32 against torch.nn.LSTM. ")


def test_a_file_that_could_not_be_finished_is_not_there(tmp_path, monkeypatch):
    found = run(tiny())
    (tmp_path / "numbers.json").write_text("old")
    monkeypatch.setattr("os.replace", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        bench.save(found, tmp_path / "numbers.json")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("numbers.json", "old")]


def test_markdown_has_a_cell_for_every_heading():
    table = bench.tables(run(tiny()))[0]
    lines = [line for line in table.markdown().splitlines() if line.startswith("|")]
    assert {line.count("|") for line in lines} == {len(table.headings) + 1}
    assert len(lines) == len(table.rows) + 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:RNN module weights are not part:UserWarning")  # torch's own, in bfloat16
@pytest.mark.parametrize("precision", shapes.PRECISIONS)
def test_rows_on_a_cuda_device(precision):
    before = torch.cuda.get_rng_state()
    plan = bench.plan("cuda", ["T20-B16-H32"], ["fast", "power_law"], ["auto"], precision, budget=120)
    rows = run(plan).timings
    assert [row.reason for row in rows] == [None] * len(rows)
    assert all(row.training_ratio > 0 and row.bytes_per_step > 0 for row in rows)
    assert torch.equal(before, torch.cuda.get_rng_state())
