"""A whole calibration: rows in, an efficiency profile with its posterior and its errors out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from ..analysis.intervals import multiples
from ..engine.inputs.posterior_axis import RESIDUAL_SCALES
from ..specs import SpecError
from .measurements.split import configurations
from .objective import TAIL, Target, polish, search, thinned
from .parameters import KNOWN, NAMES, PARAMETERS, fields_of
from .predictors import make_problem
from .sampling import diagnostics, sample

Array = NDArray[Any]
OnProgress = Callable[[str, int, int], None]
"""Called with the stage, the steps done and the steps there are."""

DRAWS = 256
"""Posterior samples that are kept, evenly spaced in the chains."""

WALKERS = 36


@dataclass(frozen=True)
class Effort:
    """Set how long a calibration looks: trials of the search, steps of every chain."""

    trials: int = 200
    steps: int = 7000


@dataclass(frozen=True)
class Calibration:
    """Hold a fitted efficiency profile.

    `best` are the most probable parameters, `draws` posterior samples (columns: parameters and residual scales),
    `checks` r-hat and effective sample size, `chains` all of the posterior.
    """

    name: str
    best: dict[str, float]
    draws: pd.DataFrame
    checks: pd.DataFrame
    chains: xr.Dataset
    n_rows: int
    n_configurations: int


def calibrate(
    rows: pd.DataFrame, name: str, effort: Effort, seed: int = 0, on_progress: OnProgress | None = None
) -> Calibration:
    """Fit the parameters of an efficiency profile to measured rows.

    Parameters
    ----------
    rows
        Rows of :func:`cheetah_xr.calibration.measurements.user_csv.read_measurements` or of the table of
        public measurements.
    name
        Of the profile.
    effort
        Trials and steps.
    seed
        Of everything random: the same seed gives the same profile.
    on_progress
        Called with the progress.

    Raises
    ------
    SpecError
        When a row cannot be predicted.
    """
    labels = configurations(rows)
    problem = make_problem(thinned(rows, labels))
    seconds = problem.seconds(fields_of(np.log([[parameter.median for parameter in PARAMETERS]])))
    _reject_unpredictable(problem.rows, seconds[:, 0])
    target = Target(problem)

    def tell(stage: str, total: int) -> Callable[[int], None]:
        return lambda done: on_progress(stage, done, total) if on_progress else None

    start = search(target, effort.trials, seed, tell("search", effort.trials))
    best = polish(target, start)
    chains = sample(
        target.with_prefill_fraction(best),
        best,
        walkers=WALKERS,
        steps=effort.steps,
        seed=seed,
        on_progress=tell("sample", 2 * effort.steps),
    )
    kept = np.linspace(0, chains.sizes["chain"] * chains.sizes["draw"] - 1, DRAWS).astype(int)
    draws = pd.DataFrame({key: chains[key].to_numpy().reshape(-1)[kept] for key in (*NAMES, *RESIDUAL_SCALES)})
    return Calibration(
        name,
        dict(zip(NAMES, np.exp(best).tolist(), strict=True)),
        draws,
        diagnostics(chains),
        chains,
        len(problem.rows),
        int(labels.nunique()),
    )


def _reject_unpredictable(rows: pd.DataFrame, seconds: Array) -> None:
    bad = rows[~np.isfinite(seconds) | (seconds <= 0)]
    if len(bad):
        raise SpecError(f"{bad['id'].iloc[0]}: no time can be predicted: a layout, peak or link the model cannot price")


def predict(rows: pd.DataFrame, calibration: Calibration, probability: float = 0.9) -> pd.DataFrame:
    """Predict the times of rows with their intervals.

    Parameters
    ----------
    rows
        Rows of the table of measurements.
    calibration
        A calibration.
    probability
        Probability of an interval.

    Returns
    -------
    pandas.DataFrame
        id, mode, efficiency (name of the profile), measured_s, predicted_s (the most probable parameters), low_s
        and high_s, the ends of the interval a measurement is expected in.
    """
    problem = make_problem(rows)
    fields = fields_of(np.log([[calibration.best[name] for name in NAMES]]))
    best = problem.seconds(fields)[:, 0]
    seconds = problem.seconds(fields_of(np.log(calibration.draws[list(NAMES)].to_numpy())))
    log_residual_scales = problem.log_residual_scales(
        np.log(calibration.draws[list(RESIDUAL_SCALES)].to_numpy()), problem.prefill_fraction(fields)[:, 0]
    )
    ends, t = [(1 - probability) / 2, (1 + probability) / 2], multiples(20, TAIL)
    each = zip(seconds, np.exp(log_residual_scales), strict=True)
    low, high = np.stack([np.quantile(row[:, None] * np.exp(scale[:, None] * t), ends) for row, scale in each]).T
    return pd.DataFrame(
        {
            "id": problem.rows["id"].to_numpy(),
            "mode": problem.rows["mode"].to_numpy(),
            "efficiency": calibration.name,
            "measured_s": problem.measured,
            "predicted_s": best,
            "low_s": low,
            "high_s": high,
        }
    )


def efficiency_text(calibration: Calibration, source: str, notes: str) -> str:
    """Return the YAML file of a profile: four digits of every field, and where they are from."""
    values = fields_of(np.log([[calibration.best[name] for name in NAMES]]), dict(KNOWN))
    lines = [f"name: {calibration.name}", ""]
    lines += [f"{key}: {float(f'{value[0]:.4g}')!r}" for key, value in values.items()]
    known = "kernel tables of aiconfigurator-core 0.12.0 (docs/evidence/kernel-tables.md), the same for every engine"
    lines += ["", "sources:", *(f'  {key}: "{known}"' for key in KNOWN), f'  "*": "{source}"', f"notes: >-\n  {notes}"]
    return "\n".join(lines) + "\n"


def write(calibration: Calibration, folder: Path, source: str, notes: str) -> tuple[Path, Path]:
    """Write ``<name>.yaml`` and ``<name>.csv`` (posterior samples) into a folder that is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    record, draws = folder / f"{calibration.name}.yaml", folder / f"{calibration.name}.csv"
    record.write_text(efficiency_text(calibration, source, notes), encoding="utf-8")
    calibration.draws.to_csv(draws, index=False, float_format="%.5g")
    return record, draws
