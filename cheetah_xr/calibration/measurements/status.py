"""Evaluate the layouts of measured rows, once per model, accelerator and precision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from ...api import evaluate
from ...engine.validity import CODES
from ...specs import list_gpus, list_models
from .table import DEGREES, POOLS

NAMES = {code: name for name, code in CODES.items()}
FIELDS = ("precision", "kv_bytes", "isl", "osl", "concurrency")


def degrees_of(pool: str = "") -> dict[str, str]:
    """Return the columns of tp, dp and ep of an instance, or of one prefill or decode worker."""
    return {name: f"{pool}_{name}" if pool else name for name in DEGREES}


def groups(table: pd.DataFrame, pool: str = "") -> Iterator[pd.DataFrame]:
    """Yield the rows the engine can evaluate, of one model, accelerator and precision at a time.

    Parameters
    ----------
    table
        Rows of the table.
    pool
        Pool of disaggregated rows, "prefill" or "decode"; blank for all other rows.
    """
    known = table["model"].isin(list_models()) & table["gpu"].isin(list_gpus())
    rows = table[known & ((table["mode"] == "disaggregated") == bool(pool))]
    rows = rows.dropna(subset=[*FIELDS, *degrees_of(pool).values()])
    for _, part in rows.groupby(["model", "gpu", "precision"]):
        yield part


def evaluate_rows(
    rows: pd.DataFrame,
    phase: str,
    degrees: Mapping[str, str],
    batch: pd.Series[int],
    seq_len: pd.Series[int],
    outputs: Sequence[str],
    efficiency: str = "ideal",
) -> xr.Dataset:
    """Evaluate the rows of a group point by point along the dim ``row``, without the memory check.

    Parameters
    ----------
    rows
        Rows of one model, accelerator and precision, without blanks in the columns used.
    phase
        "prefill" or "decode".
    degrees
        Column that holds each of tp, dp and ep.
    batch, seq_len
        Sequences of the instance, and their tokens.
    outputs, efficiency
        As in :func:`cheetah_xr.evaluate`.

    Returns
    -------
    xarray.Dataset
        On the dim ``row``.
    """

    given = arguments_of(rows, phase, degrees, batch, seq_len)
    return evaluate(**given, efficiency=efficiency, options={"on_infeasible": "ignore"}, outputs=outputs)


def arguments_of(
    rows: pd.DataFrame, phase: str, degrees: Mapping[str, str], batch: Any, seq_len: Any
) -> dict[str, Any]:
    """Return the arguments of one forward pass of every row; see :func:`evaluate_rows`."""

    def along(values: Any, kind: str = "int64") -> xr.DataArray:
        return xr.DataArray(np.asarray(values).astype(kind), dims="row")

    return {
        **{name: rows[name].iloc[0] for name in ("model", "gpu", "precision")},
        "phase": phase,
        "batch": along(batch),
        "seq_len": along(seq_len),
        **{name: along(rows[column]) for name, column in degrees.items()},
        "overrides": {
            "precision.kv_bytes": along(rows["kv_bytes"], "float64"),
            "options.redundant_experts": along(rows["redundant_experts"]),
        },
    }


def layout_status(table: pd.DataFrame) -> pd.Series[str]:
    """Return the status of every row, that of its first pool that is not ok; blank where a field is missing."""
    status = pd.Series("", table.index)
    for pool in ("", *POOLS):
        for rows in groups(table, pool):
            phase = "prefill" if pool == "prefill" or rows["mode"].eq("prefill").all() else "decode"
            length = rows["isl"] + rows["osl"]
            ds = evaluate_rows(rows, phase, degrees_of(pool), rows["concurrency"], length, ["status"])
            new = pd.Series([NAMES[int(code)] for code in ds["status"].to_numpy()], rows.index)
            old = status.loc[rows.index]
            status.loc[rows.index] = new.where(old.isin(["", "ok"]), old)
    return status
