"""Read a user's own measurements as rows that can be fitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...specs import SpecError, load_gpu, load_model, load_precision
from ..predictors import TIMES
from .table import POOL_DEGREES, WORKERS

REQUIRED = ("model", "gpu", "precision", "mode", "tp", "isl", "osl", "concurrency")
POOLS = (*POOL_DEGREES, *WORKERS)
DEFAULTS: dict[str, Any] = {
    "engine": "vllm",
    "dp": 1,
    "ep": 1,
    "length_fraction": 1.0,
    "redundant_experts": 0,
    "kv_bytes": np.nan,
}
WHOLE = ("tp", "dp", "ep", "isl", "osl", "concurrency", "redundant_experts")


def read_measurements(path: str | Path) -> pd.DataFrame:
    """Read a CSV of measurements.

    Parameters
    ----------
    path
        One row per measurement: model, gpu and precision by catalogue name or path; mode ("aggregated": ``tpot_s``,
        mean seconds per output token after the first; "disaggregated": the same with ``prefill_tp`` ...
        ``decode_workers``; "prefill": ``ttft_s``, seconds of one prefill batch of ``concurrency`` requests; "static":
        ``elapsed_s``, seconds of one batch from start to end); tp, isl and osl (nominal tokens), concurrency
        (concurrent requests). Optional: engine ("vllm": mixed batches; "sglang": prefill first), dp, ep,
        length_fraction (mean length over the nominal one), kv_bytes, redundant_experts, id.

    Raises
    ------
    SpecError
        Naming file, column, row (the header is row 1) and what is allowed.
    """
    try:
        rows = pd.read_csv(path, skipinitialspace=True)
    except (OSError, UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise SpecError(f"{path}: cannot be read as CSV: {error}") from None
    known = {*REQUIRED, *DEFAULTS, *TIMES.values(), *POOLS, "id"}
    unknown = sorted(set(rows.columns) - known)
    missing = [name for name in REQUIRED if name not in rows]
    if missing or unknown:
        what = [f"no column {', '.join(missing)}"] if missing else []
        what += [f"unknown column {', '.join(unknown)}"] if unknown else []
        raise SpecError(f"{path}: {'; '.join(what)}; known are {', '.join(sorted(known))}")
    if not len(rows):
        raise SpecError(f"{path}: no rows")
    rows = rows.assign(**{name: value for name, value in DEFAULTS.items() if name not in rows})
    rows["id"] = rows["id"] if "id" in rows else [f"row {n + 2}" for n in range(len(rows))]
    for place, row in enumerate(rows.to_dict("records")):
        _check(row, f"{path}, row {place + 2}")
    for name in (*TIMES.values(), *POOLS):
        if name not in rows:
            rows[name] = np.nan
    own = [load_precision(name).kv_bytes for name in rows["precision"]]
    rows["kv_bytes"] = rows["kv_bytes"].astype(float).fillna(pd.Series(own, rows.index))
    single, pools = (_joined(rows, names) for names in (("tp", "dp", "ep"), POOLS))
    return rows.assign(layout=single.where(rows["mode"] != "disaggregated", pools))


def _joined(rows: pd.DataFrame, names: tuple[str, ...]) -> pd.Series[str]:
    """Join several columns into one label."""
    label = rows[names[0]].astype(str)
    for name in names[1:]:
        label = label + "|" + rows[name].astype(str)
    return label


def _check(row: dict[Any, Any], where: str) -> None:
    """Check one row: names, whole positive counts, and the time of its mode."""
    if row["mode"] not in TIMES:
        raise SpecError(f"{where}: mode {row['mode']!r}; allowed are {', '.join(TIMES)}")
    for name, load in (("model", load_model), ("gpu", load_gpu), ("precision", load_precision)):
        try:
            load(row[name])
        except SpecError as error:
            raise SpecError(f"{where}: {name}: {error}") from None
    needed = [name for name in WHOLE if not (row["mode"] == "disaggregated" and name in ("tp", "dp", "ep"))]
    needed += list(POOLS) if row["mode"] == "disaggregated" else []
    for name in needed:
        value, least = row.get(name, np.nan), 0 if name in ("redundant_experts", "osl") else 1
        if not isinstance(value, (int, float)) or not float(value).is_integer() or value < least:
            raise SpecError(f"{where}: {name} {value!r}: expected a whole number of at least {least}")
    time = row.get(TIMES[row["mode"]], np.nan)
    if not isinstance(time, (int, float)) or not 0 < time < np.inf:
        raise SpecError(f"{where}: {TIMES[row['mode']]} {time!r}: expected seconds above 0")
    fraction = row["length_fraction"]
    if not isinstance(fraction, (int, float)) or not 0 < fraction <= 1:
        raise SpecError(f"{where}: length_fraction {fraction!r}: expected a number above 0, at most 1")
    kv_bytes = row["kv_bytes"]
    if not isinstance(kv_bytes, (int, float)) or kv_bytes <= 0 or np.isinf(kv_bytes):
        raise SpecError(f"{where}: kv_bytes {kv_bytes!r}: expected a number above 0, or nothing for the precision's")
