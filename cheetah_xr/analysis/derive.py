"""Derived metrics: everything that follows from the stored variables and the coordinates beside them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from ..engine.dims import LEADING, PHASE, TRAILING, canonical
from ..specs import SpecError

DECODE, PREFILL = "decode", "prefill"


@dataclass(frozen=True)
class Derived:
    """One derived variable: what it means and needs, for which phase it is defined (None: both), and its formula.

    A formula is of labelled or of plain aligned arrays; `also` are numbers it reads that follow from others.
    """

    units: str
    comment: str
    needs: tuple[str, ...]
    phase: str | None
    formula: Callable[[Mapping[str, Any]], Any]
    also: tuple[str, ...] = ()


def expected_tokens(draft_tokens: float, acceptance: float) -> float:
    """Tokens a decode pass yields per sequence: the sum of a^i, i = 0..m, for m drafts accepted with chance a."""
    return float(sum(acceptance**i for i in range(round(draft_tokens) + 1)))


def options_of(ds: xr.Dataset) -> dict[str, Any]:
    """The options a result was computed with, from its own attributes."""
    return dict(json.loads(ds.attrs["options"])) if "options" in ds.attrs else {}


def is_clipped(ds: xr.Dataset) -> bool:
    """Whether batches that do not fit run at max_batch."""
    return options_of(ds).get("on_infeasible") == "clip"


def _batch(ds: xr.Dataset) -> xr.DataArray:
    """Sequences that run: those asked for, or those that fit where the batch is clipped."""
    return np.minimum(ds["batch"], ds["max_batch"]) if is_clipped(ds) else ds["batch"]  # type: ignore[return-value]


def accepted_tokens(ds: xr.Dataset) -> xr.DataArray | float:
    """Accepted tokens per pass, from the options the dataset carries or the axes that replace them."""
    options = options_of(ds)
    drafts = ds.coords.get("draft_tokens", options.get("draft_tokens", 0))
    chance = ds.coords.get("acceptance", options.get("acceptance", 0.0))
    return xr.apply_ufunc(expected_tokens, drafts, chance, vectorize=True)  # type: ignore[no-any-return]


def _sequence_tokens(ds: xr.Dataset) -> Any:
    """Tokens of one sequence in a pass: accepted ones in decode, the prompt in prefill."""
    prefill = ds.coords[PHASE] == PREFILL
    if not prefill.any():
        return accepted_tokens(ds)
    return ds["seq_len"] if prefill.all() else prefill * ds["seq_len"] + ~prefill * accepted_tokens(ds)


FOLLOWING: dict[str, Callable[[xr.Dataset], Any]] = {
    "accepted": accepted_tokens,
    "running": _batch,
    "sequence_tokens": _sequence_tokens,
}
"""Numbers of formulas that are not in a result: tokens a pass yields, sequences that run, tokens of one of them."""


def _per_gpu(v: Mapping[str, Any]) -> Any:
    return _tokens(v) / v["n_gpus"] / v["step_time"]


def _tokens(v: Mapping[str, Any]) -> Any:
    """Output tokens of a decode pass, input tokens of a prefill: they are on few axes, and come first."""
    return v["running"] * v["sequence_tokens"]


def _bytes(v: Mapping[str, Any]) -> Any:
    return v["bytes_weights"] + v["bytes_kv"] + v["bytes_activations"]


def _cost(v: Mapping[str, Any]) -> Any:
    return v["n_gpus"] * v["price_per_hour"] / 3600 * 1e6 / _tokens(v) * v["step_time"]


def _energy(v: Mapping[str, Any]) -> Any:
    return v["n_gpus"] * v["tdp"] / _tokens(v) * v["step_time"]


STEP = ("step_time",)
TOKENS = ("running", "sequence_tokens")
FLOW = ("step_time", "batch", "seq_len", "phase")
BYTES = ("bytes_weights", "bytes_kv", "bytes_activations")

DERIVED: dict[str, Derived] = {
    "tpot": Derived(
        "s",
        "time per accepted output token (decode)",
        STEP,
        DECODE,
        lambda v: v["step_time"] / v["accepted"],
        ("accepted",),
    ),
    "tps_per_user": Derived(
        "1/s",
        "output tokens/s of one sequence (decode)",
        STEP,
        DECODE,
        lambda v: v["accepted"] / v["step_time"],
        ("accepted",),
    ),
    "ttft": Derived("s", "time to first token: one prefill of the batch", STEP, PREFILL, lambda v: v["step_time"]),
    "throughput": Derived(
        "1/s",
        "output tokens/s (decode) or input tokens/s (prefill)",
        FLOW,
        None,
        lambda v: _tokens(v) / v["step_time"],
        TOKENS,
    ),
    "throughput_per_gpu": Derived(
        "1/s",
        "output (decode) or input (prefill) tokens/s of one GPU",
        (*FLOW, "n_gpus"),
        None,
        _per_gpu,
        TOKENS,
    ),
    "arithmetic_intensity": Derived(
        "FLOP/B", "FLOPs per byte of HBM traffic", ("flops", *BYTES), None, lambda v: v["flops"] / _bytes(v)
    ),
    "ridge": Derived(
        "FLOP/B",
        "arithmetic intensity at which bf16 compute and HBM take the same time",
        ("peak_bf16", "hbm_bandwidth"),
        None,
        lambda v: v["peak_bf16"] / v["hbm_bandwidth"],
    ),
    "mfu": Derived(
        "1",
        "share of peak FLOP/s in use on the slowest GPU",
        ("peak_compute_time", "step_time"),
        None,
        lambda v: v["peak_compute_time"] / v["step_time"],
    ),
    "mbu": Derived(
        "1",
        "share of peak HBM bandwidth in use on the slowest GPU",
        (*BYTES, "hbm_bandwidth", "step_time"),
        None,
        lambda v: _bytes(v) / (v["hbm_bandwidth"] * v["step_time"]),
    ),
    "cost_per_million_tokens": Derived(
        "USD",
        "GPU cost of a million output (decode) or input (prefill) tokens",
        (*FLOW, "n_gpus", "price_per_hour"),
        None,
        _cost,
        TOKENS,
    ),
    "energy_per_token": Derived(
        "J",
        "energy of one output (decode) or input (prefill) token at full TDP, an upper bound",
        (*FLOW, "n_gpus", "tdp"),
        None,
        _energy,
        TOKENS,
    ),
}


def derive(ds: xr.Dataset, names: Sequence[str] | str) -> xr.Dataset:
    """Add derived metrics to a result.

    Parameters
    ----------
    ds
        Result of :func:`cheetah_xr.evaluate` or :func:`cheetah_xr.open_result`; nothing else is read.
    names
        Names among ``DERIVED``: tpot, tps_per_user, ttft, throughput, throughput_per_gpu, arithmetic_intensity,
        ridge, mfu, mbu, cost_per_million_tokens, energy_per_token.

    Returns
    -------
    xarray.Dataset
        `ds` and the new variables, with units. tpot and tps_per_user read decode and ttft reads prefill: they have no
        ``phase``.

    Raises
    ------
    SpecError
        For an unknown name, or when variables, coordinates or the phase a metric needs are missing, by name.

    Examples
    --------
    >>> import cheetah_xr as cx
    >>> ds = cx.evaluate("llama-3.1-8b", "h100-sxm", batch=[1, 64], seq_len=2048)
    >>> sorted(set(cx.derive(ds, ["tpot", "throughput"])) - set(ds))
    ['throughput', 'tpot']
    """
    wanted = [names] if isinstance(names, str) else list(names)
    found: dict[str, xr.DataArray] = {}
    for name in wanted:
        if name not in DERIVED:
            raise SpecError(f"derive: unknown metric {name!r}; known: {', '.join(DERIVED)}")
        metric = DERIVED[name]
        needs = (*metric.needs, "max_batch") if "batch" in metric.needs and is_clipped(ds) else metric.needs
        missing = [need for need in needs if need not in ds.variables]
        if missing:
            raise SpecError(f"derive: {name} needs {', '.join(missing)}, which the dataset does not have")
        part, valid = _of_phase(ds, name, metric.phase)
        numbers = {need: part[need] for need in metric.needs} | {also: FOLLOWING[also](part) for also in metric.also}
        values = metric.formula(numbers)
        values = values if valid is None else values.where(valid)
        described = {"units": metric.units, "long_name": name.replace("_", " "), "comment": metric.comment}
        found[name] = values.assign_attrs(described)
        if metric.phase:
            found[name] = found[name].drop_vars(PHASE, errors="ignore")
    return ds.assign({name: _ordered(values) for name, values in found.items()})


def _ordered(values: xr.DataArray) -> xr.DataArray:
    """The same with its dims in canonical order."""
    named = {*LEADING, *TRAILING}
    order = canonical(tuple(str(dim) for dim in values.dims if dim not in named))
    return values.transpose(*(dim for dim in order if dim in values.dims))


def _of_phase(ds: xr.Dataset, name: str, phase: str | None) -> tuple[xr.Dataset, xr.DataArray | None]:
    """The part of a dataset that has a phase, and where in it the phase holds (None: everywhere)."""
    if phase is None:
        return ds, None
    if PHASE not in ds.coords:
        raise SpecError(f"derive: {name} needs phase, which the dataset does not have")
    labels = ds[PHASE]
    there = [str(label) for label in labels.values.reshape(-1)]
    if phase not in there:
        raise SpecError(f"derive: {name} needs the {phase} phase; the dataset has {', '.join(dict.fromkeys(there))}")
    if labels.dims == (PHASE,):
        return ds.sel({PHASE: phase}), None
    return ds, labels == phase if labels.dims else None
