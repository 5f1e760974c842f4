"""`remanence figure`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .answers import exit_on_error, writing
from .output import print_error


def command(
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            help="Experiments from `remanence list`; by default all that have results.",
            metavar="ID",
            show_default=False,
        ),
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder of the results.", metavar="DIR")] = Path("runs"),
    preset: Annotated[
        str | None,
        typer.Option(help="smoke, short or paper; by default the one with results that is closest to the paper."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the figures.", metavar="FOLDER")] = Path("figures"),
    theme: Annotated[str, typer.Option(help="light or dark.")] = "light",
    format: Annotated[str, typer.Option(help="png or svg.")] = "png",
) -> None:
    """Draw the figures of experiments from their results, in the layout of the papers."""
    from ..experiments.figures import NotYetRun, figures_of, latest, with_results
    from ..experiments.registry import find
    from ..report.drawing import draw, expect_format
    from ..report.look import look_of
    from .tables import print_text

    with exit_on_error():
        expect_format(format)
        look_of(theme)
        if not results.is_dir():
            raise ValueError(f"expected a folder of results, got {results}; set it with --results")
        chosen = ids or with_results(results)
        if not chosen:
            raise NotYetRun(f"expected results of experiments in {results}, got none; run `remanence run` first")
        for id in chosen:
            experiment = latest(id, results) if preset is None else find(id, preset)
            try:
                figures = figures_of(experiment, results)
            except NotYetRun as nothing:
                if ids:
                    raise
                print_error(nothing)  # an experiment that has only started does not stop the others
                continue
            make_folder(out)
            for figure in figures:
                path = out / file_name(figure.id, experiment.preset, theme, format)
                with writing(path):
                    draw(figure, path, theme)  # type: ignore[arg-type]
                print_text(f"{figure.id}: {path}")
            if experiment.claims:
                print_text(f"published: {' '.join(experiment.claims)}", indent=2)


def make_folder(path: Path) -> None:
    """Make the folder for the figures."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"expected a folder for the figures, got {path}: {error.strerror or error}") from None


def file_name(id: str, preset: str, theme: str, format: str) -> str:
    """plstm_copy-200_short.png, with _dark for the dark theme and the name of the figure if there are several."""
    experiment, _, part = id.partition("#")
    words = [*experiment.split("/"), preset, *([part] if part else []), *(["dark"] if theme == "dark" else [])]
    return f"{'_'.join(words)}.{format}"
