"""Signals and the time budget."""

import signal
import threading
import time

import pytest

from remanence.training import Budget, Stopped
from remanence.training.interruption import Interruption, on_signals


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("9m", 540), ("2h", 7200), ("1h30m", 5400), ("1.5h", 5400), ("45", 45), ("1m30", 90), (" 9M ", 540)],
)
def test_budgets_are_read(text, seconds):
    assert Budget.parse(text).seconds == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5m", "0s", "5d", "m", "3m2h"])
def test_other_words_are_refused(text):
    with pytest.raises(ValueError, match=r"^expected a budget such as 90s, 9m or 1h30m, got "):
        Budget.parse(text)


class Clock:
    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def test_without_a_budget_there_is_no_end(clock):
    interruption = Interruption(Budget())
    clock.now += 1e9
    assert not interruption.wanted("update")


def test_time_to_save_and_to_evaluate_is_kept_in_reserve(clock):
    interruption = Interruption(Budget(100))
    with interruption.timed("evaluation"):
        clock.now += 20
    with interruption.timed("saving"):
        clock.now += 5
    interruption.after_update()
    clock.now += 1
    interruption.after_update()
    clock.now = 100 + 100 - 30
    assert interruption.wanted("evaluation")
    assert not interruption.wanted("update")
    clock.now = 100 + 100 - 11
    assert interruption.wanted("update")
    stopped = interruption.stop("at update 3 of 9")
    assert (stopped.code, stopped.reason) == (
        0,
        "the budget of 100 s is spent at update 3 of 9; run the same command again to resume",
    )


@pytest.fixture
def _python_interrupts():
    """SIGINT raises KeyboardInterrupt, also where the tests run in the background and were started without it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_python_interrupts")
def test_the_first_signal_requests_a_stop_and_the_second_has_its_usual_effect():
    interruption = Interruption(Budget())
    before = signal.getsignal(signal.SIGINT)
    with interruption.listening():
        assert not interruption.wanted("update")
        signal.raise_signal(signal.SIGINT)
        assert interruption.wanted("update")
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    stopped = interruption.stop("at update 3 of 9")
    assert isinstance(stopped, Stopped)
    assert stopped.code == 130
    assert str(stopped) == "stopped by SIGINT at update 3 of 9; run the same command again to resume"


def test_only_the_named_signals_are_handled_and_only_temporarily():
    seen = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    with on_signals(lambda number, frame: seen.append(number), [signal.SIGINT]):
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGTERM) is before[1]
    assert seen == [signal.SIGINT, signal.SIGINT]
    assert [signal.getsignal(number) for number in numbers] == before


def test_outside_the_main_thread_signal_handlers_are_unchanged():
    during = []

    def listen():
        with on_signals(signal.SIG_IGN):
            during.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert during == [signal.getsignal(signal.SIGINT)]
