"""Assign precision and KV-cache type of a measurement, by model, label, engine, accelerator and date."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import pandas as pd

MATCHED = ("model", "label", "engine", "gpu", "mode")
"""Columns that must agree; a blank in the list of precisions agrees with everything, but for the label."""

ASSIGNED = ("precision", "kv_bytes", "kv_source")


@cache
def precision_list() -> pd.DataFrame:
    """Read the list of precisions with their conditions and reasons; the first that fits counts."""
    with files(__package__).joinpath("precisions.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file, dtype={"since": str}).fillna(dict.fromkeys((*MATCHED, "since"), ""))


def assign_precisions(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with a catalogue precision and the bytes and source of its KV cache, missing where none fits."""
    assigned = table.assign(
        precision=pd.Series(pd.NA, table.index, dtype="string"), kv_bytes=float("nan"), kv_source=""
    )
    date = table["date"].astype("string").fillna("")
    unassigned = pd.Series(True, table.index)
    for choice in precision_list().to_dict("records"):
        fits = unassigned & (table["label"] == choice["label"]) & (date >= choice["since"])
        for name in MATCHED:
            if choice[name]:
                fits &= table[name] == choice[name]
        for name in ASSIGNED:
            assigned.loc[fits, name] = choice[name]
        unassigned &= ~fits
    return assigned
