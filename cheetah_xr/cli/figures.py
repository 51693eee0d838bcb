"""The command ``cheetah-xr figures``: pictures and tables with the numbers behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .console import errors, out


def figures(
    names: Annotated[
        list[str] | None, typer.Argument(help="Figures and tables; all by default.", metavar="[NAME]...")
    ] = None,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="Folder to write to; default outputs/figures, or one inside it.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Redraw for another model.")] = None,
    gpu: Annotated[str | None, typer.Option(help="Redraw for another accelerator.")] = None,
    show: Annotated[bool, typer.Option("--list", help="Only list the names.")] = False,
) -> None:
    """Make figures and tables: pictures, the numbers behind them, and a gallery.

    Example: `cheetah-xr figures regime-map --model qwen3-32b --gpu h200-sxm`
    """
    from ..figures import catalogue

    if show:
        out.print("\n".join(catalogue.select(names or [])), highlight=False)
        return
    from ..figures import render

    drawn = []
    folder = render.folder_for(out_folder, model, gpu)
    for figure in render.make(names or [], folder, model, gpu):
        if isinstance(figure, render.LeftOut):
            errors.print(f"{figure.name}: left out: {figure.reason}", highlight=False, markup=False, soft_wrap=True)
            continue
        drawn.append(figure)
        errors.print(f"{figure.name}: {figure.title}", highlight=False, markup=False, soft_wrap=True)
    out.print(f"{len(drawn)} in {render.write_gallery(drawn, folder)}", highlight=False, soft_wrap=True, markup=False)
