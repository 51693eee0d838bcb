"""Rank configurations: how often the better of two is predicted better, and what choosing by prediction loses.

Configurations compete for the same task: one model, accelerator and pair of lengths. What counts is output tokens per
second and GPU, requests over time per token and GPUs (the time to the first token is left out), at the same number of
requests or at the same interactivity (tokens/s of one request).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

TASK = ["model", "gpu", "isl", "osl"]
OFFERS = ["engine", "precision", "layout", "mode"]
"""What makes a configuration."""

SPEEDS = (20.0, 50.0, 100.0)
"""Required interactivity, tokens/s of one request."""


def points(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row per configuration and load, repeats replaced by their median.

    Parameters
    ----------
    rows
        Columns of :data:`TASK` and :data:`OFFERS`, concurrency, n_gpus, measured_s and predicted_s (per token).

    Returns
    -------
    pandas.DataFrame
        The keys, ``measured`` and ``predicted`` in tokens/s and GPU, and the times.
    """
    keys = [*TASK, *OFFERS, "concurrency"]
    medians = rows.groupby(keys, dropna=False)[["measured_s", "predicted_s", "n_gpus"]].median().reset_index()
    rate = medians["concurrency"].astype(float) / medians["n_gpus"].astype(float)
    return medians.assign(measured=rate / medians["measured_s"], predicted=rate / medians["predicted_s"])


def pairs(loads: pd.DataFrame) -> pd.DataFrame:
    """Return pairs of configurations with the same task and load: ``margin``, the measured ratio less 1, and ``right``.

    Parameters
    ----------
    loads
        What :func:`points` returns.
    """
    margins, right = [], []
    for _, group in loads.groupby([*TASK, "concurrency"]):
        measured, predicted = (np.log(group[name].to_numpy(float)) for name in ("measured", "predicted"))
        one, other = np.triu_indices(len(group), 1)
        gap = measured[one] - measured[other]
        margins.append(np.expm1(np.abs(gap)))
        right.append(gap * (predicted[one] - predicted[other]) > 0)
    if not margins:
        return pd.DataFrame({"margin": [], "right": []})
    return pd.DataFrame({"margin": np.concatenate(margins), "right": np.concatenate(right)})


def regret_at_load(loads: pd.DataFrame) -> pd.DataFrame:
    """Return what choosing by prediction loses at every task and load with at least two configurations.

    Returns
    -------
    pandas.DataFrame
        ``offers``, ``regret`` (1 - measured rate of the chosen over that of the best), ``random`` (mean over all
        offers: a choice at random) and ``best`` (whether the best was chosen).
    """
    return _regrets(
        (group["measured"].to_numpy(float), group["predicted"].to_numpy(float))
        for _, group in loads.groupby([*TASK, "concurrency"])
    )


def regret_at_speed(loads: pd.DataFrame, speed: float) -> pd.DataFrame:
    """Return the regret where every request must get `speed` tokens/s, each configuration at its best load for that.

    A configuration that cannot give the speed at any measured load has a rate of 0: choosing it loses everything.
    Where none can, or none is predicted to, there is no choice.
    """
    reach = {}
    for kind in ("measured", "predicted"):
        enough = loads[f"{kind}_s"] <= 1 / speed
        reach[kind] = loads[kind].where(enough, 0.0)
    best = loads[[*TASK, *OFFERS]].assign(**reach).groupby([*TASK, *OFFERS], dropna=False).max().reset_index()
    return _regrets(
        (group["measured"].to_numpy(float), group["predicted"].to_numpy(float))
        for _, group in best.groupby(TASK)
        if group["measured"].max() > 0 and group["predicted"].max() > 0
    )


def _regrets(groups: Iterator[tuple[np.ndarray, np.ndarray]]) -> pd.DataFrame:
    rows = []
    for measured, predicted in groups:
        if len(measured) > 1:
            lost = 1 - measured / measured.max()
            chosen = lost[np.argmax(predicted)]
            rows.append((len(measured), float(chosen), float(lost.mean()), bool(chosen == 0)))
    return pd.DataFrame(rows, columns=["offers", "regret", "random", "best"])
