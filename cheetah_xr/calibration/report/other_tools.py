"""Compare predictions of other tools on measured rows: their inputs, their predictions and their errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike

import numpy as np
import pandas as pd

from ...specs import SpecError
from ..measurements.table import POOLS

MODES = ("aggregated", "disaggregated")
"""Modes of served rows, which tools that model serving can predict."""

INPUTS = (
    "id",
    "mode",
    "model",
    "gpu",
    "engine",
    "engine_version",
    "precision",
    "kv_bytes",
    "isl",
    "osl",
    "length_fraction",
    "concurrency",
    *(f"{pool}{name}" for pool in ("", "prefill_", "decode_") for name in ("tp", "dp", "moe_tp", "ep")),
    *(f"{pool}_workers" for pool in POOLS),
)
"""Columns that describe a run, and the experts' tensor-parallel degree."""

TIMES = ("ttft_s", "tpot_s")
PREDICTIONS = ("id", *TIMES, "reason")
"""Columns every file of predictions has: times in s, or the reason why there are none. Others are kept as they are."""


def tool_inputs(table: pd.DataFrame) -> pd.DataFrame:
    """Return the eligible served rows of a table without their measured times.

    Parameters
    ----------
    table
        Rows with the columns of :data:`cheetah_xr.calibration.measurements.COLUMNS`.

    Returns
    -------
    pandas.DataFrame
        The columns of :data:`INPUTS`; ``moe_tp`` is the tensor-parallel degree of experts, tp*dp/ep.
    """
    served = table[(table["rule"] == "") & table["mode"].isin(MODES)].copy()
    for pool in ("", "prefill_", "decode_"):
        served[f"{pool}moe_tp"] = served[f"{pool}tp"] * served[f"{pool}dp"] // served[f"{pool}ep"]
    return served[list(INPUTS)].reset_index(drop=True)


def read_predictions(path: str | PathLike[str]) -> pd.DataFrame:
    """Read predictions by row id.

    Parameters
    ----------
    path
        CSV file with at least the columns of :data:`PREDICTIONS`, a row per measured row.

    Returns
    -------
    pandas.DataFrame
        The file's other columns by id; times in s, missing where the tool has no prediction.

    Raises
    ------
    SpecError
        When a column is missing, an id repeats, a time is not a positive number, or a row has neither both times
        nor a reason.
    """
    rows = pd.read_csv(
        path, dtype={"id": str, "reason": str}, keep_default_na=False, na_values={t: [""] for t in TIMES}
    )
    missing = [name for name in PREDICTIONS if name not in rows]
    if missing:
        raise SpecError(f"{path}: no column {', '.join(missing)}; predictions have {', '.join(PREDICTIONS)}")
    _reject(path, rows, rows["id"].duplicated(), "id", "occurs twice; every id once")
    for name in TIMES:
        number = pd.to_numeric(rows[name], errors="coerce")
        _reject(
            path, rows, rows[name].notna() & ~(np.isfinite(number) & (number > 0)), name, "not a positive time in s"
        )
        rows[name] = number
    times = rows[list(TIMES)].notna()
    incomplete = ~times.all(axis=1) & ((rows["reason"] == "") | times.any(axis=1))
    _reject(path, rows, incomplete, "reason", "a row has both times, or neither and a reason")
    return rows.set_index("id")


def _reject(path: object, rows: pd.DataFrame, wrong: pd.Series[bool], column: str, why: str) -> None:
    """Raise for the first of the wrong rows, if there is one."""
    if wrong.any():
        first = rows[wrong].iloc[0]
        raise SpecError(f"{path}: row {first['id']!r}: {column} {first[column]!r}: {why}")


def errors(table: pd.DataFrame, predictions: Mapping[str, pd.DataFrame], time: str = "tpot_s") -> pd.DataFrame:
    """Return relative errors of several tools on the eligible rows that all of them predict.

    Parameters
    ----------
    table
        Measured rows.
    predictions
        By tool: predictions by row id, as :func:`read_predictions` returns them.
    time
        "tpot_s" or "ttft_s".

    Returns
    -------
    pandas.DataFrame
        The table's rows by id, each tool's predicted over measured time minus 1 in a column of its name.

    Raises
    ------
    SpecError
        When ``time`` is another word, or a prediction belongs to no row of the table.
    """
    if time not in TIMES:
        raise SpecError(f"time: {time!r}; allowed: {', '.join(TIMES)}")
    measured = table.set_index("id")
    for name, rows in predictions.items():
        unknown = rows.index.difference(measured.index)
        if len(unknown):
            raise SpecError(f"{name}: id {unknown[0]!r} is not in the table ({len(unknown)} such rows)")
    measured = measured[(measured["rule"] == "") & measured[time].notna()]
    for name, rows in predictions.items():
        measured = measured.assign(**{name: rows[time].reindex(measured.index) / measured[time] - 1})
    return measured.dropna(subset=list(predictions))


def summary(rows: pd.DataFrame, tools: Sequence[str], by: Sequence[str] = ()) -> pd.DataFrame:
    """Return mean and median absolute error and median signed error of every tool over the same rows.

    Parameters
    ----------
    rows
        What :func:`errors` returns.
    tools
        Its columns of errors.
    by
        Columns to group by, none for all rows together.

    Returns
    -------
    pandas.DataFrame
        ``rows``, and ``mape``, ``median`` and ``bias`` of every tool, relative errors (0.1 is 10 %).
    """
    keys = [rows[name] for name in by] or [pd.Series("all", rows.index)]
    columns = {("", "rows"): rows.groupby(keys).size()}
    for tool in tools:
        absolute = rows[tool].abs().groupby(keys)
        columns[tool, "mape"], columns[tool, "median"] = absolute.mean(), absolute.median()
        columns[tool, "bias"] = rows[tool].groupby(keys).median()
    return pd.DataFrame(columns)
