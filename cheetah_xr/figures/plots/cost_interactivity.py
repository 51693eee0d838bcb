"""Draw the cost of a million output tokens over interactivity, for every accelerator."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from ...specs import load_gpu
from ..shared.common import described, gpu_name, model_name
from ..shared.frontiers import (
    N_GPUS,
    USER,
    USER_LABEL,
    describe_ends,
    draw_lines,
    frontiers,
    gpus_of,
    name_lines,
    of_gpu,
)
from ..shared.style import headline, log_room, new_figure, titled

METRIC = "cost_per_million_tokens"


def data(model: str = "llama-3.1-70b") -> xr.Dataset:
    """Return the lowest cost of output tokens at every interactivity, for every accelerator."""
    ds = frontiers(model, METRIC, minimize=[METRIC], keep=["throughput"])
    sources = dict.fromkeys(load_gpu(gpu).sources["price_per_hour"].split("; ")[0] for gpu in gpus_of(ds))
    return described(
        ds,
        title=f"{model_name(model)} on {N_GPUS} GPUs: cost against interactivity",
        shows=f"The lowest cost at every interactivity (output tokens/s per user); {cheapest(ds)}. "
        + describe_ends(ds, METRIC, "USD per million output tokens", ".3g"),
        assumptions=f"{ds.attrs['assumptions']} Prices are estimates of what owning an accelerator costs, in USD per "
        f"GPU and hour, all GPUs busy decoding: {'; '.join(sources)}. They are no quotes.",
        absent=ds.attrs["absent"],
    )


def cheapest(ds: xr.Dataset) -> str:
    """Describe which accelerator is the cheapest up to which interactivity, interpolating its frontier."""
    speeds = np.geomspace(ds[USER].min(), ds[USER].max(), 200)
    lines = {gpu: of_gpu(ds, gpu) for gpu in gpus_of(ds)}
    costs = {gpu: np.interp(speeds, line[USER], line[METRIC], right=np.inf) for gpu, line in lines.items()}
    names = [min(costs, key=lambda gpu: costs[gpu][i]) for i in range(speeds.size)]
    turns = [i for i in range(speeds.size) if i + 1 == speeds.size or names[i] != names[i + 1]]
    return f"cheapest {', then '.join(f'{gpu_name(names[i])} up to {speeds[i]:.0f}' for i in turns)} tokens/s per user"


def draw(ds: xr.Dataset) -> Figure:
    """Draw one line for every accelerator, labelled with its price."""
    fig, ax = new_figure()
    draw_lines(ax, ds, METRIC)
    headline(fig, ds.attrs["title"])
    titled(ax, "", USER_LABEL, "USD per million output tokens")
    log_room(ax, ds[USER].values.min(), ds[USER].values.max(), 125, 15, 460)
    prices = {gpu: float(of_gpu(ds, gpu)["price_per_hour"][0]) for gpu in gpus_of(ds)}
    name_lines(ax, ds, METRIC, lambda gpu: f"{gpu_name(gpu)}, {prices[gpu]:.2f} USD/h", first=True)
    return fig
