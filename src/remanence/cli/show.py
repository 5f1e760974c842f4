"""`remanence show`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .answers import exit_on_bad_input
from .output import echo

if TYPE_CHECKING:
    from ..experiments import Experiment


def command(
    id: Annotated[
        str, typer.Argument(help="An experiment from `remanence list`, or a file such as my.yaml.", metavar="ID")
    ],
    preset: Annotated[str, typer.Option(help="smoke, short or paper.")] = "short",
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Override any setting, such as train.lr=3e-4.", metavar="PATH=VALUE", show_default=False
        ),
    ] = None,
    yaml: Annotated[bool, typer.Option("--yaml", help="Print the whole configuration as YAML.")] = False,
) -> None:
    """Describe an experiment: task, models, training, cost and published results."""
    from ..experiments import find
    from ..experiments.configuration import configuration

    with exit_on_bad_input():
        experiment = find(id, preset, set_ or ())
        described = configuration(experiment)
    if yaml:
        from ..experiments import text

        echo(text.write(described), nl=False)
    else:
        show(experiment, described, id)


def show(experiment: Experiment, described: dict[str, Any], id: str) -> None:
    """Print a readable description of an experiment and the command that runs it."""
    from ..experiments import PRESETS
    from ..experiments.configuration import in_words, models_table, published_table
    from ..experiments.registry import paper_of
    from .tables import print_text, show_table

    print_text(f"{experiment.id}: {experiment.title}")
    echo()
    if experiment.reproduces:
        source = f" ({paper})" if (paper := paper_of(experiment)) else ""
        print_text(f"reproduces  {experiment.reproduces}{source}", hang=12)
    others = ", ".join(name for name in PRESETS if name != experiment.preset)
    print_text(f"preset      {experiment.preset} (others: {others})")
    for name, value in in_words(experiment, described).items():
        print_text(f"{name:<10}  {value}", hang=12)
    if experiment.models:
        echo()
        show_table(models_table(experiment), wrap=("own settings",))
    for title, lines in (("Published:", experiment.claims), ("Choices and deviations:", experiment.choices)):
        if lines:
            echo()
            print_text(title)
            for line in lines:
                print_text(f"- {line}", indent=2)
    if experiment.published:
        echo()
        show_table(published_table(experiment), wrap=("quantity",))
    if experiment.cost:
        echo()
        print_text("Cost:")
        for preset, words in experiment.cost.items():
            print_text(f"- {preset}: {words}", indent=2)
    echo()
    print_text(f"remanence run {id} --preset {experiment.preset}")
