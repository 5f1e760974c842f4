"""Layers that are measured, by name."""

from __future__ import annotations

from collections.abc import Callable

from .. import gates
from ..nn import GRU, JANET, LSTM, PhasedLSTM, Recurrent

Maker = Callable[..., Recurrent]


def gated(gate: str) -> Maker:
    """The LSTM with that gate."""

    def maker(inputs: int, units: int, **keywords: object) -> Recurrent:
        return LSTM(inputs, units, gate=gate, **keywords)  # type: ignore[arg-type]

    return maker


KNOWN: dict[str, Maker] = {
    **{gate: gated(gate) for gate in gates.KNOWN},
    "gru": GRU,
    "janet": JANET,
    "phased": PhasedLSTM,
}
"""The LSTM with every gate, by the name of the gate; GRU, JANET and the phased LSTM."""
