"""Read single published numbers with their setup: large-scale posts, static batches, first-token latencies."""

from __future__ import annotations

from importlib.resources import files

import pandas as pd

FLOATS = ("kv_bytes", "concurrency", "ttft_s", "tpot_s", "elapsed_s", "tokens_per_s_gpu")
TEXTS = ("engine_version", "date", "assumed", "note")


def read() -> pd.DataFrame:
    """Read the file: one row per number with its setup, the address of its source and a note."""
    with files(__package__).joinpath("published.csv").open(encoding="utf-8") as file:
        rows = pd.read_csv(file, dtype=dict.fromkeys(TEXTS, str) | dict.fromkeys(FLOATS, float))
    return rows.fillna(dict.fromkeys(TEXTS, ""))


def harmonise(rows: pd.DataFrame) -> pd.DataFrame:
    """Add the columns that rules read; every row is a separate measurement."""
    blank = {f"{pool}_{name}": float("nan") for pool in ("prefill", "decode") for name in ("tp", "dp", "ep", "workers")}
    text = {"repairs": "", "reported": "", "rule": "", "ttft_rule": "", "label": "", "collection": "published"}
    return rows.assign(
        **blank,
        **text,
        drafts="none",
        length_fraction=1.0,
        batch=float("nan"),
        measurement=rows["id"],
        contradicting=False,
    )
