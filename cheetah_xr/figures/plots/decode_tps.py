"""Seed 1, figure 1: DeepSeek-V3 decode against batch, model and published measurements."""

from __future__ import annotations

from typing import Any

import xarray as xr
from matplotlib.figure import Figure

from ...analysis import derive, regimes
from ..shared.common import described, log_grid, model_name
from ..shared.measurements import CHOICES, NEVER_PUBLISHED, evaluated, measured_points, precision_of, setups
from ..shared.setups import draw_setups

SHOWS = (
    "Lines are the model, from one sequence per attention rank to the largest batch that fits; a diamond is where the "
    "bottleneck changes, and the strips below name it. Markers are published measurements (filled: GPUs that only "
    "decode; open: GPUs that also prefill, which the lines leave out); none was used to set a factor of the model. "
)
LINES = ["tps_per_user", "throughput_per_gpu"]


def data() -> xr.Dataset:
    """Lines and points of all setups."""
    return described(
        collected(),
        title="DeepSeek-V3 decode: bound by memory, then communication or compute",
        shows=SHOWS + NEVER_PUBLISHED,
        assumptions=assumptions(),
    )


def assumptions(efficiencies: str = "default efficiencies") -> str:
    """What holds for all setups."""
    layouts = "; ".join(
        f"{row.setup}: tp {row.tp}, dp {row.dp}, ep {row.ep}, {precision_of(row).name}" for row in setups().itertuples()
    )
    return f"{model_name('deepseek-v3')} and R1 without speculative decoding; {layouts}; {efficiencies}. {CHOICES}"


def collected() -> xr.Dataset:
    """Lines of all setups on one batch axis, and the measured points on dim ``point``."""
    batch, lines, names = log_grid(1, 131072, 120), [], setups()
    rows: list[Any] = list(names.itertuples())
    for row in rows:
        ds = derive(evaluated(row, batch), LINES)
        runs = (ds["batch"] >= row.dp) & ds["step_time"].notnull()
        line = ds[LINES].where(runs).assign(regime=regimes(ds).where(runs, -1).astype("int8"))
        lines.append(line.drop_vars([name for name in line.coords if name != "batch"]))
    found = xr.concat(lines, "setup").assign_coords(setup=list(names.setup), gpu=("setup", list(names.gpu)))
    return found.assign(measured_points())


def draw(ds: xr.Dataset) -> Figure:
    """Speed of one request."""
    return draw_setups(ds, "tps_per_user", "output tokens/s of one request", "lower left")
