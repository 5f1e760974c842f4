"""User-defined cells on every engine: kernels are derived from their equation and match the loop."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import simulation
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from own_cells import OWN, Minimal, Peephole, Ticking
from torch import Tensor

import remanence as rm
import remanence.engines.cuda as clusters
from remanence import engines
from remanence.cells import (
    ComplexModReLUCell,
    GatedCell,
    GRUCell,
    JANETCell,
    LSTMCell,
    ModReLUCell,
    ModReLUGRUCell,
    PhasedLSTMCell,
    PointwiseCell,
    Step,
)
from remanence.engines import choice, comparison, samples
from remanence.engines.cpp import engine as host
from remanence.engines.cuda import plan
from remanence.engines.kernels.contract import derivation
from remanence.engines.kernels.derive import derived_cell, why_no_cell
from remanence.engines.machine import float32_products
from remanence.gates import Fast, Gate, PowerLaw, Refine, Sigmoid
from remanence.nn import Recurrent

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[2]
compiles = pytest.mark.skipif(host.lacks() is not None, reason="no C++ compiler")
interprets = pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="Triton is not interpreted")
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


class PlainLSTM(LSTMCell):
    """The LSTM, derived instead of hand-written."""

    name = "plain_lstm"


class PlainGRU(GRUCell):
    """The same."""

    name = "plain_gru"


class PlainJANET(JANETCell):
    """The same."""

    name = "plain_janet"


DERIVED: dict[str, PointwiseCell] = OWN | {
    "phased": PhasedLSTMCell(Sigmoid()),
    "phased power law": PhasedLSTMCell(PowerLaw(), coupled=True),
    "phased asleep": PhasedLSTMCell(Fast(), leak=0.0),
    "lstm": PlainLSTM(PowerLaw(), coupled=True),
    "lstm five blocks": PlainLSTM(Refine()),
    "gru": PlainGRU(Fast()),
    "janet": PlainJANET(PowerLaw()),
    "modrelu": ModReLUCell(),
    "modrelu complex": ComplexModReLUCell(),
    "modrelu gru": ModReLUGRUCell(Sigmoid()),
}
every_cell = pytest.mark.parametrize("name", DERIVED)
FIRST = ("peephole", "minimal", "phased", "gru")
"""The subset that `make test` compiles."""


def assert_like_the_loop(
    engine: str, cell: PointwiseCell, precision: Any, sizes: Any = None, device: torch.device = CPU, **special: Any
) -> None:
    """Values and every gradient, from an initial state: full sequences, and unequal ones in reverse with dt."""
    sizes = sizes or samples.Sizes(5, 6, 3, 9)
    tasks = [samples.make_task(cell, sizes, precision.dtype, device, **special)]
    if not special:
        more = {"unequal": True, "reverse": True, "irregular": cell.takes_dt}
        tasks.append(samples.make_task(cell, sizes, precision.dtype, device, seed=1, **more))
    for task in tasks:
        assert engines.KNOWN[engine].refuses(task) is None
        found = comparison.errors_of(engines.KNOWN[engine], task)
        assert not isinstance(found, str), found
        # A phase amplifies rounding errors, in the loop as well.
        assert found.beyond(max(precision.tolerance, 2 * comparison.own_error(task))) is None


@every_cell
@pytest.mark.parametrize("precision", [comparison.FLOAT64, comparison.FLOAT32], ids=lambda precision: precision.name)
def test_on_the_engine_cpu(name: str, precision: Any) -> None:
    assert_like_the_loop("cpu", DERIVED[name], precision)


@compiles
@pytest.mark.parametrize(
    "name", [name if name in FIRST else pytest.param(name, marks=pytest.mark.long) for name in DERIVED]
)
def test_on_the_engine_cpp(name: str) -> None:
    assert_like_the_loop("c++", DERIVED[name], comparison.FLOAT32)


@interprets
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy evaluates both branches of where
@pytest.mark.parametrize(
    "name",
    [
        "peephole power law",
        "minimal",
        "ticking",
        "phased",
        "lstm five blocks",
        "modrelu",
        "modrelu complex",
        "modrelu gru",
    ],
)
def test_on_the_engine_triton_interpreted(name: str) -> None:
    with float32_products(False):
        assert_like_the_loop("triton", DERIVED[name], comparison.FLOAT32)


@on_gpu
@pytest.mark.gpu
@every_cell
@pytest.mark.parametrize("engine", ["cuda", "triton"])
@pytest.mark.parametrize("units", [40, 700])
def test_on_a_gpu(name: str, engine: str, units: int) -> None:
    device, sizes = torch.device("cuda"), samples.Sizes(7, 19, 5, units)
    task = samples.make_task(DERIVED[name], sizes, torch.float32, device)
    reason = engines.KNOWN[engine].refuses(task)
    if reason is not None:
        pytest.skip(reason)
    for precision in (comparison.TF32, comparison.BFLOAT16):
        with float32_products(precision.tf32):
            assert_like_the_loop(engine, DERIVED[name], precision, sizes, device)


@pytest.mark.long
@settings(deadline=None, max_examples=25)
@given(
    name=st.sampled_from(sorted(DERIVED)),
    sizes=st.tuples(st.integers(1, 7), st.integers(1, 5), st.integers(1, 4), st.integers(1, 19)),
    unequal=st.booleans(),
    reverse=st.booleans(),
    irregular=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_any_size_on_the_engines_of_the_cpu(name, sizes, unequal, reverse, irregular, seed) -> None:
    cell = DERIVED[name]
    special = {"unequal": unequal, "reverse": reverse, "irregular": irregular and cell.takes_dt, "seed": seed}
    wide = replace(comparison.FLOAT64, tolerance=1e-10)  # for a single value, where slopes cancel
    assert_like_the_loop("cpu", cell, wide, samples.Sizes(*sizes), **special)
    if host.lacks() is None:
        few = replace(comparison.FLOAT32, tolerance=1e-3)
        assert_like_the_loop("c++", cell, few, samples.Sizes(*sizes), **special)


# On a simulated GPU. Each of these compiles kernels, which takes some seconds.

SIMULATED: dict[str, tuple[PointwiseCell, int, int, int, plan.LaunchShape]] = {
    "weights of its own": (DERIVED["peephole power law"], 5, 32, 11, plan.LaunchShape(4, 2, 1)),
    "a part apart": (DERIVED["minimal power law"], 3, 16, 3, plan.LaunchShape(4, 1, 1)),
    "a part apart, whole": (DERIVED["minimal"], 5, 20, 9, plan.make_whole(20, backward=False)),
    "a clock, whole": (DERIVED["ticking"], 5, 20, 9, plan.make_whole(20, backward=False)),
    "phased": (DERIVED["phased"], 5, 20, 9, plan.LaunchShape(4, 2, 1)),
    "phased, wide": (DERIVED["phased"], 17, 30, 9, plan.LaunchShape(4, 2, 2, held=1)),
    "modrelu complex": (DERIVED["modrelu complex"], 5, 20, 9, plan.LaunchShape(4, 2, 1)),
}
SOON = ("phased", "a part apart, whole")
"""The subset that `make test` runs."""


@pytest.mark.skipif(simulation.COMPILER is None, reason="no C++ compiler")
@pytest.mark.parametrize(
    "special",
    [pytest.param(False, id="plain", marks=[pytest.mark.long, pytest.mark.slow]), pytest.param(True, id="special")],
)
@pytest.mark.parametrize(
    "name", [name if name in SOON else pytest.param(name, marks=pytest.mark.long) for name in SIMULATED]
)
def test_on_a_simulated_gpu(name: str, special: bool, simulated: pytest.MonkeyPatch) -> None:
    from test_simulated import errors, force

    cell, inputs, units, rows, sizes = SIMULATED[name]
    force(sizes, simulated)
    found = errors(cell, inputs, units, rows, sizes, comparison.TF32, special)
    assert not isinstance(found, str), found
    assert found.beyond(comparison.TF32.tolerance) is None


@pytest.mark.skipif(simulation.COMPILER is None, reason="no C++ compiler")
def test_replicas_on_a_simulated_gpu(simulated: pytest.MonkeyPatch) -> None:
    from test_simulated import force

    force(plan.LaunchShape(4, 2, 1), simulated)
    sizes = samples.Sizes(4, 3, 3, 20)
    tasks = [samples.make_task(DERIVED["phased"], sizes, torch.float32, CPU, seed=seed) for seed in range(3)]
    with float32_products(True):
        together = clusters.run(engines.stacked(tasks))
        for number, task in enumerate(tasks):
            alone = clusters.run(task)
            torch.testing.assert_close(together.output[number], alone.output)
            for whole, part in zip(together.state, alone.state, strict=True):
                torch.testing.assert_close(whole[number], part)
                assert whole[number].shape == part.shape


# What is derived.


@pytest.mark.parametrize(
    ("cell", "slopes"), [(PlainLSTM(Sigmoid()), 6), (PlainGRU(Sigmoid()), 5), (PlainJANET(Sigmoid()), 3)], ids=str
)
def test_derived_backward_saves_as_few_slopes_as_hand_written_code(cell: GatedCell, slopes: int) -> None:
    """The number of slopes is what a hand-written backward step would save."""
    assert len(derived_cell(cell, False).slopes) == slopes


def test_a_cell_says_what_kernels_carry() -> None:
    assert derivation(PlainLSTM(PowerLaw())).twice is False
    minimal = derivation(Minimal(PowerLaw()))
    assert (minimal.twice, minimal.split, minimal.single, minimal.own) == (True, 1, (False,), ("p_hat",))
    ticking = derivation(Ticking(Fast()))
    assert (ticking.twice, ticking.split, ticking.single, ticking.own) == (False, -1, (True,), ("pace",))
    phased = derivation(PhasedLSTMCell(Sigmoid()))
    assert (phased.twice, phased.split, phased.single) == (True, -1, (False, True))


def test_a_key_is_that_of_the_formula() -> None:
    assert derivation(Peephole(Sigmoid())).key == derivation(Peephole(Sigmoid())).key
    assert derivation(PhasedLSTMCell(Sigmoid())).key != derivation(PhasedLSTMCell(Sigmoid(), leak=0.0)).key


@dataclass(frozen=True)
class Bad(LSTMCell):
    """A cell that cannot be derived, for the reason that `update` shows."""

    name: ClassVar[str] = "bad"

    def pointwise(self, projected: Tensor, recurrent: Tensor, state: Any, weights: Any, dt: Any) -> Step:
        return Step(self.update(projected, recurrent, state), {})

    def update(self, projected: Tensor, recurrent: Tensor, state: Any) -> tuple[Tensor, ...]:
        raise NotImplementedError


class Normed(Bad):
    """Its update depends on all units of a sequence."""

    def update(self, projected: Tensor, recurrent: Tensor, state: Any) -> tuple[Tensor, ...]:
        cell = self.rows(projected + recurrent)["candidate"]
        return torch.tanh(cell - cell.mean(-1, keepdim=True)), cell


class Halves(Bad):
    """Two blocks with separate input and recurrent parts."""

    def update(self, projected: Tensor, recurrent: Tensor, state: Any) -> tuple[Tensor, ...]:
        cell = torch.tanh(projected * recurrent).chunk(4, -1)[0] + (projected - recurrent).chunk(4, -1)[1]
        return cell, cell


class Short(Bad):
    """A part of the state is missing."""

    def update(self, projected: Tensor, recurrent: Tensor, state: Any) -> tuple[Tensor, ...]:
        return (torch.tanh(state[1]),)


class Crossing(Bad):
    """Slices through a block."""

    def update(self, projected: Tensor, recurrent: Tensor, state: Any) -> tuple[Tensor, ...]:
        units = state[1].shape[-1]
        cell = (projected + recurrent)[..., 1 : units + 1]
        return cell, cell


class Stepping(LSTMCell):
    """Overrides step."""

    name = "stepping"

    def step(self, *given: Any) -> Step:
        return super().step(*given)


class Heavy(LSTMCell):
    """Has an additional matrix."""

    name = "heavy"

    def shapes(self, input_size: int, hidden_size: int, output_size: int, bias: bool) -> dict[str, tuple[int, ...]]:
        more = {"weight_more": (hidden_size, hidden_size)}
        return super().shapes(input_size, hidden_size, output_size, bias) | more


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        (Normed, "it calls torch.mean"),
        (Halves, "it uses the input and recurrent part of more than one block separately"),
        (Short, "it returns a state of 1 tensors instead of 2"),
        (Crossing, "it calls torch.slice with pieces that are not whole blocks"),
        (Stepping, "it overrides step or project besides pointwise"),
        (Heavy, "its weight weight_more is (5, 5) at 5 units, not one value per unit"),
    ],
)
def test_the_reason_names_what_cannot_be_derived(cell: type[GatedCell], reason: str) -> None:
    found = why_no_cell(cell(Sigmoid()))
    assert found is not None
    assert found.startswith(reason)


def test_a_cell_that_cannot_be_derived_runs_on_the_loop_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_told", set())
    layer = Recurrent(Normed(Sigmoid()), 3, 5)
    with pytest.warns(UserWarning, match="no kernel can be derived for cell 'bad': it calls torch.mean.* loop engine"):
        output, _ = layer(torch.randn(4, 2, 3))
    layer.engine = "loop"
    torch.testing.assert_close(layer(torch.zeros(4, 2, 3))[0].shape, output.shape)
    with pytest.raises(ValueError, match="engine='cpu' can run, but it has no formula for cell 'bad': it calls torch"):
        Recurrent(Normed(Sigmoid()), 3, 5, engine="cpu")(torch.zeros(4, 2, 3))


# In layers.


@every_cell
def test_a_layer_with_a_custom_cell_uses_a_fast_engine(name: str) -> None:
    """No warning (which would be an error here), and no slow engine."""
    cell = DERIVED[name]
    layer = Recurrent(cell, 3, 5, num_layers=2, bidirectional=True)
    dt = torch.rand(4, 2) if cell.takes_dt else None
    output, state = layer(torch.randn(4, 2, 3), None, dt)
    output.sum().backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in layer.parameters())
    parts = (state,) if isinstance(state, Tensor) else state
    assert [part.shape[-1] for part in parts] == list(cell.widths(5, 5).values())
    found = rm.engines.explain(layer, dt=cell.takes_dt)
    assert found.engine == ("c++" if host.lacks() is None else "cpu")
    assert found.not_derived is None
    assert found.derived == f"cell {cell.name!r}"
    assert "derived_forward" in found.sources["c++"]
    assert "def cell_backward" in found.sources["triton"]
    assert f"--- cell {cell.name!r} in triton ---" in str(found)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch's tracer reads it for every tensor
def test_layers_are_copied_pickled_recorded_and_compiled() -> None:
    layer = Recurrent(Peephole(PowerLaw()), 3, 5)
    inputs = torch.randn(4, 2, 3)
    expected, _ = layer(inputs)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), torch.compile(layer, backend="eager")):
        torch.testing.assert_close(twin(inputs)[0], expected)
    assert rm.record(layer, inputs)["forget"].shape == (4, 2, 5)


def test_a_phased_layer_sleeps_in_evaluation() -> None:
    layer = rm.PhasedLSTM(3, 5)
    inputs = torch.randn(9, 2, 3)
    for training in (True, False):
        layer.train(training)
        layer.engine = "auto"
        found, state = layer(inputs)
        layer.engine = "loop"
        expected, truth = layer(inputs)
        torch.testing.assert_close(found, expected)
        for part, true in zip(state, truth, strict=True):
            torch.testing.assert_close(part, true)


# Regressions.


class Scaled(LSTMCell):
    """A setting that is not a dataclass field, so that cells with different values are equal."""

    name = "scaled"

    def __init__(self, gate: Gate, much: float) -> None:
        super().__init__(gate)
        object.__setattr__(self, "much", much)

    def pointwise(self, *given: Any) -> Step:
        (hidden, *others), seen = super().pointwise(*given)
        return Step((self.much * hidden, *others), seen)  # type: ignore[attr-defined]


def test_equal_cells_with_different_settings_have_different_formulas() -> None:
    assert Scaled(Sigmoid(), 1.0) == Scaled(Sigmoid(), 3.0)
    for much in (1.0, 3.0):
        assert_like_the_loop("cpu", Scaled(Sigmoid(), much), comparison.FLOAT64)


class Chosen(LSTMCell):
    """A choice that depends on its weights alone."""

    name = "chosen"
    projects = False

    def shapes(self, input_size: int, hidden_size: int, output_size: int, bias: bool) -> dict[str, tuple[int, ...]]:
        return super().shapes(input_size, hidden_size, output_size, bias) | {"side": (hidden_size,)}

    def pointwise(self, projected: Tensor, recurrent: Tensor, state: Any, weights: Any, dt: Any) -> Step:
        (hidden, *others), seen = super().pointwise(projected, recurrent, state, weights, dt)
        return Step((torch.where(weights["side"] > 0, hidden, 0.5 * hidden), *others), seen)


@dataclass(frozen=True)
class Few(GatedCell):
    """One block, and a step without slopes, or with separate input and recurrent parts."""

    gate: Gate
    form: str

    name: ClassVar[str] = "few"
    blocks: ClassVar[tuple[str, ...]] = ("candidate",)  # type: ignore[misc]

    def widths(self, hidden_size: int, output_size: int) -> dict[str, int]:
        return {"hidden": hidden_size, "cell": hidden_size}

    def pointwise(self, projected: Tensor, recurrent: Tensor, state: Any, weights: Any, dt: Any) -> Step:
        if self.form == "apart":
            cell = torch.tanh(projected * recurrent) + 0.5 * state[1]
        elif self.form == "plain":
            cell = torch.tanh(projected + recurrent)
        else:
            cell = 0.5 * state[1] + self.rows(projected + recurrent)["candidate"]
        return Step((cell, cell), {})


@pytest.mark.parametrize(
    "cell", [Chosen(Sigmoid()), *(Few(Sigmoid(), form) for form in ("apart", "plain", "linear"))], ids=str
)
def test_unusual_cells_are_derived(cell: GatedCell) -> None:
    assert_like_the_loop("cpu", cell, comparison.FLOAT64)
    if host.lacks() is None:
        assert_like_the_loop("c++", cell, comparison.FLOAT32)


@pytest.mark.long
def test_a_layer_is_loaded_in_another_process(tmp_path: Path) -> None:
    layer = rm.PhasedLSTM(3, 5).eval()
    x = torch.randn(4, 2, 3)
    torch.save((layer, x, layer(x)[0].detach()), tmp_path / "layer.pt")
    script = (
        f"import torch, remanence; layer, x, y = torch.load({str(tmp_path / 'layer.pt')!r}, weights_only=False); "
        "torch.testing.assert_close(layer(x)[0], y)"
    )
    subprocess.run(
        [sys.executable, "-c", script], check=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT / "src")}
    )


def test_a_layer_on_no_device_does_not_spoil_others() -> None:
    with torch.device("meta"):
        assert derivation(PhasedLSTMCell(Fast(), leak=0.125)).key is not None


def test_another_cell_of_a_phased_layer_sleeps_too() -> None:
    layer = rm.PhasedLSTM(3, 5).eval()
    x = torch.randn(6, 2, 3)
    layer(x)
    layer.cell = replace(layer.cell, gate=Fast())
    found, _ = layer(x)
    layer.engine = "loop"
    torch.testing.assert_close(found, layer(x)[0])
