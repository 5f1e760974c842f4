"""The layers that can be benchmarked, by name."""

from __future__ import annotations

from collections.abc import Callable

from .. import gates
from ..nn import EURNN, GORU, GRU, JANET, LSTM, NRU, SRU, ExpRNN, PhasedLSTM, Recurrent, UnitaryRNN

LayerFactory = Callable[..., Recurrent]


def gated(gate: str) -> LayerFactory:
    """An LSTM with that gate."""

    def maker(inputs: int, units: int, **keywords: object) -> Recurrent:
        return LSTM(inputs, units, gate=gate, **keywords)  # type: ignore[arg-type]

    return maker


def projected(gate: str) -> LayerFactory:
    """An LSTM with that gate, projected to half as many outputs as units."""

    def maker(inputs: int, units: int, **keywords: object) -> Recurrent:
        return LSTM(inputs, units, gate=gate, proj_size=units // 2, **keywords)  # type: ignore[arg-type]

    return maker


PROJECTED = "proj-"
"""Prefix of the names of projected layers."""
QUOTED: dict[str, LayerFactory] = {"exprnn": ExpRNN, "urnn": UnitaryRNN, "eurnn": EURNN, "goru": GORU, "sru": SRU}
"""Measured only when requested by name: layers with an orthogonal or unitary matrix, and the SRU."""
KNOWN: dict[str, LayerFactory] = {
    **{gate: gated(gate) for gate in gates.KNOWN},
    "gru": GRU,
    "janet": JANET,
    "phased": PhasedLSTM,
    "nru": NRU,
    **QUOTED,
    **{PROJECTED + gate: projected(gate) for gate in ("fast", "power_law")},
}
"""The LSTM with every gate, by the name of the gate; GRU, JANET, Phased LSTM and NRU; the layers of `QUOTED`;
projected LSTMs."""


def projection(layer: str, units: int) -> int:
    """The `proj_size` of a layer and of the torch LSTM that it is compared with; 0 without a projection."""
    return units // 2 if PROJECTED in layer else 0
