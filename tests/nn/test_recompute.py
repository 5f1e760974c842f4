"""Activation checkpointing (`recompute`): the same values and gradients, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

import remanence as rm
from remanence import engines

STEPS, ROWS, INPUTS, UNITS = 11, 4, 3, 6
LAYERS: dict[str, Callable[..., rm.nn.Recurrent]] = {
    "LSTM": rm.LSTM,
    "LSTM fast": lambda *sizes, **more: rm.LSTM(*sizes, gate="fast", **more),
    "PowerLawLSTM": rm.PowerLawLSTM,
    "GRU": rm.GRU,
    "JANET": rm.JANET,
    "NRU": rm.NRU,
    "PhasedLSTM": rm.PhasedLSTM,
    "UnitaryRNN": rm.UnitaryRNN,
    "SRU": rm.SRU,
}
every_layer = pytest.mark.parametrize("name", LAYERS)


def pair(name: str, pieces: int, dtype: torch.dtype = torch.float64, **more: Any) -> tuple[nn.Module, nn.Module]:
    """A layer, and one with the same weights that recomputes."""
    torch.manual_seed(1)
    plain = LAYERS[name](INPUTS, UNITS, dtype=dtype, **more)
    other = LAYERS[name](INPUTS, UNITS, dtype=dtype, recompute=pieces, **more)
    other.load_state_dict(plain.state_dict())
    return plain, other


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))


def flat(result: tuple[Any, Any]) -> list[Tensor]:
    output, state = result
    return [output, *(state if isinstance(state, tuple) else (state,))]


def numbers(layer: nn.Module, inputs: Tensor, *more: Any) -> list[Tensor]:
    """Values, and all derivatives."""
    inputs = inputs.clone().requires_grad_()
    results = [result for result in flat(layer(inputs, *more)) if result.requires_grad]
    slopes = [draw(*result.shape, dtype=result.dtype) for result in results]
    leaves = [inputs, *layer.parameters()]
    return [*results, *torch.autograd.grad(results, leaves, slopes, materialize_grads=True)]


def same(layers: tuple[nn.Module, nn.Module], *given: Any) -> None:
    plain, other = (numbers(layer, *given) for layer in layers)
    for expected, found in zip(plain, other, strict=True):
        torch.testing.assert_close(found, expected)


@every_layer
@pytest.mark.parametrize("pieces", [1, 3, STEPS, 50])
def test_pieces_change_nothing(name: str, pieces: int) -> None:
    same(pair(name, pieces, bidirectional=True, num_layers=2), draw(STEPS, ROWS, INPUTS))


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        *((name, "loop") for name in LAYERS),
        *((name, "cpu") for name in LAYERS if name not in ("NRU", "SRU", "PhasedLSTM", "UnitaryRNN")),
        *((name, "torch") for name in ("LSTM", "GRU")),
    ],
)
def test_every_engine_runs_pieces_from_a_state(name: str, engine: str) -> None:
    layers = pair(name, 4, torch.float32, engine=engine)
    inputs = draw(STEPS, ROWS, INPUTS, dtype=torch.float32)
    with torch.no_grad():
        _, state = layers[0](inputs)
    same(layers, inputs, state)


@pytest.mark.parametrize("name", ["PowerLawLSTM", "PhasedLSTM"])
def test_time_between_steps_is_cut_too(name: str) -> None:
    dt = draw(STEPS, ROWS).abs() + 0.1
    same(pair(name, 4, bidirectional=True), draw(STEPS, ROWS, INPUTS), None, dt)


@every_layer
def test_sequences_may_end_before_a_piece_begins(name: str) -> None:
    inputs, lengths = draw(STEPS, ROWS, INPUTS), [STEPS, 7, 4, 1]
    plain, other = pair(name, 4, bidirectional=True)
    found = []
    for layer in (plain, other):
        x = inputs.clone().requires_grad_()
        output, state = layer(pack_padded_sequence(x, torch.tensor(lengths)))
        results = flat((pad_packed_sequence(output)[0], state))
        loss = sum((result * draw(*result.shape)).sum() for result in results if result.requires_grad)
        found.append([*results, *torch.autograd.grad(loss, [x, *layer.parameters()], materialize_grads=True)])
    for expected, value in zip(*found, strict=True):
        torch.testing.assert_close(value, expected)


@pytest.mark.parametrize("engine", ["loop", "cpu", "torch"])
def test_torchs_own_checkpoint_does_the_same_from_outside(engine: str) -> None:
    layer = rm.LSTM(INPUTS, UNITS, engine=engine)
    inputs = draw(STEPS, ROWS, INPUTS, dtype=torch.float32).requires_grad_()
    leaves = [inputs, *layer.parameters()]
    expected = torch.autograd.grad(layer(inputs)[0].sum(), leaves)
    outside = checkpoint(layer, inputs, use_reentrant=False)[0]
    for found, slope in zip(torch.autograd.grad(outside.sum(), leaves), expected, strict=True):
        torch.testing.assert_close(found, slope)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_a_compiled_layer() -> None:
    torch.compiler.reset()
    layers = pair("LSTM fast", 3, torch.float32, engine="loop")
    inputs = draw(STEPS, ROWS, INPUTS, dtype=torch.float32)
    expected = numbers(layers[0], inputs)
    for found, value in zip(numbers(torch.compile(layers[1], backend="aot_eager"), inputs), expected, strict=True):
        torch.testing.assert_close(found, value)


def test_second_derivatives_of_the_loop() -> None:
    found = []
    for layer in pair("LSTM", 3, engine="loop"):
        inputs = draw(STEPS, ROWS, INPUTS).requires_grad_()
        (slope,) = torch.autograd.grad(layer(inputs)[0].square().sum(), inputs, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), [inputs, *layer.parameters()], allow_unused=True))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("engine", ["auto", "loop"])
def test_what_is_computed_again_runs_on_the_engine_it_ran_on(engine: str) -> None:
    """Also where another one would be taken now."""
    plain, other = pair("LSTM fast", 3, engine=engine)
    inputs = draw(STEPS, ROWS, INPUTS)
    expected = torch.autograd.grad(plain(inputs)[0].sum(), list(plain.parameters()))
    loss = other(inputs)[0].sum()
    with forward_ad.dual_level():
        found = torch.autograd.grad(loss, list(other.parameters()))
    for one, slope in zip(found, expected, strict=True):
        torch.testing.assert_close(one, slope)


def test_layers_side_by_side() -> None:
    layers = [pair("LSTM fast", 3)[1] for _ in range(2)]
    inputs = draw(STEPS, ROWS, INPUTS)
    for layer, (output, _) in zip(layers, rm.together(layers, inputs), strict=True):
        torch.testing.assert_close(output, layer(inputs)[0])


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of every run of the loop from now on."""
    seen: list[int] = []
    run = engines.loop.run

    def watched(task: engines.EngineTask) -> engines.EngineResult:
        seen.append(task.inputs.shape[-3])
        return run(task)

    monkeypatch.setattr(engines.loop, "run", watched)
    return seen


def test_the_backward_pass_computes_one_piece_after_the_other_again(steps: list[int]) -> None:
    layer = rm.LSTM(INPUTS, UNITS, recompute=3, engine="loop")
    output, _ = layer(draw(STEPS, ROWS, INPUTS, dtype=torch.float32))
    assert steps == [4, 4, 3]
    output.sum().backward()
    assert steps == [4, 4, 3, 3, 4, 4]


def test_nothing_is_kept_of_a_piece() -> None:
    kept: list[Tensor] = []

    def keep(value: Tensor) -> Tensor:
        if value.numel():  # torch's checkpoint may keep an empty tensor for every piece
            kept.append(value)
        return value

    layer = rm.LSTM(INPUTS, UNITS, recompute=3, engine="loop")
    inputs = draw(STEPS, ROWS, INPUTS, dtype=torch.float32)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        layer(inputs)
        assert not kept
        layer.recompute = 0
        layer(inputs)
        assert kept


def test_without_derivatives_there_are_no_pieces(steps: list[int]) -> None:
    layer = rm.LSTM(INPUTS, UNITS, recompute=3, engine="loop")
    with torch.no_grad():
        layer(draw(STEPS, ROWS, INPUTS, dtype=torch.float32))
    assert steps == [STEPS]


@pytest.mark.parametrize("wrong", [-1, True, 2.0, "8"])
def test_anything_but_a_number_of_pieces_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"^expected recompute to be 0 or a positive integer, got "):
        rm.LSTM(2, 3, recompute=wrong)


def test_it_is_shown() -> None:
    assert "recompute=8" in repr(rm.GRU(2, 3, recompute=8))
    assert "recompute" not in repr(rm.GRU(2, 3))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("engine", ["cuda", "triton"])
def test_eight_pieces_need_less_than_half_of_the_memory(engine: str) -> None:
    inputs, needed = torch.randn(800, 64, 1, device="cuda"), []
    for pieces in (0, 8):
        layer = rm.LSTM(1, 256, gate="fast", recompute=pieces, engine=engine, device="cuda")
        for _ in range(2):  # the second time nothing is compiled
            layer.zero_grad()
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            layer(inputs)[0].sum().backward()
            torch.cuda.synchronize()
            needed.append(torch.cuda.max_memory_allocated() - before)
    assert needed[3] < needed[1] / 2
