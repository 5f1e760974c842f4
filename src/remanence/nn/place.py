"""The position of a weight in a layer: index of the stacked layer, and direction."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """One stacked layer in one direction."""

    layer: int
    reverse: bool

    @property
    def suffix(self) -> str:
        return f"_l{self.layer}" + ("_reverse" if self.reverse else "")
