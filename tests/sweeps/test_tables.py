"""Tables of a sweep."""

import json
import time

import pytest
from small_sweeps import ID, small

from remanence.experiments import results
from remanence.sweeps import Grid, Sweep, lease, tables


def ended(sweep, unit, *scores, status="finished"):
    """As if the seeds of a unit had ended with these accuracies."""
    for seed, score in zip(unit.seeds, scores, strict=True):
        folder = results.run_folder(sweep.out(unit), unit.experiment, unit.model, seed)
        folder.mkdir(parents=True)
        best = {"accuracy": score, "loss": 1 - score}
        (folder / "result.json").write_text(json.dumps({"status": status, "updates": 10, "best": best}))
        (folder / "metrics.jsonl").write_text(json.dumps({"update": 10, "epoch": 1, "validation": best}) + "\n")


@pytest.fixture
def sweep(tmp_path):
    """Two models at three values of two seeds."""
    return small(tmp_path, ("lstm", "plstm"), (1, 2), None, train__lr=["1e-3", "1e-2", "1e-1"])


@pytest.fixture
def rates(sweep):
    """Its units by model and value."""
    return {
        (unit.model, lr): unit for unit in sweep.units for lr in ("0.001", "0.01", "0.1") if f"lr={lr}" in str(unit)
    }


def rows(table):
    """Rows without the values that are the same everywhere."""
    return [(row[0], *row[4:]) for row in table.rows]


def test_every_model_is_listed_at_every_value_and_its_best_is_marked(sweep, rates):
    for (model, lr), scores in {
        ("lstm", "0.001"): (0.5, 0.7),
        ("lstm", "0.01"): (0.9, 0.9),
        ("lstm", "0.1"): (0.3, 0.3),
        ("plstm", "0.001"): (0.995, 0.8),
        ("plstm", "0.01"): (0.1, 0.2),
    }.items():
        ended(sweep, rates[model, lr], *scores)
    (table,) = tables.outcomes(sweep)
    assert table.title == (
        "plstm/copy-200, preset smoke: validation accuracy over train.epochs, task.train_size, task.delay, train.lr"
    )
    assert table.headings[-5:] == ("train.lr", "seeds", "failed", "accuracy, %", "updates to 99 %")
    assert rows(table) == [
        ("lstm", "0.001", "2", "0", "60.0 +- 14.1", "none of 2"),
        ("lstm", "0.01", "2", "0", "90.0 +- 0.0*", "none of 2"),
        ("lstm", "0.1", "2", "0", "30.0 +- 0.0", "none of 2"),
        ("plstm", "0.001", "2", "0", "89.8 +- 13.8*", "10 (1 of 2)"),
        ("plstm", "0.01", "2", "0", "15.0 +- 7.1", "none of 2"),
        ("plstm", "0.1", "0", "0", "-", "none of 0"),
    ]
    assert table.notes == ["* best value of a model; failed runs are counted but excluded from the mean."]
    assert table.markdown().endswith("\n\n\\" + table.notes[0])  # a star in Markdown, not a list item


def test_the_best_has_the_fewest_failures(sweep, rates):
    ended(sweep, rates["lstm", "0.001"], 0.9, 0.9, status="diverged")
    ended(sweep, rates["lstm", "0.01"], 0.4, 0.4)
    (table,) = tables.outcomes(sweep)
    assert [row[2:5] for row in rows(table)[:2]] == [("2", "2", "-"), ("2", "0", "40.0 +- 0.0*")]


def test_nothing_is_marked_without_results(sweep, rates):
    ended(sweep, rates["lstm", "0.001"], 0.9, 0.9, status="diverged")
    (table,) = tables.outcomes(sweep)
    assert not [row for row in table.rows if any("*" in cell for cell in row)]


def test_the_best_loss_is_the_lowest(tmp_path):
    sweep = small(tmp_path, ["plstm"], [1], None, train__lr=["1e-3", "1e-2"], report__score=["loss"])
    low, high = sweep.units
    ended(sweep, low, 0.2)
    ended(sweep, high, 0.9)
    (table,) = tables.outcomes(sweep)
    assert ["*" in row[-2] + row[-1] for row in table.rows] == [False, True]


def test_one_point_is_shown_with_published_numbers(tmp_path):
    sweep = small(tmp_path, ["plstm"], [1])
    (unit,) = sweep.units
    ended(sweep, unit, 0.5)
    (table,) = tables.outcomes(sweep)
    assert table == results.table(unit.experiment, results.outcomes(sweep.out(unit), unit.experiment))


def test_every_experiment_and_preset_has_a_table(tmp_path):
    ids = [ID, "plstm/copy-500", "plstm/fig1-decay"]
    sweep = Sweep(tmp_path, Grid(ids, ["smoke", "short"]))
    found = [table.title.partition(":")[0] for table in tables.outcomes(sweep)]
    assert found == [f"plstm/copy-{delay}, preset {preset}" for delay in (200, 500) for preset in ("smoke", "short")]


def test_all_results_are_plain_data(sweep, rates):
    ended(sweep, rates["lstm", "0.01"], 0.5, 0.7)
    found = tables.plain_outcomes(sweep)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    points = found[ID]["smoke"]
    assert len(points) == 3
    (point,) = [point for point in points.values() if point["set"]["train.lr"] == "0.01"]
    assert point["models"]["lstm"]["mean"] == pytest.approx(60)
    assert point["models"]["lstm"]["seeds"]["2"]["score"] == pytest.approx(70)


def test_the_status_counts_and_tells(tmp_path):
    sweep = small(tmp_path, ["plstm"], [1, 2, 3, 4], train__epochs=[4])
    done, running, failed, _ = sweep.units
    ended(sweep, done, 0.5)
    sweep.fail(failed, "it is too large")
    lease.take(sweep.lease(running), "somebody")
    sweep.beginning(running).write_text(json.dumps({"at": time.time() - 300, "share": 0}))
    folder = results.run_folder(sweep.out(running), running.experiment, "plstm", 2)
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text('{"epoch": 1}\n')
    table = tables.status(sweep)
    assert table.title == f"{tmp_path}: 1 queued, 1 running, 1 done, 1 failed"
    assert [row[0] for row in table.rows] == list(map(str, sweep.units))
    assert [tuple(row[1:]) for row in table.rows] == [
        ("done", "100 %", "", ""),
        ("running", "25 %", "15 min", "somebody"),
        ("failed", "0 %", "", "it is too large"),
        ("queued", "0 %", "", ""),
    ]
    plain = tables.plain_status(sweep)
    assert [row["state"] for row in plain] == ["done", "running", "failed", "queued"]
    assert plain[1]["left_s"] == pytest.approx(900, abs=60)
    assert (plain[1]["who"], plain[2]["reason"], plain[1]["share"]) == ("somebody", "it is too large", 0.25)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, ""),
        (0.0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (3599, "59 min"),
        (3600, "1 h 0 min"),
        (9000, "2 h 30 min"),
    ],
)
def test_durations_are_readable(seconds, words):
    assert tables.duration(seconds) == words
