"""The code that pages show, and how tests run it."""

import os
import re
import subprocess
import sys


def blocks(text, language):
    """The fenced blocks of a language, in order."""
    return [code for found, code in all_blocks(text) if re.fullmatch(language, found)]


def all_blocks(text):
    """Language and code of every fenced block."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def run(folder, *words):
    """Run Python with these arguments in a folder. Gives what was printed."""
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1", "REMANENCE_OFFLINE": "1", "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
