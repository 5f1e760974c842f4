"""Train a list of runs in time slices, several processes at once, and keep the finished results.

    python -m remanence.experiments.campaign list
    python -m remanence.experiments.campaign run --budget 9m --together 3
    python -m remanence.experiments.campaign collect runs/campaign

The list is results/campaign.yaml. Each line is one process: `remanence run` with some models of an experiment, all
seeds at once, or an analysis, which starts when the runs that it reads have finished in the working folder. Processes
write to runs/campaign, stop cleanly when the time budget is spent, and resume there the next time. Runs that
results/ has already are left out, unless an analysis needs their weights. With `--together N`
a line starts next to others only if it can finish: its minutes times the number of concurrent processes, divided by a
gain of about 2 from sharing the device, must fit in the remaining budget. A line that is too long for that waits until
nothing else runs and then has the device to itself; if its turn does not come, that is reported. `collect` copies
finished runs, and what analyses of them found, to results/, beside findings about other seeds (collecting.py); with
`--unfinished` interrupted runs, too, which later slices still have to finish.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tarfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..training.directory import Directory, read_result
from ..training.files import DIGESTS
from ..training.interruption import Budget, stop_processes
from . import results
from .collecting import collect
from .runs_to_do import LIST, Line, read, read_by, to_do

WORK = Path("runs/campaign")
RESULTS = Path("results")
GRACE = 20.0
"""Seconds at the end of a budget for processes to save their state; starting a process takes some of it."""
WORTH = 30.0
"""With fewer seconds left than this, nothing is started."""


def following(lines: Sequence[Line], seconds: float, running: int = 0, together: int = 1) -> tuple[Line, bool] | None:
    """The next line to start, and whether it must run alone; None to start nothing.

    It is the first line that can finish next to the running ones. If there is none and nothing runs, it is the first
    that can finish alone, else the first of all, which resumes later.
    """
    if seconds < WORTH or not lines or running >= together:
        return None
    count = min(together, running + len(lines))
    for line in lines:
        if 60 * line.shared(count) <= seconds:
            return line, False
    if running:
        return None
    return next((line for line in lines if 60 * line.minutes <= seconds), lines[0]), True


@dataclass
class Started:
    """A process that works on a line."""

    line: Line
    process: subprocess.Popen[bytes]
    log: Path
    at: float
    """Start time in seconds."""
    alone: bool
    """Whether it must run alone."""


def carry_out(
    lines: Sequence[Line],
    work: Path,
    budget: Budget,
    together: int,
    device: str,
    before: Sequence[Path] = (),
    say: Callable[[str], None] = print,
) -> list[Line]:
    """Start processes for the unfinished lines until the time budget is spent.

    Args:
        lines: lines to run, in order.
        work: working folder of the processes.
        budget: time limit.
        together: maximum number of concurrent processes.
        device: device, as for `remanence run`.
        before: further folders with finished runs.
        say: receives progress messages.

    Returns:
        The lines that are still unfinished.
    """
    places = (work, *before)
    waiting, started = to_do(lines, places), list[Line]()
    needed = read_by(waiting)
    ready = [line for line in waiting if line.is_ready(work)]
    count, whole = min(together, len(waiting)), budget.left - GRACE
    running: list[Started] = []
    (work / "logs").mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // together))}
    try:
        while waiting or running:
            for one in [one for one in running if one.process.poll() is not None]:
                running.remove(one)
                took, left = time.monotonic() - one.at, one.line.left([work])
                how = "finished" if not left else f"{left} runs left"
                last = one.log.read_text("utf-8", "replace").rstrip().rpartition("\n")[2] if left else ""
                say(f"{one.line}: {how} after {took:.0f} s{last and ': ' + last}")
                waiting = [line for line in to_do(lines, places) if line not in started]
                ready = [line for line in waiting if line.is_ready(work)]
            most = 1 if any(one.alone for one in running) else together
            chosen = following(ready, budget.left - GRACE, len(running), most)
            if chosen is not None:
                line, alone = chosen
                waiting.remove(line)
                ready.remove(line)
                started.append(line)
                log = work / "logs" / f"{str(line).replace('/', '_').replace(' ', '_')}.log"
                kept = () if line.trains_all(needed) else before
                command = line.command(work, device, budget.left - GRACE, kept)
                with log.open("ab") as file:
                    process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
                running.append(Started(line, process, log, time.monotonic(), alone))
                runs = line.left([work, *kept])
                say(f"{line}: started, {runs} runs{', alone' if alone and together > 1 else ''}")
                continue
            if budget.left < GRACE / 2 or (not running and waiting):
                break
            time.sleep(0.2)
    finally:
        stop_processes([one.process for one in running], max(1.0, min(budget.left, GRACE / 2)))
    for line in waiting:
        if line not in ready:
            say(f"{line}: needs runs that are not in {work}")
        elif 60 * line.shared(count) > whole:
            minutes = f"{line.minutes:g} minutes alone, about {line.shared(count):g} as one of {count}"
            say(f"{line}: needs a slice of its own: {minutes}, of {whole / 60:.1f}")
    return [line for line in lines if line.left(places)]


def pack(work: Path, file: Path, lines: Sequence[Line], most: int, say: Callable[[str], None] = print) -> list[Path]:
    """Pack the files that unfinished runs need to resume elsewhere into a tar file of at most `most` bytes.

    The smallest runs come first. A checkpoint holds the weights, the best weights so far and the optimiser state, 12
    to 16 bytes per parameter with Adam, and hardly compresses, so uncompressed sizes count. Runs that are left out are
    reported with the reason.

    Returns:
        The folders that were packed.
    """
    found: dict[Path, list[Path]] = {}
    for line in lines:
        for model, seed in line.runs():
            folder = results.run_folder(work, line.experiment, model.name, seed)
            directory = Directory(folder)
            if directory.begun and read_result(folder) is None:
                found[folder] = needed(directory)
            elif folder.exists() and not directory.begun:
                say(f"{folder.relative_to(work)}: left out, nothing was saved yet")
    sizes = {folder: sum(part.stat().st_size for part in parts) for folder, parts in found.items()}
    packed, left = [], most
    with tarfile.open(file, "w:gz", compresslevel=1) as archive:
        for folder in sorted(found, key=sizes.__getitem__):
            if sizes[folder] > left:
                short = f"it has {sizes[folder] / 1e6:.1f} MB, and {left / 1e6:.1f} of {most / 1e6:g} are left"
                say(f"{folder.relative_to(work)}: left out, {short} (--most)")
                continue
            left -= sizes[folder]
            for part in found[folder]:
                archive.add(part, part.relative_to(work))
            packed.append(folder)
    return packed


def needed(directory: Directory) -> list[Path]:
    """The files that an unfinished run resumes from."""
    interrupted = directory.checkpoints / "interrupted.safetensors"
    newest = interrupted if interrupted.exists() else directory.steps()[0]
    names = ("config.yaml", "machine.json", "metrics.jsonl", "times.jsonl", DIGESTS)
    return [path for path in (*(directory.path / name for name in names), newest) if path.exists()]


def main(words: Sequence[str] | None = None) -> None:
    """Command line entry point."""
    parser = argparse.ArgumentParser(prog="campaign", description="Train the runs behind results/ in time slices.")
    parser.add_argument("--list", type=Path, default=LIST, help="list of runs (default %(default)s)")
    parser.add_argument("--only", default="", help="comma-separated ids: only these, in this order")
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("list", help="show the list and how many runs are left")
    run = actions.add_parser("run", help="train the next unfinished runs")
    run.add_argument("--budget", type=Budget.parse, default=Budget(), help="time limit, such as 9m")
    run.add_argument("--together", type=int, default=1, help="concurrent processes (default %(default)s)")
    run.add_argument("--device", default="cuda", help="default %(default)s")
    run.add_argument("--work", type=Path, default=WORK, help="folder to work in (default %(default)s)")
    keep = actions.add_parser("collect", help="copy finished runs to results/")
    keep.add_argument("work", type=Path, nargs="?", default=WORK)
    keep.add_argument("--into", type=Path, default=RESULTS, help="default %(default)s")
    keep.add_argument("--unfinished", action="store_true", help="also interrupted runs, as they are, marked unfinished")
    state = actions.add_parser("pack", help="pack unfinished runs into a tar file, to resume elsewhere")
    state.add_argument("file", type=Path)
    state.add_argument("--work", type=Path, default=WORK)
    state.add_argument("--most", type=float, default=12, help="megabytes (default %(default)s)")
    given = parser.parse_args(words)
    lines = read(given.list)
    if given.only:
        wanted = given.only.split(",")
        lines = sorted((line for line in lines if line.id in wanted), key=lambda line: wanted.index(line.id))
    if given.action == "run":
        before = [RESULTS] if RESULTS.is_dir() else []
        left = carry_out(lines, given.work, given.budget, given.together, given.device, before, flushed)
        print(f"{len(left)} of {len(lines)} lines are unfinished")
    elif given.action == "collect":
        collect(given.work, given.into, lines, unfinished=given.unfinished)
    elif given.action == "pack":
        print(f"{len(pack(given.work, given.file, lines, int(given.most * 1e6)))} unfinished runs packed")
    else:
        for line in lines:
            print(f"{line.minutes:6g} min  {line.left([WORK, RESULTS]):3d} runs left  {line}")


def flushed(words: str) -> None:
    """Print and flush, also into a pipe."""
    print(words, flush=True)


if __name__ == "__main__":
    main()
