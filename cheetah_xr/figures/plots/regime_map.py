"""Draw [CHEETAH], figure 7: which resource bounds decode, over batch and context length."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ...analysis import regimes
from ...api import evaluate
from ..shared.common import assumed, described, drawable, gpu_name, instance, log_grid, max_context, model_name
from ..shared.decode_corners import describe_corners
from ..shared.style import BOUND_BY, BOUND_NAMES, INK, corners, log_axis, new_figure, regime_colours, titled, tokens


def data(
    model: str = "llama-3.1-70b", gpu: str = "h100-sxm", precision: str = "bf16", tp: int | None = None
) -> xr.Dataset:
    """Return the regime of every batch and context and the largest batch that fits; `tp` None is a whole instance."""
    tp = tp or instance(gpu)
    ds = evaluate(
        model, gpu, precision, tp=tp, batch=log_grid(1, 4096, 90), efficiency="ideal",
        seq_len=log_grid(64, min(131072, max_context(model)), 90),
    )  # fmt: skip
    drawable(ds["step_time"])
    return described(
        {"regime": regimes(ds), "max_batch": ds["max_batch"]},
        title=f"What bounds decode of {model_name(model)} on {tp} {gpu_name(gpu)}",
        shows="The resource that takes most of the decode step; the black line is the largest batch that fits. In "
        f"the corners: {describe_corners(model, gpu, precision, tp)}.",
        assumptions=assumed(ds),
    )


def draw(ds: xr.Dataset) -> Figure:
    """Draw the map of regimes with the capacity frontier."""
    fig, ax = new_figure()
    regime = ds["regime"].transpose("seq_len", "batch")
    batch, seq_len = ds["batch"].values, ds["seq_len"].values
    ax.pcolormesh(
        corners(batch),
        corners(seq_len),
        regime.values,
        cmap=regime_colours(),
        vmin=-0.5,
        vmax=len(BOUND_BY) - 0.5,
        alpha=0.85,
        rasterized=True,
    )
    log_axis(ax, "x")
    log_axis(ax, "y", binary=True)
    ax.yaxis.set_major_formatter(lambda value, _: tokens(value))
    ax.set_xlim(batch[0], batch[-1])
    ax.set_ylim(seq_len[0], seq_len[-1])
    ax.plot(ds["max_batch"].values, seq_len, color="black", linewidth=2)
    ax.grid(visible=False)
    titled(ax, ds.attrs["title"], "batch (concurrent sequences)", "context (tokens)")
    present = [name for code, name in enumerate(BOUND_BY) if (regime.values == code).any()]
    for name in present:
        _name_region(ax, name, regime, batch, seq_len)
    patches = [Patch(color=BOUND_BY[name], alpha=0.85, label=BOUND_NAMES[name]) for name in present]
    fig.legend(handles=patches, loc="outside lower center", ncols=len(present))
    return fig


def _name_region(ax: object, name: str, regime: xr.DataArray, batch: object, seq_len: object) -> None:
    """Write the name of a region on it, where it is large enough."""
    rows, columns = np.nonzero(regime.values == list(BOUND_BY).index(name))
    if rows.size < 0.02 * regime.size:
        return
    x = np.asarray(batch)[int(np.median(columns))]
    y = np.asarray(seq_len)[int(np.median(rows[columns == int(np.median(columns))]))]
    ax.text(x, y, BOUND_NAMES[name], color=INK, ha="center", va="center", fontweight="bold")  # type: ignore[attr-defined]
