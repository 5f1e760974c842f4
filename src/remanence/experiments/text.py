"""YAML as people write it: 1e-3 is a number."""

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


@cache
def loader() -> type[yaml.SafeLoader]:
    """The safe loader, with the numbers of YAML 1.2."""
    import yaml

    class Loader(yaml.SafeLoader):
        """Reads 1e-3 as a number and leaves nothing out."""

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+0123456789."))
    return Loader


def read(text: str) -> Any:
    """Plain data from YAML.

    Raises:
        yaml.YAMLError: for whatever is none, such as a 13th month or lists in thousands of lists.
    """
    import yaml

    try:
        return yaml.load(text, Loader=loader())
    except (ValueError, RecursionError) as error:
        raise yaml.YAMLError(str(error)) from None


def write(data: Any) -> str:
    """YAML from plain data, in the order it has, short lists on one line."""
    import yaml

    return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110, default_flow_style=None))
