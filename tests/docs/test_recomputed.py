"""The table of what `recompute` saves has a line for every kind of layer."""

import pytest


@pytest.fixture
def recomputed(docs_script, monkeypatch):
    pytest.importorskip("resource")
    script = docs_script("recomputed")
    monkeypatch.setattr(script, "SIZES", {"cpu": (20, 2, 8, 128)})
    return script


@pytest.mark.parametrize("kind", ["torch's LSTM", "fast", "fast, recompute=8"])
def test_a_line_says_what_was_measured(recomputed, kind):
    assert kind in recomputed.KINDS
    _, name, mebibytes, milliseconds, _ = (cell.strip() for cell in recomputed.measured("cpu", kind).split("|"))
    assert name == kind
    assert float(mebibytes) >= 0
    assert float(milliseconds) >= 0
