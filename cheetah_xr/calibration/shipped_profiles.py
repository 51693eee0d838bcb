"""Shipped efficiency profiles: what each is fitted to, and its errors on held-out rows."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from ..specs import SpecError
from . import measurements as validation
from .pipeline import Calibration, Effort, OnProgress, calibrate, predict, write

COMMAND = "cheetah-xr calibrate --public"
AGGREGATED_MODES = ("aggregated", "static", "prefill")


@dataclass(frozen=True)
class ShippedProfile:
    """Say which rows a shipped profile is fitted to: those of some modes of an engine."""

    engine: str
    modes: tuple[str, ...]
    what: str


PROFILES = {
    "sglang": ShippedProfile("sglang", AGGREGATED_MODES, "SGLang, aggregated"),
    "trtllm": ShippedProfile("trtllm", AGGREGATED_MODES, "TensorRT-LLM, aggregated"),
    "vllm": ShippedProfile("vllm", AGGREGATED_MODES, "vLLM, aggregated"),
    "sglang-disaggregated": ShippedProfile(
        "sglang",
        (*AGGREGATED_MODES, "disaggregated"),
        "SGLang, aggregated and disaggregated (prefill and decode pools)",
    ),
    "trtllm-disaggregated": ShippedProfile(
        "trtllm",
        (*AGGREGATED_MODES, "disaggregated"),
        "TensorRT-LLM, aggregated and disaggregated (prefill and decode pools)",
    ),
}
"""Shipped efficiency profiles by name."""

PREDICTED_BY = {"sglang": "sglang-disaggregated", "trtllm": "trtllm-disaggregated", "vllm": "vllm"}
"""Engine -> the profile its disaggregated rows are predicted with: vLLM has none that may be fitted."""


def eligible() -> pd.DataFrame:
    """Return the eligible rows of the public table with their side, without those that are only ever predicted.

    Raises
    ------
    SpecError
        When the package that carries the measurements is not installed.
    """
    table = validation.measurements()
    rows = table[table["rule"] == ""]
    rows = rows.assign(side=validation.sides(rows))
    return rows[~rows["prediction"]]


def rows_of(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows a shipped profile is fitted to."""
    shipped = PROFILES[name]
    own = (table["engine"] == shipped.engine) & table["mode"].isin(shipped.modes)
    return table[own & (table["side"] == "fit")]


def predicted_rows(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows a shipped profile predicts."""
    engine = PROFILES[name].engine
    pooled = (table["mode"] == "disaggregated") & (table["engine"] == engine) & (PREDICTED_BY[engine] == name)
    own = (table["mode"].isin(AGGREGATED_MODES)) & (table["engine"] == engine) & (name == engine)
    return table[pooled | own]


def held_out_error(predictions: pd.DataFrame, is_held_out: pd.Series[bool]) -> str:
    """Return a text of the mean and median error of held-out rows by mode."""
    rows = predictions[is_held_out.to_numpy()]
    error = (rows["predicted_s"] / rows["measured_s"] - 1).abs() * 100
    parts = [
        f"{mode} {error[group].mean():.1f} % mean, {error[group].median():.1f} % median of {len(group)} rows"
        for mode, group in rows.groupby("mode").groups.items()
    ]
    return "; ".join(parts)


def calibrate_public(
    names: list[str], effort: Effort, seed: int, specs: Path, outputs: Path, on_progress: OnProgress | None = None
) -> dict[str, Calibration]:
    """Fit shipped profiles, as many at once as there are cores, and write the results.

    These are the profiles, their posteriors, their chains and the predictions of all eligible rows.

    Parameters
    ----------
    names
        Of :data:`PROFILES`.
    effort, seed
        As in :func:`calibrate`.
    specs
        Folder with ``efficiencies`` and ``posteriors``.
    outputs
        Folder for chains (netCDF, opened by ArviZ), diagnostics and ``predictions.csv``.
    on_progress
        Called with the progress.

    Raises
    ------
    SpecError
        For an unknown name, or without the public table.
    """
    unknown = [name for name in names if name not in PROFILES]
    if unknown:
        raise SpecError(f"efficiency profile {', '.join(unknown)}: known are {', '.join(PROFILES)}")
    table = eligible()
    outputs.mkdir(parents=True, exist_ok=True)
    (specs / "posteriors").mkdir(parents=True, exist_ok=True)
    context = get_context("spawn")
    said: Any = context.SimpleQueue()
    listener = Thread(target=_pass_on, args=(said, on_progress))
    listener.start()
    try:
        with ProcessPoolExecutor(min(len(names), os.cpu_count() or 1), context, _begin, (said,)) as pool:
            one = partial(_fit_and_write, table=table, effort=effort, seed=seed, specs=specs, outputs=outputs)
            each = dict(zip(names, pool.map(one, names), strict=True))
    finally:
        said.put(None)
        listener.join()
    pd.concat([predicted for _, predicted in each.values()]).to_csv(
        outputs / "predictions.csv", index=False, float_format="%.6g"
    )
    return {name: result for name, (result, _) in each.items()}


_said: Any = None
"""In a worker: where it tells of its progress."""


def _begin(queue: Any) -> None:
    """Make a worker ready: it tells the process that started it, and ends when that one does."""
    global _said
    _said = queue
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        # A thread cannot end its process by an exception, and the main thread may wait on a queue that nobody fills.
        signal.raise_signal(signal.SIGTERM)


def _pass_on(said: Any, on_progress: OnProgress | None) -> None:
    """Tell of the progress of all workers, until None comes."""
    while (news := said.get()) is not None:
        if on_progress:
            on_progress(*news)


def _fit_and_write(
    name: str, table: pd.DataFrame, effort: Effort, seed: int, specs: Path, outputs: Path
) -> tuple[Calibration, pd.DataFrame]:
    """Fit one profile in a process of its own; the chains stay in their file."""
    fitted = rows_of(name, table)
    result = calibrate(fitted, name, effort, seed, lambda stage, *done: _said.put((f"{name}: {stage}", *done)))
    predicted = predict(predicted_rows(name, table), result)
    is_held_out = predicted["id"].map(table.set_index("id")["side"]) == "held out"
    _, draws = write(result, specs / "efficiencies", *described(result, fitted, predicted, is_held_out, seed))
    draws.replace(specs / "posteriors" / draws.name)
    result.chains.to_netcdf(outputs / f"{name}.nc", group="posterior")
    result.checks.to_csv(outputs / f"{name}-diagnostics.csv", float_format="%.4g")
    return replace(result, chains=xr.Dataset()), predicted


def described(
    result: Calibration, fitted: pd.DataFrame, predicted: pd.DataFrame, is_held_out: pd.Series[bool], seed: int
) -> tuple[str, str]:
    """Return source and notes of a profile's file."""
    last = fitted["date"].replace("", np.nan).dropna()
    last = last[last.str.len() == len("2026-01-01")].max()
    source = (
        f"fitted to {result.n_rows} rows of {result.n_configurations} configurations of the public measurements "
        f"(docs/evidence/measurements.md), the last of {last}; {COMMAND} --seed {seed} reproduces it"
    )
    r_hat, samples = result.checks["r_hat"].max(), result.checks["effective_samples"].min()
    notes = (
        f"{PROFILES[result.name].what}. Held-out errors: {held_out_error(predicted, is_held_out)}. "
        f"Largest r-hat {r_hat:.3f}, "
        f"smallest effective sample size {samples:.0f}. Fitted with overlap_ep 0 (one micro-batch overlaps no "
        "all-to-all) and the serving model (docs/explanation/serving-model.md). Posterior samples: specs/posteriors."
    )
    return source, notes
