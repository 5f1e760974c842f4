"""What is kept of a sweep that has ended, for a repository: its grid, and its runs without checkpoints.

python -m remanence.sweeps.keep SWEEP INTO
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from ..experiments import results
from ..experiments.campaign import copy_run, is_finished
from .folder import Sweep


def keep(folder: Path, into: Path) -> int:
    """Copy a sweep, with evaluations thinned out.

    Args:
        folder: that of the sweep; all of its units have ended.
        into: a folder that is made; one that is there is replaced.

    Returns:
        How many runs were copied.
    """
    sweep = Sweep.open(folder)
    if left := sweep.left:
        raise ValueError(f"expected a sweep that has ended, got {folder}, of which {len(left)} units are left")
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
            if is_finished(sweep.out(unit), unit.experiment, model, seed):
                where = (unit.experiment, unit.model, seed)
                source, target = (results.run_folder(one.out(unit), *where) for one in (sweep, copied))
                copy_run(source, target, unit.experiment.report, model)
                count += 1
    return count


def main(words: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m remanence.sweeps.keep", description=__doc__)
    parser.add_argument("sweep", type=Path, help="folder of a sweep that has ended")
    parser.add_argument("into", type=Path, help="where to keep it")
    given = parser.parse_args(words)
    try:
        print(f"{keep(given.sweep, given.into)} runs kept in {given.into}")
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
