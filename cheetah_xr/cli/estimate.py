"""One point, as a readable breakdown."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import xarray as xr
from rich.console import Group
from rich.table import Table

from ..analysis.derive import DERIVED, derive
from ..api import layouts
from ..engine.breakdowns.kernels import breakdown_of
from ..engine.breakdowns.memory import Item, memory_of, size
from ..engine.case import Case
from ..engine.evaluator import evaluate_axes
from ..engine.inputs.arguments import Axes
from ..engine.validity import BOTTLENECKS, CODES, REASONS, RUNS
from ..engine.variables import TIME_PARTS
from ..specs import COMPUTE_TYPES, AnyModel, SpecError, load_gpu, load_model, load_precision


def estimate(axes: Axes) -> tuple[xr.Dataset, xr.Dataset]:
    """Evaluate one point and break it down.

    Raises
    ------
    SpecError
        When the point cannot run: the reason, the bytes missing, and what would be valid.
    """
    ds = evaluate_axes(axes, None, "float64", 1e9)
    code = int(ds["status"])
    if code not in RUNS:
        name = next(n for n, value in CODES.items() if value == code)
        drafter = _refused_drafter(axes)
        if drafter is not None:
            raise SpecError(f"the drafter {drafter.name} cannot run here: {REASONS[name]} ({name})")
        raise SpecError(f"{REASONS[name]} ({name}){_advice(axes, ds, name)}")
    metrics = [name for name, metric in DERIVED.items() if metric.phase in (None, str(ds["phase"].values))]
    parts = breakdown_of(axes, 4e9)
    return derive(ds, metrics), parts


def _refused_drafter(axes: Axes) -> AnyModel | None:
    """The draft model, where the same point without it is valid."""
    drafter = axes.options.drafter
    if isinstance(drafter, str):
        return None
    free = axes.options.ignoring_memory()
    both = replace(axes, options=free)
    alone = replace(axes, options=free.model_copy(update={"drafter": "free"}))
    runs = [int(evaluate_axes(a, ["status"], "float64", 1e9)["status"]) in RUNS for a in (alone, both)]
    return drafter if runs == [True, False] else None


def _advice(axes: Axes, ds: xr.Dataset, name: str) -> str:
    """What would be valid instead."""
    n = int(ds["n_gpus"])
    if name == "infeasible_memory":
        missing = (
            f": {float(ds['memory_shortfall']) / 1e9:.2f} GB short on each GPU; max_batch is {int(ds['max_batch'])}"
        )
        return missing + _smallest_tp(axes)
    if name in ("tp_heads", "tp_kv_heads", "tp_width"):
        valid = ", ".join(str(tp) for tp in _valid_tp(axes))
        return f"; valid tp: {valid}" if valid else "; no tp is valid with these options"
    if name in ("ep_layout", "etp_width"):
        found = layouts(n, load_model(axes.model), axes.options)
        same = found["ep"].values[found["tp"].values == axes.tp]
        return f"; valid ep for tp {axes.tp}, dp {axes.dp}: {', '.join(str(ep) for ep in same) or 'none'}"
    if name == "no_mtp":
        return f": {load_model(axes.model).name} has none; drafter may be free or a model"
    if name == "no_peak":
        gpu, precision = load_gpu(axes.gpu), load_precision(axes.precision)
        wanted = {getattr(precision, f) for f in type(precision).model_fields if f.endswith("_compute")}
        lacking = sorted(t for t in wanted if getattr(gpu, f"peak_{t}") is None)
        peaks = [t for t in COMPUTE_TYPES if getattr(gpu, f"peak_{t}") is not None]
        return f": {gpu.name} has no peak for {', '.join(lacking)}; it has {', '.join(peaks)}"
    if name in ("no_link", "no_nic"):
        return f": {load_gpu(axes.gpu).name}, {n} GPUs"
    if name == "seq_beyond_max":
        return f": {load_model(axes.model).max_seq_len:,} tokens"
    return ""


def _valid_tp(axes: Axes) -> list[int]:
    """Tensor-parallel degrees the model allows, up to its query heads."""
    model = load_model(axes.model)
    most = getattr(model, "n_heads", None) or 64
    return [tp for tp in range(1, most + 1) if most % tp == 0 and tp in layouts(tp, model, axes.options)["tp"].values]


def _smallest_tp(axes: Axes) -> str:
    """The smallest tensor-parallel degree at which the same batch fits."""
    for tp in _valid_tp(axes):
        bigger = replace(axes, tp=tp, ep=1)
        if tp > axes.tp and int(evaluate_axes(bigger, ["status"], "float64", 1e9)["status"]) == CODES["ok"]:
            return f"; the smallest tp that fits is {tp}"
    return "; no tp fits it"


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
