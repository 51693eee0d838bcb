"""The command ``cheetah-xr calibrate``: progress while it runs, and what it found."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from ..calibration.measurements.user_csv import read_measurements
from ..calibration.parameters import PARAMETERS
from ..calibration.pipeline import Calibration, Effort, OnProgress, calibrate, predict, write
from ..specs import SpecError

NEEDED = ("optuna", "emcee", "arviz")
EXTRA = "pip install 'cheetah_xr[calibration]'"


def run(
    measurements: Path | None,
    public: bool,
    names: list[str],
    trials: int,
    steps: int,
    seed: int,
    to: Path,
    out: Console,
    errors: Console,
) -> None:
    """Fit a user's measurements, or the shipped sets; see the command's help.

    Raises
    ------
    SpecError
        For contradicting arguments, missing packages, or rows that cannot be fitted.
    """
    if public == (measurements is not None):
        raise SpecError("calibrate: give either a CSV of measurements or --public")
    absent = [package for package in NEEDED if importlib.util.find_spec(package) is None]
    if absent:
        raise SpecError(f"calibrate needs {', '.join(absent)}: {EXTRA}")
    effort = Effort(trials, steps)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=errors,
        disable=not errors.is_terminal,
    ) as progress:
        told = _teller(progress)
        if measurements is None:
            from ..calibration.shipped_profiles import PROFILES, calibrate_public

            found = calibrate_public(names or list(PROFILES), effort, seed, to, to, told)
        else:
            if len(names) > 1:
                raise SpecError("calibrate: one --name, please")
            rows = read_measurements(measurements)
            name = names[0] if names else measurements.stem
            result = calibrate(rows, name, effort, seed, told)
            source = f"fitted to {result.n_rows} rows of {measurements.name}, seed {seed}"
            record, draws = write(result, to, source, _fitted_error(result, rows))
            result.chains.to_netcdf(to / f"{name}.nc", group="posterior")
            found = {name: result}
            errors.print(f"written: {record}, {draws}, {to / f'{name}.nc'}", highlight=False)
    for result in found.values():
        out.print(table_of(result), highlight=False)


def _fitted_error(result: Calibration, rows: object) -> str:
    error = predict(rows, result)  # type: ignore[arg-type]
    off = (error["predicted_s"] / error["measured_s"] - 1).abs() * 100
    return f"Errors on the rows it is fitted to: mean {off.mean():.1f} %, median {off.median():.1f} %."


def _teller(progress: Progress) -> OnProgress:
    tasks: dict[str, tuple[object, int]] = {}

    def tell(stage: str, done: int, total: int) -> None:
        if stage not in tasks or done < tasks[stage][1]:
            tasks[stage] = (progress.add_task(stage, total=total), done)
        task, _ = tasks[stage]
        tasks[stage] = (task, done)
        progress.update(task, completed=done)  # type: ignore[arg-type]

    return tell


def table_of(result: Calibration) -> Table:
    """Factors with their 90 % intervals, priors and diagnostics."""
    table = Table(title=f"{result.name}: {result.n_rows} rows, {result.n_configurations} configurations")
    for column in ("parameter", "best", "90 % interval", "prior median", "r-hat", "effective samples"):
        table.add_column(column, justify="left" if column == "parameter" else "right")
    for parameter in PARAMETERS:
        low, high = np.quantile(result.draws[parameter.name], [0.05, 0.95])
        unit, scale = (" us", 1e6) if parameter.most < 1 else ("", 1.0)
        check = result.checks.loc[parameter.name]
        table.add_row(
            parameter.name,
            f"{result.best[parameter.name] * scale:.3g}{unit}",
            f"{low * scale:.3g} to {high * scale:.3g}{unit}",
            f"{parameter.median * scale:.3g}{unit}",
            f"{check['r_hat']:.3f}",
            f"{check['effective_samples']:.0f}",
        )
    return table
