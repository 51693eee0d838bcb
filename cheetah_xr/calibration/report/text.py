"""Format frames as text: Markdown tables of the page and plain ones of the command line, errors in percent."""

from __future__ import annotations

from typing import Any

import pandas as pd

PERCENT = {
    "MAPE",
    "median",
    "mean",
    "coverage",
    "within",
    "three",
    "without_three",
    "fraction of error",
    "right",
    "best chosen",
    "mean regret",
    "largest regret",
    "regret at random",
    "left out",
    "held out",
    "without reported",
    "communication",
}
"""Columns that are fractions or relative errors."""

SIGNED = {"bias"}


def cell(column: str, value: Any) -> str:
    """Format one value: percents with one decimal, whole numbers with thousands, others with 3 digits."""
    last = column.rsplit(" ", 1)[-1]
    if isinstance(value, float) and pd.isna(value):
        return "-"
    if isinstance(value, bool) or str(value) in ("True", "False"):
        return "yes" if value else "no"
    if column in SIGNED or last in SIGNED:
        return f"{100 * value:+.1f} %"
    if column in PERCENT or last in ("mape", "MAPE", "median"):
        return f"{100 * value:.1f} %"
    if isinstance(value, int | float) and not isinstance(value, bool):
        whole = float(value).is_integer()
        return f"{value:,.0f}" if whole or abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def printed(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with its index as columns and every value as text."""
    index = frame.index.to_frame(index=False).astype(str)
    names = [str(name) if name is not None else "" for name in frame.index.names]
    index.columns = pd.Index(names)
    body = {
        str(name): [cell(str(name), value) for value in values]
        for name, values in ((name, frame[name].tolist()) for name in frame.columns)
    }
    return pd.concat([index, pd.DataFrame(body)], axis=1)


def markdown(frame: pd.DataFrame) -> str:
    """Format a frame as a Markdown table."""
    shown = printed(frame)
    texts = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name].dtype)]
    left = frame.index.nlevels
    rule = ["---" if place < left or name in texts else "---:" for place, name in enumerate(shown.columns)]
    lines = [list(shown.columns), rule, *shown.to_numpy().tolist()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def plain(frame: pd.DataFrame) -> str:
    """Format a frame as an aligned table for a terminal."""
    return str(printed(frame).to_string(index=False))
