"""`remanence check`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from .answers import exit_on_bad_input

if TYPE_CHECKING:
    from rich.console import Console

    from ..engines.check import Row
    from ..engines.warm import Warmed


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
            help="Check only this gate: a name, or module:Name for a custom gate or one with other settings. "
            "By default every built-in gate.",
            show_default=False,
        ),
    ] = None,
    cell: Annotated[
        str | None,
        typer.Option(
            "--cell",
            help="Check only this custom cell, module:Name, with --gate or a sigmoid gate.",
            show_default=False,
        ),
    ] = None,
    warm: Annotated[
        bool,
        typer.Option("--warm", help="Compile kernels ahead of time, for deployment, instead of comparing engines."),
    ] = False,
    dtypes: Annotated[str, typer.Option(help="With --warm: dtypes, any of float32,bfloat16,float16.")] = "float32",
    units: Annotated[str, typer.Option(help="With --warm, on a GPU: hidden sizes, such as 128,512.")] = "128",
    batch: Annotated[int, typer.Option(help="With --warm, on a GPU: batch size.", min=1)] = 32,
    inputs: Annotated[int, typer.Option(help="With --warm, on a GPU: input size.", min=1)] = 32,
) -> None:
    """Check every engine against the loop engine on this machine.

    Prints the relative errors of outputs, final states and gradients against
    the loop engine in float64, for every gate, cell and precision. The exit
    code is 1 if an error exceeds its tolerance. On a GPU the first run takes
    minutes because it compiles kernels.

    With --warm it compiles the kernels of every cell and gate, for training,
    inference and single steps, and caches them on disk, so that the first
    layer of a process starts without compiling. Settings of a gate or cell
    are compiled in: only the default ones are covered, or those of --gate.
    GPU kernels are compiled for one size: set --units, --batch and --inputs.
    """
    from rich.console import Console

    from ..engines.check import checked, refusals, rows
    from ..engines.kernels.contract import derivation
    from ..engines.machine import device_named
    from ..engines.samples import cells_with
    from ..engines.warm import DTYPES
    from ..engines.warm import warm as ahead
    from ..names import lookup
    from .own import cell_of, gate_of

    console = Console(highlight=False)
    with exit_on_bad_input():
        place = None if device is None else device_named(device)
        names = None if engines is None else engines.split(",")
        checked(names)
        only = None if gate is None else gate_of(gate)
        own_cell = None if cell is None else cell_of(cell, only or gate_of("sigmoid"))
        if warm and own_cell is not None:
            raise ValueError(
                "expected --warm alone or with --gate, got --cell: build a layer with the cell to compile it"
            )
    if warm:
        with exit_on_bad_input():
            chosen = [lookup("dtype", name, DTYPES) for name in dtypes.split(",")]
            widths = [whole_number(word) for word in units.split(",")]
        return compile_ahead(console, refusals(place, names), ahead(place, names, only, chosen, widths, batch, inputs))
    found: list[Row] = []
    with Console(stderr=True).status("checking") as status:
        for _, group in groupby(rows(place, names, only, own_cell), lambda row: (row.device, row.engine)):
            own: list[Row] = []
            for row in group:
                own.append(row)
                status.update(f"checking {row.engine}: {row.cell} {row.gate} {row.dtype}")
            status.stop()  # its line would be in the way of the table
            show(own, console)
            status.start()
            found += own
    for engine, reason in refusals(place, names).items():
        console.print(f"engine {engine} was not checked: {reason}", markup=False)
    if own_cell is None and only is not None:
        own_cell = next(cells_with(only))
    if own_cell is not None:
        known = derivation(own_cell)
        for when, why in zip(("", " with dt"), known.float32, strict=True):
            if why is not None and (not when or why != known.float32[0]):
                reason = f"no kernel can be derived for {known.subject}{when}: {why}; it runs on the loop engine"
                console.print(reason, markup=False)
    wrong = [row for row in found if not row.ok]
    for row in wrong:
        console.print(f"wrong: {row.engine}, {row.cell}, {row.gate}, {row.dtype}: {row.reason}", markup=False)
    console.print(f"{len(found)} checked, {len(wrong)} wrong")
    if wrong:
        raise typer.Exit(1)
    return None


def whole_number(word: str) -> int:
    """Parse a hidden size."""
    if not word.strip().isdecimal() or int(word) < 1:
        raise ValueError(f"expected units to be whole numbers above zero, such as 128,512, got {word!r}")
    return int(word)


def compile_ahead(console: Console, refused: dict[str, str], engines: Iterable[Warmed]) -> None:
    """Compile kernels; print which were compiled, which were not, and where they are."""
    from ..engines.kernels import cache

    wrong = False
    for each in engines:
        console.print(
            f"engine {each.engine} on {each.device}: kernels for {each.layers} layer configuration(s)", markup=False
        )
        if each.reason is not None:
            console.print(f"wrong: {each.reason}", markup=False)
            wrong = True
        if each.engine == "triton":
            console.print("Triton caches its own kernels (see TRITON_CACHE_DIR)")
    for engine in ("cuda", "triton", "c++"):
        if engine in refused:
            console.print(f"engine {engine} has no kernels here: {refused[engine]}", markup=False, soft_wrap=True)
    if cache.is_temporary():
        console.print("wrong: kernels cannot be cached: the warning says why")
        wrong = True
    else:
        console.print(f"{cache.count('so', 'cubin')} kernels in {cache.folder()}", markup=False, soft_wrap=True)
    if wrong:
        raise typer.Exit(1)


def show(rows: list[Row], console: Console) -> None:
    """Print the rows of one engine on one device."""
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
