"""Copies of finished sweeps for a repository."""

import pytest
from small_sweeps import call, small

from remanence.sweeps import Sweep, work
from remanence.sweeps.keep import keep, main
from remanence.sweeps.tables import outcomes


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A sweep of two values."""
    sweep = small(tmp_path_factory.mktemp("sweep") / "own", seeds=(1,), train__lr=["1e-3", "1e-2"])
    for unit in sweep.units:
        work.do_one(str(sweep.folder), unit.name, "cpu", "me")
    return sweep


def test_runs_are_kept_without_checkpoints_and_make_the_same_table(finished, tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "of an earlier one").write_text("")
    assert keep(finished.folder, tmp_path / "kept") == 2
    there = Sweep.open(tmp_path / "kept")
    assert [table.markdown() for table in outcomes(there)] == [table.markdown() for table in outcomes(finished)]
    assert not list(there.folder.rglob("*.safetensors"))
    assert not (there.folder / "of an earlier one").exists()
    assert not there.left


def test_a_sweep_that_has_not_ended_is_refused(tmp_path, capsys):
    small(tmp_path / "begun")
    with pytest.raises(SystemExit) as stopped:
        main([str(tmp_path / "begun"), str(tmp_path / "kept")])
    assert stopped.value.code == 2
    assert f"expected a finished sweep, got {tmp_path / 'begun'}, which has 2 units left" in (
        " ".join(capsys.readouterr().err.split())
    )
    assert not (tmp_path / "kept").exists()


def test_the_command_says_how_many(finished, tmp_path, capsys):
    main([str(finished.folder), str(tmp_path / "kept")])
    assert capsys.readouterr().out == f"2 runs copied to {tmp_path / 'kept'}\n"


def test_a_report_of_kept_sweeps_alone_is_theirs_and_a_missing_folder_is_still_said(finished, tmp_path):
    keep(finished.folder, tmp_path / "all" / "kept")
    shown = call("report", tmp_path / "all", "--out", tmp_path / "page.html")
    assert shown.exit_code == 0, shown.output
    assert "over" in (tmp_path / "page.html").read_text()
    refused = call("report", tmp_path / "all", tmp_path / "none", "--out", tmp_path / "other.html")
    assert refused.exit_code == 2
    assert str(tmp_path / "none") in refused.stderr
    assert not (tmp_path / "other.html").exists()
