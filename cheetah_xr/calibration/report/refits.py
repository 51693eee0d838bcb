"""Refits: the same fit with something left out, and its errors on what it did not see."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..measurements.split import configurations
from ..objective import Target, polish, thinned
from ..parameters import FACTORS, fields_of
from ..predictors import SERVING, Problem, Serving, make_problem
from ..shipped_sets import SETS, predicted_rows, rows_of
from .variants import Changed, Variant, by_component

Array = NDArray[Any]

"""Columns whose values rows of one part of a problem share."""


@dataclass(frozen=True)
class Case:
    """A set of factors: the problem it is fitted to, and that of the rows it predicts, on both sides."""

    name: str
    fitted: Problem
    judged: Problem


CO_LOCATED = tuple(name for name, shipped in SETS.items() if name == shipped.engine)
"""Sets of prompts and decoding on the same GPUs."""


class Cases:
    """Problems of shipped sets, each counted once.

    Parameters
    ----------
    table
        Eligible rows with their side.
    """

    def __init__(self, table: pd.DataFrame) -> None:
        self.table = table
        self._made: dict[tuple[str, str], Case] = {}

    def names(self, among: Iterable[str] = tuple(SETS)) -> list[str]:
        """Sets that have rows to be fitted to and rows to predict."""
        both = (rows_of, predicted_rows)
        return [name for name in among if all(len(of(name, self.table)) for of in both)]

    def case(self, name: str, serving: Serving = SERVING) -> Case:
        """The problems of a set, with what predictions take into account."""
        key = (name, repr(serving))
        if key not in self._made:
            fitted, asked = rows_of(name, self.table), predicted_rows(name, self.table)
            fitted = thinned(fitted, configurations(fitted))
            self._made[key] = Case(name, make_problem(fitted, serving), make_problem(asked, serving))
        return self._made[key]


def subset(problem: Problem, column: str, value: str, *, without: bool) -> Problem | None:
    """The rows of a problem that have, or do not have, a value of model or gpu; None where none is left."""
    keep = ((problem.rows[column] == value) ^ without).to_numpy()
    return make_problem(problem.rows[keep]) if keep.any() else None


def refit(problem: Problem, variant: Variant | None = None) -> Array:
    """The most probable factors of a variant, found from the medians of the priors."""
    target = Target(problem) if variant is None else Changed(problem, change=variant.change)
    return polish(target, np.log([factor.median for factor in FACTORS]))


def judged(problem: Problem, point: Array, variant: Variant | None = None) -> pd.DataFrame:
    """Rows of a problem with measured_s and predicted_s."""
    values = fields_of(point)
    values = values if variant is None else variant.change(values)
    return problem.rows.assign(measured_s=problem.measured, predicted_s=problem.seconds(values)[:, 0])


def leave_one_out(problems: Cases, column: str) -> pd.DataFrame:
    """Rows predicted by factors that never saw their model or accelerator.

    Parameters
    ----------
    problems
        Of the sets.
    column
        "gpu" or "model": each value is left out once, and all its rows on both sides are predicted.

    Returns
    -------
    pandas.DataFrame
        The rows of :func:`judged`.
    """
    found = []
    for name in problems.names():
        case = problems.case(name)
        for value in sorted(case.judged.rows[column].unique()):
            asked = subset(case.judged, column, value, without=False)
            rest = subset(case.fitted, column, value, without=True)
            if asked is not None and rest is not None:
                found.append(judged(asked, refit(rest)).assign(factors=case.name))
    return pd.concat(found)


def variant_errors(problems: Cases, variant: Variant) -> pd.DataFrame:
    """Held-out rows of the co-located sets as a variant predicts them after its own fit."""
    found = []
    for name in problems.names(CO_LOCATED):
        case = problems.case(name, variant.serving)
        fitted, asked = (by_component(p) if variant.component else p for p in (case.fitted, case.judged))
        rows = judged(asked, refit(fitted, variant), variant)
        found.append(rows[rows["side"] == "held out"])
    return pd.concat(found)
