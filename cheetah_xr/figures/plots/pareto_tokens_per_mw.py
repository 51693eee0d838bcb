"""Draw output tokens/s per megawatt of accelerators over interactivity."""

from __future__ import annotations

import xarray as xr
from matplotlib.figure import Figure

from ..shared.common import described, gpu_name, model_name
from ..shared.frontiers import N_GPUS, USER, USER_LABEL, describe_ends, draw_lines, frontiers, name_lines
from ..shared.style import headline, new_figure, titled

METRIC = "tokens_per_mw"


def data(model: str = "llama-3.1-70b") -> xr.Dataset:
    """Return the highest output tokens/s per megawatt at every interactivity, for every accelerator."""
    ds = frontiers(model, "energy_per_token", minimize=["energy_per_token"])
    ds[METRIC] = 1e6 / ds["energy_per_token"]
    ds[METRIC].attrs = {"units": "1/s", "long_name": "output tokens/s of a megawatt of accelerators at full TDP"}
    return described(
        ds,
        title=f"{model_name(model)} on {N_GPUS} GPUs: throughput per MW against interactivity",
        shows="The highest output tokens/s per megawatt at every interactivity (output tokens/s per user). "
        + describe_ends(ds, METRIC, "output tokens/s per MW", ",.0f"),
        assumptions=f"{ds.attrs['assumptions']} Power is the TDP of the accelerators alone, without hosts, network and "
        "cooling.",
        absent=ds.attrs["absent"],
    )


def draw(ds: xr.Dataset) -> Figure:
    """Draw one line for every accelerator."""
    fig, ax = new_figure()
    draw_lines(ax, ds, METRIC)
    headline(fig, ds.attrs["title"])
    titled(ax, "", USER_LABEL, "output tokens/s per MW of accelerators")
    ax.set_xlim(ds[USER].values.min() * 0.9, ds[USER].values.max() * 1.1)
    ax.set_ylim(ds[METRIC].values.min() * 0.5, ds[METRIC].values.max() * 1.4)
    name_lines(ax, ds, METRIC, lambda gpu: gpu_name(gpu).split()[0])
    return fig
