"""Signatures of layers on API pages: `**shared: Unpack[...]` becomes the keywords it stands for, with defaults."""

from __future__ import annotations

from typing import Any

from griffe import Extension, Function, GriffeLoader, Module, ParameterKind

from remanence.nn import keywords


class SharedKeywords(Extension):
    """Completes constructors that end in shared keywords."""

    def on_package(self, *, pkg: Module, loader: GriffeLoader, **_: Any) -> None:
        """Complete every constructor in `remanence.nn`, once all of the package is read."""
        layers = pkg["nn"]
        for module in layers.modules.values():
            for kind in module.classes.values():
                init = kind.members.get("__init__")
                if (
                    init is not None
                    and "shared" in init.parameters
                    and str(init.parameters["shared"].annotation) != "Any"
                ):
                    complete(init, layers["recurrent.Recurrent.__init__"])


def complete(init: Function, base: Function) -> None:
    """Put keywords of the base in place of those that a constructor passes on to it."""
    names = getattr(keywords, init.parameters["shared"].annotation.slice.name).__optional_keys__
    del init.parameters["shared"]
    for parameter in base.parameters:
        if parameter.kind is ParameterKind.keyword_only and parameter.name in names:
            init.parameters.add(parameter)
