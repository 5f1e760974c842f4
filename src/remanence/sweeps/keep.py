"""Copies a finished sweep into a repository: its grid, and its runs without checkpoints.

python -m remanence.sweeps.keep SWEEP INTO
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from ..experiments import results
from ..experiments.collecting import copy_run, ended
from .folder import Sweep


def keep(folder: Path, into: Path) -> int:
    """Copy a sweep, with fewer evaluations.

    Args:
        folder: Folder of a sweep whose units have all ended.
        into: Folder to create; an existing one is replaced.

    Returns:
        Number of runs copied.
    """
    sweep = Sweep.open(folder)
    if left := sweep.left:
        raise ValueError(f"expected a finished sweep, got {folder}, which has {len(left)} units left")
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    shutil.copyfile(folder / results.SWEEP, into / results.SWEEP)
    copied = Sweep.open(into)
    count = 0
    for unit in sweep.units:
        if not unit.model:
            continue
        model = unit.experiment.models[unit.model]
        for seed in unit.seeds:
            result = ended(sweep.out(unit), unit.experiment, model, seed)
            if result is not None:
                where = (unit.experiment, unit.model, seed)
                source, target = (results.run_folder(one.out(unit), *where) for one in (sweep, copied))
                copy_run(source, target, result, unit.experiment.report, model)
                count += 1
    return count


def main(words: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m remanence.sweeps.keep", description=__doc__)
    parser.add_argument("sweep", type=Path, help="folder of a finished sweep")
    parser.add_argument("into", type=Path, help="folder to copy it to")
    given = parser.parse_args(words)
    try:
        print(f"{keep(given.sweep, given.into)} runs copied to {given.into}")
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
