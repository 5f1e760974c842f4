"""Sweeps on a real SLURM of one node, where it is installed."""

import subprocess

import one_node
import pytest
from small_sweeps import left_by, run_plainly, small, until

from remanence.sweeps import Places
from remanence.sweeps.launchers import launcher_named

pytest.importorskip("submitit")
pytestmark = [
    pytest.mark.long,
    pytest.mark.slow,
    pytest.mark.skipif(one_node.missing() is not None, reason=str(one_node.missing())),
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    with one_node.started(tmp_path_factory.mktemp("slurm")) as own:
        yield own


@pytest.fixture(autouse=True)
def found(slurm, monkeypatch):
    for name, value in slurm.items():
        monkeypatch.setenv(name, value)


def said(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def states(sweep):
    return [sweep.state(unit).name for unit in sweep.units]


def test_results_are_those_of_a_plain_run(tmp_path):
    sweep = small(tmp_path / "sweep", train__lr=["1e-3", "1e-2"], together=2)
    launcher_named("slurm")(sweep, Places(["cpu"], 2, {"timeout_min": "10"}), lambda: None)
    assert states(sweep) == ["done", "done"]
    assert left_by(sweep) == run_plainly(sweep, tmp_path / "plain")


def test_a_job_at_its_time_limit_is_requeued_and_resumes(tmp_path):
    """SLURM warns a job by USR2 before its time is over; here it does so as soon as something is trained."""
    sweep = small(tmp_path / "sweep", seeds=[1], train__epochs=[300], train__checkpoint_every=[8])
    (unit,) = sweep.units
    warned, restarts = [], []

    def look():
        jobs = said("squeue", "--noheader", "--format=%A").split()
        for job in jobs:
            shown = said("scontrol", "show", "job", job)
            restarts.append(int(shown.partition("Restarts=")[2].split()[0]))
        if jobs and sweep.share(unit) > 0 and not warned:
            said("scancel", "--signal=USR2", jobs[0])
            warned.append(sweep.share(unit))

    launcher_named("slurm")(sweep, Places(["cpu"], 1, {"timeout_min": "30"}), look)
    assert warned
    assert max(restarts) == 1
    assert states(sweep) == ["done"]
    (times,) = sweep.out(unit).rglob("times.jsonl")
    assert times.read_text().count('"start"') == 2
    assert times.read_text().count('"stop"') == 1  # it was saved at that very update
    assert left_by(sweep) == run_plainly(sweep, tmp_path / "plain")


def test_jobs_are_cancelled_when_the_launcher_is_stopped(tmp_path):
    sweep = small(tmp_path, seeds=[1], train__epochs=[100000])
    (unit,) = sweep.units

    def look():
        if sweep.share(unit) > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launcher_named("slurm")(sweep, Places(["cpu"], 1, {}), look)
    until(lambda: not said("squeue", "--noheader", "--format=%A"))
    assert states(sweep) == ["queued"]
