"""What launchers cost is told apart into what they start with and what they add to a unit."""

import pytest


@pytest.fixture
def launched(docs_script):
    return docs_script("launched")


def test_twice_as_many_units_show_what_one_takes(launched):
    cost = launched.Cost.of(4 + 6 * 1.5, 4 + 12 * 1.5, units=6)
    assert cost == pytest.approx((4, 1.5))


def test_a_line_says_what_is_added_to_a_unit(launched):
    plain, local = launched.Cost(3, 1.5), launched.Cost(8, 2.1)
    assert launched.line("plain", plain, None) == "| plain | 3.0 | 1.50 | | |"
    assert launched.line("local", local, plain) == "| local | 8.0 | 2.10 | 0.60 | 1.0% |"


def test_every_launcher_is_measured_on_the_same_units(launched, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(launched, "timed", lambda *given: asked.append(given) or 5.0 + given[1])
    launched.main(list(launched.LAUNCHERS))
    assert {name for name, *_ in asked} == set(launched.LAUNCHERS)
    said = capsys.readouterr().out
    assert all(f"\n| {name} | 5.0 | 1.00 |" in said for name in launched.LAUNCHERS)
    assert "Units by the local launcher" in said


@pytest.mark.parametrize("launcher", ["plain", "local"])
@pytest.mark.slow
@pytest.mark.long
def test_what_is_timed_really_runs(launched, monkeypatch, launcher):
    monkeypatch.setattr(launched, "SIZES", ["train.epochs=1", "task.train_size=64", "task.delay=3"])
    assert launched.timed(launcher, 2) > 0
