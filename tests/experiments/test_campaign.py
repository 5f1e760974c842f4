"""Running a list of runs in time slices, and collecting the results."""

import json
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from remanence.experiments import IDS, Way, campaign, collecting, find, results, runs, runs_to_do
from remanence.experiments.analyses import Findings
from remanence.experiments.models import describe
from remanence.experiments.runs_to_do import Line
from remanence.experiments.sections import gather
from remanence.training.directory import Directory
from remanence.training.interruption import Budget

ROOT = Path(__file__).parents[2]
LINES = runs_to_do.read(ROOT / "results/campaign.yaml")
COPY = Line("plstm/copy-200", 0.1, ["lstm", "plstm"], [1], "smoke")
FREQUENCY = Line("plstm/freq-sync1", 0.1, ["plstm"], [], "smoke")
KEPT = {"config.yaml", "machine.json", "metrics.jsonl", "result.json", "times.jsonl"}


class Until(Budget):
    """A budget that is spent after an event, independent of the speed of the machine."""

    def __init__(self, happened, left=float("inf")):
        super().__init__()
        self.happened = happened
        self.before = left

    @property
    def left(self):
        return campaign.GRACE / 2 - 1 if self.happened() else self.before


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """The folder of a finished campaign."""
    folder = tmp_path_factory.mktemp("campaign")
    said = []
    assert campaign.carry_out([COPY, FREQUENCY], folder, Budget(500), 2, "cpu", say=said.append) == []
    assert [words.partition(" after")[0] for words in sorted(said)] == [
        "plstm/copy-200 smoke lstm,plstm seeds 1: finished",
        "plstm/copy-200 smoke lstm,plstm seeds 1: started, 2 runs",
        "plstm/freq-sync1 smoke plstm: finished",
        "plstm/freq-sync1 smoke plstm: started, 1 runs",
    ]
    return folder


@pytest.mark.parametrize("line", LINES, ids=str)
def test_the_list_names_experiments_and_models_that_exist(line):
    assert line.id in IDS
    experiment = find(line.id, line.preset)
    assert experiment.kind in ("training", "analysis")
    assert set(line.models) <= set(experiment.models)
    assert line.minutes > 0


def test_the_list_names_no_run_twice():
    runs = [(line.id, line.preset, model.name, seed) for line in LINES for model, seed in line.runs()]
    assert len(set(runs)) == len(runs)


def test_the_next_line_is_the_first_that_fits():
    long, short = Line("plstm/copy-200", 10), Line("plstm/imdb", 1)
    assert campaign.following([long, short], 700) == (long, False)
    assert campaign.following([long, short], 100) == (short, False)
    assert campaign.following([long], 100) == (long, True)  # it resumes later
    assert campaign.following([long, short], 10) is None
    assert campaign.following([], 700) is None


def test_a_line_starts_next_to_others_only_if_it_can_finish():
    long, short = Line("plstm/copy-200", 10), Line("plstm/imdb", 1)
    assert [long.shared(count) for count in (1, 2, 4)] == [10, 10, 20]
    assert campaign.following([long, short], 700, 0, 2) == (long, False)
    assert campaign.following([long, short], 700, 2, 4) == (short, False)
    assert campaign.following([long], 700, 3, 4) is None
    assert campaign.following([long], 1300, 3, 4) == (long, False)
    assert campaign.following([short], 1300, 4, 4) is None
    longer = Line("plstm/copy-500", 11)
    many = [longer, long, *[Line("plstm/copy-1000", 12)] * 2]
    assert campaign.following(many, 630, 0, 4) == (long, True)  # nothing else runs
    assert campaign.following(many, 500, 0, 4) == (longer, True)


def test_the_list_has_the_runs_of_every_analysis_before_it():
    runs = set()
    for line in LINES:
        needed = {(other.id, other.preset, model.name, seed) for _, other, model, seed in line.needs()}
        assert needed <= runs, line
        runs |= {(line.id, line.preset, model.name, seed) for model, seed in line.runs()}


@pytest.fixture
def analysed(tmp_path):
    """Folders of a campaign with runs of two seeds, which an analysis has read one at a time; and its lines."""
    first, second = tmp_path / "first", tmp_path / "second"
    lines = {place: Line("mts/routing-ptb", 1, [], [seed], "smoke") for place, seed in ((first, 1), (second, 2))}
    for place, line in lines.items():
        for name, other, model, seed in line.needs():
            content = {"status": "finished", "updates": 3, "last": {"loss": 0.123456789 + seed}}
            folder = results.run_folder(place, other, model.name, seed)
            describe_run(folder, other, model, seed, content)
            groups = {"means": [20.0, 1.0], "longest": [30.0, 2.0], "sizes": [4, 4]}
            counted = {
                "columns": ["<100", "all"],
                "tokens": [1, 2],
                "intact": [9.0, 8.0],
                "perplexity": [[9.9, 8.8], [9.0, 8.0]],
                "ratio": [[1.0 + seed / 10, 1.1], [1.0, 1.0]],
                "most": [0, 0],
            }
            found = {"layer": 2, "groups": groups, "train": counted, "all": counted}
            run = {"need": name, "model": model.name, "seed": seed, "result": content}
            experiment = line.experiment
            about = {"experiment": line.id, "preset": "smoke", "reproduces": experiment.reproduces}
            about |= {"function": "routing", "arguments": experiment.arguments, "runs": [run]}
            results.save(
                results.folder_of(place, experiment) / "result.json",
                {**about, "tables": [], "found": {name: {model.name: {str(seed): found}}}},
            )
    return lines


def describe_run(folder, experiment, model, seed, content):
    """Write a finished run."""
    directory = Directory(folder)
    directory.checkpoints.mkdir(parents=True)
    directory.start(describe(experiment, model, seed), {})
    for name in ("metrics.jsonl", "times.jsonl"):
        (folder / name).touch()
    results.save(folder / "result.json", content)


def test_findings_about_another_seed_are_added_to_those_that_are_kept(analysed, tmp_path):
    into, said = tmp_path / "into", []
    for place, line in analysed.items():
        training = Line("mts/ptb", 1, ["mts"], line.seeds, "smoke")
        collecting.collect(place, into, [training, line], said.append)
    kept = json.loads((into / "mts/routing-ptb/smoke/result.json").read_text())
    assert [run["seed"] for run in kept["runs"]] == [1, 2]
    (models,) = kept["found"].values()
    assert list(models["mts"]) == ["1", "2"]
    assert kept["tables"][0]["rows"][0] == ["20", "4", "1.1500", "1.1000"]
    assert "Means over seeds: 2." in kept["tables"][0]["notes"][0]
    assert [line.left([into]) for line in analysed.values()] == [0, 0]


def test_findings_about_a_run_that_was_replaced_are_not_kept(analysed, tmp_path):
    (first, early), (second, late) = analysed.items()
    into = tmp_path / "into"
    collecting.collect(first, into, [Line("mts/ptb", 1, ["mts"], [1], "smoke"), early], lambda words: None)
    replaced = into / "mts/ptb/smoke/mts/seed-1/result.json"
    results.save(replaced, json.loads(replaced.read_text()) | {"updates": 4})
    assert early.left([into]) == 1
    collecting.collect(second, into, [Line("mts/ptb", 1, ["mts"], [2], "smoke"), late], lambda words: None)
    kept = json.loads((into / "mts/routing-ptb/smoke/result.json").read_text())
    assert [run["seed"] for run in kept["runs"]] == [2]


def test_an_analysis_of_another_seed_in_the_same_folder_adds_its_findings(analysed):
    (first, line), (second, other) = analysed.items()
    (_, training, model, seed), *_ = other.needs()
    content = json.loads((results.run_folder(second, training, model.name, seed) / "result.json").read_text())
    describe_run(results.run_folder(first, training, model.name, seed), training, model, seed, content)
    there = json.loads((results.folder_of(second, other.experiment) / "result.json").read_text())
    given = [SimpleNamespace(need="Penn Treebank", model_name=model.name, seed=seed, result=content)]
    called = []

    def work(experiment, runs):
        called.append(runs)
        return Findings(there["found"], [])

    for _ in range(2):  # the second time it is there
        tables = runs.conclude(line.experiment, Way(first, torch.device("cpu")), given, work)
        assert "Means over seeds: 2." in tables[0].notes[0]
        assert len(called) == 1
    assert line.left([first]) == other.left([first]) == 0
    results.save(results.run_folder(first, training, model.name, 1) / "result.json", content)  # seed 1 is replaced
    runs.conclude(line.experiment, Way(first, torch.device("cpu")), given, work)
    assert len(called) == 2
    kept = json.loads((results.folder_of(first, line.experiment) / "result.json").read_text())
    assert [run["seed"] for run in kept["runs"]] == [2]


def test_a_run_that_has_diverged_keeps_no_analysis_waiting(analysed):
    first, line = next(iter(analysed.items()))
    (_, training, model, seed), *_ = line.needs()
    place = results.run_folder(first, training, model.name, seed) / "result.json"
    results.save(place, {"status": "diverged"})
    assert line.left([first]) == 0


def test_runs_whose_checkpoints_an_analysis_needs_are_trained_again(analysed, tmp_path):
    first, line = next(iter(analysed.items()))
    training = Line("mts/ptb", 1, ["mts"], line.seeds, "smoke")
    another = Line("mts/ptb", 1, ["mts"], [7], "smoke")
    assert runs_to_do.to_do([training, another, line], [tmp_path / "work", first]) == [another]
    (results.folder_of(first, line.experiment) / "result.json").unlink()
    assert runs_to_do.to_do([training, another, line], [tmp_path / "work", first]) == [training, another, line]
    assert runs_to_do.to_do([training, another, line], [first, tmp_path]) == [another, line]


@pytest.mark.long
def test_an_analysis_starts_when_the_runs_that_it_reads_have_finished(tmp_path):
    analysis = Line("plstm/kt-and-p", 0.1, [], [1], "smoke")
    training = [Line(f"plstm/copy-{delay}", 0.1, ["plstm"], [1], "smoke") for delay in (200, 500)]
    said = []
    assert campaign.carry_out([analysis, *training], tmp_path, Budget(500), 1, "cpu", say=said.append) == []
    assert [words.partition(": ")[0] for words in said if "started" in words] == [*map(str, training), str(analysis)]
    (results.folder_of(tmp_path, analysis.experiment) / "result.json").unlink()
    lines, before, again = [analysis, *training], [tmp_path], tmp_path / "again"
    assert campaign.carry_out(lines, again, Budget(500), 1, "cpu", before, said.append) == []
    assert [words.partition(": ")[2] for words in said[-6::2]] == ["started, 1 runs"] * 3  # for their weights


def test_an_analysis_waits_for_the_runs_that_it_reads(analysed, tmp_path):
    (first, line), (second, _) = analysed.items()
    assert line.is_ready(first)
    assert not line.is_ready(second)
    said = []
    assert campaign.carry_out([line], second, Budget(500), 1, "cpu", say=said.append) == [line]
    assert said == [f"{line}: needs runs that are not in {second}"]
    assert campaign.carry_out([line], first, Budget(500), 1, "cpu", say=said.append) == []
    assert len(said) == 1  # it was there


@pytest.mark.slow
@pytest.mark.long
def test_a_line_that_needs_its_own_slice_gets_one_or_is_reported(tmp_path):
    lines = [Line("plstm/copy-200", 8.5, [name], [1], "smoke") for name in ("lstm", "plstm", "lstm-chrono")]
    short = [Line("plstm/freq-sync1", 0.1, [name], [1], "smoke") for name in ("lstm", "plstm")]
    said: list[str] = []
    ended = Until(lambda: sum("finished" in words for words in said) == 3, 600)
    assert campaign.carry_out([*lines, *short], tmp_path, ended, 3, "cpu", say=said.append) == lines[1:]
    assert [words.partition(": ")[0] for words in said if "started" in words] == [*map(str, short), str(lines[0])]
    assert said[4] == f"{lines[0]}: started, 1 runs, alone"
    words = "needs a slice of its own: 8.5 minutes alone, about 12.75 as one of 3, of 9.7"
    assert said[6:] == [f"{line}: {words}" for line in lines[1:]]


def test_a_command_is_one_that_a_person_could_type():
    words = COPY.command(Path("runs"), "cuda", 500.4)[2:]
    assert words == [
        *("remanence", "run", "plstm/copy-200", "--preset", "smoke", "--models", "lstm,plstm", "--seeds", "1"),
        *("--budget", "500s", "--device", "cuda", "--quiet", "--out", "runs"),
    ]
    assert "--budget" not in COPY.command(Path("runs"), "cuda", Budget().left)


def test_what_has_finished_is_not_started_again(work, tmp_path):
    said = []
    assert campaign.carry_out([COPY], tmp_path, Budget(500), 1, "cpu", [work], said.append) == []
    assert said == []


@pytest.fixture
def kept(work, tmp_path):
    """A folder with the results of the campaign."""
    collecting.collect(work, tmp_path / "kept", [COPY], say=lambda words: None)
    return tmp_path / "kept"


@pytest.mark.long
def test_a_slice_trains_only_what_is_left_of_a_line(kept, tmp_path):
    line, here = replace(COPY, models=["lstm", "lstm-chrono"]), tmp_path / "here"
    (results.run_folder(here, line.experiment, "lstm", 1)).mkdir(parents=True)  # it began, and saved nothing
    assert campaign.carry_out([line], here, Budget(500), 1, "cpu", [kept], lambda words: None) == []
    assert list(results.outcomes(here, line.experiment)) == ["lstm-chrono"]
    assert "remanence: runs left out, because they have finished in" in next((here / "logs").iterdir()).read_text()


def test_what_an_analysis_needs_is_trained_although_it_is_kept_elsewhere():
    assert not COPY.trains_all({("plstm/copy-200", "smoke", "plstm", 2)})
    assert COPY.trains_all({("plstm/copy-200", "smoke", "plstm", 1)})
    assert Line("mts/ptb", 1, ["mts"], [1], "smoke").trains_all(set())  # its closing analysis reads weights
    words = COPY.command(Path("runs"), "cuda", 500.4, [Path("results")])
    assert words[words.index("--unless-in") + 1] == "results"


def test_runs_that_have_finished_elsewhere_are_left_out(work, kept, tmp_path):
    experiment, said = COPY.experiment, []
    listener = SimpleNamespace(say=said.append)
    way = Way(tmp_path, torch.device("cpu"), unless_in=[tmp_path / "none", kept])
    way.progress = listener
    assert runs.train_models(experiment, way, ["lstm", "plstm"], [1])[0].rows == []
    place = tmp_path / "none"
    assert said == [f"remanence: runs left out, because they have finished in {place}, {kept}: 2"]
    assert not (tmp_path / "plstm").exists()
    here = replace(way, out=work)
    assert len(runs.train_models(experiment, here, ["lstm", "plstm"], [1])[0].rows) == 2  # with a result here
    shutil.rmtree(results.run_folder(kept, experiment, "lstm", 1))
    groups = runs.plan(experiment, tmp_path, ["lstm", "plstm"], [1])
    assert runs.finished_elsewhere(experiment, way, groups) == [("plstm", 1)]
    assert list(runs.without(groups, [("plstm", 1)])) == ["lstm"]


def test_a_run_of_another_configuration_is_not_finished(work, monkeypatch):
    assert COPY.left([work]) == 0
    monkeypatch.setattr(runs_to_do, "find", lambda id, preset: find(id, preset, ["train.lr=3e-4"]))
    assert COPY.left([work]) == 2


def test_only_what_is_to_be_kept_is_collected(work, tmp_path):
    experiment = find("plstm/copy-200", "smoke")
    old = results.folder_of(tmp_path, experiment).parent / "short"
    old.mkdir(parents=True)
    stale = results.run_folder(tmp_path, experiment, "gone", 1)
    stale.mkdir(parents=True)
    for _ in range(2):  # the second time changes nothing
        collecting.collect(work, tmp_path, [COPY, FREQUENCY], say=lambda words: None)
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert {path.name for path in files} == {*KEPT, "summary.json"}
        assert not old.exists()
        assert not stale.exists()
        summary = json.loads((results.folder_of(tmp_path, experiment) / "summary.json").read_text())
        assert list(summary["models"]) == ["lstm", "plstm"]
        assert summary == results.summary(experiment, results.outcomes(work, experiment))
    again = tmp_path / "again"
    collecting.collect(tmp_path, again, [COPY, FREQUENCY], say=lambda words: None)  # what was collected elsewhere
    for path in files:
        assert (again / path.relative_to(tmp_path)).read_bytes() == path.read_bytes()


@pytest.fixture
def interrupted(work, tmp_path):
    """The folder of a campaign in which the pLSTM has not come to its end, and its experiment."""
    folder = shutil.copytree(work, tmp_path / "interrupted")
    experiment = find("plstm/copy-200", "smoke")
    (results.run_folder(folder, experiment, "plstm", 1) / "result.json").unlink()
    return folder, experiment


def test_interrupted_runs_are_kept_as_they_are_if_asked(work, interrupted, tmp_path):
    folder, experiment = interrupted
    into, quiet = tmp_path / "into", lambda words: None
    collecting.collect(folder, into, [COPY], quiet)
    assert list(results.outcomes(into, experiment)) == ["lstm"]
    collecting.collect(folder, into, [COPY], quiet, unfinished=True)
    place = results.run_folder(into, experiment, "plstm", 1)
    ended = json.loads((results.run_folder(work, experiment, "plstm", 1) / "result.json").read_text())
    assert ended["status"] != results.UNFINISHED
    assert json.loads((place / "result.json").read_text()) == {**ended, "status": "unfinished", "test": None}
    assert {path.name for path in place.iterdir()} == KEPT
    (run,) = results.outcomes(into, experiment)["plstm"]
    assert (run.status, run.failed, run.score) == ("unfinished", False, ended["best"]["accuracy"])
    table = results.table(experiment, results.outcomes(into, experiment))
    assert [row[-1].endswith("~") for row in table.rows] == [False, True]
    assert results.unfinished_note(experiment.report) in table.notes

    assert COPY.left([into]) == 1  # it still has to be finished
    collecting.collect(work, into, [COPY], quiet)
    assert COPY.left([into]) == 0
    collecting.collect(folder, into, [COPY], quiet, unfinished=True)  # what has finished stays
    assert COPY.left([into]) == 0


def test_a_shorter_run_does_not_replace_a_longer_one(interrupted, tmp_path):
    folder, experiment = interrupted
    into, quiet = tmp_path / "into", lambda words: None
    collecting.collect(folder, into, [COPY], quiet, unfinished=True)
    kept = (results.run_folder(into, experiment, "plstm", 1) / "result.json").read_bytes()
    directory = Directory(results.run_folder(folder, experiment, "plstm", 1))
    metrics = directory.path / "metrics.jsonl"
    metrics.write_text(metrics.read_text().partition("\n")[0] + "\n")
    (directory.path / "SHA256SUMS").unlink()
    assert collecting.so_far(folder, tmp_path / "none", experiment, experiment.models["plstm"], 1) is not None
    collecting.collect(folder, into, [COPY], quiet, unfinished=True)
    assert (results.run_folder(into, experiment, "plstm", 1) / "result.json").read_bytes() == kept


def test_training_does_not_take_an_unfinished_run_for_a_finished_one(interrupted, tmp_path):
    folder, experiment = interrupted
    into = tmp_path / "into"
    collecting.collect(folder, into, [COPY], lambda words: None, unfinished=True)
    with pytest.raises(ValueError, match="got one that was kept unfinished, without weights; remove it"):
        runs.train_models(experiment, Way(into, torch.device("cpu")), ["lstm", "plstm"], [1])
    assert runs.train_models(experiment, Way(into, torch.device("cpu")), ["lstm"], [1])


def test_the_page_tells_unfinished_runs_from_finished_ones(interrupted, tmp_path):
    folder, experiment = interrupted
    into = tmp_path / "into"
    collecting.collect(folder, into, [COPY], lambda words: None, unfinished=True)
    (section,) = gather([results.folder_of(into, experiment)])
    assert (section.done, section.status) == (1, "part")
    (note,) = (note for note in section.notes if "not finished" in note)
    assert note.startswith("1 run has not finished: plstm, seed 1, at update ")
    assert note.endswith("They were kept as they were, and count in the tables (~).")
    assert len(section.tables[0].rows) == 2


def test_a_run_that_saved_nothing_is_not_kept(tmp_path):
    experiment = find("plstm/copy-200", "smoke")
    Directory(results.run_folder(tmp_path, experiment, "lstm", 1)).path.mkdir(parents=True)
    collecting.collect(tmp_path, tmp_path / "into", [COPY], unfinished=True)
    assert not (tmp_path / "into").exists()


def test_metrics_without_a_checkpoint_are_kept_if_they_are_of_this_configuration(interrupted, tmp_path):
    folder, experiment = interrupted
    run, into = results.run_folder(folder, experiment, "plstm", 1), tmp_path / "into"
    shutil.rmtree(run / "checkpoints")
    collecting.collect(folder, into, [COPY], lambda words: None, unfinished=True)
    assert list(results.outcomes(into, experiment)) == ["lstm", "plstm"]
    (run / "SHA256SUMS").unlink()
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("batch: ", "batch: 1"))
    assert collecting.so_far(folder, tmp_path / "none", experiment, experiment.models["plstm"], 1) is None
    config.unlink()
    assert collecting.so_far(folder, tmp_path / "none", experiment, experiment.models["plstm"], 1) is None


def test_an_interrupted_run_of_an_experiment_that_reports_test_scores_has_none(tmp_path):
    line = Line("plstm/imdb", 1, ["lstm"], [1], "smoke")
    (model, seed), experiment = next(line.runs()), line.experiment
    folder = results.run_folder(tmp_path, experiment, model.name, seed)
    describe_run(folder, experiment, model, seed, {})
    (folder / "result.json").unlink()
    scores = {"loss": 0.5, "accuracy": 0.7}
    written = {"update": 3, "epoch": 0.5, "lr": 0.1, "train": {"loss": 0.5}, "validation": scores}
    (folder / "metrics.jsonl").write_text(json.dumps(written) + "\n")
    collecting.collect(tmp_path, tmp_path / "into", [line], lambda words: None, unfinished=True)
    [[found]] = results.outcomes(tmp_path / "into", experiment).values()
    assert (found.score, found.unfinished, found.failed) == (None, True, False)
    table = results.table(experiment, {"lstm": [found]})
    assert table.rows[0][3] == "-"
    assert table.rows[0][-1] == "-~"
    assert table.notes == ["Unfinished runs (~) have no test score."]


def test_other_presets_stay_until_everything_is_there(work, tmp_path):
    old = tmp_path / "plstm/copy-200/short"
    old.mkdir(parents=True)
    more = Line("plstm/copy-200", 1, ["lstm-chrono"], [1], "smoke")
    collecting.collect(work, tmp_path, [COPY, more], say=lambda words: None)
    assert old.exists()


def test_findings_of_an_analysis_are_kept_with_fewer_digits(tmp_path):
    experiment = find("plstm/kt-and-p", "smoke")
    work, into = tmp_path / "work", tmp_path / "into"
    old = into / "plstm/kt-and-p/short"
    old.mkdir(parents=True)
    found = {"found": [{"p": 0.123456789, "units": 123456789, "far": 1.23456789e-30}], "done": True, "none": None}
    results.save(results.folder_of(work, experiment) / "result.json", found, protected=True)
    said = []
    collecting.collect(work, into, [COPY], say=said.append)
    kept = results.folder_of(into, experiment) / "result.json"
    assert (
        kept.read_text() == '{"found":[{"p":0.123457,"units":123456789,"far":1.23457e-30}],"done":true,"none":null}\n'
    )
    assert not old.exists()
    assert said == [
        "plstm/kt-and-p, preset smoke: findings",
        "plstm/kt-and-p, preset short: removed; please remove its verdict too",
    ]
    before = kept.read_bytes()
    collecting.collect(into, into, [COPY], say=said.append)
    assert kept.read_bytes() == before


@pytest.mark.long
@pytest.mark.slow
def test_a_stopped_run_resumes_elsewhere_from_a_packed_checkpoint(tmp_path, monkeypatch):
    line = Line("plstm/copy-200", 1, ["plstm"], [1], "smoke")
    endless = ["training.epochs=100000", "training.stop={}"]
    whole = Line.command
    monkeypatch.setattr(
        Line,
        "command",
        lambda self, *rest: [*whole(self, *rest), *(word for one in endless for word in ("--set", one))],
    )
    monkeypatch.setattr(runs_to_do, "find", lambda id, preset: find(id, preset, endless))
    first, second = tmp_path / "first", tmp_path / "second"
    folder, again = (results.run_folder(place, line.experiment, "plstm", 1) for place in (first, second))

    def starts(run):
        return [one for one in collecting.read_lines(run, "times.jsonl") if one["what"] == "start"]

    saved = Until(lambda: any(folder.glob("checkpoints/step-*")))
    assert campaign.carry_out([line], first, saved, 1, "cpu", say=lambda words: None) == [line]
    said: list[str] = []
    results.run_folder(first, line.experiment, "lstm", 1).mkdir(parents=True)  # begun, and ended before a checkpoint
    both = replace(line, models=["lstm", "plstm"])
    assert campaign.pack(first, tmp_path / "none.tar.gz", [both], 10, said.append) == []
    size = sum(part.stat().st_size for part in campaign.needed(Directory(folder)))
    assert said == [
        "plstm/copy-200/smoke/lstm/seed-1: left out, nothing was saved yet",
        f"plstm/copy-200/smoke/plstm/seed-1: left out, it has {size / 1e6:.1f} MB, and 0.0 of 1e-05 are left (--most)",
    ]
    assert campaign.pack(first, tmp_path / "state.tar.gz", [line], 10**7, said.append) == [folder]
    assert len(said) == 2
    with tarfile.open(tmp_path / "state.tar.gz") as archive:
        archive.extractall(second, filter="data")
    begun = Until(lambda: len(starts(again)) == 2)
    assert campaign.carry_out([line], second, begun, 1, "cpu", say=lambda words: None) == [line]
    assert (len(starts(folder)), len(starts(again))) == (1, 2)
    assert starts(again)[1]["update"] > 0


def test_thinning_keeps_the_lines_that_results_refer_to():
    lines = [{"update": update} for update in range(10, 10_010, 10)]
    kept = [line["update"] for line in collecting.thinned(lines, {20, 5550})]
    assert len(kept) == 102
    assert kept[-1] == 10_000
    assert {20, 5550} <= set(kept)
    few = collecting.thinned(lines, {20, 5550})
    assert collecting.thinned(few, {20}) == few


def test_the_sum_of_times_stays():
    evaluation = {"what": "evaluation", "updates": 10, "seconds": 1.5, "evaluation": 0.5}
    lines = [{"what": "start"}, *[evaluation] * 400, {"what": "stop"}, {"what": "start"}, *[evaluation] * 10]
    kept = collecting.summed(lines)
    assert len(kept) < 30
    assert sum(line.get("seconds", 0) for line in kept) == 410 * 1.5
    assert [line["what"] for line in kept].count("start") == 2
    assert collecting.summed(kept) == kept
