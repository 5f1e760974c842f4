"""Small sweeps, and the files of plain runs of the same."""

import json
import time

import torch
from typer.testing import CliRunner

from remanence.cli.main import app
from remanence.sweeps import Grid, Sweep

ID = "plstm/copy-200"
TINY = {"train.epochs": [1], "task.train_size": [64], "task.delay": [3]}
"""Values of a run that takes a tenth of a second."""
OWN = ("machine.json", "times.jsonl", "SHA256SUMS", "lock")
"""Files of a run that say when and where it was."""
PATIENCE = 180.0
"""Seconds after which something that should happen does not."""


def small(folder, models=("plstm",), seeds=(1, 2), together=1, **values):
    """A sweep that was made."""
    sets = {name.replace("__", "."): list(given) for name, given in values.items()}
    sweep = Sweep(folder, Grid([ID], ["smoke"], list(models), list(seeds), {**TINY, **sets}), together)
    sweep.make()
    return sweep


def call(*words, **environment):
    """The command line, in this process."""
    return CliRunner().invoke(app, list(map(str, words)), env={"COLUMNS": "200", "NO_COLOR": "1", **environment})


def run_plainly(sweep, out):
    """What `remanence run` leaves of the same runs, by point."""
    found = {}
    before = torch.get_num_threads()
    for machine in list((sweep.runs or sweep.folder).rglob("machine.json"))[:1]:  # what trains nothing has none
        torch.set_num_threads(json.loads(machine.read_text())["threads"])  # checkpoints say how many there were
    try:
        for point, unit in {unit.point: unit for unit in sweep.units}.items():
            words = [word for value in unit.sets for word in ("--set", value)]
            words += ["--models", ",".join(sweep.grid.models)] if sweep.grid.models else []
            words += ["--seeds", ",".join(map(str, sweep.grid.seeds))] if sweep.grid.seeds else []
            common = ["--preset", unit.preset, "--device", "cpu", "--quiet", "--out", out / point]
            result = call("run", unit.id, *common, *words)
            assert result.exit_code == 0, result.output
            found[point] = kept(out / point)
    finally:
        torch.set_num_threads(before)
    return found


def left_by(sweep):
    """What a sweep left, by point."""
    return {unit.point: kept(sweep.out(unit)) for unit in sweep.units}


def kept(folder):
    """Every file below a folder, but those that say when and where it was made."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in OWN and not path.name.startswith("events.")
    }


def until(happened, seconds=PATIENCE):
    """Wait for something."""
    limit = time.monotonic() + seconds
    while not (found := happened()):
        assert time.monotonic() < limit, f"expected it within {seconds} s"
        time.sleep(0.02)
    return found
