"""Every gate as a function of its pre-activation, and its slope.

    python docs/pictures/gates.py [--out FOLDER]

writes gates.png, which shows all gates together, and gate_NAME.png for every gate, by default beside this file. The
gates of the package compute the values; slopes are autograd's.
"""

from __future__ import annotations

import argparse
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from what_stays import BLUE, GREEN, LOOK, ORANGE, PURPLE, VERMILION

from remanence import analysis, files, gates

SPAN = (-6.0, 6.0)
COLOURS = {"sigmoid": BLUE, "fast": VERMILION, "softsign": PURPLE, "refine": ORANGE, "ur": ORANGE, "power_law": GREEN}
DASHES = ("-", (0, (5, 1.5)), (0, (1, 1.2)))
"""Line styles of the curves of one gate."""


@dataclass(frozen=True)
class Curve:
    """A gate over a grid of pre-activations, `(points,)` each."""

    label: str
    z: np.ndarray
    forget: np.ndarray
    slope: np.ndarray


def curve(gate: gates.Gate, label: str, *, refine: float | None = None, age: float | None = None) -> Curve:
    """One step of a gate at every pre-activation.

    Args:
        gate: which.
        label: what the curve is called.
        refine: the pre-activation of its second row, if it has one; None for minus that of the first.
        age: what it carries before the step, if it carries an age.
    """
    z = torch.linspace(*SPAN, 481, dtype=torch.float64, requires_grad=True)
    other = -z if refine is None else torch.full_like(z, refine)
    pre = (z, other)[: len(gate.rows)]
    carried = () if age is None else (torch.full_like(z, age),)
    forget = gate(pre, carried, {}, None).forget
    (slope,) = torch.autograd.grad(forget.sum(), z)
    return Curve(label, z.detach().numpy(), forget.detach().numpy(), slope.numpy())


def curves_of(name: str) -> list[Curve]:
    """The curves of a gate."""
    if name == "refine":
        shown = ((math.inf, "r = 1"), (0.0, "r = 1/2: a sigmoid"), (-math.inf, "r = 0"))
        return [curve(gates.Refine(), label, refine=z) for z, label in shown]
    if name == "ur":
        return [curve(gates.UniformRefine(), "r = 1 - f, as without input")]
    if name == "power_law":
        gate = gates.PowerLaw(p=0.3)
        return [curve(gate, f"age {age:g} before the step", age=age) for age in (100.0, 10.0, 1.0)]
    return [curve(gates.KNOWN[name](), name)]


def draw_gate(figure: Figure, name: str) -> None:
    """phi on the left, its slope on the right; a sigmoid in grey to compare with, where that makes sense."""
    left, right = figure.subplots(1, 2)
    row = "reset pre-activation z" if name == "power_law" else "pre-activation z"
    if name not in ("sigmoid", "power_law"):
        (sigmoid,) = curves_of("sigmoid")
        left.plot(sigmoid.z, sigmoid.forget, color="#AAAAAA", linewidth=1.4, label="sigmoid", zorder=1)
        right.plot(sigmoid.z, sigmoid.slope, color="#AAAAAA", linewidth=1.4, zorder=1)
    for each, dashes in zip(curves_of(name), DASHES, strict=False):
        left.plot(each.z, each.forget, color=COLOURS[name], linestyle=dashes, label=each.label)
        right.plot(each.z, each.slope, color=COLOURS[name], linestyle=dashes)
    left.set(xlim=SPAN, ylim=(0, 1.02), xlabel=row, ylabel="forget value f")
    right.set(xlim=SPAN, xlabel=row, ylabel="slope df/dz")
    if name != "power_law":  # there a reset forgets, so the slope is negative
        right.set_ylim(bottom=0)
    figure.legend(frameon=False, fontsize=8.5, handlelength=2.6, loc="outside upper left", ncols=4)


def draw_all(figure: Figure) -> None:
    """All gates that depend only on the current pre-activation: phi, slope, and 1 - phi."""
    left, middle, right = figure.subplots(1, 3)
    names = ("fast", "sigmoid", "softsign")
    found = analysis.gate_functions(names, span=SPAN)
    (refine,) = (each for each in curves_of("refine") if each.label == "r = 1")
    for name in names:
        left.plot(found.z, found.forget[name], color=COLOURS[name], label=name)
        middle.plot(found.z, found.slope[name], color=COLOURS[name])
        right.plot(found.tail_z, found.tail_log10[name], color=COLOURS[name])
    left.plot(refine.z, refine.forget, color=ORANGE, linestyle=DASHES[1], label="refine, r = 1")
    middle.plot(refine.z, refine.slope, color=ORANGE, linestyle=DASHES[1])
    after = refine.z >= 0
    right.plot(refine.z[after], np.log10(1 - refine.forget[after]), color=ORANGE, linestyle=DASHES[1])
    titled(left, "the gate", "forget value f", SPAN)
    titled(middle, "its slope", "df/dz", SPAN)
    titled(right, "how it approaches one", "1 - f", (0, 6))
    middle.set_ylim(bottom=0)
    right.set_ylim(-6, 0)
    right.set_yticks(range(-6, 1, 2), ["$10^{-6}$", "$10^{-4}$", "$10^{-2}$", "1"])
    left.legend(frameon=False, fontsize=8.5, handlelength=2.2, loc="upper left")


def titled(axes: Axes, title: str, what: str, span: tuple[float, float]) -> None:
    """Labels of one panel."""
    axes.set(xlim=span, xlabel="pre-activation z", ylabel=what)
    axes.set_title(title, loc="left")


def write(figure: Figure, file: Path) -> None:
    """Save a figure with few colours, which makes the file small."""
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=130)
    Image.open(drawn).convert("RGB").quantize(64).save(small, format="png", optimize=True)
    files.write(file, small.getvalue())
    print(file)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw all figures."""
    parser = argparse.ArgumentParser(description="Draw every gate and its slope.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write to")
    out = parser.parse_args(arguments).out
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"expected --out to be a folder, got {out}: {error.strerror}")
    with matplotlib.rc_context(LOOK):
        figure = Figure(figsize=(9.6, 3.1), layout="constrained")
        draw_all(figure)
        write(figure, out / "gates.png")
        for name in gates.KNOWN:
            figure = Figure(figsize=(6.6, 2.5), layout="constrained")
            draw_gate(figure, name)
            write(figure, out / f"gate_{name}.png")


if __name__ == "__main__":
    main()
