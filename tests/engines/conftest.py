"""Engines are compared in full float32 unless a test says otherwise; simulated kernels are compiled once."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import simulation
import torch
from interpreting import replace_builtins_once

from remanence.engines.cuda import memos, plan, recurrence


@pytest.fixture(autouse=True)
def full_float32() -> Iterator[None]:
    settings = (torch.backends.cudnn.rnn, torch.backends.cuda.matmul)
    before = [setting.fp32_precision for setting in settings]
    for setting in settings:
        setting.fp32_precision = "ieee"
    yield
    for setting, precision in zip(settings, before, strict=True):
        setting.fp32_precision = precision


@pytest.fixture(scope="session", autouse=True)
def quick_interpreter() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("TRITON_INTERPRET") == "1":
            replace_builtins_once(patch)
        yield


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder for the compiled kernels of the simulated GPU."""
    return tmp_path_factory.mktemp("simulated")


@pytest.fixture
def simulated(libraries: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    simulation.stand_in(recurrence, libraries, monkeypatch)
    monkeypatch.setattr(recurrence, "processors", lambda device: 132)
    monkeypatch.setattr(recurrence, "largest_cluster", lambda device: plan.LARGEST)
    memos.forget()
    yield monkeypatch
    memos.forget()


BY_HAND = ("test_half_precision", "test_layers_side_by_side", "test_kernels_match_the_loop")
"""Tests on the simulated GPU that run once with more than four blocks in CI; run other variants with `-m slow`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if item.path.name == "test_simulated.py" and item.name.startswith(BY_HAND)]
    for item in here:
        parameters = item.callspec.params  # type: ignore[attr-defined]
        if len(parameters["cell"].blocks) > 4 and not parameters.get("special"):
            item.add_marker(pytest.mark.slow)
