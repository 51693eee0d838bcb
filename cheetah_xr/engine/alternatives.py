"""Explain why one point cannot run, and search for what would be valid instead."""

from __future__ import annotations

from dataclasses import replace

import xarray as xr

from ..specs import COMPUTE_TYPES, AnyModel, load_gpu, load_model, load_precision
from .evaluator import evaluate_axes
from .inputs.arguments import Axes
from .layouts import valid_layouts
from .validity import CODES, REASONS, RUNS

MOST_TP = 64
"""Largest tensor-parallel degree tried for a model whose query heads are not known."""


def explain_rejection(axes: Axes, ds: xr.Dataset) -> str | None:
    """Return why a point cannot run and what would be valid instead, None where it runs.

    Parameters
    ----------
    axes
        The point.
    ds
        Its result, with all stored variables.

    Returns
    -------
    str or None
        One sentence: the reason, the label of its status, and what is missing or valid.
    """
    code = int(ds["status"])
    if code in RUNS:
        return None
    status = next(name for name, value in CODES.items() if value == code)
    drafter = rejected_drafter(axes)
    if drafter is not None:
        return f"the drafter {drafter.name} cannot run here: {REASONS[status]} ({status})"
    return f"{REASONS[status]} ({status}){_alternatives(axes, ds, status)}"


def rejected_drafter(axes: Axes) -> AnyModel | None:
    """Return the draft model where the same point without it is valid, memory aside."""
    drafter = axes.options.drafter
    if isinstance(drafter, str):
        return None
    with_drafter = axes.options.ignoring_memory()
    without_drafter = with_drafter.model_copy(update={"drafter": "free"})
    runs = [_status(replace(axes, options=options)) in RUNS for options in (without_drafter, with_drafter)]
    return drafter if runs == [True, False] else None


def valid_tp(axes: Axes) -> list[int]:
    """Return the tensor-parallel degrees the model allows at dp 1, up to its query heads."""
    model = load_model(axes.model)
    most = getattr(model, "n_heads", None) or MOST_TP
    divisors = [tp for tp in range(1, most + 1) if most % tp == 0]
    return [tp for tp in divisors if tp in valid_layouts(tp, model, axes.options)["tp"].values]


def smallest_tp_that_fits(axes: Axes) -> int | None:
    """Return the smallest tensor-parallel degree above the point's at which its batch fits without ep, None if none."""
    larger = (tp for tp in valid_tp(axes) if tp > axes.tp)
    return next((tp for tp in larger if _status(replace(axes, tp=tp, ep=1)) == CODES["ok"]), None)


def valid_ep(axes: Axes, n_gpus: int) -> list[int]:
    """Return the expert-parallel degrees the model allows with the point's tp on as many GPUs."""
    layouts = valid_layouts(n_gpus, load_model(axes.model), axes.options)
    return [int(ep) for ep in layouts["ep"].values[layouts["tp"].values == axes.tp]]


def _status(axes: Axes) -> int:
    return int(evaluate_axes(axes, ["status"], "float64", 1e9)["status"])


def _alternatives(axes: Axes, ds: xr.Dataset, status: str) -> str:
    """Return what is missing, or would be valid, as the end of a sentence."""
    n_gpus = int(ds["n_gpus"])
    if status == "infeasible_memory":
        short = f"{float(ds['memory_shortfall']) / 1e9:.2f} GB short on each GPU; max_batch is {int(ds['max_batch'])}"
        tp = smallest_tp_that_fits(axes)
        return f": {short}; no tp fits it" if tp is None else f": {short}; the smallest tp that fits is {tp}"
    if status in ("tp_heads", "tp_kv_heads", "tp_width"):
        degrees = ", ".join(map(str, valid_tp(axes)))
        return f"; valid tp: {degrees}" if degrees else "; no tp is valid with these options"
    if status in ("ep_layout", "etp_width"):
        degrees = ", ".join(map(str, valid_ep(axes, n_gpus)))
        return f"; valid ep for tp {axes.tp}, dp {axes.dp}: {degrees or 'none'}"
    if status == "no_mtp":
        return f": {load_model(axes.model).name} has none; drafter may be free or a model"
    if status == "no_peak":
        return _known_peaks(axes)
    if status in ("no_link", "no_nic"):
        return f": {load_gpu(axes.gpu).name}, {n_gpus} GPUs"
    if status == "seq_beyond_max":
        return f": {load_model(axes.model).max_seq_len:,} tokens"
    return ""


def _known_peaks(axes: Axes) -> str:
    """Return which compute types of the precision have no peak, and which have one."""
    gpu, precision = load_gpu(axes.gpu), load_precision(axes.precision)
    needed = {getattr(precision, name) for name in type(precision).model_fields if name.endswith("_compute")}
    missing = sorted(dtype for dtype in needed if getattr(gpu, f"peak_{dtype}") is None)
    peaks = [dtype for dtype in COMPUTE_TYPES if getattr(gpu, f"peak_{dtype}") is not None]
    return f": {gpu.name} has no peak for {', '.join(missing)}; it has {', '.join(peaks)}"
