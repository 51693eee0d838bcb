"""One point, as a readable breakdown."""

from __future__ import annotations

import numpy as np
import xarray as xr
from rich.console import Group
from rich.table import Table

from ..analysis.derive import DERIVED, derive
from ..engine.alternatives import explain_rejection
from ..engine.breakdowns.kernels import breakdown_of
from ..engine.breakdowns.memory import Item, memory_of, size
from ..engine.case import Case
from ..engine.evaluator import evaluate_axes
from ..engine.inputs.arguments import Axes
from ..engine.validity import BOTTLENECKS, CODES, REASONS
from ..engine.variables import TIME_PARTS
from ..specs import SpecError


def estimate(axes: Axes) -> tuple[xr.Dataset, xr.Dataset]:
    """Evaluate one point and break it down.

    Raises
    ------
    SpecError
        When the point cannot run: the reason, the bytes missing, and what would be valid.
    """
    ds = evaluate_axes(axes, None, "float64", 1e9)
    reason = explain_rejection(axes, ds)
    if reason is not None:
        raise SpecError(reason)
    metrics = [name for name, metric in DERIVED.items() if metric.phase in (None, str(ds["phase"].values))]
    parts = breakdown_of(axes, 4e9)
    return derive(ds, metrics), parts


def render(ds: xr.Dataset, parts: xr.Dataset) -> Group:
    """Tables of a point: summary, times by cause, kernels."""
    return Group(_summary(ds), _causes(ds), _kernels(parts))


def _number(value: float, units: str) -> str:
    scaled = {"s": (1e3, "ms"), "B": (1e-9, "GB"), "FLOP": (1e-12, "TFLOP"), "1": (1, "")}.get(units)
    factor, shown = scaled if scaled else (1, units)
    return f"{value * factor:,.4g} {shown}".rstrip()


def _summary(ds: xr.Dataset) -> Table:
    names = ["model", "gpu", "precision", "efficiency", "phase"]
    title = "  ".join(str(ds[name].values) for name in names)
    table = Table(title=title, show_header=False, title_justify="left", box=None)
    for name in ("tp", "dp", "ep", "n_gpus", "batch", "seq_len"):
        table.add_row(name, f"{int(ds[name]):,}", str(ds[name].attrs.get("long_name", "")))
    bottleneck = next(n for n, code in BOTTLENECKS.items() if code == int(ds["bottleneck"]))
    status = next(n for n, code in CODES.items() if code == int(ds["status"]))
    table.add_row("status", status, REASONS[status])
    table.add_row("bottleneck", bottleneck, str(ds["bottleneck"].attrs["long_name"]))
    for name in ("step_time", *(n for n in DERIVED if n in ds), "weight_bytes", "kv_bytes_per_sequence", "max_batch"):
        value = float(ds[name])
        shown = (
            f"{value:,.0f}" if name == "max_batch" and np.isfinite(value) else _number(value, ds[name].attrs["units"])
        )
        meaning = DERIVED[name].comment if name in DERIVED else ds[name].attrs["long_name"]
        table.add_row(name, "unknown" if np.isnan(value) else shown, str(meaning))
    return table


def _causes(ds: xr.Dataset) -> Table:
    table = Table(title="step_time by what bounds it", title_justify="left", box=None)
    for column, justify in (("cause", "left"), ("ms", "right"), ("fraction", "right")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for name in TIME_PARTS:
        value = float(ds[name])
        table.add_row(name.removeprefix("time_"), f"{value * 1e3:.3f}", f"{value / float(ds['step_time']):.1%}")
    table.add_row("step_time", f"{float(ds['step_time']) * 1e3:.3f}", "100.0%")
    return table


def _kernels(parts: xr.Dataset) -> Table:
    table = Table(title="kernels, all layers, one GPU (each on its own)", title_justify="left", box=None)
    columns = ("kernel", "ms", "GFLOP", "weights MB", "KV MB", "act. MB", "link MB", "NIC MB")
    for column in columns:
        table.add_column(column, justify="left" if column == "kernel" else "right", no_wrap=True)
    for kernel in parts["kernel"].values:
        one = parts.sel(kernel=kernel)
        if float(one["time"]) > 0:
            moved = [f"{float(v) / 1e6:,.1f}" for v in one["bytes"].values]
            table.add_row(str(kernel), f"{float(one['time']) * 1e3:.3f}", f"{float(one['flops']) / 1e9:,.1f}", *moved)
    hidden = float(parts["time_overlapped"])
    if hidden > 1e-9:
        table.add_row("overlapped", f"-{hidden * 1e3:.3f}")
    return table


def render_memory(axes: Axes) -> Group:
    """What one GPU holds and how many sequences fit, as a table and in words."""
    case, items = memory_of(axes)
    table = Table(title="memory of one GPU", title_justify="left", box=None)
    for column, justify in (
        ("", "left"),
        ("", "left"),
        ("layers", "right"),
        ("GB", "right"),
        ("GiB", "right"),
        ("rule", "left"),
    ):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    kind = ""
    for item in items:
        shown, kind = ("" if item.kind == kind else item.kind), item.kind
        table.add_row(
            shown,
            item.what,
            f"{item.layers:,}" if item.layers else "",
            _thousandths(item.bytes / 1e9),
            _thousandths(item.bytes / 2**30),
            item.rule,
        )
    return Group(table, *_memory_words(case, items))


def _thousandths(value: float) -> str:
    return f"{value:,.3f}" if abs(value) >= 0.001 or value == 0 else f"{value:.1e}"


def _memory_words(case: Case, items: list[Item]) -> list[str]:
    """The same in sentences."""
    held, p = case.capacity, case.p
    left = float(held.budget - held.weights)
    if left < 0:
        return [f"The weights do not fit: they are {size(-left)} above the budget of one GPU."]
    words = [f"The budget leaves {size(left)} for the caches of one GPU."]
    fixed = sum(item.bytes for item in items if item.what.endswith("recurrent state"))
    if fixed:
        words.append(f"{size(fixed)} of a sequence are recurrent state, which does not grow and has its own precision.")
    fit, ranks = float(held.sequences), int(p.dp)
    if not np.isfinite(fit):
        words.append("The cache of this model is not known: any number of sequences fits.")
    else:
        whole = f", {fit * ranks:,.0f} in the instance ({ranks} attention ranks)" if ranks > 1 else ""
        words.append(f"{fit:,.0f} sequences of {float(p.context):,.0f} tokens fit on a GPU{whole}.")
    return words
