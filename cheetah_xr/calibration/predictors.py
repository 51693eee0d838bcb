"""Predictors: measured times with their predictions for many parameter sets at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..costmodel.formulas import serving
from ..engine.inputs.posterior_axis import between
from ..specs import load_model
from .cases import case_of_rows, sequences_that_fit
from .measurements.status import degrees_of
from .measurements.table import POOLS
from .row_table import FieldValues, RowTable, concatenate, forward_pass_table, mixed_batch_table

Array = NDArray[Any]

PROMPTS_FIRST = ("sglang",)
"""Engines that prefill in forward passes of their own and first; the others mix prompts with decoding requests."""

CHUNK_TOKENS = 8192
"""Prompt tokens in one forward pass, the default of the three engines."""

POOL_BATCH_FRACTIONS = (0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0)
"""Batches a decode pool is timed at, as fractions of all requests; between them times are interpolated."""

TIMES = {"aggregated": "tpot_s", "disaggregated": "tpot_s", "prefill": "ttft_s", "static": "elapsed_s"}
"""Mode -> the column whose seconds are predicted."""

INSTANCE = degrees_of()
POOL = {name: degrees_of(name) for name in POOLS}


@dataclass(frozen=True)
class Serving:
    """Say what a prediction takes into account; the defaults are the serving model, others show what each part adds.

    `prompts`: "engine" is the rule of the row's engine, "apart" gives every one of B/osl prompts a step forward
    passes of their own, one on every attention rank, "none" leaves them out. `limited`: no more requests decode than
    the cache holds.
    `options` are options of every forward pass besides those of :data:`cheetah_xr.calibration.cases.SERVED`.
    """

    prompts: Literal["engine", "apart", "none"] = "engine"
    limited: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)


SERVING = Serving()


class Part(Protocol):
    """Rows of one mode."""

    def seconds(self, values: FieldValues) -> Array:
        """Return the predicted times, (rows, sets)."""

    def prefill_fraction(self, values: FieldValues) -> Array:
        """Return the fraction of them that is prefill interference, (rows, sets)."""


@dataclass(frozen=True)
class Aggregated:
    """Predict the mean time per output token where prefill and decode share the GPUs."""

    decode: RowTable
    prompts: RowTable
    per_step: Array
    per_pass: Array
    mixed: Array

    def seconds(self, values: FieldValues) -> Array:
        """Return the predicted times, (rows, sets)."""
        decode, other = self.decode.seconds(values), self.prompts.seconds(values)
        rate, group = self.per_step[:, None], self.per_pass[:, None]
        mixed = serving.tpot_mixed(decode, other, rate, group)
        separate = serving.tpot_separate(decode, other, rate, group)
        return np.asarray(np.where(self.mixed[:, None], mixed, separate))

    def prefill_fraction(self, values: FieldValues) -> Array:
        """Return the fraction of them that is prefill interference, (rows, sets)."""
        return np.asarray(1 - self.decode.seconds(values) / self.seconds(values))


@dataclass(frozen=True)
class Disaggregated:
    """Predict the mean time per output token of prefill and decode pools."""

    decode: tuple[RowTable, ...]
    batches: Array
    prefill: RowTable
    prompts: Array
    prefill_workers: Array
    decode_workers: Array
    concurrency: Array
    osl: Array

    def seconds(self, values: FieldValues) -> Array:
        """Return the predicted times, (rows, sets)."""
        steps = np.stack([table.seconds(values) for table in self.decode])
        first = self.prefill.seconds(values)
        capacity = (self.prefill_workers * self.prompts)[:, None] / first

        def step(n: Array) -> Array:
            return _interpolated(np.log(n / self.decode_workers[:, None]), np.log(self.batches), steps)

        n = serving.decode_concurrency(self.concurrency[:, None], first, capacity, self.osl[:, None], step)
        return step(np.maximum(n, 1e-9))

    def prefill_fraction(self, values: FieldValues) -> Array:
        """Return the fraction of them that is prefill interference, (rows, sets): none."""
        return np.zeros_like(self.seconds(values))


def _interpolated(x: Array, grid: Array, values: Array) -> Array:
    """Interpolate linearly at x (rows, sets), of values (points, rows, sets) on a rising grid (points, rows)."""
    row, one = np.arange(x.shape[0])[:, None], np.arange(x.shape[1])
    piece = np.clip((x >= grid[:, :, None]).sum(axis=0) - 1, 0, len(grid) - 2)
    a, b = grid[piece, row], grid[piece + 1, row]
    weight = np.clip((x - a) / np.where(b > a, b - a, 1.0), 0.0, 1.0)
    low, high = values[piece, row, one], values[piece + 1, row, one]
    return np.asarray(low + weight * (high - low))


@dataclass(frozen=True)
class StaticBatch:
    """Predict one batch from start to end: its prefill, and a decode step for every further token."""

    prefill: RowTable
    decode: RowTable
    steps: Array

    def seconds(self, values: FieldValues) -> Array:
        """Return the predicted times, (rows, sets)."""
        return np.asarray(self.prefill.seconds(values) + self.steps[:, None] * self.decode.seconds(values))

    def prefill_fraction(self, values: FieldValues) -> Array:
        """Return the fraction of them that is prefill interference, (rows, sets): none of a prefill alone."""
        decode = self.steps[:, None] * self.decode.seconds(values)
        return np.asarray((1 - decode / self.seconds(values)) * (self.steps[:, None] > 0))


@dataclass(frozen=True)
class Problem:
    """Measured rows and how they are predicted.

    `rows` is the table of measurements in the order of the predictions, `measured` their seconds, `kinds` which of
    :data:`cheetah_xr.engine.inputs.posterior_axis.RESIDUAL_SCALES` their residuals have without prefill interference.
    """

    parts: tuple[Part, ...]
    rows: pd.DataFrame
    measured: Array
    kinds: Array

    def seconds(self, values: FieldValues) -> Array:
        """Return the predicted times, (rows, sets)."""
        return np.concatenate([part.seconds(values) for part in self.parts])

    def prefill_fraction(self, values: FieldValues) -> Array:
        """Return the fraction of the times that is prefill interference, (rows, sets)."""
        return np.concatenate([part.prefill_fraction(values) for part in self.parts])

    def log_residual_scales(self, scales: Array, fraction: Array) -> Array:
        """Return the logarithm of every row's residual scale, (rows, sets).

        Parameters
        ----------
        scales
            Logarithms of :data:`cheetah_xr.engine.inputs.posterior_axis.RESIDUAL_SCALES`, (sets, scales).
        fraction
            Fraction of every row's time that is prefill interference, (rows,).
        """
        return np.asarray(between(scales.T[self.kinds], scales.T[-1], fraction[:, None]))


def make_problem(rows: pd.DataFrame, serving: Serving = SERVING) -> Problem:
    """Return the forward passes of every row, counted once for all parameter sets.

    Parameters
    ----------
    rows
        Eligible rows of the table of measurements with modes of :data:`TIMES`; rows without the time their mode is
        judged by are left out.
    serving
        What predictions take into account.
    """
    parts: list[Part] = []
    kept: list[pd.DataFrame] = []
    measured: list[Array] = []
    for mode, build in (
        ("aggregated", _aggregated),
        ("disaggregated", _disaggregated),
        ("prefill", _batch),
        ("static", _batch),
    ):
        chosen = rows[(rows["mode"] == mode) & rows[TIMES[mode]].notna()]
        groups = list(_groups(chosen))
        built = [build(group, serving) for group in groups]
        parts += [_one_pool(built)] if mode == "disaggregated" and built else built
        kept += groups
        measured += [group[TIMES[mode]].to_numpy(float) for group in groups]
    if not kept:
        raise ValueError("no row has a time that can be predicted")
    ordered = pd.concat(kept)
    experts = {name: int(load_model(name).is_moe) for name in ordered["model"].unique()}
    return Problem(tuple(parts), ordered, np.concatenate(measured), ordered["model"].map(experts).to_numpy())


def _groups(rows: pd.DataFrame) -> Iterator[pd.DataFrame]:
    for _, group in rows.groupby(["model", "gpu", "precision"], sort=True):
        yield group


def _whole(values: Any) -> Array:
    return np.maximum(1, np.round(np.asarray(values, float))).astype(int)


def _either(where: Array, a: Any, b: Any) -> Array:
    return np.asarray(np.where(where, a, b))


def lengths(rows: pd.DataFrame) -> tuple[Array, Array]:
    """Return the mean input and output tokens of every row."""
    fraction = rows["length_fraction"].to_numpy(float)
    return rows["isl"].to_numpy(float) * fraction, rows["osl"].to_numpy(float) * fraction


def _aggregated(rows: pd.DataFrame, how: Serving) -> Aggregated:
    isl, osl = lengths(rows)
    prompt, context = _whole(isl), _whole(isl + osl / 2)
    dp, concurrency = rows["dp"].to_numpy(float), rows["concurrency"].to_numpy(float)
    requested = case_of_rows(rows, "decode", INSTANCE, _whole(concurrency), context, **how.options)
    most = sequences_that_fit(requested, len(rows)) if how.limited else np.full(len(rows), np.inf)
    running = _whole(serving.running(concurrency, most, 1))
    first = rows["engine"].isin(PROMPTS_FIRST).to_numpy() | (how.prompts != "engine")
    synchronized = first & (rows["length_fraction"].to_numpy(float) == 1) & (how.prompts == "engine")
    admitted = serving.prompts_admitted_at_once(isl, dp)
    per_step = _either(
        synchronized,
        serving.interfering_prompts_synchronized(running, admitted, osl),
        serving.interfering_prompts(running, dp, osl),
    )
    per_pass = _either(
        synchronized,
        serving.prefill_batch_within_budget(CHUNK_TOKENS, isl, dp),
        serving.prefill_batch(running, dp, osl),
    )
    if how.prompts != "engine":
        per_step, per_pass = running / osl * (how.prompts == "apart"), dp
    decode = case_of_rows(rows, "decode", INSTANCE, running, context, **how.options)
    prefill = case_of_rows(rows, "prefill", INSTANCE, _whole(per_pass), prompt, **how.options)
    token_ratio = serving.mixed_batch_token_ratio(running, per_pass, prompt)
    apart = forward_pass_table(prefill, len(rows)).without_requests()
    mixed = mixed_batch_table(prefill, decode, token_ratio, len(rows))
    prompts = concatenate([apart.take(np.flatnonzero(first)), mixed.take(np.flatnonzero(~first))]).take(
        np.argsort(np.argsort(~first, kind="stable"), kind="stable")
    )
    return Aggregated(forward_pass_table(decode, len(rows)), prompts, per_step, per_pass, ~first)


def _disaggregated(rows: pd.DataFrame, how: Serving) -> Disaggregated:
    isl, osl = lengths(rows)
    concurrency = rows["concurrency"].to_numpy(float)
    workers = {name: rows[f"{name}_workers"].to_numpy(float) for name in POOL}
    context = _whole(isl + osl / 2)
    each = concurrency / workers["decode"]
    batches = np.stack([_whole(each * fraction) for fraction in POOL_BATCH_FRACTIONS])
    decode = tuple(
        forward_pass_table(case_of_rows(rows, "decode", POOL["decode"], batch, context, **how.options), len(rows))
        for batch in batches
    )
    prompts = serving.prefill_batch_within_budget(CHUNK_TOKENS, isl, rows["prefill_dp"].to_numpy(float))
    prefill = case_of_rows(rows, "prefill", POOL["prefill"], _whole(prompts), _whole(isl), **how.options)
    table = forward_pass_table(prefill, len(rows)).without_requests()
    return Disaggregated(
        decode, batches.astype(float), table, prompts, workers["prefill"], workers["decode"], concurrency, osl
    )


def _one_pool(parts: Sequence[Any]) -> Disaggregated:
    """Return rows of many groups as one part: the search for how many requests decode is made once for all."""
    names = ("prompts", "prefill_workers", "decode_workers", "concurrency", "osl")
    return Disaggregated(
        tuple(concatenate([part.decode[k] for part in parts]) for k in range(len(POOL_BATCH_FRACTIONS))),
        np.concatenate([part.batches for part in parts], axis=1),
        concatenate([part.prefill for part in parts]),
        *(np.concatenate([getattr(part, name) for part in parts]) for name in names),
    )


def _batch(rows: pd.DataFrame, how: Serving) -> StaticBatch:
    isl, osl = lengths(rows)
    batch = _whole(rows["concurrency"])
    steps = np.where(rows["mode"] == "static", osl - 1, 0.0)
    prefill = case_of_rows(rows, "prefill", INSTANCE, batch, _whole(isl), **how.options)
    decode = case_of_rows(rows, "decode", INSTANCE, batch, _whole(isl + osl / 2), **how.options)
    n = len(rows)
    return StaticBatch(forward_pass_table(prefill, n).without_requests(), forward_pass_table(decode, n), steps)
