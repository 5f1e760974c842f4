"""Grids: how they are written, errors, and the units they are split into."""

import re
import subprocess
import sys

import pytest

from remanence import sweeps
from remanence.sweeps import Grid, Unit
from remanence.sweeps.grid import point_folder, written

ID = "plstm/copy-200"
SAFE = re.compile(r"[A-Za-z0-9_=,+][A-Za-z0-9._=,+-]*[A-Za-z0-9_=,+-]")


def test_a_file_lists_what_is_run():
    grid = sweeps.read(
        """
        ids: [plstm/copy-200, plstm/copy-500]
        presets: [smoke, short]
        models: [lstm, plstm]
        seeds: [1, 2]
        set:
          train.lr: [1e-3, 3e-4]
          train.batch: [16]
        """
    )
    values = {"train.lr": [1e-3, 3e-4], "train.batch": [16]}
    assert grid == Grid([ID, "plstm/copy-500"], ["smoke", "short"], ["lstm", "plstm"], [1, 2], values)


def test_single_values_are_lists_of_one():
    grid = sweeps.read("{ids: plstm/copy-200, presets: smoke, models: plstm, seeds: 3, set: {train.lr: 0.01}}")
    assert grid == Grid([ID], ["smoke"], ["plstm"], [3], {"train.lr": [0.01]})


def test_omitted_values_are_those_of_the_experiment():
    assert sweeps.read(f"ids: {ID}") == Grid([ID], ["short"], [], [], {})
    found = sweeps.units(Grid([ID], ["smoke"]))
    assert [(unit.model, unit.seeds) for unit in found] == [(name, (1, 2)) for name in ("lstm", "lstm-chrono", "plstm")]


def test_a_number_is_the_same_however_it_is_written():
    typed = Grid([ID], ["smoke"], set={"train.lr": ["1e-3", "0.0003"]})
    read = sweeps.read(f"{{ids: {ID}, presets: smoke, set: {{train.lr: [0.001, 3e-4]}}}}")
    assert typed.plain() == read.plain()
    assert sweeps.units(typed) == sweeps.units(read)
    assert sweeps.units(typed)[0].sets == ("train.lr=0.001",)
    assert len(sweeps.units(Grid([ID], ["smoke"], ["plstm"], set={"train.lr": ["1e-3", 0.001, "0.0010"]}))) == 1


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "null"),
        (True, "true"),
        ("no", "false"),
        ("1e-07", "1e-07"),
        (3, "3"),
        ("fast", "fast"),
        ([1, 2], "[1, 2]"),
    ],
)
def test_a_value_is_written_as_set_takes_it(value, words):
    assert written(value) == words
    assert written(words) == words


def test_units_are_every_combination_in_order():
    grid = Grid([ID], ["smoke"], ["lstm", "plstm"], [1, 2, 3], {"train.lr": [1e-3, 1e-2], "train.batch": [8, 16]})
    points = [(f"train.lr={lr}", f"train.batch={batch}") for lr in (0.001, 0.01) for batch in (8, 16)]
    assert sweeps.units(grid) == [
        Unit(ID, "smoke", model, (1, 2, 3), point) for point in points for model in ("lstm", "plstm")
    ]


def test_together_is_how_many_seeds_a_unit_has():
    grid = Grid([ID], ["smoke"], ["plstm"], [1, 2, 3, 5, 8])

    def seeds(together):
        return [unit.seeds for unit in sweeps.units(grid, together)]

    assert seeds(None) == seeds(9) == [(1, 2, 3, 5, 8)]
    assert seeds(1) == [(1,), (2,), (3,), (5,), (8,)]
    assert seeds(2) == [(1, 2), (3, 5), (8,)]


def test_a_seed_that_is_named_twice_is_run_once():
    for together in (None, 1, 2):
        found = sweeps.units(Grid([ID], ["smoke"], ["plstm"], [1, 1, 2, 1]), together)
        assert sorted(seed for unit in found for seed in unit.seeds) == [1, 2]


def test_an_experiment_without_training_is_one_unit_per_point():
    (one, other) = sweeps.units(Grid(["plstm/fig1-decay"], ["smoke"], set={"arguments.steps": [50, 60]}), 1)
    assert (one.model, one.seeds, one.sets) == ("", (), ("arguments.steps=50",))
    assert one.experiment.arguments["steps"] == 50
    assert other.experiment.arguments["steps"] == 60


def test_a_unit_has_the_values_of_its_point():
    (unit,) = sweeps.units(Grid([ID], ["smoke"], ["plstm"], [1], {"train.lr": ["1e-2"]}))
    assert unit.experiment.models["plstm"].training.optimiser.lr == 0.01
    assert str(unit) == "plstm/copy-200 smoke plstm train.lr=0.01 seed 1"


def many():
    """Units whose values are much alike, long, or odd."""
    values = [0.1, 0.01, "a b", "a_b", "a/b", "a:b", "ä", "ö", "..", "x" * 80, "x" * 81, ["x", 1], None, True, "A", "a"]
    points = [(f"train.lr={written(value)}",) for value in values]
    points += [
        ("train.lr=0.1", "train.batch=8"),
        ("train.lr=0.1,train.batch=8",),
        ("train.batch=8", "train.lr=0.1"),
        (),
    ]
    return [
        Unit(ID, "smoke", model, seeds, sets) for sets in points for model in "ab" for seeds in ((1,), (1, 2), (2,))
    ]


def test_every_unit_has_a_unique_file_name():
    names = [unit.name for unit in many()]
    assert len({name.lower() for name in names}) == len(many())
    assert all(SAFE.fullmatch(name) and len(name) <= 100 for name in names)


def test_every_point_has_a_unique_folder():
    points = list(dict.fromkeys(unit.sets for unit in many()))
    folders = [point_folder(sets) for sets in points]
    assert len(set(folders)) == len(points) - 1  # the same words in one piece or two are the same values
    assert all(SAFE.fullmatch(folder) and len(folder) <= 100 for folder in folders)
    assert point_folder(("train.lr=0.1", "train.batch=8")) == "train.lr=0.1,train.batch=8"
    assert point_folder(()) == "as-it-is"


@pytest.mark.long
def test_names_are_the_same_in_every_process():
    script = (
        "from remanence.sweeps import Unit; "
        "unit = Unit('plstm/copy-200', 'smoke', 'plstm', (1, 2), ('train.lr=a b',)); print(unit.name, unit.point)"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    unit = Unit(ID, "smoke", "plstm", (1, 2), ("train.lr=a b",))
    assert found.stdout.split() == [unit.name, unit.point]
    assert unit.point == "train.lr=a_b-" + unit.point[-8:]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("", r"expected a sweep to be a mapping with ids, got NoneType"),
        ("[plstm/copy-200]", r"expected a sweep to be a mapping with ids, got list"),
        ("presets: smoke", r"expected sweep\.ids to be given, got nothing"),
        (
            "{ids: a, modles: b}",
            r"expected sweep to have fields among .*, got sweep\.modles; did you mean sweep\.models\?",
        ),
        ("{ids: a, seeds: [one]}", r"expected sweep\.seeds\[0\] to be a whole number, got 'one'"),
        ("{ids: a, set: [train.lr]}", r"expected sweep\.set to be a mapping of names to values, got \['train\.lr'\]"),
        ("{ids: a, set: null}", r"expected sweep\.set to be a mapping of names to values, got .*"),
        ("{ids: [a", r"expected .*"),
    ],
)
def test_a_file_without_a_grid_is_answered_by_one_sentence(words, answer):
    with pytest.raises(ValueError, match=f"^{answer}$"):
        sweeps.read(words)


@pytest.mark.parametrize(
    ("grid", "answer"),
    [
        (Grid([]), r"expected at least one run, got a sweep without experiments, models or seeds"),
        (Grid([ID], []), r"expected at least one run, got a sweep without experiments, models or seeds"),
        (Grid(["plstm/copy-20"]), r"expected experiment to be one of .*, got 'plstm/copy-20'; did you mean .*\?"),
        (Grid([ID], ["tiny"]), r"expected .*preset.* smoke.*, got 'tiny'.*"),
        (Grid([ID], models=["plsmt"]), r"expected model of plstm/copy-200 to be one of .* did you mean 'plstm'\?"),
        (Grid(["plstm/fig1-decay"], models=["lstm"]), r"expected no models for plstm/fig1-decay, .*"),
        (
            Grid([ID], set={"train.lr": []}),
            r"expected values for every path of a sweep, got an empty list .*",
        ),
        (Grid([ID], set={"train.ler": [1]}), r"expected .*train.*ler.*"),
        (Grid([ID], set={"train.lr": [1e-3, "much"]}), r"expected .*lr to be a number, got 'much'"),
        (Grid([ID], set={"train.lr": ["[1"]}), r"expected .*"),
    ],
)
def test_a_grid_that_cannot_run_is_answered_by_one_sentence(grid, answer):
    with pytest.raises(ValueError, match=f"^{answer}$"):
        sweeps.units(grid)
