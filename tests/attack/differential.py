"""A differential fuzzer: random layers on random inputs, every engine against the loop engine in float64.

    python tests/attack/differential.py --cases 10000            # from seed 0 on
    python tests/attack/differential.py --seed 1234 --cases 1    # one case again, as a failure prints it
    python tests/attack/differential.py --device cuda --cases 2000

A seed is a case: cell, gate, sizes, layers, directions, lengths, dt, dtype, state, engine, strides, threads, pieces.
Outputs, final states and the gradients of inputs, state, dt and all weights are compared.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import remanence as rm
from remanence.engines.machine import float32_products
from remanence.engines.machine import threads as with_threads

CELLS: dict[str, Callable[..., rm.nn.Recurrent]] = {
    "lstm": lambda *sizes, **options: rm.LSTM(*sizes, input_gate="separate", **options),
    "lstm-coupled": lambda *sizes, **options: rm.LSTM(*sizes, input_gate="coupled", **options),
    "gru": rm.GRU,
    "janet": rm.JANET,
    "janet-convex": lambda *sizes, **options: rm.JANET(*sizes, beta=0.0, **options),
    "phased": rm.PhasedLSTM,
    "nru": rm.NRU,
    "exprnn": rm.ExpRNN,
    "urnn": rm.UnitaryRNN,
    "eurnn": rm.EURNN,
    "goru": rm.GORU,
    "sru": rm.SRU,
}
GATELESS = ("nru", "exprnn", "urnn", "eurnn", "sru")
MULTIPLES = {"urnn": 2, "goru": 2, "eurnn": 4}
"""Cells whose number of units must be a multiple: complex numbers take two units, rotations two numbers."""
BIASED = ("exprnn", "urnn", "eurnn")
"""Cells that always have a bias."""
KINKED = ("phased", "nru", "exprnn", "urnn", "eurnn", "goru", "sru")
"""Cells with a periodic time gate, ReLU or modReLU: a unit near a kink may have another derivative after rounding. On a
GPU they run in full float32."""
ENGINES = {"cpu": ("auto", "c++", "cpu", "torch"), "cuda": ("auto", "cuda", "triton", "torch")}
THREADS = (1, 1, 1, 2, 3)
STRIDES = ("plain", "transposed", "sliced", "repeated", "shifted")
TOLERANCE = {torch.float64: 1e-8, torch.float32: 2e-3, torch.bfloat16: 0.1}
"""Of the norm of a difference over the norm of the truth; a wrong formula shows as 1e-2 or more. Of bfloat16 only
values are compared."""
ROUGH = 2e-2
"""The same for float32 on a GPU whose products are TF32, and in cells with kinks; in float64 these are exact."""
ULPS = {"tf32": 2.0**-11, "tf32x3": 2.0**-22, "float32": 2.0**-24}
"""Relative rounding errors of TF32, of float32 products made of three in TF32 (engine triton), and of float32."""
DRAWS = 4
"""How often the weights of a case beyond the tolerance are rounded at random, to see what rounding does to it."""
FLOOR = 1e-3
"""Tensors smaller than this part of the largest are compared with that: what is left of them may be rounding."""


@dataclass(frozen=True)
class Case:
    """What is run. T steps, B sequences, I inputs, H units."""

    seed: int
    cell: str
    gate: str | None
    steps: int
    batch: int
    inputs: int
    units: int
    layers: int
    bidirectional: bool
    bias: bool
    batch_first: bool
    proj_size: int
    lengths: tuple[int, ...] | None
    state: bool
    dt: bool
    dtype: torch.dtype
    engine: str
    strides: str
    threads: int
    recompute: int
    gradients: bool
    scale: float

    @classmethod
    def drawn(cls, seed: int, device: str) -> Case:
        """The case of a seed."""
        chance = random.Random(f"{seed} {device}")
        cell = chance.choice(list(CELLS))
        gate = None if cell in GATELESS else chance.choice(list(rm.gates.KNOWN))
        steps, batch = chance.choice([1, 2, 3, 7, 20, chance.randint(1, 60)]), chance.randint(1, 9)
        batch = chance.choice([batch, batch, batch, 17, 33])
        units = chance.choice([1, 2, 3, 5, 8, 16, 31, 32, 33, chance.randint(1, 64), chance.choice([96, 130, 257])])
        if cell in MULTIPLES:
            units = max(4, units + -units % MULTIPLES[cell])  # of a single complex number, gradients are zero
        timed = gate == "power_law" or cell == "phased"
        packed = chance.random() < 0.25
        lengths = tuple(chance.randint(1, steps) for _ in range(batch)) if packed else None
        if lengths is not None:
            steps = max(lengths)
        dtype = chance.choice([torch.float32] * 6 + [torch.float64] * 3 + [torch.bfloat16])
        if cell in KINKED and dtype == torch.bfloat16:  # modReLU jumps, and small values are rounded to either side
            dtype = torch.float32
        return cls(
            seed=seed,
            cell=cell,
            gate=gate,
            steps=steps,
            batch=batch,
            inputs=chance.choice([1, 2, 3, 8, chance.randint(1, 40)]),
            units=units,
            layers=chance.choice([1, 1, 1, 2, 3]),
            bidirectional=chance.random() < 0.3,
            bias=chance.random() < 0.8 or cell in BIASED,
            batch_first=chance.random() < 0.3,
            proj_size=chance.randint(1, units - 1) if cell == "lstm" and units > 1 and chance.random() < 0.25 else 0,
            lengths=lengths,
            state=chance.random() < 0.5,
            dt=timed and chance.random() < 0.5,
            dtype=dtype,
            engine=chance.choice(ENGINES[device]),
            strides="plain" if packed else chance.choice(STRIDES),
            threads=chance.choice(THREADS),
            recompute=chance.choice([0, 0, 0, 2, 3]),
            gradients=dtype != torch.bfloat16 and chance.random() < 0.85,
            scale=chance.choice([0.5, 1.0, 1.5]),
        )

    def layer(self, engine: str) -> rm.nn.Recurrent:
        """The layer, in float64 on the CPU."""
        options: dict[str, Any] = {"bias": self.bias, "bidirectional": self.bidirectional, "engine": engine}
        options |= {} if self.gate is None else {"gate": self.gate}
        options |= {"proj_size": self.proj_size} if self.proj_size else {}
        options |= {"batch_first": self.batch_first, "recompute": self.recompute if engine != "loop" else 0}
        return CELLS[self.cell](self.inputs, self.units, self.layers, **options).double()


def strided(values: Tensor, how: str) -> Tensor:
    """The same numbers in memory of another shape."""
    if how == "transposed":
        return values.transpose(0, 1).contiguous().transpose(0, 1)
    if how == "sliced":
        wide = values.new_zeros(*values.shape[:-1], 2 * values.shape[-1])
        wide[..., ::2] = values
        return wide[..., ::2]
    if how == "shifted":  # not aligned to anything
        room = values.new_zeros(values.numel() + 1)
        room[1:] = values.flatten()
        return room[1:].view(values.shape)
    return values


def numbers_of(case: Case, layer: rm.nn.Recurrent) -> dict[str, Tensor]:
    """Inputs, and where they are asked for dt and a first state, as the dtype of the case rounds them."""
    generator = torch.Generator().manual_seed(case.seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    inputs = draw(case.steps, case.batch, case.inputs)
    if case.strides == "repeated":
        inputs = inputs[:1].expand(case.steps, -1, -1)
    found = {"inputs": inputs.to(case.dtype)}
    if case.dt:
        found["dt"] = draw(case.steps, case.batch).square().clamp(max=4).float().to(wide(case.dtype))
    if case.state:
        with torch.no_grad():
            state = layer(
                torch.zeros(case.batch, 1, case.inputs).double()
                if case.batch_first
                else torch.zeros(1, case.batch, case.inputs).double()
            )[1]
        names = layer.cell.widths(case.units, case.units)
        for number, (name, part) in enumerate(
            zip(names, (state,) if isinstance(state, Tensor) else state, strict=True)
        ):
            values = draw(*part.shape)
            values = values.square() if name in ("age", "clock") else values
            found[f"state {number}"] = values.to(case.dtype if number == 0 else wide(case.dtype))
    return found


def wide(dtype: torch.dtype) -> torch.dtype:
    """What c, age and clock are at least."""
    return dtype if dtype == torch.float64 else torch.float32


def run(case: Case, layer: rm.nn.Recurrent, numbers: dict[str, Tensor], how: str) -> dict[str, Tensor]:
    """Outputs, final states and gradients by name, in float64 on the CPU."""
    given = {name: value.detach().clone().requires_grad_(case.gradients) for name, value in numbers.items()}
    inputs: Any = strided(given["inputs"], how)
    dt = given.get("dt")
    if case.batch_first:
        inputs, dt = inputs.transpose(0, 1), None if dt is None else dt.t()
    if case.lengths is not None:
        inputs = pack_padded_sequence(
            inputs, torch.tensor(case.lengths), batch_first=case.batch_first, enforce_sorted=False
        )
    parts = [strided(value, how if how == "sliced" else "plain") for name, value in given.items() if "state" in name]
    state: Any = None if not parts else parts[0] if len(parts) == 1 else tuple(parts)
    with torch.set_grad_enabled(case.gradients):
        output, after = layer(inputs, state, dt) if dt is not None else layer(inputs, state)
    results = {"output": output.data if isinstance(output, PackedSequence) else output}
    results |= {f"after {n}": part for n, part in enumerate((after,) if isinstance(after, Tensor) else after)}
    if case.gradients:
        generator = torch.Generator().manual_seed(case.seed + 1)
        loss = sum(
            (value.double() * torch.randn(value.shape, generator=generator).to(value.device)).sum()
            for value in results.values()
        )
        names = [*given, *(name for name, _ in layer.named_parameters())]
        slopes = torch.autograd.grad(loss, [*given.values(), *layer.parameters()], materialize_grads=True)
        results |= {f"gradient of {name}": slope for name, slope in zip(names, slopes, strict=True)}
    return {name: value.detach().double().cpu() for name, value in results.items()}


def attacked(case: Case, device: str) -> str | None:
    """None where the engine agrees, else what is wrong. In place of one that refuses the case, "auto" runs it."""
    torch.manual_seed(case.seed)
    truth_layer = case.layer("loop")
    with torch.no_grad():
        for parameter in truth_layer.parameters():
            parameter.copy_((parameter * case.scale).to(case.dtype))
    layer = case.layer(case.engine).to(device, case.dtype)
    layer.load_state_dict(truth_layer.state_dict())
    numbers = numbers_of(case, truth_layer)
    with with_threads(1):
        truth = run(case, truth_layer, {name: value.double() for name, value in numbers.items()}, "plain")
    kinked = case.cell in KINKED
    tf32 = device == "cuda" and case.dtype == torch.float32 and not kinked
    try:
        with with_threads(case.threads), float32_products(tf32):
            found = run(case, layer, {name: value.to(device) for name, value in numbers.items()}, case.strides)
    except ValueError as error:
        if case.engine == "auto" or "expected a task that engine=" not in str(error):
            raise
        return attacked(replace(case, engine="auto"), device)
    rounded_kinks = kinked and case.dtype == torch.float32
    tolerance = ROUGH if tf32 or rounded_kinks else TOLERANCE[case.dtype]
    problem = difference(found, truth, tolerance)
    if problem is None or not (tf32 or rounded_kinks):
        return problem
    ulp = ULPS["tf32" if tf32 else "tf32x3" if device == "cuda" else "float32"]
    return difference(found, truth, max(tolerance, 2 * moved(case, truth_layer, numbers, truth, ulp)))


def moved(
    case: Case, layer: rm.nn.Recurrent, numbers: dict[str, Tensor], truth: dict[str, Tensor], ulp: float
) -> float:
    """How far the truth moves, in float64, if its weights are rounded: its condition. Leaves the layer rounded."""
    weights = {name: weight.detach().clone() for name, weight in layer.named_parameters()}
    exact = {name: value.double() for name, value in numbers.items()}
    generator, furthest = torch.Generator().manual_seed(case.seed), 0.0
    for _ in range(DRAWS):
        with torch.no_grad(), with_threads(1):
            for name, weight in layer.named_parameters():
                error = 2 * torch.rand(weight.shape, generator=generator, dtype=weight.dtype) - 1
                weight.copy_(weights[name] * (1 + ulp * error))
        with with_threads(1):
            furthest = max(furthest, *errors(run(case, layer, exact, "plain"), truth).values())
    return furthest


def difference(found: dict[str, Tensor], truth: dict[str, Tensor], tolerance: float) -> str | None:
    """The first tensor that is not as it should be."""
    if found.keys() != truth.keys():
        return f"got {list(found)}, expected {list(truth)}"
    for name, value in found.items():
        if value.shape != truth[name].shape:
            return f"{name} has shape {tuple(value.shape)}, expected {tuple(truth[name].shape)}"
        if not value.isfinite().all():
            return f"{name} is not finite"
    wrong = ((name, error) for name, error in errors(found, truth).items() if error > tolerance)
    return next((f"{name} is off by {error:.1e}, more than {tolerance:.2g}" for name, error in wrong), None)


def errors(found: dict[str, Tensor], truth: dict[str, Tensor]) -> dict[str, float]:
    """The norm of every difference over the norm of the truth."""
    sizes = {name: float(value.norm()) for name, value in truth.items()}
    least = {
        kind: max(FLOOR * max((size for name, size in sizes.items() if name.startswith(kind)), default=0.0), 1e-12)
        for kind in ("output", "after", "gradient")
    }
    return {
        name: float((found[name] - value).norm()) / max(sizes[name], least[name.split()[0]])
        for name, value in truth.items()
    }


def reproducer(seed: int, device: str, engine: str | None = None) -> str:
    """The line that runs a case again."""
    where = ("" if device == "cpu" else f" --device {device}") + ("" if engine is None else f" --engine {engine}")
    return f"python tests/attack/differential.py{where} --seed {seed} --cases 1"


def attack(
    seeds: range, device: str = "cpu", say: Callable[[str], None] = print, engine: str | None = None
) -> Counter[str]:
    """Run the cases of these seeds, and say for each that fails what is wrong and how to run it again.

    Args:
        seeds: of the cases.
        device: where.
        say: who is told.
        engine: one that all run on where it can, in float32, which all engines know; None for those of the cases.
    """
    counts: Counter[str] = Counter()
    for seed in seeds:
        case = Case.drawn(seed, device)
        if engine is not None:
            case = replace(case, engine=engine, dtype=torch.float32)
        try:
            problem = attacked(case, device)
        except Exception as error:  # whatever a layer raises on sound input is a finding
            problem = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        counts["agreed" if problem is None else "failed"] += 1
        if problem is None:
            continue
        shown = ", ".join(f"{name}={value}" for name, value in asdict(case).items() if value not in (None, False, 0))
        say(f"{problem}; {shown}\n  {reproducer(seed, device, engine)}")
    return counts


def main() -> None:
    """What was typed."""
    parser = argparse.ArgumentParser(description="Random layers, every engine against the loop engine in float64.")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--device", choices=list(ENGINES), default="cpu")
    parser.add_argument("--engine", help="one for all cases, instead of random ones")
    given = parser.parse_args()
    warnings.filterwarnings("ignore", "mkldnn_matmul failed")  # torch, products in bfloat16 on CPUs that have none
    start = time.monotonic()
    counts = attack(range(given.seed, given.seed + given.cases), given.device, engine=given.engine)
    print(f"{given.cases} cases in {time.monotonic() - start:.0f} s: {dict(counts)}")
    sys.exit(1 if counts["failed"] else 0)


if __name__ == "__main__":
    main()
