"""Run the tutorial notebook and keep what its cells print and draw.

    python docs/tutorial.py [--out FILE]

writes docs/tutorial.ipynb anew, or another file. A cell that fails is an error. Times of day, which would differ from
one run to the next, are not kept.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from remanence import files

NOTEBOOK = Path(__file__).parent / "tutorial.ipynb"


def executed(path: Path) -> nbformat.NotebookNode:
    """The notebook after all of its cells ran in order, in a kernel of its own."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, kernel_name="python3", timeout=600, record_timing=False, coalesce_streams=True)
    return client.execute()


def main() -> None:
    """Run it and write it."""
    parser = argparse.ArgumentParser(description="Run the tutorial notebook and keep its outputs.")
    parser.add_argument("--out", type=Path, default=NOTEBOOK, help="file to write")
    out = parser.parse_args().out
    notebook = executed(NOTEBOOK)
    # Versions of the kernel say nothing about the tutorial and would change the file.
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
    files.write(out, (nbformat.writes(notebook) + "\n").encode())


if __name__ == "__main__":
    main()
