"""The page docs/reference/cli.md: every command with its arguments and options, read from the functions behind them.

docs/hooks.py adds the page to the site when it is built, so it is always current and there is no file to update.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import NamedTuple

from typer.models import ArgumentInfo, OptionInfo

from remanence.cli.main import KNOWN, remanence

HEAD = """# Command line

`remanence COMMAND --help` prints the same. `python -m remanence` is the same as `remanence`.
Exit code 0: success; 1: something failed; 2: bad input, with a one-sentence error; 130 or 143: stopped by Ctrl-C or
SIGTERM, with everything saved.
"""


class Parameter(NamedTuple):
    """An argument or an option of a command."""

    name: str
    """As it is typed, with its placeholder."""
    help: str
    default: str
    """Empty if the command line does not show one."""
    is_option: bool


def page() -> str:
    """The page in Markdown."""
    rows = [f"| [`remanence {name}`](#remanence-{name}) | {summary(command)} |" for name, command in KNOWN.items()]
    overview = "\n".join(("| command | description |", "|---|---|", *rows))
    parts = [HEAD, overview, "Options of `remanence` itself:", table(list(parameters(remanence)))]
    return "\n\n".join((*parts, *(section(name, command) for name, command in KNOWN.items()))) + "\n"


def section(name: str, command: Callable[..., None]) -> str:
    """One command."""
    given = list(parameters(command))
    arguments = [one for one in given if not one.is_option]
    usage = " ".join(("remanence", name, "[OPTIONS]", *(one.name.strip("`") for one in arguments)))
    tables = [table(group) for group in (arguments, [one for one in given if one.is_option]) if group]
    return "\n\n".join((f"## remanence {name}", f"```text\n{usage}\n```", inspect.getdoc(command) or "", *tables))


def parameters(command: Callable[..., None]) -> Iterator[Parameter]:
    """Its arguments and options, in the order of the help text."""
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        for info in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(info, OptionInfo | ArgumentInfo):
                is_option = isinstance(info, OptionInfo)
                flag = isinstance(parameter.default, bool)
                default = None if flag or not info.show_default else parameter.default
                text = "" if default in (None, "", (), inspect.Parameter.empty) else str(default)
                yield Parameter(typed(name, info, flag), info.help or "", text, is_option)


def typed(name: str, info: OptionInfo | ArgumentInfo, flag: bool) -> str:
    """A parameter as a user types it, such as `--out DIR`."""
    if isinstance(info, ArgumentInfo):
        return f"`{info.metavar or name.upper()}`"
    # In `Annotated[..., typer.Option("--name")]` typer takes the first name as the default.
    first = (info.default,) if isinstance(info.default, str) and info.default.startswith("-") else ()
    names = (*first, *(info.param_decls or ())) or (f"--{name.replace('_', '-')}",)
    placeholder = "" if flag else f" {info.metavar or 'VALUE'}"
    return ", ".join(f"`{one}{placeholder}`" for one in names)


def table(rows: list[Parameter]) -> str:
    """A table of parameters."""
    what = "option" if rows[0].is_option else "argument"
    lines = [f"| {cell(one.name)} | {cell(one.help)}{shown(one.default)} |" for one in rows]
    return "\n".join((f"| {what} | description |", "|---|---|", *lines))


def shown(default: str) -> str:
    """A default as a sentence."""
    return f" Default: `{default}`." if default else ""


def cell(text: str) -> str:
    """Text for a cell of a table: on one line, with bars escaped, except in code, where Markdown shows the escape."""
    parts = " ".join(text.split()).split("`")
    return "`".join(part if place % 2 else part.replace("|", "\\|") for place, part in enumerate(parts))


def summary(command: Callable[..., None]) -> str:
    """The first line of the help text."""
    return cell((inspect.getdoc(command) or "").split("\n")[0])
