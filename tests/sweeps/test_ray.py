"""Ray tasks: nodes may come and go."""

import subprocess
import sys

import pytest
from small_sweeps import ID, call, left_by, run_plainly, small

from remanence.sweeps import Places
from remanence.sweeps.launchers import launcher_named

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.long]
CPU = Places(["cpu"], 1)


@pytest.fixture
def cluster():
    """Two nodes with a processor each, on this machine."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    made.add_node(num_cpus=1)
    ray.init(address=made.address, logging_level="ERROR", log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


def states(sweep):
    return [sweep.state(unit).name for unit in sweep.units]


@pytest.mark.slow
def test_results_are_those_of_a_plain_run_though_a_node_dies(tmp_path, cluster):
    sweep = small(tmp_path / "sweep", (), range(1, 5), 1, train__lr=["1e-3", "1e-2"])
    (_, second) = cluster.list_all_nodes()
    looks = []

    def look():
        looks.append(states(sweep).count("done"))
        if looks[-1] >= 4 and second in cluster.list_all_nodes():
            cluster.remove_node(second, allow_graceful=False)

    launcher_named("ray")(sweep, CPU, look)
    assert second not in cluster.list_all_nodes()
    assert states(sweep) == ["done"] * 24, [sweep.failure(unit) for unit in sweep.units]
    assert looks[-1] == 24
    assert left_by(sweep) == run_plainly(sweep, tmp_path / "plain")


@pytest.mark.slow
def test_units_of_a_dead_node_resume_on_another(tmp_path, cluster):
    sweep = small(tmp_path / "sweep", ("plstm",), (1, 2), 1, train__epochs=[60], task__train_size=[256])
    (_, second) = cluster.list_all_nodes()

    def look():
        if all(sweep.share(unit) > 0 for unit in sweep.units) and second in cluster.list_all_nodes():
            cluster.remove_node(second, allow_graceful=False)

    launcher_named("ray")(sweep, CPU, look)
    assert second not in cluster.list_all_nodes()
    assert states(sweep) == ["done", "done"], [sweep.failure(unit) for unit in sweep.units]
    assert left_by(sweep) == run_plainly(sweep, tmp_path / "plain")
    starts = [path.read_text().count('"start"') for path in sweep.folder.rglob("times.jsonl")]
    assert sorted(starts) == [1, 2]


@pytest.mark.slow
def test_a_unit_that_raises_has_failed_and_others_go_on(tmp_path, cluster):
    sweep = small(tmp_path, seeds=[1, 2, 3])
    unit = sweep.units[1]
    folder = sweep.out(unit) / ID / "smoke" / "plstm" / "seed-2"
    folder.parent.mkdir(parents=True)
    folder.write_text("in the way")
    launcher_named("ray")(sweep, CPU, lambda: None)
    assert states(sweep) == ["done", "failed", "done"]
    assert "\n" not in sweep.failure(unit)


def test_gpus_where_there_are_none_are_answered_by_one_sentence(tmp_path, cluster):
    words = ["--preset", "smoke", "--launcher", "ray", "--devices", "cuda", "--out", tmp_path]
    result = call("sweep", ID, *words)
    assert (result.exit_code, result.stdout) == (2, "")
    sentence = "expected a Ray cluster with GPUs, got one without; --devices cpu uses its CPUs"
    assert result.stderr == f"remanence: {sentence}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_that_cannot_be_reached_is_answered_by_one_sentence(tmp_path):
    words = ["--preset", "smoke", "--launcher", "ray", "--option", "address=127.0.0.1:1", "--out", str(tmp_path)]
    command = [sys.executable, "-m", "remanence", "sweep", ID, *words]
    result = subprocess.run(command, capture_output=True, text=True, timeout=90)  # a person would not wait longer
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("remanence: expected a reachable Ray cluster, got none at 127.0.0.1:1")
    assert result.stderr.count("\n") == 1
