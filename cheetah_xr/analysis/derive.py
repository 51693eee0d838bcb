"""Derived metrics: one table of what follows from the stored variables and coordinates of a result."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import xarray as xr

from ..engine.dims import LEADING, PHASE, TRAILING, canonical
from ..engine.variables import VARIABLES
from ..errors import SpecError

DECODE, PREFILL = "decode", "prefill"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """Describe one derived metric: its row is all that the package knows of it.

    Attributes
    ----------
    units, comment
        Unit in SI (or USD), and what it means.
    better
        Whether a higher or a lower value is better.
    time_power
        Power of ``step_time`` it is proportional to: how an error of measured time carries over to it.
    needs
        Variables and coordinates of a dataset it reads.
    computed
        Names of :data:`COMPUTED_INPUTS` it reads besides.
    formula
        Value from `needs` and `computed` by name, of labelled or of plain aligned arrays.
    phase
        The phase it is defined for; None where it is defined for both.
    """

    units: str
    comment: str
    better: Literal["higher", "lower"]
    time_power: int
    needs: tuple[str, ...]
    formula: Callable[[Mapping[str, Any]], Any]
    computed: tuple[str, ...] = ()
    phase: str | None = None


def expected_tokens(draft_tokens: float, acceptance: float) -> float:
    """Return the tokens of a decode step per sequence: the sum of a^i, i = 0..m, of m drafts at acceptance rate a."""
    return float(sum(acceptance**i for i in range(round(draft_tokens) + 1)))


def options_of(ds: xr.Dataset) -> dict[str, Any]:
    """Return the options a result was computed with, from its own attributes."""
    return dict(json.loads(ds.attrs["options"])) if "options" in ds.attrs else {}


def is_clipped(ds: xr.Dataset) -> bool:
    """Return whether batches that do not fit run at max_batch."""
    return options_of(ds).get("on_infeasible") == "clip"


def running_batch(ds: xr.Dataset) -> xr.DataArray:
    """Return the sequences that run: the batch, or as many as fit where the batch is clipped."""
    return np.minimum(ds["batch"], ds["max_batch"]) if is_clipped(ds) else ds["batch"]  # type: ignore[return-value]


def accepted_tokens(ds: xr.Dataset) -> xr.DataArray | float:
    """Return the accepted tokens per decode step, from the options of the dataset or the axes that replace them."""
    options = options_of(ds)
    draft_tokens = ds.coords.get("draft_tokens", options.get("draft_tokens", 0))
    acceptance = ds.coords.get("acceptance", options.get("acceptance", 0.0))
    return xr.apply_ufunc(expected_tokens, draft_tokens, acceptance, vectorize=True)  # type: ignore[no-any-return]


def sequence_tokens(ds: xr.Dataset) -> Any:
    """Return the tokens of one sequence in a forward pass: accepted ones in decode, the prompt in prefill."""
    prefill = ds.coords[PHASE] == PREFILL
    if not prefill.any():
        return accepted_tokens(ds)
    return ds["seq_len"] if prefill.all() else prefill * ds["seq_len"] + ~prefill * accepted_tokens(ds)


COMPUTED_INPUTS: dict[str, Callable[[xr.Dataset], Any]] = {
    "accepted": accepted_tokens,
    "running": running_batch,
    "sequence_tokens": sequence_tokens,
}
"""Inputs of formulas that are computed from a result: tokens a step yields, sequences that run, tokens of one."""


def _tokens(v: Mapping[str, Any]) -> Any:
    # Multiplied before anything else: these arrays have few axes.
    return v["running"] * v["sequence_tokens"]


def _bytes(v: Mapping[str, Any]) -> Any:
    return v["bytes_weights"] + v["bytes_kv"] + v["bytes_activations"]


STEP = ("step_time",)
TOKENS = ("running", "sequence_tokens")
FLOW = ("step_time", "batch", "seq_len", "phase")
BYTES = ("bytes_weights", "bytes_kv", "bytes_activations")

DERIVED: dict[str, Metric] = {
    "tpot": Metric(
        units="s",
        comment="time per accepted output token (decode)",
        better="lower",
        time_power=1,
        phase=DECODE,
        needs=STEP,
        computed=("accepted",),
        formula=lambda v: v["step_time"] / v["accepted"],
    ),
    "tps_per_user": Metric(
        units="1/s",
        comment="output tokens/s of one sequence (decode)",
        better="higher",
        time_power=-1,
        phase=DECODE,
        needs=STEP,
        computed=("accepted",),
        formula=lambda v: v["accepted"] / v["step_time"],
    ),
    "ttft": Metric(
        units="s",
        comment="time to first token: one prefill of the batch",
        better="lower",
        time_power=1,
        phase=PREFILL,
        needs=STEP,
        formula=lambda v: v["step_time"],
    ),
    "throughput": Metric(
        units="1/s",
        comment="output tokens/s (decode) or input tokens/s (prefill)",
        better="higher",
        time_power=-1,
        needs=FLOW,
        computed=TOKENS,
        formula=lambda v: _tokens(v) / v["step_time"],
    ),
    "throughput_per_gpu": Metric(
        units="1/s",
        comment="output (decode) or input (prefill) tokens/s of one GPU",
        better="higher",
        time_power=-1,
        needs=(*FLOW, "n_gpus"),
        computed=TOKENS,
        formula=lambda v: _tokens(v) / v["n_gpus"] / v["step_time"],
    ),
    "arithmetic_intensity": Metric(
        units="FLOP/B",
        comment="FLOPs per byte of HBM traffic",
        better="higher",
        time_power=0,
        needs=("flops", *BYTES),
        formula=lambda v: v["flops"] / _bytes(v),
    ),
    "ridge": Metric(
        units="FLOP/B",
        comment="arithmetic intensity at which bf16 compute and HBM take the same time",
        better="higher",
        time_power=0,
        needs=("peak_bf16", "hbm_bandwidth"),
        formula=lambda v: v["peak_bf16"] / v["hbm_bandwidth"],
    ),
    "mfu": Metric(
        units="1",
        comment="fraction of peak FLOP/s in use on the slowest GPU",
        better="higher",
        time_power=-1,
        needs=("peak_compute_time", "step_time"),
        formula=lambda v: v["peak_compute_time"] / v["step_time"],
    ),
    "mbu": Metric(
        units="1",
        comment="fraction of peak HBM bandwidth in use on the slowest GPU",
        better="higher",
        time_power=-1,
        needs=(*BYTES, "hbm_bandwidth", "step_time"),
        formula=lambda v: _bytes(v) / (v["hbm_bandwidth"] * v["step_time"]),
    ),
    "cost_per_million_tokens": Metric(
        units="USD",
        comment="GPU cost of a million output (decode) or input (prefill) tokens",
        better="lower",
        time_power=1,
        needs=(*FLOW, "n_gpus", "price_per_hour"),
        computed=TOKENS,
        formula=lambda v: v["n_gpus"] * v["price_per_hour"] / 3600 * 1e6 / _tokens(v) * v["step_time"],
    ),
    "energy_per_token": Metric(
        units="J",
        comment="energy of one output (decode) or input (prefill) token at full TDP, an upper bound",
        better="lower",
        time_power=1,
        needs=(*FLOW, "n_gpus", "tdp"),
        computed=TOKENS,
        formula=lambda v: v["n_gpus"] * v["tdp"] / _tokens(v) * v["step_time"],
    ),
}
"""Derived metrics by name: the one place that says how each is computed, which direction is better and its unit."""


def lower_is_better(name: str) -> bool:
    """Return whether less of a metric or variable is better; of variables only times are."""
    if name in DERIVED:
        return DERIVED[name].better == "lower"
    return name in VARIABLES and VARIABLES[name].kind == "time"


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
    values: dict[str, xr.DataArray] = {}
    for name in [names] if isinstance(names, str) else names:
        if name not in DERIVED:
            raise SpecError(f"derive: unknown metric {name!r}; known: {', '.join(DERIVED)}")
        values[name] = _derived(ds, name, DERIVED[name])
    return ds.assign({name: _ordered(array) for name, array in values.items()})


def _derived(ds: xr.Dataset, name: str, metric: Metric) -> xr.DataArray:
    """Compute one metric of a dataset, with its units."""
    needs = (*metric.needs, "max_batch") if "batch" in metric.needs and is_clipped(ds) else metric.needs
    missing = [need for need in needs if need not in ds.variables]
    if missing:
        raise SpecError(f"derive: {name} needs {', '.join(missing)}, which the dataset does not have")
    part, valid = _of_phase(ds, name, metric.phase)
    inputs = {need: part[need] for need in metric.needs} | {c: COMPUTED_INPUTS[c](part) for c in metric.computed}
    values: xr.DataArray = metric.formula(inputs)
    values = values if valid is None else values.where(valid)
    values = values.assign_attrs(units=metric.units, long_name=name.replace("_", " "), comment=metric.comment)
    return values.drop_vars(PHASE, errors="ignore") if metric.phase else values


def _ordered(values: xr.DataArray) -> xr.DataArray:
    """Return an array with its dims in canonical order."""
    named = {*LEADING, *TRAILING}
    order = canonical(tuple(str(dim) for dim in values.dims if dim not in named))
    return values.transpose(*(dim for dim in order if dim in values.dims))


def _of_phase(ds: xr.Dataset, name: str, phase: str | None) -> tuple[xr.Dataset, xr.DataArray | None]:
    """Return the part of a dataset that has a phase, and where in it the phase holds (None: everywhere)."""
    if phase is None:
        return ds, None
    if PHASE not in ds.coords:
        raise SpecError(f"derive: {name} needs phase, which the dataset does not have")
    labels = ds[PHASE]
    present = [str(label) for label in labels.values.reshape(-1)]
    if phase not in present:
        raise SpecError(f"derive: {name} needs the {phase} phase; the dataset has {', '.join(dict.fromkeys(present))}")
    if labels.dims == (PHASE,):
        return ds.sel({PHASE: phase}), None
    return ds, labels == phase if labels.dims else None
