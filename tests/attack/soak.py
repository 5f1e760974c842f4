"""Kills at random moments, over every kind of run: whoever goes on leaves the files of a run that nothing stopped.

    python tests/attack/soak.py --kills 1000

A run is killed again and again until it has ended, and its files are compared; then comes the next, of the next kind.
Two of three lives end by SIGKILL after a random time, the third inside of a write: at a random call of fsync or
replace.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / room) for room in ("training", "sweeps", "attack") if str(TESTS / room) not in sys.path]

from killable import KINDS, Child, die_inside, processes  # noqa: E402
from small_runs import content  # noqa: E402
from small_sweeps import kept, small  # noqa: E402

SWEEP = "sweep"
EVERY = (*KINDS, SWEEP)
WRITES = 60
"""A life that ends inside of a write ends at one of the first so many."""
LIVES = 500
"""Each gets further now and then; a run that has not ended after so many will not."""


def sweeps(folder: Path, die_at: int | None) -> None:
    """What `remanence sweep` does, with one worker."""
    import torch

    from remanence.sweeps import Sweep
    from remanence.sweeps.work import close, do_all
    from remanence.training import Silent

    torch.set_num_threads(1)
    if die_at is not None:
        die_inside(die_at)
    sweep = Sweep.open(folder)
    do_all(sweep, sweep.units, "cpu", "worker", Silent())
    close(sweep, "cpu")


class Worker:
    """A process that works on a sweep."""

    def __init__(self, folder: Path, die_at: int | None = None) -> None:
        if not folder.exists():
            small(folder, ("lstm", "plstm"), (1, 2))
        self.process = processes.Process(target=sweeps, args=(folder, die_at))
        self.process.start()

    def strike(self, how: signal.Signals) -> None:
        if how == signal.SIGKILL:
            self.process.kill()

    def end(self) -> int:
        self.process.join()
        code = self.process.exitcode
        assert code is not None
        return code


def life(kind: str, folder: Path, die_at: int | None = None) -> Child | Worker:
    """A process that begins, or goes on."""
    return Worker(folder, die_at) if kind == SWEEP else Child(folder, die_at=die_at, **KINDS[kind])


def left(kind: str, folder: Path) -> dict[str, bytes]:
    """The files that must not depend on kills.

    Of a sweep without those that tell who works on what, and without a summary that was being written: nobody holds its
    folder, so that such a file is removed when it is so old that nobody can be writing it any more.
    """
    if kind != SWEEP:
        return content(folder)
    return {name: was for name, was in kept(folder).items() if "leases/" not in name and "/.writing-" not in name}


def undisturbed(kind: str, folder: Path) -> tuple[dict[str, bytes], float]:
    """Files of a run that nothing stops, and its seconds."""
    before = time.monotonic()
    code = life(kind, folder).end()
    assert code == 0, f"{kind}: exit code {code} of a run that nothing stopped"
    return left(kind, folder), time.monotonic() - before


def killed(kind: str, folder: Path, seconds: float, chance: random.Random) -> Iterator[None]:
    """Kill a run until it has ended; one item for every kill."""
    for _ in range(LIVES):
        die_at = chance.randint(1, WRITES) if chance.random() < 1 / 3 else None
        now = life(kind, folder, die_at)
        if die_at is None:
            time.sleep(chance.uniform(0, seconds))
            now.strike(signal.SIGKILL)
        code = now.end()
        if code == 0:
            return
        assert code == -signal.SIGKILL, f"{kind}: exit code {code} of a run that goes on after kills"
        yield
    raise AssertionError(f"{kind}: not ended after {LIVES} kills")


def differences(found: dict[str, bytes], expected: dict[str, bytes]) -> list[str]:
    """Files that are not as they should be."""
    return sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))


def soak(kills: int, kinds: tuple[str, ...], seed: int, place: Path, tell: Callable[[str], None]) -> Counter[str]:
    """Kill so often; how often each kind was. Raises `AssertionError` where files differ."""
    chance = random.Random(seed)
    counts: Counter[str] = Counter()
    expected = {kind: undisturbed(kind, place / f"undisturbed {kind}") for kind in kinds}
    runs = 0
    while counts.total() < kills:
        kind = kinds[runs % len(kinds)]
        folder = place / f"{runs} {kind}"
        files, seconds = expected[kind]
        counts[kind] += sum(1 for _ in killed(kind, folder, seconds, chance))
        runs += 1
        wrong = differences(left(kind, folder), files)
        assert not wrong, (
            f"{kind}: other content after kills (seed {seed}, run {runs}, in {folder}): {', '.join(wrong)}"
        )
        shutil.rmtree(folder)
        tell(f"{counts.total()} kills, {runs} runs ended with the files of runs that nothing stopped")
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill runs at random moments.")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--kinds", nargs="*", choices=EVERY, default=EVERY)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="soak-"))
    counts = soak(given.kills, tuple(given.kinds), given.seed, place, lambda words: print(words, flush=True))
    shutil.rmtree(place)  # what differs stays to be looked at
    print(", ".join(f"{kind}: {count}" for kind, count in counts.items()))


if __name__ == "__main__":
    main()
