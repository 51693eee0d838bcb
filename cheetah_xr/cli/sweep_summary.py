"""What a sweep would compute, and its result in a few lines: status, bottlenecks, best points."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from ..analysis.best import with_derived
from ..analysis.conditions import parse_all
from ..analysis.derive import DERIVED, lower_is_better
from ..engine.dims import LAYOUT, LEADING, PARALLEL, PHASE, RECORDS, TRAILING
from ..engine.evaluator import canonical_json
from ..engine.validity import BOTTLENECKS, CODES
from ..sweep.store.reader import open_result

if TYPE_CHECKING:
    from ..sweep.runner import Job


def render_job(job: Job) -> str:
    """Describe what a sweep would do: blocks, what is stored, and the resolved specs."""
    lines = [f"store: {job.path}", f"block: {', '.join(f'{dim} {step}' for dim, step in job.blocks.steps.items())}"]
    for product in job.plan.products:
        shape = " x ".join(f"{dim} {n}" for dim, n in zip(product.dims, product.shape, strict=True)) or "scalar"
        lines.append(f"stored: {product.name} {product.dtype} ({shape}), {product.nbytes / 1e6:,.3g} MB")
    for kind, records in job.grid.records.items():
        lines += [f"{kind}: {canonical_json(record.canonical())}" for record in records]
    lines.append(f"options: {canonical_json(job.grid.options.canonical())}")
    return "\n".join(lines)


def summarize(job: Job) -> list[str]:
    """Summarize a result: question, what runs, what bounds it, and the best point by the sweep's headline metric."""
    ds = open_result(job.path)
    lines = [job.sweep.question]
    if "status" in ds:
        lines.append(f"status: {fractions_of_points(ds['status'], CODES)}")
    if "bottleneck" in ds and job.sweep.best is None:
        lines.append(f"bound by: {fractions_of_points(ds['bottleneck'], BOTTLENECKS)}")
    if "bottleneck_count" in ds:
        lines.append(f"bound by: {fractions_counted(ds['bottleneck_count'])}")
    values = headline_values(job, ds)
    if values is not None:
        lines.append(best_point(values))
        if job.sweep.compare is not None:
            lines.append(best_along(values, job.sweep.compare))
        if job.sweep.where and job.sweep.best is None:
            lines[-1] += f"  (where {' and '.join(job.sweep.where)})"
    return lines


def headline_values(job: Job, ds: xr.Dataset) -> xr.DataArray | None:
    """Return the metric a sweep is about where its conditions hold; choices along reduced axes are coordinates.

    A condition on a metric of one phase leaves that phase.
    """
    sweep = job.sweep
    if sweep.best is not None:
        chosen = [name for name in ds.data_vars if str(name).startswith("best_")]
        return ds.set_coords(chosen)[sweep.best.metric].load()
    if "step_time" not in ds:
        return None
    conditions = parse_all(sweep.where)
    ds = with_derived(ds, [sweep.headline, *(c.name for c in conditions)])
    values = ds[sweep.headline]
    for condition in conditions:
        phase = DERIVED[condition.name].phase if condition.name in DERIVED else None
        if phase is not None and PHASE in values.dims:
            values = values.sel({PHASE: phase})
        values = values.where(condition.holds(ds))
    return values.load()


def fractions_counted(counts: xr.DataArray) -> str:
    """Return the fraction of points under every flag of a histogram, largest first."""
    label = counts.dims[-1]
    totals = counts.sum([dim for dim in counts.dims if dim != label]).load()
    whole = int(totals.sum())
    fractions = [(int(n) / whole, str(name)) for name, n in zip(totals[label].values, totals.values, strict=True) if n]
    return _largest_first(fractions) if whole else "no point runs"


def fractions_of_points(flags: xr.DataArray, codes: dict[str, int]) -> str:
    """Return the fraction of points under every code, largest first."""
    counts = np.bincount(flags.values.reshape(-1).astype(np.int64) + 1, minlength=max(codes.values()) + 2)[1:]
    total = counts.sum()
    if not total:
        return "no point runs"
    fractions = [(counts[code] / total, name) for name, code in codes.items() if counts[code]]
    return _largest_first(fractions)


def _largest_first(fractions: list[tuple[float, str]]) -> str:
    return ", ".join(f"{name} {fraction:.1%}" for fraction, name in sorted(fractions, reverse=True))


def best_point(values: xr.DataArray) -> str:
    """Return the best value of a metric and where it is reached."""
    metric = str(values.name)
    if not bool(values.notnull().any()):
        return f"no point has a {metric}"
    lower = lower_is_better(metric)
    point = values.isel(values.argmin(...) if lower else values.argmax(...))
    labels = [f"{name} {point[name].item()}" for name in (*RECORDS, PHASE) if name in point.coords]
    numbers = [f"{name} {point[name].item():,}" for name in (*PARALLEL, *TRAILING) if name in point.coords]
    named = {*LEADING, *TRAILING, LAYOUT}
    user = [f"{dim} {label_text(point[dim].item())}" for dim in values.dims if dim not in named and dim in point.coords]
    user += [f"{str(name).removeprefix('best_')} {_chosen(point[name])}" for name in point.coords if _is_chosen(name)]
    word = "lowest" if lower else "highest"
    where = ", ".join([*labels, *numbers, *user])
    return f"{word} {metric}: {shown(point.item())} {unit_of(values)} at {where}"


def best_along(values: xr.DataArray, axis: str) -> str:
    """Return the best value of a metric for every value of an axis (or of a coordinate along one)."""
    metric = str(values.name)
    dim = values[axis].dims[0]
    others = [d for d in values.dims if d != dim]
    best = values.min(others) if lower_is_better(metric) else values.max(others)
    pairs = zip(best[axis].values, best.values, strict=True)
    bests = ", ".join(f"{label_text(label)} = {shown(value)}" for label, value in pairs)
    return f"best {metric} ({unit_of(values)}) by {axis}: {bests}"


def shown(value: float) -> str:
    """Return a number with four digits that matter, never in powers of ten below a million."""
    if np.isnan(value):
        return "none"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"


def unit_of(values: xr.DataArray) -> str:
    """Return the unit of a metric, tokens/s for rates."""
    units = str(values.attrs.get("units", ""))
    return "tokens/s" if units == "1/s" else units


def label_text(label: object) -> str:
    """Return the label of a coordinate, numbers in their shortest form."""
    return f"{label:g}" if isinstance(label, (int, float, np.number)) else str(label)


def _is_chosen(name: Hashable) -> bool:
    return str(name).startswith("best_") and name != "best_layout"


def _chosen(value: xr.DataArray) -> str:
    """Return the label or number of a reduced axis at the best point."""
    if "flag_meanings" in value.attrs:
        return str(value.attrs["flag_meanings"]).split()[int(value)]
    return f"{value.item():,.6g}"
