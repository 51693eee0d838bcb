"""What a sweep answered, in a few lines."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import xarray as xr

from .analysis.derive import DERIVED, derive
from .dims import LEADING, PARALLEL, PHASE, RECORDS, TRAILING
from .run import Job
from .status import BOTTLENECKS, CODES
from .store import open_result

LOWER_IS_BETTER = frozenset({"tpot", "ttft", "cost_per_million_tokens", "energy_per_token"})


def summarize(job: Job) -> list[str]:
    """Question, what runs, what bounds it, and the best point by the sweep's headline metric."""
    ds = open_result(job.path)
    lines = [job.sweep.question]
    if "status" in ds:
        lines.append(f"status: {shares(ds['status'], CODES)}")
    if "bottleneck" in ds and job.sweep.best is None:
        lines.append(f"bound by: {shares(ds['bottleneck'], BOTTLENECKS)}")
    if "bottleneck_count" in ds:
        lines.append(f"bound by: {counted(ds['bottleneck_count'])}")
    values = headline_values(job, ds)
    if values is not None:
        lines.append(best_point(values))
        if job.sweep.compare is not None:
            lines.append(best_along(values, job.sweep.compare))
    return lines


def headline_values(job: Job, ds: xr.Dataset) -> xr.DataArray | None:
    """The metric a sweep is about, with what was chosen along reduced axes as coordinates."""
    if job.sweep.best is not None:
        chosen = [name for name in ds.data_vars if str(name).startswith("best_")]
        return ds.set_coords(chosen)[job.sweep.best.metric].load()
    if "step_time" in ds:
        return derive(ds, [job.sweep.headline])[job.sweep.headline].load()
    return None


def counted(counts: xr.DataArray) -> str:
    """Share of points under every flag of a histogram."""
    label = counts.dims[-1]
    totals = counts.sum([dim for dim in counts.dims if dim != label]).load()
    whole = int(totals.sum())
    found = [(int(n) / whole, str(name)) for name, n in zip(totals[label].values, totals.values, strict=True) if n]
    return ", ".join(f"{name} {share:.1%}" for share, name in sorted(found, reverse=True)) if whole else "no point runs"


def shares(flags: xr.DataArray, codes: dict[str, int]) -> str:
    """Share of points under every code, largest first."""
    counts = np.bincount(flags.values.reshape(-1).astype(np.int64) + 1, minlength=max(codes.values()) + 2)[1:]
    total = counts.sum()
    if not total:
        return "no point runs"
    found = [(counts[code] / total, name) for name, code in codes.items() if counts[code]]
    return ", ".join(f"{name} {share:.1%}" for share, name in sorted(found, reverse=True))


def best_point(values: xr.DataArray) -> str:
    """The best value of a metric and where it is reached."""
    metric = str(values.name)
    if not bool(values.notnull().any()):
        return f"no point has a {metric}"
    lower = metric in LOWER_IS_BETTER
    point = values.isel(values.argmin(...) if lower else values.argmax(...))
    labels = [f"{name} {point[name].item()}" for name in (*RECORDS, PHASE) if name in point.coords]
    numbers = [f"{name} {point[name].item():,}" for name in (*PARALLEL, *TRAILING) if name in point.coords]
    named = {*LEADING, *TRAILING}
    user = [f"{dim} {point[dim].item():.6g}" for dim in values.dims if dim not in named and dim in point.coords]
    user += [f"{str(name).removeprefix('best_')} {_chosen(point[name])}" for name in point.coords if _is_chosen(name)]
    word = "lowest" if lower else "highest"
    return f"{word} {metric}: {point.item():,.4g} {DERIVED[metric].units} at {', '.join([*labels, *numbers, *user])}"


def best_along(values: xr.DataArray, axis: str) -> str:
    """The best value of a metric for every value of an axis (or of a coordinate along one)."""
    metric = str(values.name)
    dim = values[axis].dims[0]
    others = [d for d in values.dims if d != dim]
    best = values.min(others) if metric in LOWER_IS_BETTER else values.max(others)
    found = [f"{label} {value:,.4g}" for label, value in zip(best[axis].values, best.values, strict=True)]
    return f"best {metric} ({DERIVED[metric].units}) by {axis}: {', '.join(found)}"


def _is_chosen(name: Hashable) -> bool:
    return str(name).startswith("best_") and name != "best_layout"


def _chosen(value: xr.DataArray) -> str:
    """Label or number of a reduced axis at the best point."""
    if "flag_meanings" in value.attrs:
        return str(value.attrs["flag_meanings"]).split()[int(value)]
    return f"{value.item():,.6g}"
