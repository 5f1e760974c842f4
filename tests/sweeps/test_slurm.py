"""SLURM jobs, as far as they can be tested without SLURM: submitit runs them locally."""

import pickle
import shutil
import signal

import pytest
from small_sweeps import ID, call, left_by, run_plainly, small, until

from remanence.sweeps import Places, lease
from remanence.sweeps.launchers import launcher_named, slurm
from remanence.training import Stopped
from remanence.training.loop import Loop

submitit = pytest.importorskip("submitit")
HERE = Places(["cpu"], 2, {"cluster": "local"})


def states(sweep):
    return [sweep.state(unit).name for unit in sweep.units]


@pytest.fixture
def without_slurm(monkeypatch):
    usual = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, *rest: None if name in ("srun", "sbatch") else usual(name, *rest))


@pytest.mark.parametrize("options", [{}, {"cluster": "slurm"}])
def test_no_slurm_is_answered_by_one_sentence(tmp_path, without_slurm, monkeypatch, options):
    sweep = small(tmp_path, seeds=[1])
    monkeypatch.setattr(slurm, "launch", None)  # nothing is to run
    with pytest.raises(ValueError, match=r"^expected SLURM on this machine, got none: [^\n]*$"):
        launcher_named("slurm")(sweep, Places(["cpu"], 1, options), lambda: None)


@pytest.mark.parametrize("option", ["cluster=slrum", "timeout_min=long", "partitoin=gpu"])
def test_options_that_mean_nothing_are_answered_by_one_sentence(tmp_path, monkeypatch, option):
    monkeypatch.setattr(slurm, "launch", None)  # nothing is to run
    words = ["--preset", "smoke", "--seeds", "1", "--models", "plstm", "--set", "train.epochs=1", "--out", tmp_path]
    local = [] if "cluster" in option else ["--option", "cluster=local"]
    result = call("sweep", ID, *words, "--launcher", "slurm", *local, "--option", option)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("remanence: expected ")
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_job_does_its_unit_and_nothing_else(tmp_path):
    sweep = small(tmp_path)
    slurm.Job()(str(tmp_path), sweep.units[1].name, "cpu")
    assert states(sweep) == ["queued", "done"]


@pytest.mark.parametrize(
    "names", [{"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3", "SLURM_JOB_ID": "10"}, {"SLURM_JOB_ID": "10"}]
)
def test_a_requeued_job_resumes_at_once(tmp_path, monkeypatch, names):
    for name in ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    sweep = small(tmp_path, seeds=[1])
    (unit,) = sweep.units
    taken = []
    usual = lease.take

    def take(path, owner, *rest):
        taken.append(owner)
        return usual(path, owner, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(lease, "take", take)
        patch.setattr("remanence.sweeps.work.carry_out", lambda *_: None)
        slurm.Job()(str(tmp_path), unit.name, "cpu")
    assert sweep.failure(unit) == "it ended, but some of its results are missing"
    sweep.forgive()
    lease.take(sweep.lease(unit), taken[0])  # its process was killed
    monkeypatch.setattr("os.getpid", lambda: 99999999)  # and another is started
    slurm.Job()(str(tmp_path), unit.name, "cpu")
    assert states(sweep) == ["done"]


@pytest.fixture
def submitit_listens():
    """Signals as submitit sets them in a job; a list of the warnings that reached it."""
    found = []

    def queued_again(number, frame):
        found.append(number)
        raise SystemExit(-1)

    handlers = {signal.SIGUSR2: queued_again, signal.SIGTERM: lambda *_: None}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield found
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_job_that_is_warned_saves_before_it_is_queued_again(tmp_path, monkeypatch, submitit_listens):
    sweep = small(tmp_path / "sweep", seeds=[1])
    (unit,) = sweep.units
    usual = Loop.update

    def update(loop):
        usual(loop)
        if loop.at.update == 1:
            signal.raise_signal(signal.SIGUSR2)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "update", update)
        with pytest.raises(SystemExit):
            slurm.Job()(str(sweep.folder), unit.name, "cpu")
    assert submitit_listens == [signal.SIGUSR2]
    assert [path.name for path in sweep.out(unit).rglob("*.safetensors")] == ["interrupted.safetensors"]
    assert states(sweep) == ["queued"]
    slurm.Job()(str(sweep.folder), unit.name, "cpu")
    assert states(sweep) == ["done"]
    assert left_by(sweep) == run_plainly(sweep, tmp_path / "plain")


def test_a_job_that_is_warned_before_it_trains_is_queued_again_at_once(tmp_path, monkeypatch, submitit_listens):
    sweep = small(tmp_path, seeds=[1])
    monkeypatch.setattr("remanence.sweeps.work.carry_out", lambda *_: signal.raise_signal(signal.SIGUSR2))
    with pytest.raises(SystemExit):
        slurm.Job()(str(tmp_path), sweep.units[0].name, "cpu")
    assert submitit_listens == [signal.SIGUSR2]
    assert states(sweep) == ["queued"]
    assert signal.getsignal(signal.SIGUSR2).__name__ == "queued_again"


def test_a_job_that_is_stopped_otherwise_is_not_queued_again(tmp_path, monkeypatch, submitit_listens):
    sweep = small(tmp_path, seeds=[1])
    usual = Loop.update

    def update(loop):
        usual(loop)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Loop, "update", update)
    with pytest.raises(Stopped):
        slurm.Job()(str(tmp_path), sweep.units[0].name, "cpu")
    assert submitit_listens == []


def test_a_requeued_job_is_the_same_job():
    again = slurm.Job().checkpoint("folder", "unit", "cpu")
    assert isinstance(again.function, slurm.Job)
    assert again.args == ("folder", "unit", "cpu")
    assert isinstance(pickle.loads(pickle.dumps(again.function)), slurm.Job)


@pytest.mark.long
@pytest.mark.slow
def test_results_are_those_of_a_plain_run(tmp_path):
    sweep = small(tmp_path / "sweep", train__lr=["1e-3", "1e-2"], together=2)
    looks = []
    launcher_named("slurm")(sweep, HERE, lambda: looks.append(states(sweep)))
    assert states(sweep) == ["done", "done"]
    assert looks[-1] == ["done", "done"]
    assert left_by(sweep) == run_plainly(sweep, tmp_path / "plain")


@pytest.mark.long
def test_a_job_that_dies_has_failed_with_one_sentence(tmp_path):
    sweep = small(tmp_path, seeds=[1, 2])
    left = Places(["cpu"], 1, {"cluster": "local"})
    (tmp_path / "sweep.yaml").rename(tmp_path / "away")  # jobs find no sweep

    slurm.launch(sweep, left, lambda: None)
    assert states(sweep) == ["failed", "failed"]
    for unit in sweep.units:
        assert sweep.failure(unit).startswith("its job failed: ")
        assert "\n" not in sweep.failure(unit)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")  # submitit does not wait for it
def test_jobs_are_cancelled_when_the_launcher_is_stopped(tmp_path):
    sweep = small(tmp_path, seeds=[1], train__epochs=[100000], task__train_size=[256])
    (unit,) = sweep.units

    def look():
        if sweep.share(unit) > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        slurm.launch(sweep, HERE, look)
    until(lambda: not sweep.lease(unit).exists())
    assert states(sweep) == ["queued"]
