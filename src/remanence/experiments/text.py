"""Read and write YAML, with 1e-3 parsed as a number."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import yaml

FLOAT = re.compile(
    r"""^[-+]?(?:[0-9][0-9_]*\.?[0-9_]*(?:[eE][-+]?[0-9]+)|[0-9][0-9_]*\.[0-9_]*|\.[0-9]+(?:[eE][-+]?[0-9]+)?
    |\.(?:inf|Inf|INF))$|^\.(?:nan|NaN|NAN)$""",
    re.VERBOSE,
)


DEEPEST = 200
"""The C parser recurses without a limit, so it only gets texts that cannot be nested more deeply than this."""


@cache
def loader(name: str = "SafeLoader") -> type[yaml.SafeLoader]:
    """The safe loader of PyYAML with this name, with the number syntax of YAML 1.2."""
    import yaml

    class Loader(getattr(yaml, name)):  # type: ignore[misc]
        """SafeLoader that parses 1e-3 as a number."""

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+0123456789."))
    return Loader


def read(text: str) -> Any:
    """Parse YAML into plain data.

    Raises:
        yaml.YAMLError: invalid YAML; also a 13th month, or lists nested thousands deep.
    """
    import yaml

    try:
        if yaml.__with_libyaml__ and sum(map(text.count, "[{:?-")) < DEEPEST:  # each level begins with one of these
            try:
                return yaml.load(text, Loader=loader("CSafeLoader"))  # six times as fast
            except yaml.YAMLError:
                pass  # the other loader says where
        return yaml.load(text, Loader=loader())
    except (ValueError, RecursionError) as error:
        raise yaml.YAMLError(str(error)) from None


def write(data: Any) -> str:
    """Write plain data as YAML, in its own order, with short lists on one line."""
    import yaml

    return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110, default_flow_style=None))
