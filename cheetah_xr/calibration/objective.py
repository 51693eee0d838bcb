"""From measured times to factors: the most probable set, and the sets that are about as probable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from ..engine.posterior_axis import RESIDUAL_SCALES
from .parameters import FACTORS, fields_of, log_prior
from .predictors import Problem

Array = NDArray[Any]

TAIL = 3.0
"""Degrees of freedom of the errors' Student distribution: few, so that a row far off pulls little."""

SCALE = 0.08
"""Scale of relative errors while the most probable set is looked for; scales are sampled with the factors later."""

LOG_RESIDUAL_SCALES = np.full(len(RESIDUAL_SCALES), np.log(SCALE))
"""What the scales are sampled around."""

MOST_OF_ONE = 30
"""Rows of one configuration that are fitted: more of them share what is particular to it."""


@dataclass(frozen=True)
class Target:
    """Log-probability of factors given measured rows, for many sets at once.

    `share` is that of every row's time that prompts take beside decoding, (rows,); without it, none.
    """

    problem: Problem
    base: dict[str, float] | None = None
    share: Array | None = None

    def errors(self, points: Array) -> Array:
        """ln(predicted/measured), (rows, sets)."""
        seconds = self.problem.seconds(fields_of(points, self.base))
        return np.asarray(np.log(seconds / self.problem.measured[:, None]))

    def with_share(self, point: Array) -> Target:
        """The same with the share of prompts that one set of factors predicts."""
        return replace(self, share=self.problem.share_of_prompts(fields_of(point, self.base))[:, 0])

    def log_likelihood(self, points: Array, log_residual_scales: Array) -> Array:
        """Return the log-density of the errors summed over rows, up to a constant, (sets,).

        Parameters
        ----------
        points
            Logarithms of the factors, (sets, factors).
        log_residual_scales
            Logarithms of the residual scales, (sets, scales).
        """
        share = np.zeros(len(self.problem.rows)) if self.share is None else self.share
        log_scale = self.problem.log_residual_scales(log_residual_scales, share)
        z = self.errors(points) * np.exp(-log_scale)
        density = -0.5 * (TAIL + 1) * np.log1p(z**2 / TAIL) - log_scale
        return np.asarray(density.sum(axis=0))

    def log_probability(self, points: Array) -> Array:
        """Of factors and, last, the logarithms of the errors' scales: (sets, factors + scales) -> (sets,)."""
        points = np.atleast_2d(points)
        factors, log_residual_scales = np.split(points, [len(FACTORS)], axis=1)
        found = log_prior(factors) - 0.5 * np.sum(((log_residual_scales - np.log(SCALE)) / 0.7) ** 2, axis=1)
        inside = np.flatnonzero(np.isfinite(found))
        if len(inside):
            found[inside] += self.log_likelihood(factors[inside], log_residual_scales[inside])
        return np.asarray(found)


def thinned(rows: pd.DataFrame, configurations: pd.Series[str], most: int = MOST_OF_ONE) -> pd.DataFrame:
    """At most so many rows of every configuration, evenly spaced in the order of loads and lengths."""
    ordered = rows.sort_values(["concurrency", "isl", "osl", "id"], kind="stable")
    kept = [
        group.iloc[np.unique(np.linspace(0, len(group) - 1, min(len(group), most)).round().astype(int))]
        for _, group in ordered.groupby(configurations.loc[ordered.index], sort=True)
    ]
    return pd.concat(kept)


def search(target: Target, trials: int, seed: int, told: Callable[[int], None] | None = None) -> Array:
    """Starting point of the fit by Bayesian optimisation (tree-structured Parzen estimator) over the priors.

    Parameters
    ----------
    target
        What is maximised, at the scale :data:`SCALE`.
    trials
        Sets of factors tried.
    seed
        Of the sampler.
    told
        Called with the number of trials done.

    Returns
    -------
    numpy.ndarray
        Logarithms of the factors of the best trial.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=max(10, trials // 4))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.enqueue_trial({factor.name: np.log(factor.median) for factor in FACTORS})

    def one(trial: optuna.Trial) -> float:
        point = np.array([trial.suggest_float(factor.name, *_range(factor)) for factor in FACTORS])
        return float(target.log_probability(np.append(point, LOG_RESIDUAL_SCALES))[0])

    for number in range(trials):
        study.optimize(one, n_trials=1)
        if told:
            told(number + 1)
    return np.array([study.best_params[factor.name] for factor in FACTORS])


def _range(factor: Any) -> tuple[float, float]:
    middle = np.log(factor.median)
    return middle - 2 * factor.spread, min(middle + 2 * factor.spread, np.log(factor.most))


def polish(target: Target, start: Array) -> Array:
    """The most probable set near a starting point: least squares of the robust residuals and the prior's."""
    median = np.log([factor.median for factor in FACTORS])
    spread = np.array([factor.spread for factor in FACTORS])
    most = np.log([factor.most for factor in FACTORS])

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
    found = least_squares(lambda p: residuals(p[None])[:, 0], inside, jacobian, bounds=bounds, max_nfev=100)
    return np.asarray(found.x)
