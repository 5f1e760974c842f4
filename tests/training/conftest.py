"""Small models run on one thread, and tests that are not about crashes skip fsync."""

import io
import os

import pytest
import torch
from rich import console

from remanence.training import Budget, Stopped, train
from remanence.training.interruption import Interruption


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def terminal(monkeypatch):
    """What live progress shows on a terminal; it reads the loss at every update."""

    class Terminal(console.Console):
        def __init__(self, **keywords):
            super().__init__(file=stream, force_terminal=True, width=160)

    stream = io.StringIO()
    monkeypatch.setattr(console, "Console", Terminal)
    monkeypatch.setattr("remanence.training.progress.EVERY", 0.0)
    return stream


@pytest.fixture
def train_until(monkeypatch):
    """Trains runs until they are to stop: `wanted(work)` is asked before every piece of work."""

    def until(wanted, runs, **keywords):
        with monkeypatch.context() as patch:
            patch.setattr(Interruption, "wanted", lambda self, work: wanted(work))
            with pytest.raises(Stopped):
                train(runs, budget=Budget(1e6), **keywords)

    return until


@pytest.fixture
def train_until_update(train_until):
    """Trains runs until it was asked so many times whether to stop before an update; the first time is at the start."""

    def until(update, runs, **keywords):
        counted = []

        def wanted(work):
            counted.append(work)
            return counted.count("update") > update

        train_until(wanted, runs, **keywords)

    return until
