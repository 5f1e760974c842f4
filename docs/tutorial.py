"""Run the tutorial notebook and store its outputs.

    python docs/tutorial.py [--out FILE]

overwrites docs/tutorials/first_model.ipynb, or writes another file. A failing cell is an error. Time stamps, which
would differ between runs, are not stored.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from remanence import files

NOTEBOOK = Path(__file__).parent / "tutorials" / "first_model.ipynb"


def executed(path: Path) -> nbformat.NotebookNode:
    """Run all cells in order in a new kernel and return the notebook."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, kernel_name="python3", timeout=600, record_timing=False, coalesce_streams=True)
    return client.execute()


def main() -> None:
    """Run it and write it."""
    parser = argparse.ArgumentParser(description="Run the tutorial notebook and store its outputs.")
    parser.add_argument("--out", type=Path, default=NOTEBOOK, help="file to write")
    out = parser.parse_args().out
    notebook = executed(NOTEBOOK)
    # Kernel versions are irrelevant to the tutorial and would change the file.
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
    files.write(out, (nbformat.writes(notebook) + "\n").encode())


if __name__ == "__main__":
    main()
