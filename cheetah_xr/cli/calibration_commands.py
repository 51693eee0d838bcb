"""Commands that fit and judge efficiency profiles; each imports what it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .console import errors, out


def calibrate(
    measurements: Annotated[
        Path | None, typer.Argument(help="CSV of your measurements, a row each (docs/how-to/calibrate.md).")
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="Fit the shipped efficiency profiles to the public measurements instead.")
    ] = False,
    name: Annotated[
        list[str] | None,
        typer.Option(help="Name of the efficiency profile; with --public, a shipped one (repeatable)."),
    ] = None,
    trials: Annotated[int, typer.Option(min=10, help="Trials of the Bayesian search.")] = 200,
    steps: Annotated[int, typer.Option(min=20, help="Steps of every chain of the posterior.")] = 7000,
    seed: Annotated[int, typer.Option(help="Of everything random: the same seed gives the same numbers.")] = 0,
    to: Annotated[Path, typer.Option(help="Folder the efficiency profile is written to.")] = Path(
        "outputs/calibration"
    ),
) -> None:
    """Fit an efficiency profile to measured times, with a posterior of how well they are known.

    Writes `NAME.yaml`, which `--efficiency` takes, and `NAME.csv`, its posterior samples.
    Needs `pip install 'cheetah_xr[calibration]'`.

    Examples: `cheetah-xr calibrate mine.csv --name mine`, `cheetah-xr calibrate --public --name vllm`
    """
    from .calibrate import run

    run(measurements, public, name or [], trials, steps, seed, to, out, errors)


def validate(
    predictions: Annotated[
        Path | None, typer.Option(help="CSV of predictions: id, mode, efficiency, predicted_s, low_s, high_s.")
    ] = None,
    measurements: Annotated[
        Path | None, typer.Option(help="CSV of your own measurements; default the public ones.")
    ] = None,
    efficiency: Annotated[
        str | None,
        typer.Option(help="Predict with this efficiency profile, by name or file; default that of each row's engine."),
    ] = None,
    aiconfigurator: Annotated[Path | None, typer.Option(help="Its predictions, to compare on the page.")] = None,
    to: Annotated[
        Path | None, typer.Option(help="Write the page and its figures, such as docs/evidence/validation.md.")
    ] = None,
) -> None:
    """Print how far predicted times are from measured ones, by engine, model, accelerator and load.

    The public measurements need `pip install 'cheetah_xr[validation]'`.

    Examples: `cheetah-xr validate`, `cheetah-xr validate --measurements mine.csv --efficiency mine.yaml`
    """
    from .validate import run

    def told(what: str) -> None:
        errors.print(what, highlight=False, markup=False, soft_wrap=True)

    found = run(predictions, measurements, efficiency, aiconfigurator, to is not None, told)
    if isinstance(found, str):
        print(found)
    elif to is not None:
        from ..figures.error_report import write

        write(found, to)
        print(f"written: {to}")
