"""What remains of a unit's memory under each gate.

A unit holds one, then hears nothing: all weights are zero, and only the bias of its gate, or its exponent p, says how
it forgets. Left: Figure 1 of "Slower is Better: Revisiting the Forgetting Mechanism in LSTM for Slower Information
Decay". Right: the same for every gate, over 10,000 steps. The layers themselves compute the curves.

    python docs/pictures/what_stays.py [--out FOLDER]

writes what_stays.png and what_stays.svg, by default beside this file.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

import remanence as rm

# After Okabe & Ito: told apart with every kind of colour vision, and dark enough for text. Every line is labelled too.
BLUE, GREEN, VERMILION, ORANGE, PURPLE = "#0072B2", "#008A64", "#D55E00", "#C28500", "#A84C86"
INK, FAINT = "#333333", "#DDDDDD"

LOOK = {
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "lines.linewidth": 2.2,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.hashsalt": "what stays",  # the same file every time
}


@torch.no_grad()
def what_stays(layer: rm.LSTM, steps: int, *biases: float) -> np.ndarray:
    """The cells of a layer, all one at the start, over steps without input: `(steps + 1, H)`.

    Args:
        layer: a layer with one input, in float64.
        steps: how many.
        biases: what the rows of its gate see, one number each.
    """
    units = layer.hidden_size
    for name, parameter in layer.named_parameters():
        if name.startswith(("weight", "bias")):
            parameter.zero_()
    for row, bias in zip(layer.gate.rows, biases, strict=True):
        start = layer.cell.blocks.index(row) * units
        layer.bias_ih_l0[start : start + units] = bias
    zero = torch.zeros(1, 1, units, dtype=torch.float64)
    one = torch.ones_like(zero)
    state = (zero, one, *(zero for _ in layer.gate.carries))
    record = rm.record(layer, torch.zeros(steps, 1, 1, dtype=torch.float64), state)
    return torch.cat((one[0], record["cell"][:, 0])).numpy()


def power_law(exponents: list[float], steps: int) -> np.ndarray:
    """Units of a power-law LSTM that are never reset: `(steps + 1, len(exponents))`."""
    layer = rm.PowerLawLSTM(1, len(exponents), eps=0.0, dtype=torch.float64)
    with torch.no_grad():
        layer.p_hat_l0.copy_(torch.logit(torch.tensor(exponents, dtype=torch.float64)))
    return what_stays(layer, steps, -100.0)


def crossing(first: np.ndarray, second: np.ndarray) -> float:
    """After how many steps the first curve, above after one step, meets the second."""
    gap = first - second
    after = 1 + int(np.argmax(gap[1:] < 0))
    return after - gap[after] / (gap[after] - gap[after - 1])


def draw_figure_1(axes: Axes) -> None:
    """The two decays of the pLSTM paper, over 200 steps."""
    steps, forget = 200, 0.97
    n = np.arange(steps + 1)
    sigmoid = rm.LSTM(1, 1, dtype=torch.float64)
    exponential = what_stays(sigmoid, steps, math.log(forget / (1 - forget)))[:, 0]
    power = power_law([0.3], steps)[:, 0]
    meet = crossing(exponential, power)
    assert f"{exponential[-1]:.5f}" == "0.00226", exponential[-1]
    assert f"{power[-1]:.4f}" == "0.2037", power[-1]
    assert f"{meet:.1f}" == "35.4", meet

    axes.plot(n, exponential, color=BLUE)
    axes.plot(n, power, color=GREEN)
    height = float(np.interp(meet, n, power))
    axes.plot(meet, height, "o", ms=6.5, mfc="white", mec=INK, mew=1.4, zorder=3)
    note = {"textcoords": "offset points", "va": "bottom"}
    axes.annotate(f"equal after {meet:.1f} steps", (meet, height), (10, 3), **note)
    axes.annotate(
        f"power law, p = 0.3\n{power[-1]:.4f} remains", (steps, power[-1]), (0, 7), color=GREEN, ha="right", **note
    )
    axes.annotate(
        f"exponential, f = {forget}\n{exponential[-1]:.5f} remains", (steps, 0), (0, 9), color=BLUE, ha="right", **note
    )
    axes.set(xlim=(0, steps), ylim=(0, 1), xlabel="steps without input", ylabel="fraction of memory that remains")
    axes.set_xticks(range(0, steps + 1, 50))
    axes.set_title("200 steps: Figure 1 of the pLSTM paper", loc="left")


def draw_gates(axes: Axes) -> None:
    """Every gate over 10,000 steps, both axes logarithmic."""
    steps, z, lowest = 10_000, 3.0, 1e-3
    shown = np.unique(np.geomspace(1, steps, 400).astype(int))
    beside = {"textcoords": "offset points", "annotation_clip": False}

    exponents = [0.1, 0.3, 0.7]
    for p, curve in zip(exponents, power_law(exponents, steps).T, strict=True):
        axes.plot(shown, curve[shown], color=GREEN)
        axes.annotate(f"power law\np = {p}", (steps, curve[-1]), (6, 0), color=GREEN, va="center", **beside)

    for gate, color in (("softsign", PURPLE), ("sigmoid", BLUE), ("refine", ORANGE), ("fast", VERMILION)):
        layer = rm.LSTM(1, 1, gate=gate, dtype=torch.float64)
        curve = what_stays(layer, steps, *(z for _ in layer.gate.rows))[:, 0]
        (timescale,) = rm.timescales.of(layer)
        label = f"{gate}\nT = {timescale.item():,.{0 if timescale > 100 else 1}f}"
        seen = shown[curve[shown] > lowest / 10]
        axes.plot(seen, curve[seen], color=color)
        if curve[-1] > lowest:
            label = label.replace("\n", ", ")
            axes.annotate(label, (300, 1), (0, 6), color=color, ha="center", va="bottom", **beside)
        else:
            bottom = float(np.interp(-lowest * 1.3, -curve, np.arange(steps + 1)))
            left = gate == "softsign"  # the others have room on their right
            offset, side = ((-10, 0), "right") if left else ((5, 0), "left")
            axes.annotate(label, (bottom, lowest * 1.15), offset, color=color, ha=side, va="bottom", **beside)

    axes.set(xscale="log", yscale="log", xlim=(1, steps), ylim=(lowest, 1.6), xlabel="steps without input")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:g}"))
    axes.minorticks_off()
    axes.set_title(f"10,000 steps: every gate at pre-activation {z:g}", loc="left")


def write(figure: Figure, file: Path) -> None:
    """Save a figure, whole or not at all."""
    unfinished = file.with_name(f".unfinished-{file.name}")
    figure.savefig(unfinished, dpi=200, metadata={"Date": None} if file.suffix == ".svg" else None)
    unfinished.replace(file)


def main() -> None:
    """Draw both panels and write them."""
    parser = argparse.ArgumentParser(description="Draw what remains of a unit's memory under each gate.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write to")
    out = parser.parse_args().out
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"expected --out to be a folder, got {out}: {error.strerror}")
    with matplotlib.rc_context(LOOK):
        figure = Figure(figsize=(9, 3.9), layout="constrained")
        left, right = figure.subplots(1, 2)
        draw_figure_1(left)
        draw_gates(right)
        for file in (out / "what_stays.png", out / "what_stays.svg"):
            write(figure, file)
            print(file)


if __name__ == "__main__":
    main()
