"""`remanence figure`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .answers import writing
from .output import complain
from .run import answered


def command(
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            help="Experiments of `remanence list`; all that have results by default.",
            metavar="ID",
            show_default=False,
        ),
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder of all results.", metavar="DIR")] = Path("runs"),
    preset: Annotated[
        str | None,
        typer.Option(help="smoke, short or paper; by default the one with results that is nearest to the paper."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the pictures.", metavar="FOLDER")] = Path("figures"),
    theme: Annotated[str, typer.Option(help="light or dark.")] = "light",
    format: Annotated[str, typer.Option(help="png or svg.")] = "png",
) -> None:
    """Draw the figures of experiments from their results, as published, with what was found here."""
    from ..experiments.figures import NotYetRun, figures_of, latest, with_results
    from ..experiments.registry import find
    from ..report.drawing import draw, expect_format
    from ..report.look import look_of
    from .tables import say

    with answered():
        expect_format(format)
        look_of(theme)
        if not results.is_dir():
            raise ValueError(f"expected a folder of results, got {results}; --results says where they are")
        chosen = ids or with_results(results)
        if not chosen:
            raise NotYetRun(f"expected results of experiments in {results}, got none; remanence run makes them")
        for id in chosen:
            experiment = latest(id, results) if preset is None else find(id, preset)
            try:
                figures = figures_of(experiment, results)
            except NotYetRun as nothing:
                if ids:
                    raise
                complain(nothing)  # one that has only begun does not stop the others
                continue
            make_folder(out)
            for figure in figures:
                path = out / file_name(figure.id, experiment.preset, theme, format)
                with writing(path):
                    draw(figure, path, theme)  # type: ignore[arg-type]
                say(f"{figure.id}: {path}")
            if experiment.claims:
                say(f"published: {' '.join(experiment.claims)}", indent=2)


def make_folder(path: Path) -> None:
    """The folder for pictures."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"expected a folder for pictures, got {path}: {error.strerror or error}") from None


def file_name(id: str, preset: str, theme: str, format: str) -> str:
    """plstm_copy-200_short.png, with _dark where it is, and with the name of the figure where there are several."""
    experiment, _, part = id.partition("#")
    words = [*experiment.split("/"), preset, *([part] if part else []), *(["dark"] if theme == "dark" else [])]
    return f"{'_'.join(words)}.{format}"
