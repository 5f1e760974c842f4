"""The model card of a saved model: class, size, timescales of its units, and how to load it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..gates import PowerLaw
from ..timescales import of
from ..version import DISTRIBUTION, URL, __version__

CARD = """\
---
library_name: remanence
tags:
{tags}
---

# {title}

A `{kind}` of [Remanence]({url}) {version} with {parameters:,} parameters.

## How long its units remember

| layer | units | gate | measure | median | range |
|---|---|---|---|---|---|
{rows}

The timescale T of a unit follows from its biases: without input it keeps exp(-n / T) of its memory over n steps. A
power law has an exponent p instead: it keeps (n + 1)^-p.

## How to load it

`pip install {distribution}`, then

```python
import remanence as rm

model = {path}.from_pretrained("{place}")
```
"""


def card(model: nn.Module, layers: Sequence[Any], place: str) -> str:
    """The Markdown text of a model card.

    Args:
        model: The saved model.
        layers: Its recurrent layers.
        place: Its folder, or its name on the Hub.
    """
    kind = type(model)
    package = ".".join(kind.__module__.split(".")[:2])
    path = {"remanence.nn": "rm.", "remanence.models": "rm.models."}.get(package, "")
    rows = list(measured(layers))
    tags = ["pytorch", "recurrent-neural-network", *dict.fromkeys(gate for _, _, gate, *_ in rows)]
    return CARD.format(
        tags="\n".join(f"- {tag}" for tag in tags),
        title=place.rpartition("/")[2],
        kind=kind.__name__,
        url=URL,
        version=__version__,
        parameters=sum(weight.numel() for weight in model.parameters()),
        rows="\n".join(f"| {' | '.join(row)} |" for row in rows),
        distribution=DISTRIBUTION,
        path=path + kind.__name__,
        place=place,
    )


def measured(layers: Sequence[Any]) -> Iterator[tuple[str, ...]]:
    """A table row for every layer and direction."""
    before = 0  # layers of earlier modules: a language model has one module per layer
    for layer in layers:
        gate = getattr(layer, "gate", None)
        what, found = _values(layer, gate)
        for place, values in zip(layer.places, found, strict=True):
            name = place._replace(layer=before + place.layer).suffix.removeprefix("_")
            yield (name, str(layer.hidden_size), "none" if gate is None else gate.name, what, *_summed_up(values))
        before += layer.num_layers


def _values(layer: Any, gate: Any) -> tuple[str, Iterable[Tensor | None]]:
    """The measure that a layer has (exponent, timescale or none), and its values for every layer and direction."""
    if isinstance(gate, PowerLaw):
        weights = ({name: getattr(layer, name + place.suffix) for name in gate.per_unit} for place in layer.places)
        return "exponent p", [torch.as_tensor(gate.exponent(own, torch.float64)).detach() for own in weights]
    try:
        return "timescale in steps", of(layer)
    except ValueError:  # neither a gate nor a timescale
        return "none", [None] * len(layer.places)


def _summed_up(values: Tensor | None) -> tuple[str, str]:
    if values is None:
        return "", ""
    return f"{values.double().median():.3g}", f"{values.min():.3g} to {values.max():.3g}"
