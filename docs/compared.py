"""Compare two versions of the package on one GPU: generated kernels against the earlier hand-written ones.

    git worktree add ../before COMMIT
    PYTHONPATH=../before/src python docs/compared.py > before.txt
    PYTHONPATH=src python docs/compared.py --own > after.txt
    python docs/compared.py --table before.txt after.txt

Run both one after the other on an otherwise idle GPU. Times are medians in milliseconds of a training step and of
inference, in TF32; `--own` adds custom gates and cells. Each line is a shape, printed when it is done.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

SHAPES = (
    *((220, 128, 10, 128), (1020, 128, 10, 128), (5000, 50, 2, 128), (784, 100, 1, 256), (784, 100, 1, 512)),
    *((150, 128, 50, 716), (70, 20, 1150, 1150), (512, 256, 64, 384), (2000, 512, 8, 64)),
)
"""T, B, I, H."""
BESIDE = {
    "own cauchy": "fast",
    "own two_clocks": "power_law",
    "own lstm": "lstm",
    "own gru fast": "gru fast",
    "own janet": "janet",
    "own peephole": "lstm",
    "phased": "torch",
    "proj fast": "torch proj",
    "proj power_law": "torch proj",
}
"""Custom gates and cells, and the nearest of the package."""
ENOUGH = 0.3
"""Seconds per measurement."""


def layers(inputs: int, units: int, own: bool) -> dict[str, Callable[[], torch.nn.Module]]:
    """The layers that are timed, by name."""
    import remanence as rm

    found: dict[str, Callable[[], torch.nn.Module]] = {
        "torch": lambda: torch.nn.LSTM(inputs, units),
        "torch proj": lambda: torch.nn.LSTM(inputs, units, proj_size=units // 2),
        "lstm": lambda: rm.LSTM(inputs, units),
        **{gate: lambda gate=gate: rm.LSTM(inputs, units, gate=gate) for gate in ("fast", "power_law", "refine")},
        "gru fast": lambda: rm.GRU(inputs, units, gate="fast"),
        "janet": lambda: rm.JANET(inputs, units),
    }
    if own:
        cauchy, two_clocks = own_gates()
        found["own cauchy"] = lambda: rm.LSTM(inputs, units, gate=cauchy)
        found["own two_clocks"] = lambda: rm.LSTM(inputs, units, gate=two_clocks, input_gate="coupled")
        for name, cell in own_cells().items():
            found[name] = lambda cell=cell: rm.nn.Recurrent(cell, inputs, units)
        found["phased"] = lambda: rm.PhasedLSTM(inputs, units)
        for gate in ("fast", "power_law"):
            found[f"proj {gate}"] = lambda gate=gate: rm.LSTM(inputs, units, proj_size=units // 2, gate=gate)
    return found


def own_cells() -> dict:
    """Cells of the package as custom cells, so that everything is generated; and a new one."""
    from remanence.cells import GRUCell, JANETCell, LSTMCell, Step
    from remanence.gates import Fast, Sigmoid

    class OwnLSTM(LSTMCell):
        name = "own_lstm"

    class OwnGRU(GRUCell):
        name = "own_gru"

    class OwnJANET(JANETCell):
        name = "own_janet"

    class Peephole(LSTMCell):
        name = "peephole"

        def shapes(self, inputs, units, outputs, bias):
            looks = dict.fromkeys(("look_input", "look_forget", "look_output"), (units,))
            return super().shapes(inputs, units, outputs, bias) | looks

        def pointwise(self, projected, recurrent, state, weights, dt):
            rows, cell = self.rows(projected + recurrent), state[1]
            forget = torch.sigmoid(rows["forget"] + weights["look_forget"] * cell)
            written = torch.sigmoid(rows["input"] + weights["look_input"] * cell)
            cell = forget * cell + written * torch.tanh(rows["candidate"])
            hidden = torch.sigmoid(rows["output"] + weights["look_output"] * cell) * torch.tanh(cell)
            return Step((hidden, cell), {"cell": cell, "forget": forget})

    made = {"own lstm": OwnLSTM(Sigmoid()), "own gru fast": OwnGRU(Fast()), "own janet": OwnJANET(Sigmoid())}
    return made | {"own peephole": Peephole(Sigmoid())}


def own_gates() -> tuple:
    """A custom gate without state, and one with two carried values and two parameters per unit."""
    from remanence.gates import Forgetting, Gate

    class Cauchy(Gate):
        name = "cauchy"

        def __call__(self, pre, carried, weights, dt):
            share = torch.atan(pre[0]) / torch.pi
            return Forgetting(0.5 + share, 0.5 - share)

    class TwoClocks(Gate):
        name, rows, carries, per_unit = "two_clocks", ("reset",), ("age", "average"), ("rate", "slow")

        def __call__(self, pre, carried, weights, dt):
            (z,), (age, average) = pre, carried
            age = torch.sigmoid(-z) * (age + 1)
            average = torch.lerp(average, torch.tanh(z), torch.sigmoid(weights["slow"]))
            rate = torch.nn.functional.softplus(weights["rate"])
            log_forget = -0.1 * rate * torch.sqrt(1 + age) * (1 + 0.1 * average)
            return Forgetting(log_forget.exp(), -log_forget.expm1(), (age, average))

        def parameters(self, units):
            return {name: torch.zeros(units, dtype=torch.float64) for name in self.per_unit}

    return Cauchy(), TwoClocks()


def median(call: Callable[[], object]) -> float:
    """Milliseconds of a call on the GPU."""
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    torch.cuda.synchronize()
    times = []
    for _ in range(max(5, min(60, int(ENOUGH / (time.perf_counter() - began))))):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return round(statistics.median(times), 4)


def measure(own: bool) -> Iterator[tuple[str, dict[str, list[float]]]]:
    """Training step and inference of every layer, by shape and name."""
    for steps, batch, inputs, units in SHAPES:
        x, w = torch.randn(steps, batch, inputs, device="cuda"), torch.randn(steps, batch, units, device="cuda")

        def train(layer, x=x, w=w):
            output = layer(x)[0]
            torch.autograd.backward(output, w[..., : output.shape[-1]])
            layer.zero_grad(set_to_none=True)

        def infer(layer, x=x):
            with torch.no_grad():
                layer(x)

        def once(layer, train=train, infer=infer):
            torch.cuda.synchronize()
            train(layer)
            infer(layer)

        made = {name: make().to("cuda") for name, make in layers(inputs, units, own).items()}
        with ThreadPoolExecutor(8) as pool:  # compile kernels in parallel
            list(pool.map(once, made.values()))
        yield (
            f"{steps}, {batch}, {inputs}, {units}",
            {
                name: [
                    median(lambda layer=layer, train=train: train(layer)),
                    median(lambda layer=layer, infer=infer: infer(layer)),
                ]
                for name, layer in made.items()
            },
        )


def table(paths: list[str]) -> str:
    """Time before over time after, training / inference; for custom ones, over the nearest before."""
    *before, after = (dict(map(json.loads, Path(path).read_text("utf-8").splitlines())) for path in paths)
    names = [name for name in next(iter(after.values())) if not name.startswith("torch")]
    lines = [f"| T, B, I, H | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for shape, row in after.items():

        def of(name: str, which: int, shape: str = shape) -> float:
            return statistics.mean(run[shape][name][which] for run in before)

        cells = [
            f"{row[name][0] / of(BESIDE[name], 0):.2f} of `{BESIDE[name]}`"
            if name in BESIDE
            else f"{of(name, 0) / row[name][0]:.2f} / {of(name, 1) / row[name][1]:.2f}"
            for name in names
        ]
        lines.append(f"| {shape} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    if "--table" in sys.argv:
        print(table(sys.argv[sys.argv.index("--table") + 1 :]))
    else:
        torch.manual_seed(0)
        torch.backends.cudnn.rnn.fp32_precision = torch.backends.cuda.matmul.fp32_precision = "tf32"
        for row in measure("--own" in sys.argv):
            print(json.dumps(row), flush=True)
