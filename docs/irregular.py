"""The table and the plot of docs/tutorials/irregular.md: an irregular series, from raw data to what units remember.

    python docs/irregular.py [--seeds 5] [--epochs 30] [--train 2000] [--runs runs] [--page FILE]

trains the models that are missing in RUNS, writes the table into the page, and the plot into the folder `pictures` next
to the folder of the page. The data are docs/tutorials/co2.csv: weekly carbon dioxide at Mauna Loa, 1958 to 2001, in
parts per million, with weeks missing (Keeling and Whorf 2004, public domain, as shipped with statsmodels).
"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy
import torch

import remanence as rm
from remanence import files
from remanence.experiments import Fitted
from remanence.models import SequenceModel
from remanence.report.drawing import draw
from remanence.report.figure import Axis, Figure, Heat, Panel, Series
from remanence.table import mean_and_std
from remanence.tasks import SequenceData

HERE = Path(__file__).parent
SAMPLES = 20
"""Samples per sequence."""
GAP = 5
"""Weeks between two samples on average; the unit of time of all models."""
AHEAD = 8
"""Weeks from the last sample to the target."""
SCALE = 3.0
"""Scale of inputs and targets: parts per million per unit."""
UNITS = 32
YEARS = {"train": (1958, 1984), "validation": (1984, 1991), "test": (1991, 2002)}


def series() -> tuple[numpy.ndarray, numpy.ndarray]:
    """Week of every measurement, counted from the first, and parts per million; without missing weeks."""
    with (HERE / "tutorials" / "co2.csv").open(encoding="utf-8") as file:
        rows = [(row["date"], row["co2"]) for row in csv.DictReader(file) if row["co2"]]
    days = [date(int(day[:4]), int(day[4:6]), int(day[6:])) for day, _ in rows]
    weeks = numpy.array([(day - days[0]).days / 7 for day in days])
    return weeks.round().astype(int), numpy.array([float(value) for _, value in rows])


def sequences(split: str, count: int) -> SequenceData:
    """Samples at random times in the years of a split, and the value some weeks after the last of them."""
    weeks, values = series()
    known = dict(zip(weeks.tolist(), values.tolist(), strict=True))
    first, last = (round((year - 1958.24) * 52.18) for year in YEARS[split])
    rng = numpy.random.default_rng(list(YEARS).index(split))
    inputs, targets, times = [], [], []
    while len(inputs) < count:
        gaps = 1 + rng.exponential(GAP - 1, SAMPLES).round().astype(int)
        at = (rng.integers(max(first, 0), last) + gaps.cumsum()).tolist()
        end = at[-1] + AHEAD
        if end >= last or any(week not in known for week in (*at, end)):
            continue  # a week without a measurement
        start = known[at[0]]  # relative to the start: the level of the year is unknown
        inputs.append([(known[week] - start) / SCALE for week in at])
        targets.append((known[end] - start) / SCALE)
        times.append([week / GAP for week in at])
    return SequenceData(torch.tensor(inputs), torch.tensor(targets), times=torch.tensor(times))


def models() -> dict[str, tuple[str, Callable[[], SequenceModel]]]:
    """The models: where dt goes, and how to construct one."""

    def one(make: Callable[[int], torch.nn.Module], dt_input: bool) -> Callable[[], SequenceModel]:
        return lambda: SequenceModel(make(1 + dt_input), 1, readout="last", dt_input=dt_input)

    return {
        "power-law LSTM": ("gate", one(lambda width: rm.PowerLawLSTM(width, UNITS), False)),
        "power-law LSTM, dt in both": ("gate and input", one(lambda width: rm.PowerLawLSTM(width, UNITS), True)),
        "phased LSTM": ("gate", one(lambda width: rm.PhasedLSTM(width, UNITS), False)),
        "fast gate": ("input", one(lambda width: rm.LSTM(width, UNITS, gate="fast"), True)),
        "rm.LSTM": ("input", one(lambda width: rm.LSTM(width, UNITS), True)),
        "torch.nn.LSTM": ("input", one(lambda width: torch.nn.LSTM(width, UNITS), True)),
        "torch.nn.LSTM without dt": ("nowhere", one(lambda width: torch.nn.LSTM(width, UNITS), False)),
    }


def trained(seeds: int, epochs: int, count: int, runs: Path) -> dict[str, list[Fitted]]:
    """Every model with every seed. Finished runs are not trained again."""
    data = {split: sequences(split, size) for split, size in (("train", count), ("validation", 500), ("test", 1000))}
    found: dict[str, list[Fitted]] = {}
    for name, (_, make) in models().items():
        for seed in range(1, seeds + 1):
            fitted = rm.fit(
                make,
                data["train"],
                "co2/" + re.sub(r"[^\w.]+", "-", name),
                validation=data["validation"],
                test=data["test"],
                seed=seed,
                out=runs,
                batch=64,
                epochs=epochs,
                lr=3e-3,
                clip_norm=1.0,
                schedule={"name": "cosine"},
            )
            found.setdefault(name, []).append(fitted)
            print(f"{name}, seed {seed}: {fitted.scores['rmse'] * SCALE:.3f} ppm", flush=True)
    return found


def table(found: dict[str, list[Fitted]]) -> str:
    """A row for every model and for the guesses, as Markdown."""
    test = sequences("test", 1000).batch
    guesses = {"the last sample": test.inputs[-1, :, 0], "the first sample": torch.zeros(1)}
    lines = ["| model | dt goes to | weights | test error, ppm | single seeds |", "|---|---|---|---|---|"]
    for name, fits in found.items():
        errors = [fitted.scores["rmse"] * SCALE for fitted in fits]
        weights = sum(weight.numel() for weight in fits[0].model.parameters())
        singles = ", ".join(f"{error:.2f}" for error in errors)
        lines.append(f"| {name} | {models()[name][0]} | {weights:,} | {mean_and_std(errors, 3)} | {singles} |")
    for name, guess in guesses.items():
        error = float((guess - test.targets[:, 0]).square().mean().sqrt()) * SCALE
        lines.append(f"| (guess: {name}) | | 0 | {error:.3f} | |")
    return "\n".join(lines)


def picture(found: dict[str, list[Fitted]], path: Path) -> None:
    """A test sequence, the ages of power-law units, and the forget values of an LSTM."""
    test = sequences("test", 1000)
    batch = test[[0]].batch
    assert batch.dt is not None
    power, plain = found["power-law LSTM"][0].model, found["torch.nn.LSTM"][0].model
    weeks = (batch.dt[:, 0].cumsum(0) - 1).mul(GAP).tolist()
    with torch.no_grad():
        age = rm.record(power.layer, batch.inputs, dt=batch.dt)["age"][:, 0] * GAP  # (T, H) in weeks
        forget = rm.record(plain.layer, plain.vectors(batch.inputs, batch.dt))["forget"][:, 0]
    panels = [
        Panel(
            "The samples, and what is asked for",
            Axis("weeks"),
            Axis("ppm above the first"),
            [
                Series("samples", weeks, (batch.inputs[:, 0, 0] * SCALE).tolist(), mark="line and points"),
                Series("to be told", [weeks[-1] + AHEAD], (batch.targets[0] * SCALE).tolist(), mark="points"),
            ],
        ),
        Panel(
            "Power law: age of what a unit holds",
            Axis("weeks"),
            Axis("unit, oldest last"),
            heat=Heat(age[:, age[-1].argsort()].T.tolist(), "weeks", low=0, x=weeks),
        ),
        Panel(
            "torch.nn.LSTM: forget value",
            Axis("weeks"),
            Axis("unit, longest last"),
            heat=Heat(forget[:, forget.mean(0).argsort()].T.tolist(), "share kept", low=0, high=1, x=weeks),
        ),
    ]
    figure = Figure("irregular", "One irregular sequence, and what two models hold of it", panels, statement="")
    path.parent.mkdir(exist_ok=True)
    draw(figure, path, "light")


def main() -> None:
    """Train, write the table, draw the plot."""
    parser = argparse.ArgumentParser(description="Make the table and the plot of docs/tutorials/irregular.md.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--train", type=int, default=2000, help="training sequences")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of the runs")
    page = HERE / "tutorials" / "irregular.md"
    parser.add_argument("--page", type=Path, default=page, help="page to write the table into")
    given = parser.parse_args()
    torch.set_num_threads(1)  # small models
    found = trained(given.seeds, given.epochs, given.train, given.runs)
    text = given.page.read_text("utf-8")
    begin, end = "<!-- made by irregular.py -->\n", "\n<!-- end -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    if not rest or not after:
        raise SystemExit(f"expected {begin.strip()} and {end.strip()} in {given.page}, got a page without")
    files.write(given.page, (before + begin + table(found) + end + after).encode())
    picture(found, given.page.resolve().parents[1] / "pictures" / "irregular.png")


if __name__ == "__main__":
    main()
