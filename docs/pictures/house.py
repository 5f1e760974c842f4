"""The map of the package: its packages from top to bottom, and which imports which.

    python docs/pictures/house.py [--out FOLDER]

writes house.svg, by default beside this file, from the import statements of the source.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Sequence
from pathlib import Path

from kernels import CODE, FAINT, MATRIX, MEMORY, WORK, Drawing

SOURCE = Path(__file__).parents[2] / "src" / "remanence"
FLOORS: list[tuple[str, str, list[str]]] = [
    ("commands", CODE, ["cli"]),
    ("the papers", CODE, ["", "sweeps", "experiments"]),
    ("results", CODE, ["bench", "report", "analysis"]),
    ("training", WORK, ["training"]),
    ("what is learned", WORK, ["models", "tasks", "language", "data"]),
    ("layers", MEMORY, ["nn", "pretrained"]),
    ("how to run them", MATRIX, ["engines", "timescales"]),
    ("the equations", MATRIX, ["cells", "gates"]),
]
"""Packages from the top floor to the ground floor, with what a floor is about; an empty name leaves its place free."""
ABOUT = {
    "cli": "one file per command",
    "experiments": "tables and figures of the papers, fit",
    "sweeps": "many runs: local, Ray, Slurm",
    "report": "figures, tables, the HTML page",
    "analysis": "timescales, decay, ablation",
    "bench": "speed against torch.nn",
    "training": "the loop, checkpoints, resume",
    "tasks": "sequences, loss, scores",
    "models": "sequence, language",
    "language": "corpora",
    "data": "data sets",
    "nn": "LSTM, GRU, JANET, NRU, ...",
    "pretrained": "save and load",
    "timescales": "set and measured",
    "engines": "loop, torch, cpu, cpp, triton, cuda",
    "cells": "LSTM, GRU, JANET, ...",
    "gates": "sigmoid, fast, power_law, ...",
}
HEIGHT, STEP, LEFT = 50, 84, 130


def imports() -> dict[str, set[str]]:
    """Which packages each package imports, from all of its files."""
    found: dict[str, set[str]] = {name: set() for name in ABOUT}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE.parent).parts
        if parts[1] not in found:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = parts[: len(parts) - node.level]
                full = [*base, *(node.module or "").split(".")]
                names = [full[1]] if len(full) > 1 and full[1] else [alias.name for alias in node.names]
                found[parts[1]] |= {name for name in names if name in found} - {parts[1]}
    return found


def direct(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Without the arrows that follow from others: a to c, where a imports b and b reaches c."""

    def reached(name: str) -> set[str]:
        return graph[name].union(*(reached(other) for other in graph[name]))

    return {name: used - set().union(*(reached(other) for other in used)) for name, used in graph.items()}


def house() -> Drawing:
    """The drawing."""
    d = Drawing(960, STEP * len(FLOORS) + 34, "The packages of remanence; arrows are imports")
    place = {}
    for floor, (words, colour, names) in enumerate(FLOORS):
        y = 24 + STEP * floor
        d.text(16, y + 29, words, colour=FAINT)
        for number, name in enumerate(names):
            if not name:
                continue
            span = (960 - LEFT - 16) / len(names)
            wide = min(span - 14, 330)
            x = LEFT + span * number + (span - wide) / 2
            place[name] = (x, y, wide, colour)
    arrows = []
    for name, used in direct(imports()).items():
        x, y, wide, _ = place[name]
        targets = sorted(used, key=lambda other: place[other][0])
        for number, other in enumerate(targets):
            u, v, other_wide, _ = place[other]
            right = u > x
            if v == y and abs(u - x) < 2 * wide:  # neighbours
                arrows.append([(x + wide * right, y + HEIGHT / 2), (u + other_wide * (not right), v + HEIGHT / 2)])
            elif v == y:  # over the roofs of those between them
                start, end = x + 0.8 * wide, u + 0.2 * other_wide
                arrows.append([(start, y), (start, y - 13), (end, y - 13), (end, y)])
            else:
                floors = round((v - y) / STEP)
                start = x + (wide * (number + 1) / (len(targets) + 1) if floors == 1 else 16)
                arrows.append([(start, y + HEIGHT), (min(max(start, u + 16), u + other_wide - 16), v)])
    for points in arrows:
        d.arrow(*points)
    for name, (x, y, wide, colour) in place.items():
        d.box(round(x), y, round(wide), HEIGHT, [name, ABOUT[name]], colour)
    words = "Arrows: imports, downwards only. Imports that follow from others are left out."
    d.text(16, d.size[1] - 14, words, colour=FAINT, size=12)
    return d


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw it."""
    parser = argparse.ArgumentParser(description="Draw the map of the package.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write to")
    out = parser.parse_args(arguments).out
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"expected --out to be a folder, got {out}: {error.strerror}")
    (out / "house.svg").write_text(house().svg(), "utf-8")
    print(out / "house.svg")


if __name__ == "__main__":
    main()
