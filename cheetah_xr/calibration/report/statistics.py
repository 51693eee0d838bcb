"""Compute errors of predictions and scores of their intervals. Errors are relative: 0.1 is 10 %."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special, stats

from ..objective import TAIL

Array = NDArray[Any]

PROBABILITY = 0.9
"""Probability of the intervals."""


def errors(predicted: Any, measured: Any) -> Array:
    """Return signed relative errors, predicted/measured - 1."""
    return np.asarray(np.asarray(predicted, float) / np.asarray(measured, float) - 1)


def coverage(low: Any, high: Any, measured: Any) -> float:
    """Return the fraction of measured values inside their intervals, ends included."""
    inside = (np.asarray(low, float) <= measured) & (np.asarray(measured) <= np.asarray(high, float))
    return float(inside.mean())


def half_widths(low: Any, high: Any) -> Array:
    """Return half of ln(high/low): 0.2 is an interval of about -18 % to +22 %."""
    return np.asarray(0.5 * np.log(np.asarray(high, float) / np.asarray(low, float)))


def crps_student(z: Any, dof: float = TAIL) -> Array:
    """Return the continuous ranked probability score of a standard Student distribution for outcomes z.

    The integral of (F(x) - [x >= z])^2: Jordan, Krueger, Lerch, Evaluating probabilistic forecasts with scoringRules,
    J. Stat. Softw. 90(12), 2019, appendix A.
    """
    z = np.asarray(z, float)
    cdf, density = stats.t.cdf(z, dof), stats.t.pdf(z, dof)
    constant = 2 * np.sqrt(dof) / (dof - 1) * special.beta(0.5, dof - 0.5) / special.beta(0.5, dof / 2) ** 2
    return np.asarray(z * (2 * cdf - 1) + 2 * density * (dof + z**2) / (dof - 1) - constant)


def crps(low: Any, high: Any, measured: Any, dof: float = TAIL) -> Array:
    """Return the CRPS of ln(measured) for every row, of the Student distribution with its interval; lower is better.

    Half of ln(high/low) is the 95 % quantile of the distribution, the middle of ln(low) and ln(high) its centre.
    """
    low, high = np.log(np.asarray(low, float)), np.log(np.asarray(high, float))
    scale = 0.5 * (high - low) / stats.t.ppf(0.5 + PROBABILITY / 2, dof)
    return np.asarray(scale * crps_student((np.log(np.asarray(measured, float)) - 0.5 * (low + high)) / scale, dof))


def interval_score(low: Any, high: Any, measured: Any) -> Array:
    """Return the score of a 90 % interval in logarithms: its width plus 20 times the distance outside of it.

    Gneiting, Raftery, Strictly proper scoring rules, JASA 102, 2007, section 6.2; lower is better.
    """
    low, high, y = (np.log(np.asarray(value, float)) for value in (low, high, measured))
    outside = np.maximum(low - y, 0) + np.maximum(y - high, 0)
    return np.asarray(high - low + 2 / (1 - PROBABILITY) * outside)


def constant_half_width(predicted: Any, measured: Any, fraction: float = PROBABILITY) -> float:
    """Return the half-width of ln(measured/predicted) that covers a fraction of the rows."""
    return float(np.quantile(np.abs(np.log(np.asarray(measured, float) / np.asarray(predicted, float))), fraction))


def summary(rows: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
    """Return rows, mean and median absolute error, median signed error and coverage, by groups of rows.

    Parameters
    ----------
    rows
        Columns predicted_s, measured_s, low_s and high_s; without intervals the last two are blank.
    by
        Columns to group by; none is all rows.
    """
    keys = [rows[name] for name in by] or [pd.Series("all", rows.index)]
    error = pd.Series(errors(rows["predicted_s"], rows["measured_s"]), rows.index)
    inside = ((rows["low_s"] <= rows["measured_s"]) & (rows["measured_s"] <= rows["high_s"])).astype(float)
    inside = inside.where(rows["low_s"].notna())
    columns = {
        "rows": error.groupby(keys).size(),
        "MAPE": error.abs().groupby(keys).mean(),
        "median": error.abs().groupby(keys).median(),
        "bias": error.groupby(keys).median(),
        "coverage": inside.groupby(keys).mean(),
    }
    return pd.DataFrame(columns)


def decomposition(rows: pd.DataFrame, configurations: pd.Series[str]) -> dict[str, float]:
    """Decompose a mean error.

    Parameters
    ----------
    rows
        Columns predicted_s and measured_s.
    configurations
        Configuration of every row.

    Returns
    -------
    dict
        ``MAPE``; ``within``, the MAPE left when every configuration's median ratio is set to 1; ``three``, the fraction
        of all error in the three configurations with most error; ``without_three``, the MAPE of the others.
    """
    ratio = rows["predicted_s"] / rows["measured_s"]
    error = (ratio - 1).abs()
    middle = ratio.groupby(configurations).transform("median")
    most = error.groupby(configurations).sum().nlargest(3)
    others = error[~configurations.isin(most.index)]
    return {
        "MAPE": float(error.mean()),
        "within": float((ratio / middle - 1).abs().mean()),
        "three": float(most.sum() / error.sum()),
        "without_three": float(others.mean()),
    }


def repeats(rows: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Return the deviation of repeated measurements from their mean: the floor under every error.

    Parameters
    ----------
    rows
        Column measured_s and those of `keys`.
    keys
        Columns that repeats have in common.

    Returns
    -------
    pandas.DataFrame
        One line: points with repeats, their rows, mean and median absolute relative deviation from the point's mean.
    """
    times = rows.groupby(list(keys), dropna=False)["measured_s"]
    size, mean = times.transform("size"), times.transform("mean")
    away = (rows["measured_s"] / mean - 1).abs()[size > 1]
    points = int((times.size() > 1).sum())
    return pd.DataFrame({"points": [points], "rows": [len(away)], "mean": [away.mean()], "median": [away.median()]})
