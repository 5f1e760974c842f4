"""Remanence curves: what is left of a unit's memory, by gate, by age and by initialisation.

    python docs/pictures/forgetting.py [--out FOLDER]

writes forgetting_curves.png, forgetting_age.png and forgetting_initial.png for docs/explanation/forgetting.md, by
default beside this file. The layers and initialisations of the package compute every curve.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib
import numpy as np
import torch
from gates import LOOK
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from what_stays import BLUE, GREEN, INK, ORANGE, PURPLE, VERMILION, power_law, what_stays

import remanence as rm


def exponential(timescale: float, steps: int) -> np.ndarray:
    """The cell of an LSTM unit of this timescale over steps without input."""
    layer = rm.LSTM(1, 1, dtype=torch.float64)
    return what_stays(layer, steps, rm.timescales.timescale_to_bias(timescale).item())[:, 0]


def draw_curves(figure: Figure) -> None:
    """Exponentials and power laws, on linear and on logarithmic axes."""
    left, right = figure.subplots(1, 2)
    steps = 2000
    n = np.arange(steps + 1)
    powers = power_law([0.2, 0.5], steps).T
    curves = [
        ("exponential, T = 20", exponential(20, steps), BLUE, "-"),
        ("exponential, T = 100", exponential(100, steps), BLUE, "--"),
        ("power law, p = 0.2", powers[0], GREEN, "-"),
        ("power law, p = 0.5", powers[1], GREEN, "--"),
    ]
    for name, curve, colour, dashes in curves:
        left.plot(n, curve, color=colour, linestyle=dashes, label=name)
        right.plot(n[1:], curve[1:], color=colour, linestyle=dashes)
    left.set(xlim=(0, 200), ylim=(0, 1), xlabel="steps without input", ylabel="share of the memory left")
    left.set_title("linear axes", loc="left")
    right.set(xscale="log", yscale="log", xlim=(1, steps), ylim=(1e-3, 1.2), xlabel="steps without input")
    right.set_title("logarithmic axes: a power law is a line", loc="left")
    left.legend(frameon=False, fontsize=8.5, handlelength=2.6)


def draw_age(figure: Figure) -> None:
    """A power-law unit that is reset once: its age and its forget value."""
    upper, lower = figure.subplots(2, 1, sharex=True)
    steps, reset_at = 120, 60
    layer = rm.PowerLawLSTM(1, 1, p=0.5, dtype=torch.float64)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        reset = layer.cell.blocks.index("reset")
        layer.bias_ih_l0[reset] = -12.0
        layer.weight_ih_l0[reset] = 32.0
    x = torch.zeros(steps, 1, 1, dtype=torch.float64)
    x[reset_at] = 1.0  # opens the reset gate once
    zero = torch.zeros(1, 1, 1, dtype=torch.float64)
    with torch.no_grad():
        record = rm.record(layer, x, (zero, zero + 1, zero))
    n = np.arange(1, steps + 1)
    upper.plot(n, record["age"][:, 0, 0], color=ORANGE)
    upper.set(ylabel="age", ylim=(0, None))
    lower.plot(n, record["forget"][:, 0, 0], color=GREEN)
    lower.set(xlabel="step", ylabel="forget value f", xlim=(0, steps), ylim=(0, 1.05))
    for axes in (upper, lower):
        axes.axvline(reset_at + 1, color=INK, linewidth=0.8, linestyle=":")
    upper.annotate("reset", (reset_at + 1, 52), (4, 0), textcoords="offset points", color=INK)
    figure.align_ylabels()


def draw_initial(figure: Figure) -> None:
    """Timescales of 1000 units as each initialisation sets them, and how a layer of them forgets."""
    torch.manual_seed(0)
    units, steps = 1000, 2000
    left, right = figure.subplots(1, 2)
    ways = {
        "torch's": (None, PURPLE),
        "uniform": (rm.timescales.Uniform(), ORANGE),
        "chrono, t_max 500": (rm.timescales.Chrono(500), BLUE),
        "inverse gamma, alpha 0.56": (rm.timescales.InverseGamma(0.56), VERMILION),
    }
    n = np.unique(np.geomspace(1, steps, 200).astype(int))
    for name, (way, colour) in ways.items():
        (found,) = rm.timescales.of(rm.LSTM(1, units, timescales=way))
        timescales = np.sort(found.numpy())
        left.plot(timescales, np.arange(1, units + 1) / units, color=colour, label=name)
        right.plot(n, np.exp(-n[:, None] / timescales).mean(1), color=colour)
    right.plot(n, (n + 1.0) ** -0.56, color=INK, linestyle=":", linewidth=1.4)
    right.annotate("(n + 1)^-0.56", (14, 0.3), (0, 0), textcoords="offset points", color=INK)
    left.set(xscale="log", xlim=(0.2, 5e3), ylim=(0, 1), xlabel="timescale T (steps)", ylabel="share of units below")
    right.set(xscale="log", yscale="log", xlim=(1, steps), ylim=(1e-3, 1), xlabel="steps without input")
    right.set_ylabel("mean over units")
    figure.legend(frameon=False, fontsize=8.5, loc="outside upper left", ncols=4)


PICTURES: dict[str, tuple[Callable[[Figure], None], tuple[float, float]]] = {
    "forgetting_curves": (draw_curves, (8.4, 3.1)),
    "forgetting_age": (draw_age, (6.6, 3.3)),
    "forgetting_initial": (draw_initial, (8.4, 3.1)),
}


def plain(axes: Axes) -> None:
    """Numbers instead of powers of ten."""
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == "log":
            axis.set_major_formatter(lambda value, _: f"{value:g}")
            axis.set_minor_locator(matplotlib.ticker.NullLocator())


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw all of them."""
    parser = argparse.ArgumentParser(description="Draw remanence curves.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write to")
    out = parser.parse_args(arguments).out
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"expected --out to be a folder, got {out}: {error.strerror}")
    with matplotlib.rc_context(LOOK):
        for name, (draw, size) in PICTURES.items():
            figure = Figure(figsize=size, layout="constrained")
            draw(figure)
            for axes in figure.axes:
                plain(axes)
            drawn = io.BytesIO()
            figure.savefig(drawn, format="png", dpi=130)
            Image.open(drawn).convert("RGB").quantize(64).save(out / f"{name}.png", optimize=True)
            print(out / f"{name}.png")


if __name__ == "__main__":
    main()
