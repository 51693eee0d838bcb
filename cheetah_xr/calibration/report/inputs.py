"""Join measured rows with predictions of a file or of an efficiency profile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from ...specs import SpecError, load_efficiency
from ..predictors import TIMES, make_problem
from ..row_table import field_values
from ..shipped_profiles import PREDICTED_BY

COLUMNS = ("id", "mode", "efficiency", "predicted_s", "low_s", "high_s")
"""Columns of a file of predictions: one row per measured row, times and ends of 90 % intervals in s."""

NUMBERS = ("predicted_s", "low_s", "high_s")


def read_predictions(path: str | Path) -> pd.DataFrame:
    """Read predictions by row id.

    Parameters
    ----------
    path
        CSV file with the columns of :data:`COLUMNS`; others are left out.

    Raises
    ------
    SpecError
        Naming file, row and column, when a column is missing, an id occurs twice, a time is not a positive number or
        the ends of an interval are out of order.
    """
    try:
        rows = pd.read_csv(path, dtype={"id": str, "efficiency": str})
    except (OSError, UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise SpecError(f"{path}: cannot be read as CSV: {error}") from None
    missing = [name for name in COLUMNS if name not in rows]
    if missing:
        raise SpecError(f"{path}: no column {', '.join(missing)}; predictions have {', '.join(COLUMNS)}")
    numbers = rows[list(NUMBERS)].apply(pd.to_numeric, errors="coerce")
    wrong = {
        "id": (rows["id"].isna() | rows["id"].duplicated(), "blank, or occurs twice; every id once"),
        **{name: (~(np.isfinite(numbers[name]) & (numbers[name] > 0)), "not a positive time in s") for name in NUMBERS},
        "high_s": (~(numbers["high_s"] > numbers["low_s"]), "not a time in s above low_s"),
    }
    for column, (bad, why) in wrong.items():
        if bad.any():
            first = rows[bad].iloc[0]
            raise SpecError(f"{path}: row {first['id']!r}: {column} {first[column]}: {why}")
    return rows[list(COLUMNS)].assign(**numbers).set_index("id")


def measured_seconds(rows: pd.DataFrame) -> pd.Series[float]:
    """Return the measured time of every row by its mode, s, blank where it is missing."""
    seconds = pd.Series(np.nan, rows.index)
    for mode, column in TIMES.items():
        seconds = seconds.where(rows["mode"] != mode, rows[column].astype(float))
    return seconds


def joined(rows: pd.DataFrame, predictions: pd.DataFrame, path: object = "predictions") -> pd.DataFrame:
    """Join measured rows with their predictions.

    Parameters
    ----------
    rows
        Rows with the columns of the table of measurements.
    predictions
        What :func:`read_predictions` returns.
    path
        Where they are from, for messages.

    Raises
    ------
    SpecError
        When a prediction belongs to no row, or a row with a time has no prediction.
    """
    rows = rows.assign(measured_s=measured_seconds(rows)).dropna(subset="measured_s").set_index("id")
    unknown = predictions.index.difference(rows.index)
    if len(unknown):
        raise SpecError(f"{path}: id {unknown[0]!r} is no row with a time ({len(unknown)} such predictions)")
    missing = rows.index.difference(predictions.index)
    if len(missing):
        raise SpecError(f"{path}: no prediction of {missing[0]!r} ({len(missing)} such rows); every row needs one")
    return rows.join(predictions[["efficiency", *NUMBERS]]).reset_index()


def predicted(rows: pd.DataFrame, efficiency: str | None = None) -> pd.DataFrame:
    """Predict rows with an efficiency profile, without intervals.

    Parameters
    ----------
    rows
        Rows with the columns of the table of measurements.
    efficiency
        Catalogue name or YAML file of the profile; None is that of the row's engine.
    """
    names = pd.Series(efficiency, rows.index, dtype="object")
    if efficiency is None:
        profiles = rows["engine"].map(PREDICTED_BY)
        unknown = rows[profiles.isna()]
        if len(unknown):
            allowed = ", ".join(PREDICTED_BY)
            raise SpecError(
                f"{unknown['id'].iloc[0]}: engine {unknown['engine'].iloc[0]!r} has no efficiency profile "
                f"({allowed} have); name one with --efficiency"
            )
        names = rows["engine"].where(rows["mode"] != "disaggregated", profiles)
    parts = []
    for name, group in rows.groupby(names):
        problem = make_problem(group)
        seconds = problem.seconds(field_values(load_efficiency(str(name))))[:, 0]
        parts.append(problem.rows.assign(efficiency=name, measured_s=problem.measured, predicted_s=seconds))
    return pd.concat(parts, ignore_index=True).assign(low_s=np.nan, high_s=np.nan)
