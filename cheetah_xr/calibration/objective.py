"""Objective of a fit: log-probability of parameters given measured times, its search and its maximum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from ..engine.inputs.posterior_axis import RESIDUAL_SCALES
from .parameters import PARAMETERS, fields_of, log_prior
from .predictors import Problem

Array = NDArray[Any]

TAIL = 3.0
"""Degrees of freedom of the errors' Student distribution: few, so that a row far off pulls little."""

SCALE = 0.08
"""Residual scale while the most probable parameters are looked for; scales are sampled with them later."""

LOG_RESIDUAL_SCALES = np.full(len(RESIDUAL_SCALES), np.log(SCALE))
"""What the residual scales are sampled around."""

MOST_OF_ONE = 30
"""Rows of one configuration that are fitted: more of them share what is particular to it."""


@dataclass(frozen=True)
class Target:
    """Compute the log-probability of parameters given measured rows, for many parameter sets at once.

    `prefill_fraction` is the fraction of every row's time that is prefill interference, (rows,); None: no row has any.
    """

    problem: Problem
    base: dict[str, float] | None = None
    prefill_fraction: Array | None = None

    def errors(self, points: Array) -> Array:
        """Return the residuals ln(predicted/measured), (rows, sets)."""
        seconds = self.problem.seconds(fields_of(points, self.base))
        return np.asarray(np.log(seconds / self.problem.measured[:, None]))

    def with_prefill_fraction(self, point: Array) -> Target:
        """Return the target with the prefill interference that one parameter set predicts."""
        fraction = self.problem.prefill_fraction(fields_of(point, self.base))[:, 0]
        return replace(self, prefill_fraction=fraction)

    def log_likelihood(self, points: Array, log_residual_scales: Array) -> Array:
        """Return the log-density of the errors summed over rows, up to a constant, (sets,).

        Parameters
        ----------
        points
            Logarithms of the parameters, (sets, parameters).
        log_residual_scales
            Logarithms of the residual scales, (sets, scales).
        """
        fraction = np.zeros(len(self.problem.rows)) if self.prefill_fraction is None else self.prefill_fraction
        log_scale = self.problem.log_residual_scales(log_residual_scales, fraction)
        z = self.errors(points) * np.exp(-log_scale)
        density = -0.5 * (TAIL + 1) * np.log1p(z**2 / TAIL) - log_scale
        return np.asarray(density.sum(axis=0))

    def log_probability(self, points: Array) -> Array:
        """Return the log-probability of parameters and residual scales, (sets,).

        Parameters
        ----------
        points
            Logarithms of the parameters, then of the residual scales, (sets, parameters + scales).
        """
        points = np.atleast_2d(points)
        parameters, log_residual_scales = np.split(points, [len(PARAMETERS)], axis=1)
        log_density = log_prior(parameters) - 0.5 * np.sum(((log_residual_scales - np.log(SCALE)) / 0.7) ** 2, axis=1)
        inside = np.flatnonzero(np.isfinite(log_density))
        if len(inside):
            log_density[inside] += self.log_likelihood(parameters[inside], log_residual_scales[inside])
        return np.asarray(log_density)


def thinned(rows: pd.DataFrame, configurations: pd.Series[str], most: int = MOST_OF_ONE) -> pd.DataFrame:
    """Return at most so many rows of every configuration, evenly spaced in the order of loads and lengths."""
    ordered = rows.sort_values(["concurrency", "isl", "osl", "id"], kind="stable")
    kept = [
        group.iloc[np.unique(np.linspace(0, len(group) - 1, min(len(group), most)).round().astype(int))]
        for _, group in ordered.groupby(configurations.loc[ordered.index], sort=True)
    ]
    return pd.concat(kept)


def search(target: Target, trials: int, seed: int, on_progress: Callable[[int], None] | None = None) -> Array:
    """Search a starting point of the fit by Bayesian optimisation (tree-structured Parzen estimator) over the priors.

    Parameters
    ----------
    target
        What is maximised, at the scale :data:`SCALE`.
    trials
        Parameter sets tried.
    seed
        Of the sampler.
    on_progress
        Called with the number of trials done.

    Returns
    -------
    numpy.ndarray
        Logarithms of the parameters of the best trial.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=max(10, trials // 4))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.enqueue_trial({parameter.name: np.log(parameter.median) for parameter in PARAMETERS})

    def one(trial: optuna.Trial) -> float:
        point = np.array([trial.suggest_float(parameter.name, *_range(parameter)) for parameter in PARAMETERS])
        return float(target.log_probability(np.append(point, LOG_RESIDUAL_SCALES))[0])

    for number in range(trials):
        study.optimize(one, n_trials=1)
        if on_progress:
            on_progress(number + 1)
    return np.array([study.best_params[parameter.name] for parameter in PARAMETERS])


def _range(parameter: Any) -> tuple[float, float]:
    middle = np.log(parameter.median)
    return middle - 2 * parameter.spread, min(middle + 2 * parameter.spread, np.log(parameter.most))


def polish(target: Target, start: Array) -> Array:
    """Find the most probable parameters near a starting point by least squares of robust residuals and the prior's."""
    median = np.log([parameter.median for parameter in PARAMETERS])
    spread = np.array([parameter.spread for parameter in PARAMETERS])
    most = np.log([parameter.most for parameter in PARAMETERS])

    def residuals(points: Array) -> Array:
        z = target.errors(points) / SCALE
        # Half the sum of squares is minus the log-density of a Student distribution, up to a constant.
        robust = np.sign(z) * np.sqrt((TAIL + 1) * np.log1p(z**2 / TAIL))
        return np.concatenate([robust, ((points - median) / spread).T])

    def jacobian(point: Array) -> Array:
        step = 1e-5
        around = residuals(np.concatenate([point + step * np.eye(len(point)), point - step * np.eye(len(point))]))
        return (around[:, : len(point)] - around[:, len(point) :]) / (2 * step)

    bounds = (np.full(len(most), -np.inf), most)
    inside = np.minimum(start, most - 1e-3)
    solution = least_squares(lambda p: residuals(p[None])[:, 0], inside, jacobian, bounds=bounds, max_nfev=100)
    return np.asarray(solution.x)
