"""How each engine runs a layer, and how a gate's equation becomes a kernel: drawings for docs/explanation/kernels.md.

    python docs/pictures/kernels.py [--out FOLDER]

writes kernels_path.svg and kernels_ENGINE.svg, by default beside this file. A panel of its own colour lies under every
drawing, so that it reads the same on a light and on a dark page.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

PAPER, INK, FAINT = "#F6F5F1", "#2B2B2B", "#6B6B6B"
# After Okabe & Ito, as in the other pictures: told apart with every kind of colour vision.
MEMORY, WORK, MATRIX, CODE = "#CFE3F1", "#CDE9DD", "#F9DFC4", "#FFFFFF"
EDGE = {MEMORY: "#0072B2", WORK: "#008A64", MATRIX: "#C26A00", CODE: "#8A8A8A"}
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
MONO = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"


class Drawing:
    """Boxes, arrows and words as SVG, in pixels."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.size = (width, height)
        self.title = title
        self.parts: list[str] = []

    def box(self, x: float, y: float, w: float, h: float, lines: Sequence[str] | str, fill: str = CODE) -> None:
        """A box with lines of text in its middle; the first is bold where there are several, code is in backquotes."""
        lines = [lines] if isinstance(lines, str) else lines
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="6" fill="{fill}" stroke="{EDGE[fill]}" '
            'stroke-width="1.3"/>'
        )
        top = y + h / 2 - 8.5 * (len(lines) - 1) + 4.5
        for number, line in enumerate(lines):
            self.text(x + w / 2, top + 17 * number, line, "middle", bold=number == 0 and len(lines) > 1)

    def frame(self, x: float, y: float, w: float, h: float, words: str) -> None:
        """A dashed frame around things that belong together, with words in its upper left corner."""
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="9" fill="none" stroke="{FAINT}" '
            'stroke-dasharray="5 4"/>'
        )
        self.text(x + 10, y + 18, words, colour=FAINT)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        anchor: str = "start",
        bold: bool = False,
        colour: str = INK,
        size: int = 13,
    ) -> None:
        """One line of text."""
        code = words.startswith("`")
        font = f' font-family="{MONO}" font-size="{size - 1}"' if code else f' font-size="{size}"'
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{colour}"{font}{weight}>'
            f"{escape(words.strip('`'))}</text>"
        )

    def arrow(self, *points: tuple[float, float], words: str = "", both: bool = False, dashed: bool = False) -> None:
        """An arrow through points, with words above the middle of its first stretch."""
        path = " L".join(f"{x:g} {y:g}" for x, y in points)
        start = ' marker-start="url(#back)"' if both else ""
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<path d="M{path}" fill="none" stroke="{INK}" stroke-width="1.4" marker-end="url(#head)"{start}{dashes}/>'
        )
        if words:
            (x, y), (u, v) = points[:2]
            sideways = abs(u - x) > abs(v - y)
            place = ((x + u) / 2, y - 6, "middle") if sideways else (x + 7, (y + v) / 2 + 4, "start")
            self.text(place[0], place[1], words, place[2], colour=FAINT, size=12)

    def svg(self) -> str:
        """The file."""
        width, height = self.size
        head = '<path d="M0 0 L8 4 L0 8 z" fill="#2B2B2B"/>'
        marker = 'viewBox="0 0 8 8" refX="7.4" refY="4" markerWidth="8" markerHeight="8"'
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'font-family="{FONT}" role="img">\n<title>{escape(self.title)}</title>\n'
            f'<defs><marker id="head" {marker} orient="auto">{head}</marker>'
            f'<marker id="back" {marker} orient="auto-start-reverse">{head}</marker></defs>\n'
            f'<rect width="{width}" height="{height}" rx="10" fill="{PAPER}"/>\n{body}\n</svg>\n'
        )


def path() -> Drawing:
    """From a gate's equation to kernels."""
    d = Drawing(920, 424, "From the equation of a gate to its kernels")
    d.box(20, 24, 200, 84, ["Equation", "`Gate.__call__`", "torch, written once"], MEMORY)
    d.box(260, 24, 200, 84, ["Trace", "run once on small tensors,", "record every operation"], WORK)
    d.box(500, 24, 200, 84, ["Differentiate", "slopes as autograd's,", "simplified, shared terms"], WORK)
    d.box(740, 24, 160, 84, ["Compare", "with the gate and", "with autograd"], WORK)
    for x in (220, 460, 700):
        d.arrow((x, 66), (x + 40, 66))
    d.arrow((820, 108), (820, 136), (110, 136), (110, 164))
    d.arrow((370, 136), (370, 164))
    d.arrow((630, 136), (630, 164))
    d.text(828, 128, "print as code", colour=FAINT, size=12)
    d.box(20, 164, 220, 46, ["C++ source", "`derive/cpp.py`"])
    d.box(280, 164, 180, 46, ["Triton source", "`derive/triton.py`"])
    d.box(500, 164, 260, 46, ["torch operations, in place", "`cpu/program.py`"])
    d.arrow((70, 210), (70, 262))
    d.arrow((190, 210), (190, 262))
    d.arrow((370, 210), (370, 262))
    d.arrow((630, 210), (630, 262))
    d.text(78, 240, "NVRTC", colour=FAINT, size=12)
    d.text(198, 240, "GCC, Clang", colour=FAINT, size=12)
    d.text(378, 240, "Triton JIT", colour=FAINT, size=12)
    d.text(638, 240, "no compiler", colour=FAINT, size=12)
    d.box(20, 262, 100, 44, ["`cuda`", "engine"], MATRIX)
    d.box(140, 262, 100, 44, ["`c++`", "engine"], MATRIX)
    d.box(320, 262, 100, 44, ["`triton`", "engine"], MATRIX)
    d.box(580, 262, 100, 44, ["`cpu`", "engine"], MATRIX)
    d.box(790, 262, 110, 44, ["`loop`", "engine"], MATRIX)
    d.arrow((120, 24), (120, 11), (910, 11), (910, 284), (900, 284), dashed=True)
    d.text(902, 254, "unchanged", "end", colour=FAINT, size=12)
    d.box(20, 352, 440, 48, ["Self-check on first use", "outputs, states and gradients agree"], WORK)
    for x in (70, 190, 370):
        d.arrow((x, 306), (x, 352))
    d.arrow((845, 306), (845, 376), (460, 376), dashed=True)
    d.text(652, 368, "reference", "middle", colour=FAINT, size=12)
    return d


def loop() -> Drawing:
    """The reference."""
    d = Drawing(920, 300, "The loop engine: Python, step by step, differentiated by autograd")
    d.box(20, 30, 150, 60, ["Inputs", "x, (T, B, I)"], MEMORY)
    d.box(230, 30, 230, 60, ["One matmul", "W x + b for all T steps"], WORK)
    d.arrow((170, 60), (230, 60))
    d.frame(20, 116, 880, 104, "for t in range(T), in Python")
    for number, x in enumerate((40, 340, 640)):
        d.box(x, 146, 110, 56, ["Matmul", "R h + b'"], WORK)
        d.box(x + 130, 146, 110, 56, ["`cell.step`", "gate, update"], WORK)
        d.arrow((x + 110, 174), (x + 130, 174))
        if number < 2:
            d.arrow((x + 240, 174), (x + 300, 174), words="h, c, age")
    d.arrow((345, 90), (345, 116))
    d.box(
        20,
        240,
        880,
        40,
        "autograd records every operation and replays them backward: slow, readable, the definition",
        CODE,
    )
    return d


def torch() -> Drawing:
    """torch's own layers."""
    d = Drawing(920, 190, "The torch engine: the library behind torch.nn.LSTM")
    d.box(20, 50, 180, 70, ["Layer", "sigmoid LSTM or GRU,", "no padding"], MEMORY)
    d.box(270, 50, 200, 70, ["`torch.lstm`", "`torch.gru`"], CODE)
    d.arrow((200, 85), (270, 85), words="weights")
    for y, name, where in ((20, "cuDNN", "on a GPU"), (75, "oneDNN", "x86 inference"), (130, "ATen", "otherwise")):
        d.box(570, y, 200, 42, [name, where], WORK)
        d.arrow((470, 85), (520, 85), (520, y + 21), (570, y + 21))
    return d


def cpu() -> Drawing:
    """Without a compiler."""
    d = Drawing(920, 356, "The cpu engine: backpropagation through time written out in torch operations")
    d.text(20, 32, "Forward", bold=True)
    d.box(20, 44, 200, 58, ["One matmul", "inputs of many steps"], WORK)
    d.frame(250, 24, 430, 98, "every step")
    d.box(266, 50, 190, 56, ["Matmul", "h times R"], WORK)
    d.box(476, 50, 190, 56, ["Pointwise, in place", "derived formula"], WORK)
    d.arrow((220, 73), (266, 73))
    d.arrow((456, 78), (476, 78))
    d.box(720, 44, 180, 58, ["Buffers", "states of every step"], MEMORY)
    d.arrow((666, 73), (720, 73))
    d.text(20, 176, "Backward", bold=True)
    d.box(720, 190, 180, 62, ["All slopes at once", "for many steps"], WORK)
    d.arrow((810, 102), (810, 190))
    d.frame(250, 164, 430, 104, "every step, from the last to the first")
    d.box(476, 194, 190, 58, ["Multiply-adds", "slopes times gradient"], WORK)
    d.box(266, 194, 190, 58, ["Matmul", "gradient of h"], WORK)
    d.arrow((720, 221), (666, 221))
    d.arrow((476, 223), (456, 223))
    d.box(20, 190, 200, 62, ["One matmul each", "gradients of W and R"], WORK)
    d.arrow((266, 223), (220, 223))
    d.box(
        20, 296, 880, 40, "Only the recurrence is left inside the loop; everything else is a few large operations", CODE
    )
    return d


def cpp() -> Drawing:
    """Compiled steps on a CPU."""
    d = Drawing(920, 372, "The c++ engine: compiled steps, sequences in threads, units in vector lanes")
    d.box(20, 24, 250, 58, ["One matmul", "inputs of some steps at a time"], WORK)
    d.arrow((270, 53), (320, 53))
    d.box(320, 24, 580, 58, ["Compiled library", "generated gate + cell + loop over time, from GCC or Clang"], CODE)
    for number, y in enumerate((110, 210)):
        d.frame(20, y, 880, 88, f"core {number + 1}: a thread with its own sequences, through all steps")
        d.box(36, y + 28, 200, 48, ["Recurrent matrix", "panels in its cache"], MATRIX)
        d.box(276, y + 28, 250, 48, ["Matmul", "accumulators in registers"], WORK)
        d.box(566, y + 28, 318, 48, ["Gate and cell", "units in the lanes of vector registers"], WORK)
        d.arrow((236, y + 52), (276, y + 52))
        d.arrow((526, y + 52), (566, y + 52))
    d.arrow((610, 82), (610, 110))
    d.box(
        20,
        316,
        880,
        40,
        "Threads never wait for each other. Matrices above 393,216 elements: torch's matmul between steps",
        CODE,
    )
    return d


def triton() -> Drawing:
    """One cooperative launch."""
    d = Drawing(920, 380, "The triton engine: one launch, programs exchange the hidden state through the L2 cache")
    d.frame(20, 20, 880, 262, "one cooperative launch for all T steps; a group is one tile of batch rows")
    for number, x in enumerate((40, 330, 620)):
        d.box(x, 52, 260, 40, f"program {number + 1}: one tile of units", CODE)
        d.box(x, 100, 125, 60, ["Shared memory", "slice of R"], MATRIX)
        d.box(x + 135, 100, 125, 60, ["Registers", "c, age"], MEMORY)
        d.arrow((x + 130, 160), (x + 130, 200), both=True)
    d.box(
        40,
        200,
        840,
        62,
        ["L2 cache", "h_t of all units; a counter that the programs of a group wait for, once per step"],
        MEMORY,
    )
    d.text(178, 186, "write own units, read all", colour=FAINT, size=12)
    d.box(20, 302, 430, 58, ["Next step's inputs", "loaded during the exchange"], WORK)
    d.box(470, 302, 430, 58, ["A slice that does not fit", "is streamed from L2, one chunk ahead"], WORK)
    return d


def cuda() -> Drawing:
    """Clusters of thread blocks."""
    d = Drawing(920, 420, "The cuda engine: clusters of thread blocks that write into each other's shared memory")
    d.frame(
        20,
        20,
        880,
        236,
        "cluster: up to 16 thread blocks on neighbouring SMs, for 8 or 16 sequences; one launch for all T steps",
    )
    for number, x in enumerate((40, 330, 620)):
        d.box(x, 50, 260, 40, f"thread block {number + 1}: 16 or 32 units", CODE)
        d.box(x, 98, 260, 54, ["Registers", "slice of R, and c, age of its units"], MATRIX)
        d.box(x, 174, 260, 58, ["Shared memory", "h of all units, arrival signal"], MEMORY)
        d.arrow((x + 130, 152), (x + 130, 174))
        if number < 2:
            d.arrow((x + 260, 203), (x + 290, 203), both=True)
    words = "h_t forward, shares of the gradient of h backward: written straight into the other blocks"
    d.text(460, 249, words, "middle", colour=FAINT, size=12)
    d.box(20, 276, 280, 58, ["Inputs", "prefetched three steps ahead"], WORK)
    d.box(320, 276, 280, 58, ["Tensor cores", "float16 factors, float32 sums"], WORK)
    d.box(620, 276, 280, 58, ["Results", "stored while h_t is on its way"], WORK)
    d.box(
        20,
        354,
        880,
        44,
        "Clusters never wait for another cluster: no grid barrier, no counter, no round trip to L2",
        CODE,
    )
    return d


PICTURES: dict[str, Callable[[], Drawing]] = {
    "kernels_path": path,
    "kernels_loop": loop,
    "kernels_torch": torch,
    "kernels_cpu": cpu,
    "kernels_cpp": cpp,
    "kernels_triton": triton,
    "kernels_cuda": cuda,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw all of them."""
    parser = argparse.ArgumentParser(description="Draw how each engine runs a layer.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write to")
    out = parser.parse_args(arguments).out
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"expected --out to be a folder, got {out}: {error.strerror}")
    for name, draw in PICTURES.items():
        (out / f"{name}.svg").write_text(draw().svg(), "utf-8")
        print(out / f"{name}.svg")


if __name__ == "__main__":
    main()
