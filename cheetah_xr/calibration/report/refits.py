"""Refit with an accelerator, a model or a refinement left out, and predict the rows it did not see."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..measurements.split import configurations
from ..objective import Target, polish, thinned
from ..parameters import PARAMETERS, fields_of
from ..predictors import SERVING, Problem, Serving, make_problem
from ..shipped_profiles import PROFILES, predicted_rows, rows_of
from .variants import ChangedTarget, Variant, by_component

Array = NDArray[Any]


@dataclass(frozen=True)
class Case:
    """One profile: the problem it is fitted to, and that of the rows it predicts, on both sides."""

    name: str
    fitted: Problem
    predicted: Problem


AGGREGATED = tuple(name for name, shipped in PROFILES.items() if name == shipped.engine)
"""Profiles of aggregated serving."""


class Cases:
    """Problems of shipped profiles, each built once.

    Parameters
    ----------
    table
        Eligible rows with their side.
    """

    def __init__(self, table: pd.DataFrame) -> None:
        self.table = table
        self._cases: dict[tuple[str, str], Case] = {}

    def names(self, among: Iterable[str] = tuple(PROFILES)) -> list[str]:
        """List the profiles that have rows to be fitted to and rows to predict."""
        both = (rows_of, predicted_rows)
        return [name for name in among if all(len(of(name, self.table)) for of in both)]

    def case(self, name: str, serving: Serving = SERVING) -> Case:
        """Return the problems of a profile under serving assumptions."""
        key = (name, repr(serving))
        if key not in self._cases:
            fitted, rows = rows_of(name, self.table), predicted_rows(name, self.table)
            fitted = thinned(fitted, configurations(fitted))
            self._cases[key] = Case(name, make_problem(fitted, serving), make_problem(rows, serving))
        return self._cases[key]


def subset(problem: Problem, column: str, value: str, *, without: bool) -> Problem | None:
    """Select the rows of a problem with, or without, a value of model or gpu; None where none is left."""
    keep = ((problem.rows[column] == value) ^ without).to_numpy()
    return make_problem(problem.rows[keep]) if keep.any() else None


def refit(problem: Problem, variant: Variant | None = None) -> Array:
    """Return the most probable parameters of a variant, starting at the medians of the priors."""
    target = Target(problem) if variant is None else ChangedTarget(problem, change=variant.change)
    return polish(target, np.log([parameter.median for parameter in PARAMETERS]))


def predict(problem: Problem, point: Array, variant: Variant | None = None) -> pd.DataFrame:
    """Return the rows of a problem with measured_s and predicted_s."""
    values = fields_of(point)
    values = values if variant is None else variant.change(values)
    return problem.rows.assign(measured_s=problem.measured, predicted_s=problem.seconds(values)[:, 0])


def leave_one_out(problems: Cases, column: str) -> pd.DataFrame:
    """Predict rows by fits without their model or accelerator.

    Parameters
    ----------
    problems
        Problems of the profiles.
    column
        "gpu" or "model": each value is left out once, and all its rows on both sides are predicted.

    Returns
    -------
    pandas.DataFrame
        The rows of :func:`predict`.
    """
    parts = []
    for name in problems.names():
        case = problems.case(name)
        for value in sorted(case.predicted.rows[column].unique()):
            rows = subset(case.predicted, column, value, without=False)
            rest = subset(case.fitted, column, value, without=True)
            if rows is not None and rest is not None:
                parts.append(predict(rows, refit(rest)).assign(efficiency=case.name))
    return pd.concat(parts)


def variant_errors(problems: Cases, variant: Variant) -> pd.DataFrame:
    """Return held-out aggregated rows as a variant predicts them after its own fit."""
    parts = []
    for name in problems.names(AGGREGATED):
        case = problems.case(name, variant.serving)
        fitted, problem = (by_component(p) if variant.component else p for p in (case.fitted, case.predicted))
        rows = predict(problem, refit(fitted, variant), variant)
        parts.append(rows[rows["side"] == "held out"])
    return pd.concat(parts)
