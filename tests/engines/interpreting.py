"""Make Triton's interpreter faster.

Before every call of a function inside a kernel it looks through all names of `triton.language` to replace those that
are builtins. They stay replaced while the kernel runs, so once per kernel is enough, which saves nearly half the
time.
"""

from inspect import ismodule
from typing import Any

import pytest


def replace_builtins_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace them for a kernel, and not again for the functions that it calls."""
    import triton.language as tl
    from triton.runtime import interpreter

    if not hasattr(interpreter, "_LangPatchScope"):  # older versions of Triton
        return
    replace, replaced = interpreter._patch_lang, set[int]()

    class OfAKernel(interpreter._LangPatchScope):  # type: ignore[misc]
        def restore(self) -> None:
            replaced.clear()
            super().restore()

    def replace_once(function: Any) -> Any:
        modules = {id(one) for one in function.__globals__.values() if ismodule(one) and one in (tl, tl.core)}
        if modules and modules <= replaced:
            return interpreter._LangPatchScope()
        scope = replace(function)
        if not replaced:  # the kernel itself, the only one that restores them
            scope.__class__ = OfAKernel
        replaced.update(modules)
        return scope

    monkeypatch.setattr(interpreter, "_patch_lang", replace_once)
