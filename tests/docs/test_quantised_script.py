"""The table of layers in int8 and in float32 has a line for every size."""

import platform

import pytest
import torch


@pytest.fixture
def quantised(docs_script, monkeypatch):
    if platform.machine().lower() in ("aarch64", "arm64"):
        monkeypatch.setattr(torch.backends.quantized, "engine", "qnnpack")
    script = docs_script("quantised")
    monkeypatch.setattr(script, "PATIENCE", 0.0)
    return script


def test_a_line_says_what_was_measured(quantised):
    _, sizes, *times, _ = (cell.strip() for cell in quantised.measured(3, 2, 8).split("|"))
    assert sizes == "3 x 2 x 8"
    assert len(times) == 4
    assert all(float(time) >= 0 for time in times)
