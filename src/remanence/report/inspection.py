"""Inspect the units of a trained model: tables, text histograms and a figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy

from .. import analysis
from ..analysis.arrays import Numbers, numbers
from ..analysis.at_rest import LayerAtRest, gates_at_rest
from ..analysis.opened import AnyInput, AnyModel
from ..analysis.timescale_distribution import LayerTimescales, TimescaleDistribution, percentiles_of
from ..table import Table
from .characters import histogram, round_edges, tenths
from .figure import Axis, Figure, Panel, Reference, Series
from .section import Section

PERCENTILES = (5, 25, 50, 75, 95)
AT = ("5 %", "25 %", "median", "75 %", "95 %")
STEPS = 200
"""Steps without input that are recorded."""
SHOWN = (1, 10, 100, 1000, 10_000)
"""Steps after which tables show what remains."""


@dataclass(frozen=True)
class Inspection:
    """Timescales, exponents, gates and decay of the units of a model."""

    title: str
    """Short name of the model."""
    facts: Sequence[tuple[str, str]]
    distribution: TimescaleDistribution
    at_rest: Sequence[LayerAtRest]
    decay: analysis.FreeDecay | None = None
    """What remains after the input is switched off, if the model was driven by an input."""
    driven_by: str = ""
    """The input that drove it, in words."""
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def layers(self) -> list[LayerTimescales]:
        """The timescales of every layer."""
        return self.distribution.layers

    def tables(self) -> list[Table]:
        """All tables."""
        found = [
            self._quantiles("timescales from biases (steps)", "from_biases"),
            self._quantiles(f"timescales from gates (steps), {self.driven_by}", "from_gates"),
            self._quantiles("exponents p of the power law", "exponents"),
            self._ages(),
            self._gates(),
            self._decay(),
        ]
        return [table for table in found if table is not None]

    def histograms(self, bar: str = "#") -> list[str]:
        """Text histograms of timescales and exponents."""
        lines: list[str] = []
        for layer in self.layers:
            for values, words, edges in (
                (layer.from_biases, "timescales from biases (steps)", round_edges),
                (layer.from_gates, f"timescales from gates (steps), {self.driven_by}", round_edges),
                (layer.exponents, "exponents p", tenths),
            ):
                if values is not None:
                    lines += [f"layer {layer.name}, {words}", *histogram(values, edges(values), bar), ""]
        return lines[:-1]

    def figure(self) -> Figure:
        """The figure with all panels."""
        panels = [*self._sorted_timescales(), *self._sorted_exponents(), *self._sorted_gates(), *self._remanence()]
        return Figure("inspect", f"Units of {self.title}", panels, statement="", columns=2 if len(panels) == 4 else 3)

    def section(self) -> Section:
        """The section of the HTML page."""
        first, *_ = self.layers
        return Section(
            id=self.title,
            preset="",
            title="What its units remember",
            models=[first.gate],
            tables=self.tables(),
            figures=[self.figure()],
            facts=self.facts,
            notes=self.notes,
        )

    # Tables.

    def _quantiles(self, title: str, kind: Literal["from_biases", "from_gates", "exponents"]) -> Table | None:
        rows = [
            (layer.name, layer.gate, str(len(getattr(layer, kind))), *(shown(value) for value in layer.at[kind]))
            for layer in self.layers
            if kind in layer.at
        ]
        return Table(title, ("layer", "gate", "units", *AT), rows, words=2) if rows else None

    def _ages(self) -> Table | None:
        rows = [
            (one.name, str(len(one.ages)), *(shown(value) for value in percentiles_of(one.ages, PERCENTILES)))
            for one in self.at_rest
            if one.ages is not None
        ]
        note = "Without input, a unit decays as a power law up to that age, then exponentially."
        return Table("ages at rest (steps)", ("layer", "units", *AT), rows, notes=[note]) if rows else None

    def _gates(self) -> Table:
        rows = [
            (one.name, name, *(f"{value:.4f}" for value in percentiles_of(values, PERCENTILES)))
            for one in self.at_rest
            for name, values in one.gates.items()
        ]
        return Table("gates of units without input", ("layer", "gate", *AT), rows, words=2)

    def _decay(self) -> Table | None:
        if self.decay is None:
            return None
        after = [step for step in SHOWN if step < len(self.decay.steps)]
        rows = []
        for layer in self.decay.layers:
            kinds = [sum(better == kind for better in layer.fits.better) for kind in ("exponential", "power law")]
            left = [f"{100 * layer.mean[step]:.3g} %" for step in after]
            rows.append((layer.name, *left, *map(str, kinds)))
        headings = ("layer", *(f"after {step}" for step in after), "units: exponential", "power law")
        return Table(f"what is left when the input is switched off, {self.driven_by}", headings, rows)

    # Panels.

    def _sorted_timescales(self) -> list[Panel]:
        series = [
            Series(layer.name, ranks(layer.from_biases), falling(layer.from_biases))
            for layer in self.layers
            if layer.from_biases is not None
        ]
        for layer in self.layers:
            if layer.from_gates is not None:
                like = layer.name if layer.from_biases is not None else None
                name = f"{layer.name}, from gates"
                values = falling(layer.from_gates)
                series.append(Series(name, ranks(layer.from_gates), values, dashed=True, like=like))
        if not series:
            return []
        note = "Dashed: from the forget values that occurred." if any(one.dashed for one in series) else ""
        x, y = Axis("units, longest first (%)", low=0, high=100), Axis("timescale (steps)", log=True)
        return [Panel("Timescales", x, y, series, note=note)]

    def _sorted_exponents(self) -> list[Panel]:
        with_p = [layer for layer in self.layers if layer.exponents is not None]
        if not with_p:
            return []
        series = [Series(layer.name, ranks(layer.exponents), falling(layer.exponents)) for layer in with_p]
        x = Axis("units, largest first (%)", low=0, high=100)
        panels = [Panel("Exponents", x, Axis("exponent p", low=0), series, references=[Reference(0.5, "1/2")])]
        points = [
            Series(layer.name, numbers(layer.exponents).tolist(), finite(rest.ages), mark="points")
            for layer, rest in zip(self.layers, self.at_rest, strict=True)
            if layer.exponents is not None and rest.ages is not None
        ]
        y = Axis("age at rest (steps)", log=True)
        return [*panels, Panel("Exponents and ages", Axis("exponent p", low=0), y, points)]

    def _sorted_gates(self) -> list[Panel]:
        """One panel with all gates for a single layer; one panel per gate for several layers."""
        x, y = Axis("units, most open first (%)", low=0, high=100), Axis("gate", low=0, high=1)
        if len(self.at_rest) == 1:
            gates = self.at_rest[0].gates
            series = [Series(name, ranks(values), falling(values)) for name, values in gates.items()]
            return [Panel("Gates of units without input", x, y, series)]
        panels = []
        for name in dict.fromkeys(name for one in self.at_rest for name in one.gates):
            having = [one for one in self.at_rest if name in one.gates]
            series = [Series(one.name, ranks(one.gates[name]), falling(one.gates[name])) for one in having]
            panels.append(Panel(f"Gate {name} of units without input", x, y, series))
        return panels

    def _remanence(self) -> list[Panel]:
        if self.decay is None:
            return []
        steps = (self.decay.steps + 1).tolist()
        series = [Series(layer.name, steps, finite(layer.mean)) for layer in self.decay.layers]
        for layer in self.decay.layers:
            fit = layer.mean_fit
            if fit.better[0] is not None:
                curve = (fit.power_law if fit.better[0] == "power law" else fit.exponential)(self.decay.steps)[:, 0]
                low = layer.mean[layer.mean > 0].min()
                values = [value if value >= low else math.nan for value in curve.tolist()]
                series.append(Series(f"{layer.name}, fit", steps, values, dashed=True, like=layer.name))
        fits = [f"{layer.name} {layer.mean_fit.better[0]}" for layer in self.decay.layers if layer.mean_fit.better[0]]
        note = f"Dashed: the better fit ({', '.join(fits)})." if fits else ""
        x, y = Axis("1 + steps without input", log=True), Axis("fraction remaining", log=True)
        return [Panel("Decay without input", x, y, series, note=note)]


def inspect(
    model: AnyModel,
    *,
    title: str = "a model",
    facts: Sequence[tuple[str, str]] = (),
    input: AnyInput | None = None,
    driven_by: str = "",
    steps: int = STEPS,
) -> Inspection:
    """Inspect the units of a model.

    Args:
        model: Any model whose layers have forget gates.
        title: Short name of the model.
        facts: Further names and values to show.
        input: Input to drive the model with, for timescales from gates and the decay afterwards; None for neither.
        driven_by: The input in words.
        steps: Steps without input after it.
    """
    distribution = analysis.timescale_distribution(model, input, percentiles=PERCENTILES)
    decay = None
    notes = []
    if input is not None:
        try:
            decay = analysis.free_decay(model, input, steps=steps)
        except ValueError as reason:
            notes.append(f"The decay without input is not shown: {reason}.")
    return Inspection(title, list(facts), distribution, gates_at_rest(model), decay, driven_by, notes)


def save(found: Inspection, path: Path, theme: str = "light") -> None:
    """Write the figure (.png, .svg) or a page with everything (.html), atomically.

    Raises:
        ImportError: matplotlib or jinja2 is not installed.
    """
    expect_ending(path)
    if path.suffix.lower() == ".html":
        from . import page

        page.write([found.section()], path, title=f"Units of {found.title}")
        return
    from .drawing import draw

    draw(found.figure(), path, theme)  # type: ignore[arg-type]


def expect_ending(path: Path) -> None:
    """Refuse other file types."""
    if path.suffix.lower() not in (".png", ".svg", ".html"):
        raise ValueError(f"expected a file that ends in .png, .svg or .html, got {path}")


def shown(value: float) -> str:
    """A number with three significant digits; large ones in full."""
    if math.isinf(value):
        return "infinite"
    return f"{value:,.0f}" if 1000 <= value < 1e7 else f"{value:.3g}"


def ranks(values: Numbers | None) -> list[float]:
    """Ranks of the units in percent, at the middle of each interval."""
    assert values is not None
    return [(place + 0.5) * 100 / len(values) for place in range(len(values))]


def falling(values: Numbers | None) -> list[float]:
    """Sorted in descending order; infinite values become gaps."""
    assert values is not None
    return finite(-numpy.sort(-values))


def finite(values: Numbers) -> list[float]:
    """Replace non-finite values by NaN, which is drawn as a gap."""
    return [float(value) if math.isfinite(value) else math.nan for value in values]
