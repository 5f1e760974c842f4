"""Engines are compared in full float32 unless a test says otherwise; simulated kernels are compiled once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True)
def full_float32() -> Iterator[None]:
    settings = (torch.backends.cudnn.rnn, torch.backends.cuda.matmul)
    before = [setting.fp32_precision for setting in settings]
    for setting in settings:
        setting.fp32_precision = "ieee"
    yield
    for setting, precision in zip(settings, before, strict=True):
        setting.fp32_precision = precision


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where simulated kernels are kept."""
    return tmp_path_factory.mktemp("simulated")
