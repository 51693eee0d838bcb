"""The command ``cheetah-xr calibrate``: fit an efficiency profile, with progress, and print its parameters."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SpecError
from .console import errors, out

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID
    from rich.table import Table

    from ..calibration.pipeline import Calibration, Effort, OnProgress

NEEDED = ("optuna", "emcee", "arviz")
EXTRA = "pip install 'cheetah_xr[calibration]'"


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

    Example: `cheetah-xr calibrate mine.csv --name mine`

    Example: `cheetah-xr calibrate --public --name vllm`
    """
    if public == (measurements is not None):
        raise SpecError("calibrate: give either a CSV of measurements or --public")
    missing = [package for package in NEEDED if importlib.util.find_spec(package) is None]
    if missing:
        raise SpecError(f"calibrate needs {', '.join(missing)}: {EXTRA}")
    from ..calibration.pipeline import Effort

    names, effort = name or [], Effort(trials, steps)
    with _progress_bars() as progress:
        if measurements is None:
            from ..calibration.shipped_profiles import PROFILES, calibrate_public

            fitted = calibrate_public(names or list(PROFILES), effort, seed, to, to, _callback(progress))
            calibrations = list(fitted.values())
        else:
            if len(names) > 1:
                raise SpecError(f"calibrate: --name {' --name '.join(names)}: a CSV gives one efficiency profile")
            profile = names[0] if names else measurements.stem
            calibrations = [_fit_own(measurements, profile, effort, seed, to, _callback(progress))]
    for calibration in calibrations:
        out.print(parameter_table(calibration), highlight=False)


def _fit_own(
    measurements: Path, name: str, effort: Effort, seed: int, to: Path, on_progress: OnProgress
) -> Calibration:
    """Fit a user's measurements, and write the efficiency profile, its posterior samples and all chains."""
    from ..calibration.measurements.user_csv import read_measurements
    from ..calibration.pipeline import calibrate, predict, write

    rows = read_measurements(measurements)
    calibration = calibrate(rows, name, effort, seed, on_progress)
    source = f"fitted to {calibration.n_rows} rows of {measurements.name}, seed {seed}"
    predictions = predict(rows, calibration)
    off = (predictions["predicted_s"] / predictions["measured_s"] - 1).abs() * 100
    notes = f"Errors on the rows it is fitted to: mean {off.mean():.1f} %, median {off.median():.1f} %."
    profile, samples = write(calibration, to, source, notes)
    chains = to / f"{name}.nc"
    calibration.chains.to_netcdf(chains, group="posterior")
    errors.print(f"written: {profile}, {samples}, {chains}", highlight=False)
    return calibration


def _progress_bars() -> Progress:
    """Return progress bars on standard error, which show on a terminal only."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    return Progress(*columns, *times, console=errors, disable=not errors.is_terminal)


def _callback(progress: Progress) -> OnProgress:
    """Return a callback that gives every stage a bar, and a new one when the stage begins again."""
    bars: dict[str, tuple[TaskID, int]] = {}

    def update(stage: str, done: int, total: int) -> None:
        if stage not in bars or done < bars[stage][1]:
            bars[stage] = (progress.add_task(stage, total=total), done)
        bar, _ = bars[stage]
        bars[stage] = (bar, done)
        progress.update(bar, completed=done)

    return update


def parameter_table(calibration: Calibration) -> Table:
    """Tabulate the fitted parameters with their 90 % intervals, priors and diagnostics."""
    import numpy as np
    from rich.table import Table

    from ..calibration.parameters import PARAMETERS

    title = f"{calibration.name}: {calibration.n_rows} rows, {calibration.n_configurations} configurations"
    table = Table(title=title)
    for column in ("parameter", "best", "90 % interval", "prior median", "r-hat", "effective samples"):
        table.add_column(column, justify="left" if column == "parameter" else "right")
    for parameter in PARAMETERS:
        low, high = np.quantile(calibration.draws[parameter.name], [0.05, 0.95])
        unit, scale = (" us", 1e6) if parameter.most < 1 else ("", 1.0)
        check = calibration.checks.loc[parameter.name]
        table.add_row(
            parameter.name,
            f"{calibration.best[parameter.name] * scale:.3g}{unit}",
            f"{low * scale:.3g} to {high * scale:.3g}{unit}",
            f"{parameter.median * scale:.3g}{unit}",
            f"{check['r_hat']:.3f}",
            f"{check['effective_samples']:.0f}",
        )
    return table
