"""The loop as a whole: it learns, and reports results."""

import json
from dataclasses import asdict, dataclass, fields, replace
from functools import partial

import pytest
import torch
import yaml
from small_runs import CONFIG, TASK, content, run, weights, words_run

from remanence.tasks import make
from remanence.tasks.copy import Copy
from remanence.training import Optimiser, Quiet, Silent, Stop, train


def lines(one):
    return [json.loads(line) for line in (one.directory / "metrics.jsonl").read_text().splitlines()]


def test_a_memory_task_is_learned(tmp_path):
    task = make("copy", delay=4, symbols=3, length=1, train_size=None, validation_size=200)
    one = run(
        tmp_path,
        task=task,
        model="fast",
        units=16,
        batch=32,
        epochs=10,
        epoch_updates=40,
        evaluate_every=None,
        evaluate_batch=100,
        stop=Stop(reached={"accuracy": 0.95}),
        optimiser=Optimiser("adam", lr=2e-2, clip_norm=1.0),
    )
    (result,) = train([one])
    assert result["status"] == "converged"
    assert result["last"]["accuracy"] > 0.9
    assert result["updates"] < 400
    assert lines(one)[0]["validation"]["loss"] > 2 * lines(one)[-1]["validation"]["loss"]


def test_a_result_says_if_the_data_are_unusual(tmp_path, monkeypatch):
    monkeypatch.setattr(type(TASK), "note", property(lambda task: "half of it"))
    (result,) = train([run(tmp_path)])
    assert result["data"] == "half of it"


def test_a_task_with_a_text_of_its_own_reads_no_corpus(own, tmp_path):
    (result,) = train([words_run(tmp_path, epochs=1)])  # its task has the name of a corpus, as every text task
    assert "data" not in result


def test_the_result_and_the_files(tmp_path):
    one = run(tmp_path)
    (result,) = train([one])
    metrics = lines(one)
    assert [line["update"] for line in metrics] == [4, 8, 12, 16, 20, 24]
    assert [line["epoch"] for line in metrics] == [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    assert metrics[0]["lr"] == 1e-2
    best = max(metrics, key=lambda line: line["validation"]["accuracy"])
    model = one.make_model()
    assert result == {
        "experiment": "test/copy",
        "model": "plstm",
        "seed": 1,
        "status": "finished",
        "updates": 24,
        "epochs": 3.0,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "last": {"update": 24, **metrics[-1]["validation"]},
        "best": {"update": best["update"], **best["validation"]},
        "test": result["test"],
        "test_weights": "best",
        "references": TASK.references,
        "updates_to": {"0.9": None, "0.99": None, "0.999": None},
    }
    assert result["test"].keys() == metrics[0]["validation"].keys()
    assert sorted(content(tmp_path)) == [
        "seed-1/checkpoints/best.safetensors",
        "seed-1/checkpoints/step-00000024.safetensors",
        "seed-1/config.yaml",
        "seed-1/events.out.tfevents.remanence",
        "seed-1/lock",
        "seed-1/metrics.jsonl",
        "seed-1/result.json",
    ]
    assert json.loads((one.directory / "result.json").read_text()) == result
    found = yaml.safe_load((one.directory / "config.yaml").read_text())
    assert found == json.loads(json.dumps(one.description))
    machine = json.loads((one.directory / "machine.json").read_text())
    assert machine["threads"] == 1
    assert machine["torch"] == torch.__version__
    times = [json.loads(line) for line in (one.directory / "times.jsonl").read_text().splitlines()]
    assert [line["what"] for line in times] == ["start", *["evaluation"] * 6, "end"]


@pytest.mark.parametrize("report", ["best", "last"])
def test_the_test_split_is_scored_with_the_requested_weights(tmp_path, report):
    one = run(tmp_path, report=report, optimiser=Optimiser("adam", lr=0.3))
    (result,) = train([one])
    assert result["best"]["update"] != 24, "a case in which best and last differ"
    model = one.make_model()
    model.load_state_dict(weights(one, "best.safetensors") if report == "best" else weights(one))
    model.eval()
    batch = TASK.source("test", 1, torch.device("cpu")).pick(torch.arange(12))
    outputs, _ = model(batch.inputs)
    right = (outputs.argmax(-1) == batch.targets)[-TASK.length :]
    assert result["test"]["accuracy"] == pytest.approx(right.double().mean().item())
    assert result["test_weights"] == report


@dataclass(frozen=True, kw_only=True)
class Unchecked(Copy):
    """Copy without a validation split."""

    def source(self, split, seed, device):
        return None if split == "validation" else super().source(split, seed, device)


def test_without_validation_the_last_weights_are_tested(tmp_path):
    one = run(tmp_path, task=Unchecked(**{field.name: getattr(TASK, field.name) for field in fields(TASK)}))
    (result,) = train([one])
    (checked,) = train([run(tmp_path / "checked", report="last")])
    assert result["test"] == checked["test"]
    assert (result["test_weights"], result["best"]) == ("last", None)
    assert lines(one)[-1].keys() == {"update", "epoch", "lr", "train", "check"}
    assert not (one.directory / "checkpoints" / "best.safetensors").exists()


def test_best_weights_say_whose_they_are(tmp_path):
    from remanence.training import checkpoint

    one = run(tmp_path)
    (result,) = train([one])
    _, data = checkpoint.load(one.directory / "checkpoints" / "best.safetensors")
    assert data["update"] == result["best"]["update"]
    assert data["config"] == json.loads(json.dumps(one.description))
    assert (data["experiment"], data["model"], data["seed"]) == ("test/copy", "plstm", 1)


def test_a_run_that_has_ended_is_not_trained_again(tmp_path):
    one = run(tmp_path)
    results = train([one])
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    forbidden = replace(one, make_model=lambda: pytest.fail("a model was made"))
    assert train([forbidden]) == results
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_seeds_can_be_added_later(tmp_path):
    first = train([run(tmp_path, 1)])
    both = train([run(tmp_path, 1), run(tmp_path, 2)])
    assert both[:1] == first
    assert both[1]["seed"] == 2


def test_seeds_at_different_updates_resume_in_groups(tmp_path):
    class Crash(Silent):
        def wants_loss(self):
            return True

        def step(self, update, loss=None):
            if update == 14:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train([run(tmp_path, 1)], progress=Crash())
    results = train([run(tmp_path, 1), run(tmp_path, 2)])
    assert [result["updates"] for result in results] == [24, 24]
    train([run(tmp_path / "other", 1)])
    assert content(tmp_path / "other" / "seed-1") == content(tmp_path / "seed-1")


def test_the_global_generator_is_left_alone(tmp_path):
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    train([run(tmp_path, dropout=0.5, epochs=1)])
    assert torch.equal(torch.rand(3), expected)


def test_the_number_of_threads_of_the_start_is_kept(tmp_path):
    class Crash(Silent):
        def __init__(self, at):
            self.at, self.threads = at, None

        def wants_loss(self):
            return True

        def step(self, update, loss=None):
            self.threads = torch.get_num_threads()
            if update == self.at:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train([run(tmp_path)], progress=Crash(5))
    torch.set_num_threads(2)
    later = Crash(None)
    train([run(tmp_path)], progress=later)
    assert later.threads == 1
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision_learns_about_the_same(tmp_path, precision):
    (full,) = train([run(tmp_path / "full")])
    one = run(tmp_path / "mixed", precision=precision)
    (mixed,) = train([one])
    assert mixed["last"]["loss"] == pytest.approx(full["last"]["loss"], rel=0.05)
    assert mixed["last"]["loss"] != full["last"]["loss"]
    assert {value.dtype for value in weights(one).values()} == {torch.float32}


def test_an_overflow_in_float16_skips_the_update(tmp_path, monkeypatch):
    from remanence.training import optimisers

    monkeypatch.setattr(optimisers, "START_SCALE", 2.0**30)  # overflows until it has been halved often enough
    one = run(tmp_path, precision="float16")
    (result,) = train([one])
    assert result["status"] == "finished"
    assert lines(one)[0]["train"]["loss"] > result["last"]["loss"]
    from remanence.training import checkpoint

    tensors, _ = checkpoint.load(max((one.directory / "checkpoints").glob("step-*")))
    assert tensors["scale/value"] < 2.0**30


def test_timescales_are_watched(tmp_path):
    one = run(tmp_path, model="lstm", watch_timescales=True, epochs=1)
    train([one])
    (layer,) = lines(one)[-1]["timescales"]
    import remanence as rm

    model = one.make_model()
    model.load_state_dict(weights(one))
    assert layer == rm.timescales.of(model.layer)[0].tolist()


def test_a_model_without_bias_timescales_is_not_watched(tmp_path):
    one = run(tmp_path, watch_timescales=True, epochs=1)
    train([one])
    assert "timescales" not in lines(one)[-1]


@pytest.mark.parametrize(
    ("stop", "status", "updates"),
    [
        (Stop(reached={"loss": 100.0, "accuracy": 0.0}), "converged", 4),
        (Stop(reached={"loss": 100.0, "accuracy": 1.1}), "not converged", 24),
        (Stop(failed={"accuracy": 1.1}, failed_after=2), "failed", 16),
        (Stop(failed={"accuracy": 1.1, "loss": 100.0}, failed_after=2), "finished", 24),
        (Stop(patience=2), "stalled", None),
    ],
    ids=["reached", "half reached", "failed", "half failed", "stalled"],
)
def test_stop_rules(tmp_path, stop, status, updates):
    one = run(tmp_path, stop=stop, optimiser=Optimiser("sgd", lr=1e-9))
    (result,) = train([one])
    assert result["status"] == status
    if updates is None:
        updates = result["best"]["update"] + 8
    assert result["updates"] == updates


def test_an_unknown_score_in_a_stop_rule_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"^expected training.stop to use scores out of loss, accuracy, .*, got 'f1'$"):
        train([run(tmp_path, stop=Stop(reached={"f1": 1.0}))])


def test_evaluation_takes_every_sequence_once_whatever_the_batch(tmp_path):
    found = [train([run(tmp_path / str(size), evaluate_batch=size)])[0]["last"] for size in (3, 20, 64)]
    assert found[1] == pytest.approx(found[0], rel=1e-5)
    assert found[2] == pytest.approx(found[0], rel=1e-5)
    fewer = train([run(tmp_path / "fewer", validation_size=5)])[0]["last"]
    assert fewer["accuracy"] * 10 == pytest.approx(round(fewer["accuracy"] * 10))


def test_the_quiet_progress_says_a_line_per_evaluation(tmp_path, capsys):
    train([run(tmp_path, epochs=1)], progress=Quiet())
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "test/copy plstm seed 1: starts at update 0 of 8"
    assert said[1].startswith("test/copy plstm seed 1: update 4, epoch 0.5, train loss ")
    assert said[-1] == "test/copy plstm seed 1: finished after 8 updates"
    assert len(said) == 4


TRACED = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")


@pytest.mark.long
@TRACED
@pytest.mark.parametrize("seeds", [(1,), (1, 2)], ids=["one", "two"])
def test_compiled_training_is_the_same(tmp_path, monkeypatch, seeds):
    """Through torch's tracer; its code generator needs a compiler and half a minute."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    eager = train([run(tmp_path / "eager", seed, epochs=1) for seed in seeds])
    compiled = train([run(tmp_path / "compiled", seed, epochs=1, compile=True) for seed in seeds])
    for one, other in zip(eager, compiled, strict=True):
        assert one["last"] == pytest.approx(other["last"], rel=1e-4)


def test_the_configuration_is_plain(tmp_path):
    assert asdict(CONFIG)["optimiser"]["betas"] == (0.9, 0.999)  # a tuple, which YAML gives back as a list
    train([run(tmp_path, epochs=1)])
    train([run(tmp_path, epochs=1)])
