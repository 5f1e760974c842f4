"""Where in a layer a weight is: which of the stacked layers, and which direction."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """One layer in one direction."""

    layer: int
    reverse: bool

    @property
    def suffix(self) -> str:
        return f"_l{self.layer}" + ("_reverse" if self.reverse else "")
