"""Complete layers on API pages: `**shared: Unpack[...]` becomes the keywords it stands for, with their descriptions.

The docstring of a layer describes its own arguments and refers to `LSTM` for the others. A page of the reference has to
be readable by itself, so the descriptions of the others are copied there from the docstring of `LSTM`.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Class, Extension, Function, GriffeLoader, Module, ParameterKind

from remanence.nn import keywords

FIRST_OF_OTHERS = re.compile(r"^(Examples|Raises|Returns):$", re.MULTILINE)
ARGUMENTS = re.compile(r"^Args:\n((?:    .*\n?|\n(?=    ))+)", re.MULTILINE)


class SharedKeywords(Extension):
    """Completes constructors that end in shared keywords."""

    def on_package(self, *, pkg: Module, loader: GriffeLoader, **_: Any) -> None:
        """Complete every constructor in `remanence.nn`, once all of the package is read."""
        layers = pkg["nn"]
        known = described(layers["lstm.LSTM"])
        for module in layers.modules.values():
            for kind in module.classes.values():
                init = kind.members.get("__init__")
                if (
                    init is not None
                    and "shared" in init.parameters
                    and str(init.parameters["shared"].annotation) != "Any"
                ):
                    complete(init, layers["recurrent.Recurrent.__init__"])
                    describe(kind, init, known)


def complete(init: Function, base: Function) -> None:
    """Put keywords of the base in place of those that a constructor passes on to it."""
    names = getattr(keywords, init.parameters["shared"].annotation.slice.name).__optional_keys__
    del init.parameters["shared"]
    for parameter in base.parameters:
        if parameter.kind is ParameterKind.keyword_only and parameter.name in names:
            init.parameters.add(parameter)


def described(kind: Class) -> dict[str, str]:
    """Descriptions of the arguments in the docstring of a class, by name, as indented lines."""
    found = ARGUMENTS.search(kind.docstring.value if kind.docstring else "")
    entries = re.findall(r"^    (\w+): ((?:.*\n?)(?:^        .*\n?)*)", found[1] if found else "", re.MULTILINE)
    return {name: text.rstrip() for name, text in entries}


def describe(kind: Class, init: Function, known: dict[str, str]) -> None:
    """Describe all arguments of a constructor in its order, those that the docstring leaves out as `known` does."""
    if kind.docstring is None:
        return
    own = described(kind)
    names = [parameter.name for parameter in init.parameters if parameter.name != "self"]
    lines = [f"    {name}: {text}" for name in names if (text := own.get(name) or known.get(name))]
    section = "\n".join(["Args:", *lines]) + "\n"
    text = kind.docstring.value
    if own:
        kind.docstring.value = ARGUMENTS.sub(lambda _: section, text, count=1)
        return
    others = FIRST_OF_OTHERS.search(text)
    at = others.start() if others else len(text)
    kind.docstring.value = f"{text[:at].rstrip()}\n\n{section}\n{text[at:]}".rstrip()
