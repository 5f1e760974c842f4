"""The page on deployment: its code blocks and commands run."""

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from remanence.engines.cpp.engine import lacks

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "deploy.md").read_text("utf-8")
NEEDED = {"ONNX": ("onnxscript", "onnxruntime"), "The command": ("onnxscript", "onnxruntime")}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(lacks() is not None, reason="no C++ compiler")
def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    sections = re.split(r"^## (.*)$", PAGE, flags=re.MULTILINE)
    named = {"": sections[0], **dict(zip(sections[1::2], sections[2::2], strict=True))}
    for name, packages in NEEDED.items():
        if not all(importlib.util.find_spec(package) for package in packages):
            del named[name]
    blocks = [block for text in named.values() for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]
    assert len(blocks) >= 4
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "\n".join(blocks)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "model.pt2").exists()
    commands = [line for text in named.values() for line in re.findall(r"^remanence (.*)$", text, re.MULTILINE)]
    for command in commands:
        words = [sys.executable, "-W", "ignore", "-m", "remanence", *shlex.split(command)]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / words[words.index("--out") + 1]).exists()
