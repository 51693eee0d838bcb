"""The command ``cheetah-xr validate``: errors of predictions as text, or all that its page shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from ..calibration.measurements.user_csv import read_measurements
from ..calibration.report import other_tools
from ..calibration.report.gather import Report, gather
from ..calibration.report.inputs import joined, predicted, read_predictions
from ..calibration.report.sections import errors_by
from ..calibration.report.statistics import summary
from ..calibration.report.text import plain
from ..calibration.shipped_profiles import PROFILES, eligible
from ..specs import SpecError, load_efficiency

Print = Callable[[str], None]


def run(
    predictions: Path | None,
    measurements: Path | None,
    efficiency: str | None,
    other: Path | None,
    page: bool,
    told: Print,
) -> str | Report:
    """Errors as text, or what the page is made of; see the command's help.

    Raises
    ------
    SpecError
        For contradicting arguments, files that cannot be read, rows without a prediction, or without the public table.
    """
    if predictions is not None and efficiency is not None:
        raise SpecError("validate: give --predictions or --efficiency; a file says which set predicted each row")
    if page and (predictions is None or measurements is not None or efficiency is not None):
        raise SpecError("validate: --to makes the page of the public measurements: give it --predictions, and no other")
    if not page and other is not None:
        raise SpecError("validate: --aiconfigurator is for the page: give --to with it")
    table = eligible() if measurements is None else read_measurements(measurements)
    if predictions is None:
        rows = predicted(table, efficiency)
    else:
        rows = joined(table, read_predictions(predictions), predictions)
    if not page:
        return errors_text(rows)
    sets = {name: load_efficiency(name) for name in PROFILES}
    predicted_by_other = None if other is None else other_tools.read_predictions(other)
    return gather(rows, table, sets, predicted_by_other, told)


def errors_text(rows: pd.DataFrame) -> str:
    """Errors as plain tables: of the held-out rows where there is a split, else of all."""
    parts = []
    if "side" in rows:
        parts.append(plain(summary(rows, ["side", "mode"])))
        rows = rows[rows["side"] == "held out"]
        parts.append("Held-out rows:")
    tables = {"mode": summary(rows, ["mode"]), **errors_by(rows)}
    for name, frame in tables.items():
        shown = frame if frame["coverage"].notna().any() else frame.drop(columns="coverage")
        parts.append(f"by {name}\n{plain(shown)}")
    return "\n\n".join(parts)
