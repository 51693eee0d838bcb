"""Draw the KV-cache capacity of every accelerator: the largest batch that fits over context."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from ...analysis import best
from ...api import evaluate, layouts
from ..shared.common import assumed, described, drawable, gpu_name, log_grid, max_context, model_name
from ..shared.frontiers import GPUS, N_GPUS, with_published
from ..shared.style import end_labels, gpu_colour, headline, log_axis, new_figure, titled, tokens

LONGEST = 2**20
PRECISIONS = ("bf16", "fp8", "mxfp4")
"""Of these and that of the checkpoint, the figure takes the one with the most weight bytes that fits."""


def data(model: str = "llama-3.1-70b") -> xr.Dataset:
    """Return the sequences of every length that fit on the GPUs in the layout with the largest capacity."""
    splits, end = layouts(N_GPUS, model), int(min(max_context(model), LONGEST))
    grid = evaluate(
        model, list(GPUS), by_width(model), batch=1, seq_len=log_grid(256, end, 160), tp=splits.tp, dp=splits.dp,
        ep=splits.ep, outputs=["max_batch"],
    )  # fmt: skip
    ds = best(grid, "max_batch", "layout")
    fits = ds["max_batch"].where((ds["max_batch"] >= 1) & np.isfinite(ds["max_batch"]))
    able = fits.notnull().any(["gpu", "seq_len"])
    first = int(able.argmax("precision"))
    ds, fits = ds.isel(precision=first), drawable(fits).isel(precision=first)
    ends = [f"{gpu_name(str(gpu))} {_count(fits.sel(gpu=gpu).values[-1])}" for gpu in ds["gpu"].values]
    return described(
        {"max_batch": fits.assign_attrs(grid["max_batch"].attrs), "best_layout": ds["best_layout"]},
        title=f"Sequences of {model_name(model)} that fit on {N_GPUS} GPUs in {ds['precision'].item()}",
        shows="The largest batch of sequences of one length that fits in memory next to the weights, in the layout "
        f"with the largest capacity. At {end:,} tokens, the longest shown: {', '.join(ends)} sequences.",
        assumptions=assumed(ds.drop_vars("efficiency")),
    )


def by_width(model: str) -> list[str]:
    """Return precisions, the one with the most weight bytes first."""
    names = [name for name in with_published(PRECISIONS, model) if not name.endswith("-kv8")]
    weight_bytes = evaluate(model, GPUS[0], names, batch=1, seq_len=1, outputs=["weight_bytes"])["weight_bytes"]
    return sorted(names, key=lambda name: -float(weight_bytes.sel(precision=name)))


def draw(ds: xr.Dataset) -> Figure:
    """Draw one line for every accelerator, labelled with the batch at its end."""
    fig, ax = new_figure()
    context = ds["seq_len"].values
    lines = []
    for gpu in ds["gpu"].values:
        fits = ds["max_batch"].sel(gpu=gpu).values
        ax.plot(context, fits, color=gpu_colour(gpu))
        finite = np.flatnonzero(np.isfinite(fits))
        if finite.size:
            x, y = context[finite[-1]], fits[finite[-1]]
            ax.plot(x, y, "o", color=gpu_colour(gpu), markersize=4)
            lines.append((x, y, f"{gpu_name(gpu)}: {_count(y)} at {tokens(x)}", gpu_colour(gpu)))
    log_axis(ax, "x", binary=True)
    ax.xaxis.set_major_formatter(lambda value, _: tokens(value))
    log_axis(ax, "y")
    ax.set_xlim(context[0], context[-1])
    headline(fig, ds.attrs["title"])
    titled(ax, "", "context of each sequence (tokens)", "largest batch (concurrent sequences)")
    end_labels(ax, lines)
    return fig


def _count(value: float) -> str:
    return "0" if np.isnan(value) else f"{value:,.0f}"
