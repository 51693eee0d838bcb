"""Compare served times to first token with the time of their prefill."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pandas as pd

from ...specs import Efficiency
from ..predictors import Aggregated, Disaggregated, make_problem
from ..row_table import field_values
from .statistics import summary

PER_RANK = (0, 1, 2, 8, 32, 128)
"""Ends of the ranges of requests per attention rank that prefills."""


def first_tokens(rows: pd.DataFrame, efficiencies: Mapping[str, Efficiency]) -> pd.DataFrame:
    """Return measured mean times to first token with the time of the forward pass that prefills a request.

    The forward pass is that of the serving model, with the requests it prefills together and, in mixed batches, the
    decoding requests. Waiting for other prefills is not in it, nor the KV-cache transfer between instances.

    Parameters
    ----------
    rows
        Served rows of the table of measurements with ``efficiency``, the name of the profile that predicts them.
    efficiencies
        Profiles by name.

    Returns
    -------
    pandas.DataFrame
        The rows that have a time to first token, with measured_s and predicted_s of it.
    """
    parts = []
    served = rows[rows["ttft_s"].notna() & rows["mode"].isin(["aggregated", "disaggregated"])]
    for name, group in served.groupby("efficiency"):
        problem = make_problem(group)
        values = field_values(efficiencies[str(name)])
        seconds = []
        for part in problem.parts:
            assert isinstance(part, Aggregated | Disaggregated)
            table = part.prompts if isinstance(part, Aggregated) else part.prefill
            seconds.append(table.seconds(values)[:, 0])
        parts.append(problem.rows.assign(predicted_s=np.concatenate(seconds)))
    result = pd.concat(parts)
    return result.assign(measured_s=result["ttft_s"].astype(float), low_s=np.nan, high_s=np.nan)


def by_waiting(rows: pd.DataFrame) -> pd.DataFrame:
    """Return errors of :func:`first_tokens` by requests per attention rank that prefills."""
    ranks = rows["dp"].where(rows["mode"] != "disaggregated", rows["prefill_workers"] * rows["prefill_dp"])
    each = rows["concurrency"].astype(float) / ranks.astype(float)
    ends = [*PER_RANK, np.inf]
    labels = ["1 (no waiting)", *(f"above {low} to {high}" for low, high in pairwise(PER_RANK[1:]))]
    labels.append(f"above {PER_RANK[-1]}")
    cut = pd.cut(each, ends, labels=labels)
    errors = summary(rows.assign(requests=cut), ["mode", "requests"])
    return errors.loc[errors["rows"] > 0]
