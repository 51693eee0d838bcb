"""The application ``cheetah-xr``: its commands, the options of all of them, and what an error looks like."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from .._version import __version__
from ..errors import SpecError
from .calibrate import calibrate
from .console import errors, out
from .estimate import estimate
from .figures import figures
from .info import info
from .list import list_catalogue
from .serve import serve
from .sweep import sweep
from .validate import validate

app = typer.Typer(
    name="cheetah-xr",
    help="Design-space engine for LLM inference performance.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _print_version(requested: bool) -> None:
    if requested:
        out.print(f"cheetah-xr {__version__}")
        raise typer.Exit


@app.callback()
def common(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what is being done.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Version.")
    ] = False,
) -> None:
    """Set the options of every command."""
    if verbose:
        from rich.logging import RichHandler

        logger = logging.getLogger("cheetah_xr")
        logger.setLevel(logging.INFO)
        logger.addHandler(RichHandler(console=errors, show_path=False))


for _command in (sweep, estimate, serve, info, figures, calibrate, validate):
    app.command()(_command)
app.command("list")(list_catalogue)


def main() -> None:
    """Run the command line; a bad input is one message on standard error and exit code 2."""
    try:
        app()
    except SpecError as error:
        errors.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
