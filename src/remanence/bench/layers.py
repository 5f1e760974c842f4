"""Layers that are measured, by name."""

from __future__ import annotations

from collections.abc import Callable

from .. import gates
from ..nn import EURNN, GORU, GRU, JANET, LSTM, NRU, SRU, ExpRNN, PhasedLSTM, Recurrent, UnitaryRNN

Maker = Callable[..., Recurrent]


def gated(gate: str) -> Maker:
    """The LSTM with that gate."""

    def maker(inputs: int, units: int, **keywords: object) -> Recurrent:
        return LSTM(inputs, units, gate=gate, **keywords)  # type: ignore[arg-type]

    return maker


def projected(gate: str) -> Maker:
    """The same with half as many outputs as units."""

    def maker(inputs: int, units: int, **keywords: object) -> Recurrent:
        return LSTM(inputs, units, gate=gate, proj_size=units // 2, **keywords)  # type: ignore[arg-type]

    return maker


PROJECTED = "proj-"
"""What names of projected layers begin with."""
QUOTED: dict[str, Maker] = {"exprnn": ExpRNN, "urnn": UnitaryRNN, "eurnn": EURNN, "goru": GORU, "sru": SRU}
"""Measured where they are named: those with an orthogonal or unitary matrix, and the SRU."""
KNOWN: dict[str, Maker] = {
    **{gate: gated(gate) for gate in gates.KNOWN},
    "gru": GRU,
    "janet": JANET,
    "phased": PhasedLSTM,
    "nru": NRU,
    **QUOTED,
    **{PROJECTED + gate: projected(gate) for gate in ("fast", "power_law")},
}
"""The LSTM with every gate, by the name of the gate; GRU, JANET, the phased LSTM and the NRU; projected LSTMs;
those that have to be named."""


def projection(layer: str, units: int) -> int:
    """The `proj_size` of a layer, or of torch's LSTM that it is compared to; 0 without one."""
    return units // 2 if PROJECTED in layer else 0
