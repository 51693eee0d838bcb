"""Tables of one point for the command line: its metrics, times by cause, kernels, and memory of one GPU."""

from __future__ import annotations

import numpy as np
import xarray as xr
from rich.console import Group
from rich.table import Table

from ..analysis.derive import DERIVED
from ..engine.breakdowns.memory import Item, memory_of, size
from ..engine.case import Case
from ..engine.inputs.arguments import Axes
from ..engine.validity import BOTTLENECKS, CODES, REASONS
from ..engine.variables import TIME_PARTS


def point_tables(ds: xr.Dataset, kernels: xr.Dataset) -> Group:
    """Tabulate a point: summary, times by cause, kernels."""
    return Group(_summary(ds), _causes(ds), _kernels(kernels))


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


def _kernels(kernels: xr.Dataset) -> Table:
    table = Table(title="kernels, all layers, one GPU (each on its own)", title_justify="left", box=None)
    columns = ("kernel", "ms", "GFLOP", "weights MB", "KV MB", "act. MB", "link MB", "NIC MB")
    for column in columns:
        table.add_column(column, justify="left" if column == "kernel" else "right", no_wrap=True)
    for kernel in kernels["kernel"].values:
        one = kernels.sel(kernel=kernel)
        if float(one["time"]) > 0:
            moved = [f"{float(v) / 1e6:,.1f}" for v in one["bytes"].values]
            table.add_row(str(kernel), f"{float(one['time']) * 1e3:.3f}", f"{float(one['flops']) / 1e9:,.1f}", *moved)
    overlapped = float(kernels["time_overlapped"])
    if overlapped > 1e-9:
        table.add_row("overlapped", f"-{overlapped * 1e3:.3f}")
    return table


def memory_tables(axes: Axes) -> Group:
    """Tabulate what the memory of one GPU holds, and say how many sequences fit."""
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
    return Group(table, *_memory_sentences(case, items))


def _thousandths(value: float) -> str:
    return f"{value:,.3f}" if abs(value) >= 0.001 or value == 0 else f"{value:.1e}"


def _memory_sentences(case: Case, items: list[Item]) -> list[str]:
    """Say what is left for KV caches, and how many sequences fit in it."""
    capacity, p = case.capacity, case.p
    left = float(capacity.budget - capacity.weights)
    if left < 0:
        return [f"The weights do not fit: they are {size(-left)} above the budget of one GPU."]
    sentences = [f"The budget leaves {size(left)} for the caches of one GPU."]
    fixed = sum(item.bytes for item in items if item.what.endswith("recurrent state"))
    if fixed:
        sentences.append(
            f"{size(fixed)} of a sequence are recurrent state, which does not grow and has its own precision."
        )
    fit, ranks = float(capacity.sequences), int(p.dp)
    if not np.isfinite(fit):
        sentences.append("The cache of this model is not known: any number of sequences fits.")
    else:
        whole = f", {fit * ranks:,.0f} in the instance ({ranks} attention ranks)" if ranks > 1 else ""
        sentences.append(f"{fit:,.0f} sequences of {float(p.context):,.0f} tokens fit on a GPU{whole}.")
    return sentences
