"""Sections of a report from result folders in any state."""

import json
import statistics
from pathlib import Path

import pytest
import yaml
from scipy import stats
from typer import Typer
from typer.testing import CliRunner
from written_runs import write_run, write_runs

from remanence.cli import report
from remanence.experiments import IDS, find
from remanence.experiments.sections import gather, typed
from remanence.experiments.sections.run_folders import RunFolder, busy
from remanence.experiments.sections.trained import INTERVAL
from remanence.report import page
from remanence.table import mean_and_std

RESULTS = Path(__file__).parents[2] / "results"
SCORES = {"lstm": [0.82, 0.83, 0.84], "plstm": [0.91, 0.90, 0.905]}


def one(folder):
    (section,) = gather([folder])
    return section


def rows_of(table):
    return {row[0]: dict(zip(table.headings, row, strict=True)) for row in table.rows}


def test_a_table_has_the_difference_to_the_published_number_and_its_interval(tmp_path):
    write_runs(tmp_path, SCORES)
    section = one(tmp_path)
    rows = rows_of(section.tables[0])
    published = find("plstm/pmnist-256").published["accuracy"]
    for model, scores in SCORES.items():
        values = [100 * score for score in scores]
        mean = statistics.fmean(values) - published[model].mean
        interval = stats.ttest_1samp(values, published[model].mean).confidence_interval(0.95)
        low, high = interval.low - published[model].mean, interval.high - published[model].mean
        assert rows[model]["difference"] == f"{mean:+.2f}"
        assert rows[model][INTERVAL] == f"{low:+.2f} to {high:+.2f}"
        assert rows[model]["accuracy, %"] == mean_and_std(values, 2)
        assert rows[model]["parameters"] == "1,234"
    quoted = rows["NRU (quoted)"]
    assert (quoted["published"], quoted["difference"]) == (f"{published['NRU (quoted)'].mean:.2f}", "-")


def test_an_experiment_without_published_numbers_has_no_empty_columns_for_them(tmp_path):
    write_run(tmp_path, "own/digits", model="plstm", score=0.8)
    (table,) = one(tmp_path).tables
    assert not {"published", "difference", INTERVAL} & set(table.headings)
    assert rows_of(table)["plstm"]["single runs"] == "80.00"


@pytest.mark.parametrize(
    ("ran", "shown"),
    [
        ("remanence run ID --seeds 1 --out x --budget 9m --quiet", "remanence run ID --seeds 1"),
        # A reader has results/, in which these runs are finished.
        ("remanence run ID --unless-in results --unless-in 'my runs' --device cuda", "remanence run ID --device cuda"),
        ("remanence run ID --unless-in=results --out=x", "remanence run ID"),
        ("python train.py --out x", None),
        ("remanence", None),
        ("", None),
        ("remanence run 'ID", None),
    ],
)
def test_a_command_is_shown_as_a_reader_would_type_it(ran, shown):
    assert typed(ran) == shown


def test_the_setup_is_shown(tmp_path):
    write_runs(tmp_path, SCORES)
    section = one(tmp_path)
    facts = dict(section.facts)
    assert facts["device"] == "a processor (cpu)"
    assert facts["versions"] == "remanence 0.1.0, torch 2.11.0, Python 3.12.3"
    assert facts["seeds"] == "1, 2, 3"
    assert facts["started"] == "2026-01-02"
    assert "batch 128" in facts["training"]
    assert section.commands == ["remanence run ID --preset short"]
    assert [name for name, _ in section.configurations] == ["lstm, seeds 1, 2, 3", "plstm, seeds 1, 2, 3"]
    assert all(yaml.safe_load(text)["training"]["epochs"] == 15 for _, text in section.configurations)
    assert len(section.runs.rows) == 6
    assert (section.done, section.planned, section.status) == (6, 6, "finished")
    assert section.figures[0].panels[0].series


def test_differences_from_the_paper_are_shown(tmp_path):
    write_runs(tmp_path, SCORES, changes={"batch": 7})
    section = one(tmp_path)
    assert (
        dict(section.facts)["differs from the preset paper"]
        == "training.batch 7 instead of 128, training.epochs 15 instead of 100"
    )
    assert "training.batch 7 instead of 128" in section.judged


def test_unusual_data_are_shown(tmp_path):
    write_runs(tmp_path, SCORES, result={"data": "half of it"})
    assert dict(one(tmp_path).facts)["data"] == "half of it"


def test_seeds_that_ran_side_by_side_share_their_time(tmp_path):
    write_runs(tmp_path, SCORES)
    runs = [RunFolder.read(path.parent) for path in tmp_path.rglob("config.yaml")]
    assert busy(runs) == busy(runs[:1]) == 60


def test_a_half_finished_experiment_is_shown_as_far_as_it_is(tmp_path):
    write_runs(tmp_path, {"plstm": [0.9, 0.91]})
    half = write_run(tmp_path, model="lstm", seed=1, ended=False)
    with (half / "metrics.jsonl").open("a") as file:
        file.write('{"update": 12, "epo')  # as a killed process leaves it
    begun = write_run(tmp_path, model="lstm", seed=2, ended=False)
    for name in ("metrics.jsonl", "machine.json", "times.jsonl"):
        (begun / name).unlink()
    section = one(tmp_path)
    assert (section.done, section.planned, section.status) == (2, 6, "part")
    assert rows_of(section.tables[0])["lstm"]["seeds"] == ""
    states = {(row[0], row[1]): row[2] for row in section.runs.rows}
    assert states["lstm", "1"] == "not finished, 50%"
    assert states["lstm", "2"] == "not finished"
    assert "lstm, seed 1, at update 1,500 (50%); lstm, seed 2, not evaluated yet" in section.notes[0]
    assert {series.like or series.name for series in section.figures[0].panels[0].series} == {"lstm", "plstm"}
    assert {claim.verdict for claim in section.claims} <= {"not tested here", "open"}
    assert "not finished, 50%" in page.html([section])


def test_nothing_evaluated_yet_is_a_section_with_a_note(tmp_path):
    folder = write_run(tmp_path, ended=False, evaluations=0)
    section = one(tmp_path)
    assert (section.status, section.tables, list(section.figures)) == ("nothing finished", [], [])
    assert any(note.startswith("No figures yet: ") for note in section.notes)
    assert folder.name in {f"seed-{row[1]}" for row in section.runs.rows}


@pytest.mark.parametrize(
    "part", ["", "plstm", "plstm/pmnist-256", "plstm/pmnist-256/short", "plstm/pmnist-256/short/plstm"]
)
def test_any_folder_on_the_way_to_runs_will_do(tmp_path, part):
    write_runs(tmp_path, {"plstm": [0.9, 0.91]})
    section = one(tmp_path / part)
    assert (section.id, section.preset, section.done) == ("plstm/pmnist-256", "short", 2)
    assert section.figures


def test_a_single_run_and_the_folder_it_is_in_are_shown_once(tmp_path):
    folder = write_run(tmp_path)
    (section,) = gather([folder, tmp_path, folder.parent])
    assert section.done == 1


def test_a_run_that_was_moved_is_shown_without_figures(tmp_path):
    folder = write_run(tmp_path / "there")
    moved = folder.rename(tmp_path / "moved")
    section = one(moved)
    assert section.done == 1
    assert list(section.figures) == []
    assert any("No figures" in note for note in section.notes)


def test_the_same_experiment_in_two_folders_is_two_sections(tmp_path):
    for name in ("first", "second"):
        write_runs(tmp_path / name, SCORES)
    sections = gather([tmp_path])
    assert [section.place for section in sections] == ["first", "second"]


def test_sections_come_in_the_order_of_the_papers(tmp_path):
    for id, model in (("own/digits", "lstm"), ("plstm/copy-200", "lstm"), ("fastgate/copy-500", "fast")):
        write_run(tmp_path, id, model=model)
    ids = [section.id for section in gather([tmp_path])]
    assert ids == sorted(ids, key=IDS.index)


def test_damaged_files_cost_one_run_and_not_the_page(tmp_path):
    write_run(tmp_path, seed=1)
    (write_run(tmp_path, seed=2) / "result.json").write_text("{")
    (write_run(tmp_path, seed=3) / "config.yaml").write_text("- no mapping")
    (write_run(tmp_path, model="lstm", seed=3) / "config.yaml").write_text("a: [")
    (write_run(tmp_path, model="lstm", seed=1) / "machine.json").write_text("[]")
    (write_run(tmp_path, model="lstm", seed=2, result={"best": {}, "test": {}}) / "times.jsonl").write_text("?\n[]\n")
    section = one(tmp_path)
    assert sum(note.startswith("Left out: ") for note in section.notes) == 3
    assert {(row[0], row[1]) for row in section.runs.rows} == {("plstm", "1"), ("lstm", "1"), ("lstm", "2")}


@pytest.mark.parametrize("id", ["plstm/other", "mine/other"], ids=["of a paper", "one's own"])
def test_an_unknown_experiment_is_shown_from_its_runs(tmp_path, id):
    folder = write_run(tmp_path, "plstm/copy-200", model="lstm")
    description = yaml.safe_load((folder / "config.yaml").read_text()) | {"experiment": id}
    (folder / "config.yaml").write_text(yaml.safe_dump(description))
    moved = tmp_path / id / "short/lstm"
    moved.mkdir(parents=True)
    folder.rename(moved / "seed-1")
    section = one(tmp_path)
    assert (section.id, section.done, section.planned) == (id, 1, 1)
    assert section.figures
    assert any("has no plstm/other" in note for note in section.notes) == (id == "plstm/other")


def test_a_result_of_an_analysis_is_shown_with_its_tables(tmp_path):
    from remanence import experiments

    way = experiments.Way(tmp_path, experiments.runs.torch.device("cpu"))
    tables = experiments.run(find("plstm/fig1-decay"), way)
    section = one(tmp_path)
    assert [table.title for table in section.tables] == [*(table.title for table in tables), "Published"]
    assert section.status == "finished"
    assert section.figures
    (claim,) = section.claims
    assert claim.verdict == "holds"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path / "nowhere", "not there"),
        (lambda path: path, "got no results in"),
        (lambda path: _file(path / "file"), "a file"),
    ],
)
def test_folders_without_results_are_refused(tmp_path, make, words):
    with pytest.raises(ValueError, match=f"^expected .*{words}"):
        gather([make(tmp_path)])


def _file(path):
    path.write_text("")
    return path


def test_hostile_words_in_files_are_words(tmp_path):
    nasty = "<script>alert(1)</script>"
    folder = write_run(
        tmp_path, machine={"name": nasty, "command": f"remanence run '{nasty}'"}, result={"status": nasty}
    )
    with (folder / "config.yaml").open("a") as file:
        file.write(f"note: {nasty}\n")
    text = page.html([one(tmp_path)])
    assert nasty not in text
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 4


def test_a_hundred_runs_make_a_small_page(tmp_path):
    ids = ("plstm/pmnist-256", "plstm/mnist-256", "plstm/pmnist-512", "plstm/mnist-512", "plstm/charptb-150")
    for id in ids:
        write_runs(
            tmp_path,
            {name: [0.5 + seed / 100 for seed in range(10)] for name in ("lstm", "plstm")},
            id,
            evaluations=600,
        )
    sections = gather([tmp_path])
    assert sum(section.done for section in sections) == 100
    content = page.html(sections)
    program = page.packed(page.library() or "") if page.library() else ""
    assert len(content) - len(program) < 1_500_000
    if not program:
        pytest.skip("without plotly a page has no figures with data")
    longest = max(
        len(trace["x"])
        for figure in json.loads(figures_in(content)).values()
        for panel in figure["panels"]
        for trace in panel["data"]
    )
    assert 100 < longest <= 400


def figures_in(content):
    return content.split('id="figures">')[1].split("</script>")[0]


def test_the_results_of_the_project_make_a_page_with_every_run():
    sections = gather([RESULTS])
    ended = [path for path in RESULTS.glob("*/*/*/*/*/result.json") if '"status": "unfinished"' not in path.read_text()]
    assert sum(section.done for section in sections) == len(ended)
    assert not any("=" in section.place for section in sections)  # those of sweeps are shown by their sweeps
    assert all(section.figures for section in sections)
    assert all("They were kept as they were" in note for section in sections for note in section.notes)
    assert all(section.notes == [] for section in sections if section.status == "finished")
    assert all(section.claims and section.judged for section in sections)  # each has a written verdict


def test_the_tables_of_a_closing_analysis_are_shown_with_the_training():
    (section,) = gather([RESULTS / "mts/ptb"])
    assert any(table.title.startswith("perplexity, mts/ptb, test words") for table in section.tables)


@pytest.fixture
def command():
    app = Typer()
    app.command()(report.command)

    def run(*arguments):
        return CliRunner().invoke(app, list(map(str, arguments)))

    return run


def test_the_command_writes_the_page_and_says_where(tmp_path, command):
    write_runs(tmp_path / "runs", SCORES)
    done = command(tmp_path / "runs", "--out", tmp_path / "new" / "page.html")
    assert done.exit_code == 0, done.output
    assert str(tmp_path / "new" / "page.html") in done.output
    assert "plstm/pmnist-256" in (tmp_path / "new" / "page.html").read_text("utf-8")


def test_the_command_answers_mistakes_with_one_sentence(tmp_path, command):
    write_runs(tmp_path / "runs", SCORES)
    for arguments in (
        [tmp_path / "nowhere"],
        [tmp_path / "runs", "--out", tmp_path],
        [tmp_path, "--out", tmp_path / "runs"],
    ):
        done = command(*arguments)
        assert done.exit_code == 2
        assert done.output.startswith("remanence: expected ")
        assert done.output.count("\n") == 1
