"""Compute the tables of the report. Errors are relative; the page shows them in percent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from ..measurements.split import configurations
from . import other_tools
from .ranking import SPEEDS, pairs, points, regret_at_load, regret_at_speed
from .statistics import (
    constant_half_width,
    coverage,
    crps,
    decomposition,
    half_widths,
    interval_score,
    repeats,
    summary,
)

LOADS = (1, 4, 16, 64, 256, 1024)
"""Lower ends of the ranges of concurrency."""

SETUP = ["model", "gpu", "engine", "precision", "layout", "mode", "isl", "osl", "concurrency"]


def load_of(rows: pd.DataFrame) -> pd.Series[str]:
    """Return the range of concurrency of every row."""
    labels = [f"{low} to {high - 1}" for low, high in pairwise(LOADS)] + [f"{LOADS[-1]} and more"]
    cut = pd.cut(rows["concurrency"].astype(float), [*LOADS, np.inf], right=False, labels=labels)
    used: Any = cut.cat.remove_unused_categories()
    return pd.Series(used)


def errors_by(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return errors of rows by mode, model, accelerator, engine, precision and concurrency."""
    rows = rows.assign(load=load_of(rows))
    shown = {"mode and engine": ["mode", "engine"], "model": ["mode", "model"], "accelerator": ["mode", "gpu"]}
    shown |= {"precision": ["mode", "precision"], "concurrency": ["mode", "load"]}
    frames = {name: summary(rows, by) for name, by in shown.items()}
    return {name: frame.loc[frame["rows"] > 0] for name, frame in frames.items()}


def intervals(rows: pd.DataFrame, fitted: pd.DataFrame) -> pd.DataFrame:
    """Compare the intervals with two of constant width around the same predictions.

    Parameters
    ----------
    rows
        Held-out rows with predictions.
    fitted
        Rows of the fit side: the width that nine tenths of them stay within is the first baseline. The second has the
        width that as many of `rows` stay within as are inside the model's: it knows their measured times.
    """
    own = (rows["low_s"], rows["high_s"])
    fraction = coverage(*own, rows["measured_s"])
    widths = {
        "constant width, from the fit side": constant_half_width(fitted["predicted_s"], fitted["measured_s"]),
        "constant width, same coverage": constant_half_width(rows["predicted_s"], rows["measured_s"], fraction),
    }
    candidates = {"the model's": own}
    for name, half in widths.items():
        candidates[name] = (rows["predicted_s"] * np.exp(-half), rows["predicted_s"] * np.exp(half))
    scores = {
        name: {
            "coverage": coverage(low, high, rows["measured_s"]),
            "mean half-width": half_widths(low, high).mean(),
            "median half-width": np.median(half_widths(low, high)),
            "CRPS": crps(low, high, rows["measured_s"]).mean(),
            "interval score": interval_score(low, high, rows["measured_s"]).mean(),
        }
        for name, (low, high) in candidates.items()
    }
    return pd.DataFrame(scores).T


def ranking(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the pairs ranked correctly by their measured distance, and the regrets."""
    loads = points(rows)
    compared = pairs(loads)
    steps = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5)
    apart = [compared[compared["margin"] > step]["right"] for step in steps]
    by_margin = pd.DataFrame(
        {"pairs": [len(right) for right in apart], "right": [float(right.mean()) for right in apart]},
        index=pd.Index([f"more than {100 * step:.0f} %" for step in steps], name="measured apart by"),
    )
    chosen = {"the same number of requests": regret_at_load(loads)}
    chosen |= {f"{speed:.0f} tokens/s per request": regret_at_speed(loads, speed) for speed in SPEEDS}
    regrets = pd.DataFrame(
        {
            name: {
                "choices": len(table),
                "best chosen": table["best"].mean(),
                "mean regret": table["regret"].mean(),
                "largest regret": table["regret"].max(),
                "regret at random": table["random"].mean(),
            }
            for name, table in chosen.items()
        }
    ).T
    return {"pairs": by_margin, "regrets": regrets}


def floor(rows: pd.DataFrame) -> pd.DataFrame:
    """Compare repeats of one point with the same engine version, and over versions."""
    same = repeats(rows, [*SETUP, "engine_version"])
    versions = rows.groupby([*SETUP, "engine_version"], dropna=False)["measured_s"].mean().reset_index()
    across = repeats(versions, SETUP)
    lines = pd.concat([repeats(rows, SETUP), same, across], ignore_index=True)
    return lines.set_index(pd.Index(["all repeats", "same engine version", "means of engine versions"], name="repeats"))


def decompositions(rows: pd.DataFrame, parts: Mapping[str, pd.Series[bool]]) -> pd.DataFrame:
    """Decompose the errors of some rows."""
    lines = {name: decomposition(rows[where], configurations(rows[where])) for name, where in parts.items()}
    return pd.DataFrame(lines).T


def worst(rows: pd.DataFrame, n: int = 12) -> pd.DataFrame:
    """Return the configurations with most error in sum: rows, mean and median signed error, fraction of all error."""
    label = configurations(rows).str.replace("|", " ", regex=False)
    error = rows["predicted_s"] / rows["measured_s"] - 1
    errors = pd.DataFrame(
        {
            "rows": error.groupby(label).size(),
            "MAPE": error.abs().groupby(label).mean(),
            "bias": error.groupby(label).median(),
            "fraction of error": error.abs().groupby(label).sum() / error.abs().sum(),
        }
    )
    return errors.nlargest(n, "fraction of error")


def compared(
    rows: pd.DataFrame, other: pd.DataFrame, name: str, by: Sequence[Sequence[str]] = ((), ("engine",), ("gpu",))
) -> pd.DataFrame:
    """Compare errors in time per token of this model and of another tool, on the rows that both predict.

    Parameters
    ----------
    rows
        Served rows with predictions.
    other
        Predictions of the other tool (:func:`cheetah_xr.calibration.report.other_tools.read_predictions`).
    name
        Of the other tool.
    by
        Columns to group by, in addition to the mode; a part of the table for each.
    """
    served = rows[rows["mode"].isin(other_tools.MODES)]
    own = served.set_index("id")[["predicted_s"]].rename(columns={"predicted_s": "tpot_s"})
    known = other[other.index.isin(served["id"])]
    both = other_tools.errors(served, {"this model": own, name: known})
    parts = []
    for columns in by:
        part = other_tools.summary(both, ["this model", name], ["mode", *columns])
        part.index = pd.Index([" ".join(key) if isinstance(key, tuple) else key for key in part.index])
        parts.append(part)
    frame = pd.concat(parts)
    frame.columns = pd.Index([" ".join(filter(None, pair)) for pair in frame.columns])
    return frame[~frame.index.duplicated()]
