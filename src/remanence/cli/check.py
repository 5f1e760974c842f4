"""`remanence check`."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from .answers import bad_input_is_answered

if TYPE_CHECKING:
    from rich.console import Console

    from ..engines.check import Row


def command(
    device: Annotated[
        str | None,
        typer.Option(help="cpu, cuda or cuda:N; by default the CPU and the CUDA device.", show_default=False),
    ] = None,
    engines: Annotated[
        str | None,
        typer.Option("--engines", help="Engines to check, such as cuda,cpu; by default all.", show_default=False),
    ] = None,
    gate: Annotated[
        str | None,
        typer.Option(
            "--gate",
            help="The only gate to check: a name, or module:Name for one of your own. By default every named one.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Hold every engine to the loop engine on this machine.

    Every gate, cell and precision: relative errors of outputs, final states and gradients against the loop engine in
    float64. Exit code 1 if one is larger than it may be. On a GPU the first run compiles, which takes minutes.
    """
    from rich.console import Console

    from ..engines.check import checked, refusals, rows
    from ..engines.kernels.derive import why_not
    from ..engines.machine import device_named
    from .own_gate import gate_of

    console = Console(highlight=False)
    with bad_input_is_answered():
        place = None if device is None else device_named(device)
        names = None if engines is None else engines.split(",")
        checked(names)
        only = None if gate is None else gate_of(gate)
    found: list[Row] = []
    with Console(stderr=True).status("checking") as status:
        for _, group in groupby(rows(place, names, only), lambda row: (row.device, row.engine)):
            own: list[Row] = []
            for row in group:
                own.append(row)
                status.update(f"checking {row.engine}: {row.cell} {row.gate} {row.dtype}")
            status.stop()  # a line of its own, in the way of what comes now
            show(own, console)
            status.start()
            found += own
    for engine, reason in refusals(place, names).items():
        console.print(f"engine {engine} was not checked: {reason}", markup=False)
    if only is not None and (because := why_not(only)) is not None:
        console.print(f"no kernel can be derived for gate {only.name!r}: {because}; it runs on the loop", markup=False)
    wrong = [row for row in found if not row.ok]
    for row in wrong:
        console.print(f"wrong: {row.engine}, {row.cell}, {row.gate}, {row.dtype}: {row.reason}", markup=False)
    console.print(f"{len(found)} checked, {len(wrong)} wrong")
    if wrong:
        raise typer.Exit(1)


def show(rows: list[Row], console: Console) -> None:
    """The rows of one engine on one device."""
    from rich.box import SIMPLE
    from rich.markup import escape
    from rich.table import Table

    title = f"engine {rows[0].engine} on {rows[0].device}: relative errors against the loop engine in float64"
    table = Table(title=title, title_justify="left", box=SIMPLE, padding=(0, 1, 0, 0))
    for heading in ("cell", "gate", "precision"):
        table.add_column(heading, no_wrap=True)
    for heading in ("values", "gradients", "allowed"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row in rows:
        errors = (f"{error:.1e}" for error in (row.error_values, row.error_gradients, row.tolerance))
        table.add_row(row.cell, escape(row.gate), row.dtype, *errors, "ok" if row.ok else "[red]wrong[/red]")
    console.print(table)
