"""Which words suffer when units of one timescale are silenced (multi-timescale paper, figures 3, 11 and 12)."""

from __future__ import annotations

from ..figure import Axis, Figure, Panel, Reference, Series
from ..files import ResultFiles
from .pieces import each_model, figure, mean_rows, seeds_in_words, short

COUNTINGS = {"train": "in the training text", "all": "in training, validation and test text"}


def routing(files: ResultFiles, statement: str) -> list[Figure]:
    """Perplexity without a group over that of the whole model, by frequency of the word."""
    panels, most = [], 1
    for need, model, seeds in each_model(files.expect_found()):
        first = seeds[0]
        most = max(most, len(seeds))
        for counting, words in COUNTINGS.items():
            ratios = mean_rows([one[counting]["ratio"] for one in seeds])
            columns = first[counting]["columns"]
            groups = list(range(len(ratios)))
            panels.append(
                Panel(
                    title=f"{need}, {model}: words by occurrences {words}",
                    x=Axis(
                        f"silenced: mean timescale in layer {first['layer']} (words)",
                        ticks=[(at, short(mean)) for at, mean in zip(groups, first["groups"]["means"], strict=True)],
                    ),
                    y=Axis("perplexity / whole model"),
                    series=[
                        Series(
                            "all words" if column == "all" else column,
                            groups,
                            [row[place] for row in ratios],
                            dashed=column == "all",
                        )
                        for place, column in enumerate(columns)
                    ],
                    references=[Reference(1.0, "no loss")],
                )
            )
    return [figure(files, statement, panels, note=seeds_in_words(most))]
