"""The grid of a sweep: experiments, models, seeds and values, split into units of work."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from .. import experiments
from ..experiments import text
from ..experiments.build import build
from ..experiments.schema import Experiment

LONGEST = 60
"""Maximum length of a folder name, in characters."""


@dataclass(frozen=True)
class Grid:
    """Every combination of the listed values."""

    ids: list[str]
    """Experiment ids."""
    presets: list[str] = field(default_factory=lambda: ["short"])
    models: list[str] = field(default_factory=list)
    """Empty for all models of an experiment."""
    seeds: list[int] = field(default_factory=list)
    """Empty for the seeds of the experiment."""
    set: dict[str, list[Any]] = field(default_factory=dict)
    """Values by path, as for `--set`."""

    def points(self) -> Iterator[tuple[str, ...]]:
        """Every combination of values, in the syntax of `--set`."""
        for values in itertools.product(*self.set.values()):
            yield tuple(f"{path}={written(value)}" for path, value in zip(self.set, values, strict=True))

    def plain(self) -> dict[str, Any]:
        """The content of the YAML file."""
        return asdict(self) | {"set": {path: [meant(value) for value in values] for path, values in self.set.items()}}


def read(words: str) -> Grid:
    """Parse a grid from YAML."""
    found = understood(words)
    if not isinstance(found, Mapping):
        raise ValueError(f"expected a sweep to be a mapping with ids, got {type(found).__name__}")
    listed: dict[str, Any] = {
        name: value if isinstance(value, list | Mapping) else [value] for name, value in found.items()
    }
    if isinstance(listed.get("set"), Mapping):
        values = listed["set"].items()
        listed["set"] = {path: value if isinstance(value, list) else [value] for path, value in values}
    return build(Grid, listed, "sweep")


def read_file(path: str) -> Grid:
    """Read a grid from a YAML file."""
    try:
        return read(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"expected a YAML file with a grid, got {path}: {error}") from None


def one_point(id: str, preset: str, models: list[str], seeds: list[int], sets: Iterable[str]) -> Grid:
    """The grid of one experiment at one point. Every word of `sets` is a path and its only value, commas included."""
    values: dict[str, list[Any]] = {path: [value] for path, _, value in (word.partition("=") for word in sets)}
    return Grid([id], [preset], models, seeds, values)


def values_of(sets: Iterable[str]) -> dict[str, list[Any]]:
    """Parse the values to try for every path, from words such as train.lr=1e-3,3e-4."""
    values: dict[str, list[Any]] = {}
    for word in sets:
        path, rest = setting(word, "--set PATH=VALUE,.., such as train.lr=1e-3,3e-4")
        values.setdefault(path, []).extend(split_values(rest))
    return values


def setting(word: str, form: str) -> tuple[str, str]:
    """The path and the rest of a word of the command line such as PATH=VALUE; `form` is what was expected."""
    path, equals, rest = word.partition("=")
    if not equals or not path.strip():
        raise ValueError(f"expected {form}, got {word!r}")
    return path.strip(), rest


def split_values(words: str) -> list[str]:
    """Split at commas, except inside brackets and quotes."""
    found, depth, quote = [""], 0, ""
    for letter in words:
        if letter in "\"'" and quote in ("", letter):
            quote = "" if quote else letter
        depth += (letter in "[{") - (letter in "]}") if not quote else 0
        if letter == "," and depth <= 0 and not quote:
            found.append("")
        else:
            found[-1] += letter
    return [word.strip() for word in found if word.strip()]


def meant(value: Any) -> Any:
    """The value of a string in the syntax of `--set`: 1e-3 is a number and equals 0.001."""
    return understood(value) if isinstance(value, str) else value


def understood(words: str) -> Any:
    """Parse YAML."""
    import yaml

    try:
        return text.read(words)
    except yaml.YAMLError as error:
        first = str(getattr(error, "problem", None) or error).partition("\n")[0]
        raise ValueError(f"expected YAML, got {words[:LONGEST]!r}, which has an error: {first}") from None


def written(value: Any) -> str:
    """The canonical text of a value, in the syntax of `--set`."""
    value = meant(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | dict):
        import json

        return json.dumps(value)
    return str(value)


@dataclass(frozen=True)
class Unit:
    """The work of one process at a time: some seeds of a model, side by side, at one point of the grid."""

    id: str
    preset: str
    model: str
    """Empty for an experiment that trains no model."""
    seeds: tuple[int, ...]
    sets: tuple[str, ...]

    @property
    def name(self) -> str:
        """A unique name, for files."""
        words = [self.id.replace("/", "_"), self.preset, self.model, *self.sets, *(f"seed-{s}" for s in self.seeds[:1])]
        whole = "-".join(word for word in words if word)
        return f"{slug(whole)}-{digest(repr(self))}"

    @property
    def point(self) -> str:
        """The folder name of its values."""
        return point_folder(self.sets)

    @property
    def experiment(self) -> Experiment:
        """The experiment with the values of this point."""
        return _found(self.id, self.preset, self.sets)

    def __str__(self) -> str:
        seeds = f"seed{'s' if len(self.seeds) > 1 else ''} {','.join(map(str, self.seeds))}" if self.seeds else ""
        return " ".join(word for word in (self.id, self.preset, self.model, *self.sets, seeds) if word)


@lru_cache(maxsize=4096)
def _found(id: str, preset: str, sets: tuple[str, ...]) -> Experiment:
    return experiments.find(id, preset, sets)


def units(grid: Grid, together: int | None = None) -> list[Unit]:
    """The units of a grid. Raises a `ValueError` now for everything that is wrong with it.

    Args:
        grid: Grid of runs.
        together: Seeds per unit; None for all.
    """
    found: list[Unit] = []
    chosen = list(dict.fromkeys(grid.seeds))
    if not all(0 <= seed < 2**32 for seed in chosen):
        raise ValueError(f"expected seeds from 0 to 2**32 - 1, got {chosen}")
    for values in grid.set.values():
        if not values:
            raise ValueError("expected values for every path of a sweep, got an empty list for one of them")
    for id, preset, sets in itertools.product(grid.ids, grid.presets, grid.points()):
        experiment = _found(id, preset, sets)
        experiments.check(experiment, grid.models)
        if experiment.kind != "training":
            found.append(Unit(id, preset, "", tuple(chosen), sets))
            continue
        for model in grid.models or experiment.usual:
            seeds = chosen or experiment.seeds
            found += [Unit(id, preset, model, tuple(some), sets) for some in batched(seeds, together or len(seeds))]
    if not found:
        raise ValueError("expected at least one run, got a sweep without experiments, models or seeds")
    return list(dict.fromkeys(found))


def batched(seeds: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """Groups of at most `size` seeds."""
    for start in range(0, len(seeds), size):
        yield seeds[start : start + size]


def point_folder(sets: Sequence[str]) -> str:
    """A unique folder name for the values of a point."""
    if not sets:
        return "as-it-is"
    whole = ",".join(sets)
    safe = slug(whole)
    return safe if safe == whole else f"{safe}-{digest(whole)}"


def slug(words: str) -> str:
    """Replace characters that some file systems do not allow, and limit the length."""
    return re.sub(r"[^A-Za-z0-9._=,+-]+", "_", words)[:LONGEST].rstrip(".")


def digest(words: str) -> str:
    """A short hash."""
    return hashlib.blake2b(words.encode(), digest_size=4).hexdigest()
