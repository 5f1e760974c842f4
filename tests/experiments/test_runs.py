"""From an experiment to its runs, from runs to results, and back to models."""

import json
import math
import shutil
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remanence.experiments import Way, find, load_model, plan, results, run
from remanence.experiments.models import build_model
from remanence.experiments.runs import train_models
from remanence.experiments.schema import ReportedNumber
from remanence.experiments.sections import gather
from remanence.experiments.way import NARROW, TURNS, evenly
from remanence.table import Table, mean_and_std
from remanence.training import Budget, Ranks, Silent, Stopped

TINY = ["train.epochs=1", "task.train_size=64", "task.delay=3"]


class Listener(Silent):
    def __init__(self):
        self.said = []

    def say(self, message):
        self.said.append(message)


@pytest.fixture
def way(tmp_path):
    return Way(tmp_path, torch.device("cpu"), progress=Listener())


def tiny(*overrides):
    return find("plstm/copy-200", "smoke", [*TINY, *overrides])


def test_runs_have_folders_of_experiment_preset_model_and_seed(tmp_path):
    runs = plan(tiny(), tmp_path, ["plstm"], [3, 5])
    assert list(runs) == ["plstm"]
    assert [one.directory for one in runs["plstm"]] == [
        tmp_path / "plstm" / "copy-200" / "smoke" / "plstm" / f"seed-{seed}" for seed in (3, 5)
    ]
    assert [one.seed for one in runs["plstm"]] == [3, 5]
    description = runs["plstm"][0].description
    assert (description["task"]["delay"], description["training"]["epochs"], description["seed"]) == (3, 1, 3)


def test_seeds_go_side_by_side_on_a_gpu_and_alone_on_a_cpu(tmp_path):
    runs = plan(tiny(), tmp_path, ["plstm"], range(5))["plstm"]

    def sizes(device, together=None):
        return [len(part) for part, _ in Way(tmp_path, torch.device(device), together=together).batches([runs])]

    assert (sizes("cpu"), sizes("cuda"), sizes("cpu", 2), sizes("cuda", 3)) == ([1] * 5, [5], [2, 2, 1], [3, 2])


def names_of(runs):
    return [f"{one.model_name} {one.seed}" for one in runs]


def test_models_that_leave_much_of_a_gpu_idle_take_turns(tmp_path):
    def groups(hidden, device="cuda", **keywords):
        models = plan(tiny(f"model.hidden_size={hidden}", "train.batch=32"), tmp_path, [], [1, 2]).values()
        return [
            (names_of(part), turns) for part, turns in Way(tmp_path, torch.device(device), **keywords).batches(models)
        ]

    stacks = [[f"{model} {seed}" for seed in (1, 2)] for model in ("lstm", "lstm-chrono", "plstm")]
    one_by_one = [(stack, 1) for stack in stacks]
    assert groups(NARROW // 64) == [([name for stack in stacks for name in stack], TURNS)]
    assert groups(NARROW // 64 + 1) == groups(8, together=2) == groups(8, ranks=Ranks(size=2)) == one_by_one
    assert groups(8, device="cpu") == [([name], 1) for stack in stacks for name in stack]


def test_language_models_of_one_seed_take_turns_on_a_gpu(tmp_path):
    groups = plan(find("mts/ptb", "smoke"), tmp_path, [], [1, 2, 3])

    def groups_of(device, together=None, ranks=None, models=None):
        way = Way(tmp_path, torch.device(device), together=together, ranks=ranks or Ranks())
        return [(names_of(part), turns) for part, turns in way.batches(models or groups.values())]

    in_order = [f"{model} {seed}" for seed in (1, 2, 3) for model in ("baseline", "mts")]
    assert groups_of("cuda") == [(in_order, TURNS)]
    assert groups_of("cuda", 2) == [(in_order, 2)]
    assert groups_of("cpu") == groups_of("cuda", ranks=Ranks(size=2)) == [([name], 1) for name in in_order]
    wide = plan(find("mts/wt2", "smoke", [f"train.batch={NARROW}"]), tmp_path, ["mts"], [1, 2])
    both = groups_of("cuda", models=[*groups.values(), *wide.values()])
    assert both == [(in_order, TURNS), (["mts 1"], 1), (["mts 2"], 1)]


@given(st.integers(0, 40), st.integers(1, 12))
def test_groups_are_even(count, most):
    groups = list(evenly(range(count), most))
    assert [number for group in groups for number in group] == list(range(count))
    assert len(groups) == math.ceil(count / most)
    sizes = [len(group) for group in groups]
    assert not sizes or (max(sizes) <= most and max(sizes) - min(sizes) <= 1)


def test_a_run_gives_a_table_a_summary_and_a_model(way):
    experiment = tiny()
    (table,) = run(experiment, way, ["plstm"], [1, 2])
    assert [row[:3] for row in table.rows] == [("plstm", "2", "0")]
    summary = json.loads((results.folder_of(way.out, experiment) / "summary.json").read_text())
    seeds = summary["models"]["plstm"]["seeds"]
    assert set(seeds) == {"1", "2"}
    assert summary["models"]["plstm"]["mean"] == pytest.approx(sum(one["score"] for one in seeds.values()) / 2)
    model = load_model(results.run_folder(way.out, experiment, "plstm", 2))
    assert not model.training
    outputs, _ = model(torch.zeros(4, 2, 10))
    assert outputs.shape == (4, 2, 10)
    fresh = build_model(experiment.models["plstm"]).state_dict()
    assert any((fresh[name] != value).any() for name, value in model.state_dict().items())


def test_models_trained_later_join_the_summary(way):
    experiment = tiny()
    run(experiment, way, ["plstm"], [1])
    (table,) = run(experiment, way, ["lstm"], [1])
    assert [row[0] for row in table.rows] == ["lstm", "plstm"]


def test_another_configuration_in_the_same_folder_is_refused(way):
    run(tiny(), way, ["plstm"], [1])
    with pytest.raises(ValueError, match=r"expected training\.optimiser\.lr to be 0\.001 as in .*, got 0\.5"):
        run(tiny("train.lr=0.5"), way, ["plstm"], [1])


def test_runs_of_another_configuration_do_not_join_the_table(way):
    run(tiny(), way, ["plstm"], [1])
    for models, seeds in ((["plstm"], [2]), (["lstm"], [1])):
        with pytest.raises(
            ValueError, match=r"expected training\.optimiser\.lr to be 0\.001 as in .*seed-1.*, got 0\.5"
        ):
            run(tiny("train.lr=0.5"), way, models, seeds)
    run(tiny("models.lstm.training.lr=0.5"), way, ["lstm"], [1])


def test_a_score_that_nobody_measured_is_named(way):
    run(tiny(), way, ["plstm"], [1])
    expected = r"^expected report\.score to be one of loss, accuracy, sequence_accuracy, got 'bits'$"
    with pytest.raises(ValueError, match=expected):
        run(tiny("report.score=bits"), way, ["plstm"], [1])


def test_a_spent_budget_stops_and_sums_up_what_there_is(way):
    experiment = tiny()
    run(experiment, way, ["lstm"], [1])
    before = (results.folder_of(way.out, experiment) / "summary.json").read_bytes()
    way.budget = Budget(1e-9)
    with pytest.raises(Stopped) as stopped:
        run(experiment, way, ["plstm"], [1])
    assert stopped.value.code == 0
    assert (results.folder_of(way.out, experiment) / "summary.json").read_bytes() == before


def test_missing_data_is_answered_before_anything_is_written(way, monkeypatch, tmp_path):
    monkeypatch.setenv("REMANENCE_OFFLINE", "1")
    monkeypatch.setenv("REMANENCE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("REMANENCE_DATA", raising=False)
    with pytest.raises(ValueError, match="expected data set 'imdb'"):
        run(find("plstm/imdb", "smoke"), way)
    assert list(tmp_path.iterdir()) == []


def test_an_analysis_trains_what_it_needs_and_says_so_and_then_finds_it(way):
    experiment = find("plstm/kt-and-p", "smoke")
    run(experiment, way, seeds=[1])
    needs = [words for words in way.progress.said if "needs" in words]
    assert needs == [
        f"plstm/kt-and-p needs plstm/copy-{delay} (preset smoke); missing runs, trained first: 1"
        for delay in (200, 500)
    ]
    way.progress.said.clear()
    (table, compared) = run(experiment, way, seeds=[1])
    assert way.progress.said == []
    assert [row[0] for row in table.rows] == ["T=200", "T=500"]
    assert len(compared.rows) == 1


def test_an_analysis_refuses_models_of_another_configuration(way):
    run(find("plstm/copy-200", "smoke", ["train.lr=0.5"]), way, ["plstm"], [1])
    with pytest.raises(ValueError, match=r"expected training\.optimiser\.lr to be 0\.5 as in"):
        run(find("plstm/kt-and-p", "smoke"), way, seeds=[1])


def test_an_analysis_with_other_arguments_is_done_anew(way):
    first = run(find("plstm/fig1-decay", "smoke"), way)
    second = run(find("plstm/fig1-decay", "smoke", ["arguments.steps=60"]), way)
    assert first[0].rows != second[0].rows


def test_models_that_did_not_learn_are_left_out_of_the_exponents(way):
    experiment = find("plstm/kt-and-p", "smoke", ["arguments.least=0.99"])
    tables = run(experiment, way, seeds=[1])
    assert [table.rows for table in tables] == [[]]
    assert tables[0].notes == ["2 of 2 models are left out: their validation accuracy is below 0.99"]


def test_models_that_diverge_at_once_are_rows_that_say_so_and_the_others_have_theirs(way):
    experiment = tiny(
        "report.reach=0.9",
        "report.late=true",
        "models.lstm.training.optimiser.lr=1e38",
        "train.optimiser.clip_norm=null",
    )
    assert experiment.models["lstm"].training.optimiser.lr == 1e38
    for _ in range(2):  # the second time there is nothing to train
        (table,) = run(experiment, way, ["lstm", "plstm"], [1])
        assert [tuple(row[:3]) for row in table.rows] == [("lstm", "1", "1"), ("plstm", "1", "0")]
        assert table.rows[0][-1] == "diverged!"
    assert not (results.run_folder(way.out, experiment, "lstm", 1) / "metrics.jsonl").exists()
    (section,) = gather([way.out])
    assert [row[0] for row in section.tables[0].rows] == ["lstm", "plstm"]
    assert section.tables[0].rows[0][-1] == "diverged!"


# Results made by hand.


def finished(out, experiment, name, seed, *, status="finished", best=0.9, test=0.8, line=None):
    folder = results.run_folder(out, experiment, name, seed)
    folder.mkdir(parents=True)
    result = {"status": status, "updates": 10, "best": {"accuracy": best}, "test": {"accuracy": test}}
    (folder / "result.json").write_text(json.dumps(result))
    lines = line or [{"update": 5, "validation": {"accuracy": 0.5}}, {"update": 10, "validation": {"accuracy": best}}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))


def test_mean_and_sample_deviation_stand_beside_the_published_number(tmp_path):
    experiment = find("plstm/mnist-256", "paper")
    for seed, test in ((1, 0.98), (2, 0.99), (10, 0.97)):
        finished(tmp_path, experiment, "plstm", seed, test=test)
    (row,) = results.table(experiment, results.outcomes(tmp_path, experiment)).rows
    assert tuple(row) == ("plstm", "3", "0", "98.00 +- 1.00", "99.10", "98.00  99.00  97.00")


def test_failures_are_counted_and_shown(tmp_path):
    experiment = find("plstm/mnist-256", "paper")
    finished(tmp_path, experiment, "lstm", 1, test=0.98)
    finished(tmp_path, experiment, "lstm", 2, test=0.97, status="diverged")
    finished(tmp_path, experiment, "lstm", 3, best=0.2, test=0.11)
    found = results.outcomes(tmp_path, experiment)
    table = results.table(experiment, found)
    assert tuple(table.rows[0]) == ("lstm", "3", "2", "98.00", "98.70", "98.00  97.00!  11.00!")
    assert table.notes == ["Failed runs (!) are counted and left out of the mean."]
    summary = results.summary(experiment, found)["models"]["lstm"]
    assert (summary["mean"], summary["std"], summary["runs"], summary["failed"]) == (98.0, None, 3, 2)
    assert summary["published"] == {"mean": 98.7, "std": None}


def test_updates_until_a_score_was_reached(tmp_path):
    experiment = find("plstm/copy-200", "paper")
    experiment = replace(experiment, report=replace(experiment.report, reach=0.9))
    finished(tmp_path, experiment, "plstm", 1, best=0.95)
    finished(tmp_path, experiment, "plstm", 2, best=0.5)
    (row,) = results.table(experiment, results.outcomes(tmp_path, experiment)).rows
    assert row[4] == "10 (1 of 2)"


def test_a_loss_is_reached_from_above(tmp_path):
    experiment = find("fastgate/adding-5000", "paper")
    model = experiment.models["fast"]
    report = ReportedNumber(score="loss", reach=0.01)
    assert results.is_good(0.005, 0.01, report, model)
    assert not results.is_good(0.02, 0.01, report, model)
    assert not results.is_good(None, 0.01, report, model)


def test_tables_in_text_keep_every_cell_in_line():
    table = Table(
        "title", ("name", "number", "words"), [("a", "1", "x y"), ("longer", "10", "z")], text=1, notes=["note"]
    )
    assert table.lines() == [
        "title",
        "name    number  words",
        "------  ------  -----",
        "a            1  x y",
        "longer      10  z",
        "note",
    ]


@pytest.mark.parametrize(("values", "shown"), [([], "-"), ([1.0], "1.00"), ([1.0, 3.0], "2.00 +- 1.41")])
def test_mean_and_std(values, shown):
    assert mean_and_std(values, 2) == shown


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        (None, "expected a run folder with config.yaml"),
        ("a: 1", "expected the configuration of a run with model"),
    ],
)
def test_a_folder_without_a_run_is_answered(tmp_path, content, answer):
    if content is not None:
        (tmp_path / "config.yaml").write_text(content)
    with pytest.raises(ValueError, match=answer):
        load_model(tmp_path)


class Forgetful(Listener):
    """Removes a folder as soon as a run has been evaluated."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def evaluated(self, run, line):
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.mark.parametrize(("id", "model"), [("plstm/text8-500", "lstm"), ("mts/ptb", "baseline")])
def test_data_that_is_gone_at_the_end_of_training_is_not_missed(id, model, tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for name, words in (("train", 400), ("valid", 40), ("test", 40)):
        (folder / f"{name}.txt").write_text("to be or not to be\n" * words)
    experiment = find(id, "smoke", [f"task.corpus={folder}", "train.epochs=1"])
    way = Way(tmp_path / "runs", torch.device("cpu"), progress=Forgetful(folder))
    train_models(experiment, way, [model], [1])
    assert not folder.exists()
    result = json.loads((results.run_folder(tmp_path / "runs", experiment, model, 1) / "result.json").read_text())
    assert result["test"]["loss"] > 0
