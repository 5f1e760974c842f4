"""`remanence export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .answers import exit_on_bad_input, split
from .output import echo


def command(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            help="A run folder, one of its checkpoints, a saved language model, or a folder from save_pretrained.",
            metavar="CHECKPOINT",
            show_default=False,
        ),
    ],
    to: Annotated[str, typer.Option(help="Format: onnx, or pt2 for a torch.export program.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="File to write; by default model.onnx or model.pt2.", metavar="FILE")
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            help="Additional inputs of the exported program: state, lengths, dt, mask.",
            metavar="NAMES",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON instead of text.")] = False,
) -> None:
    """Export a trained model to ONNX or a torch.export program, verified against the model."""
    from ..experiments.checkpoints import open_checkpoint
    from ..models.exporting import KNOWN, TOLERANCE, expect_installed, expect_path, export
    from ..names import lookup
    from .tables import print_text

    with exit_on_bad_input():
        lookup("--to", to, KNOWN)
        path = expect_path(out or Path(f"model.{to}"), to)
        expect_installed(to)
        opened = open_checkpoint(checkpoint)
        found = export(opened.model, path, to, split(also))
    if as_json:
        import json

        about = {"file": str(found.path), "inputs": found.inputs, "outputs": found.outputs}
        echo(json.dumps({**about, "difference": found.difference, "tolerance": TOLERANCE}))
        return
    print_text(f"{opened.title}: {found.path}")
    print_text(f"inputs   {', '.join(found.inputs)}", indent=2, hang=9)
    print_text(f"outputs  {', '.join(found.outputs)}", indent=2, hang=9)
    print_text(
        f"checked  against the model on sequences of other lengths: largest difference {found.difference:.1g} "
        f"(tolerance {TOLERANCE:g})",
        indent=2,
        hang=9,
    )
