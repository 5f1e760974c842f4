"""What a profiler saw is read as it was written."""

import pytest


@pytest.fixture(scope="module")
def profiled(docs_script):
    return docs_script("profiled")


def lines(profiled, names):
    """As ncu writes them, each metric of each kernel with a value of its own."""
    metrics = [*profiled.METRICS.values(), *map(profiled.stall, profiled.STALLS)]
    yield "==PROF== Connected to process 1 (python)"
    yield '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
    for number, name in enumerate(names):
        for place, metric in enumerate(metrics):
            yield f'"{number}","{name}","{metric}","","{number + 1},{place:03d}"'


def test_every_kernel_gets_its_own_numbers(profiled):
    names = ["forward", "backward"] * len(profiled.LAYERS)
    found = profiled.kernels(lines(profiled, names))
    assert [kernel["kernel"] for kernel in found] == names
    assert [kernel["sizes"]["units"] for kernel in found[::2]] == [layer.units for layer in profiled.LAYERS]
    assert found[1]["microseconds"] == 2.0
    assert found[1]["issue_percent"] == 2001
    assert found[2]["stalls"]["wait"] == 3000 + len(profiled.METRICS)


def test_other_kernels_are_refused(profiled):
    with pytest.raises(ValueError, match=r"^expected kernels forward and backward of 9 layers, got"):
        profiled.kernels(lines(profiled, ["forward"]))


def test_the_metrics_are_printed_for_ncu(profiled, capsys):
    profiled.main(["metrics"])
    assert capsys.readouterr().out.startswith("gpu__time_duration.sum,")


def test_bad_arguments_get_a_sentence(profiled):
    with pytest.raises(SystemExit, match=r"^expected nothing, `metrics`, or `kept PROFILE FILE`$"):
        profiled.main(["what"])
