"""Initial values of a layer's forget and input biases, and frozen biases.

The value goes into `bias_hh`, and `bias_ih` is zero; layers with one bias vector have the value in `bias_ih`.

A frozen value is stored in a buffer, `frozen_bias_hh_l{k}` for `bias_hh_l{k}`. The entries of the parameter that it
replaces are zero and do not reach any output: their gradient is zero, and neither weight decay nor weight averaging can
change the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import torch
from torch import Tensor

from ..cells import Cell, GatedCell
from ..gates import Gate
from ..timescales import Timescales, timescale_to_logit
from .expect import is_number
from .place import Place

ForgetBias = float | Literal["matched"] | None
"""A bias, "matched" for a forget value of 0.731, or None for the default of the gate."""


class Biased(Protocol):
    """The interface of a layer that this module needs; the biases are its attributes `bias_ih_l0` and so on."""

    hidden_size: int
    num_layers: int
    bias: bool
    forget_bias: ForgetBias
    timescales: tuple[Timescales | None, ...]

    @property
    def recurrence(self) -> Cell: ...

    @property
    def gate(self) -> Gate: ...

    def register_buffer(self, name: str, tensor: Tensor | None) -> None: ...


def per_layer(
    timescales: Timescales | Sequence[Timescales | None] | None, num_layers: int
) -> tuple[Timescales | None, ...]:
    """One entry per layer."""
    entries = [timescales] * num_layers if timescales is None or isinstance(timescales, Timescales) else timescales
    if not isinstance(entries, Sequence) or not all(e is None or isinstance(e, Timescales) for e in entries):
        raise TypeError(
            "expected timescales to be one of Chrono, Uniform, InverseGamma, Fixed, or a list of these and None, got "
            f"{timescales!r}"
        )
    if len(entries) != num_layers:
        raise ValueError(f"expected timescales for {num_layers} layers, got {len(entries)}")
    return tuple(entries)


def expect(layer: Biased) -> None:
    """Refuse `forget_bias` and `timescales` if the gate does not support them, or the layer has no biases."""
    requested = [
        name
        for name, given in (
            ("forget_bias", layer.forget_bias is not None),
            ("timescales", any(entry is not None for entry in layer.timescales)),
        )
        if given
    ]
    if layer.forget_bias is not None and layer.forget_bias != "matched" and not is_number(layer.forget_bias):
        raise ValueError(f"expected forget_bias to be a number, 'matched' or None, got {layer.forget_bias!r}")
    if len(requested) == 2:
        raise ValueError("expected forget_bias or timescales, which set the same biases, got both")
    if not requested:
        return
    if not layer.bias:
        raise ValueError(f"expected bias=True with {requested[0]}, got bias=False")
    layer.gate.bias(timescale_to_logit(1.0))  # raises for a gate without timescales


def register_frozen(layer: Biased, place: Place) -> None:
    """Register the buffers of the frozen biases of a layer, if it has any."""
    if frozen_blocks(layer, place):
        for name in _vector_names(layer):
            bias = getattr(layer, name + place.suffix)
            layer.register_buffer("frozen_" + name + place.suffix, torch.zeros_like(bias.detach()))


def frozen_blocks(layer: Biased, place: Place) -> tuple[str, ...]:
    """Names of the blocks whose biases are frozen."""
    timescales = layer.timescales[place.layer]
    cell = layer.recurrence
    if timescales is None or not timescales.freeze or not timescales.covers(place.layer):
        return ()
    assert isinstance(cell, GatedCell)
    if timescales.freeze == "all":
        return cell.biased
    return tuple(name for name in cell.blocks if name == "input" or name in cell.gate.rows)


def initialise(layer: Biased, place: Place) -> None:
    """Initialise the biases of a new layer from its gate, `forget_bias` and `timescales`."""
    cell = layer.recurrence
    if not layer.bias or not isinstance(cell, GatedCell):
        return
    units, gate = layer.hidden_size, cell.gate
    values: dict[str, Tensor] = {}
    rows: tuple[Tensor, ...] | None
    timescales = layer.timescales[place.layer]
    logits = None if timescales is None else timescales.logits(units, place.layer, layer.num_layers)
    if timescales is not None and logits is not None:
        if timescales.zero_other_biases:
            values.update({name: torch.zeros(units, device="cpu") for name in cell.biased})
        rows = gate.complete(gate.bias(logits))
        if "input" in cell.blocks:
            values["input"] = -logits
    elif layer.forget_bias == "matched":
        rows = gate.matched_biases(units)
    elif layer.forget_bias is not None:
        rows = gate.complete(torch.full((units,), float(layer.forget_bias), device="cpu"))
    else:
        rows = gate.initial_biases(units)
    if rows is not None:
        values.update(zip(gate.rows, rows, strict=True))
    for name, value in values.items():
        set_block(layer, place, name, value)
    _move_to_buffers(layer, place)


def set_block(layer: Biased, place: Place, block: str, value: Tensor) -> None:
    """Set the total bias of a block."""
    vectors = _vectors(layer, place)
    for vector in vectors[:-1]:
        _block(layer, vector, block).zero_()
    _block(layer, vectors[-1], block).copy_(value)


def of_gate(layer: Biased, place: Place) -> tuple[Tensor, ...]:
    """Total biases of the gate, one float64 `(H,)` per row; zeros if the layer has no biases."""
    gate = layer.gate
    if not layer.bias:
        zeros = getattr(layer, "weight_ih" + place.suffix).new_zeros(layer.hidden_size, dtype=torch.float64)
        return tuple(zeros for _ in gate.rows)
    frozen = acting(layer, place)
    vectors = [frozen.get(name, getattr(layer, name + place.suffix)).detach().double() for name in _vector_names(layer)]
    parts = ([_block(layer, vector, name) for vector in vectors] for name in gate.rows)
    return tuple(sum(rest, first) for first, *rest in parts)


def acting(layer: Biased, place: Place) -> dict[str, Tensor]:
    """The effective bias vectors by name, with the frozen blocks inserted; empty if nothing is frozen."""
    blocks = frozen_blocks(layer, place)
    if not blocks:
        return {}
    vectors = {}
    for name in _vector_names(layer):
        free = getattr(layer, name + place.suffix)
        fixed = getattr(layer, "frozen_" + name + place.suffix)
        is_fixed = torch.zeros_like(free, dtype=torch.bool, requires_grad=False)
        for block in blocks:
            _block(layer, is_fixed, block).fill_(True)
        vectors[name] = torch.where(is_fixed, fixed, free)
    return vectors


def _move_to_buffers(layer: Biased, place: Place) -> None:
    for name in _vector_names(layer):
        for block in frozen_blocks(layer, place):
            free = _block(layer, getattr(layer, name + place.suffix), block)
            _block(layer, getattr(layer, "frozen_" + name + place.suffix), block).copy_(free)
            free.zero_()


def _vector_names(layer: Biased) -> list[str]:
    assert isinstance(layer.recurrence, GatedCell)
    return ["bias_ih", "bias_hh"] if layer.recurrence.two_biases else ["bias_ih"]


def _vectors(layer: Biased, place: Place) -> list[Tensor]:
    return [getattr(layer, name + place.suffix) for name in _vector_names(layer)]


def _block(layer: Biased, vector: Tensor, name: str) -> Tensor:
    """The H entries of a bias vector that belong to a block."""
    assert isinstance(layer.recurrence, GatedCell)
    start = layer.recurrence.blocks.index(name) * layer.hidden_size
    return vector[start : start + layer.hidden_size]
