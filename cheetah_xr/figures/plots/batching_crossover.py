"""Draw [Roofline]: output tokens/s over batch in its bandwidth model, and the batch where compute becomes the bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from ...analysis import derive
from ...specs import ParameterCountModel, SpecError, load_model
from ..shared.common import described, gpu_name, log_grid
from ..shared.source_accounting import A100, H100, RTX_4090, ideal
from ..shared.style import INK, end_labels, gpu_colour, log_axis, new_figure, plain, titled

GPUS = (A100, H100, RTX_4090)
OUTPUTS = ["throughput", "bottleneck", "step_time"]


def data(model: Any = "8b") -> xr.Dataset:
    """Return output tokens/s over batch, and the crossover of every accelerator."""
    if not isinstance(load_model(model), ParameterCountModel):
        raise SpecError("batching-crossover: the bandwidth model takes a parameter count, such as 8b, 32b or 70b")
    one = derive(ideal(model, list(GPUS)), ["ridge", "arithmetic_intensity", "tps_per_user"])
    crossover = one["ridge"] / one["arithmetic_intensity"]
    batch = sorted({*log_grid(1, 4096, 73), *(round(float(c)) for c in crossover)})
    ds = ideal(model, list(GPUS), batch=batch, outputs=OUTPUTS)
    name = str(ds["model"].values).upper()
    crossovers = ", ".join(
        f"{c:.0f} on {gpu_name(str(g))}" for g, c in zip(one["gpu"].values, crossover.values, strict=True)
    )
    return described(
        {
            "throughput": (("gpu", "batch"), ds["throughput"].values, {"units": "1/s", "long_name": "output tokens/s"}),
            "crossover": ("gpu", crossover.values, {"long_name": "batch at which compute takes as long as memory"}),
            "single": ("gpu", one["tps_per_user"].values, {"units": "1/s", "long_name": "tokens/s of one stream"}),
            "limit": ("gpu", (one["peak_bf16"] / one["flops"]).values, {"units": "1/s"}),
            "gpu": ds["gpu"].values,
            "batch": batch,
        },
        title=f"[Roofline]: {name} in BF16, throughput grows with batch up to the ridge",
        shows="Output tokens/s of a whole batch. Up to the crossover one read of the weights serves all sequences; "
        f"beyond it the step is bound by compute. Crossover batch: {crossovers}.",
        assumptions="The bandwidth model: a parameter count, bf16, one GPU, no KV cache or activations; "
        "bandwidths (2.0, 3.35 and 1.008 TB/s) and BF16 peaks (312, 989 and 165 TFLOP/s) as printed; ideal "
        "efficiencies.",
    )


def draw(ds: xr.Dataset) -> Figure:
    """Draw one roofline per accelerator with its crossover."""
    fig, ax = new_figure()
    log_axis(ax, "x", binary=True)
    log_axis(ax, "y")
    batch, lines = ds["batch"].values, []
    for name in ds["gpu"].values:
        at, colour = ds.sel(gpu=name), gpu_colour(str(name))
        ax.plot(batch, at["throughput"], color=colour, linewidth=2.2)
        corner = float(at["crossover"]), float(at["limit"])
        ax.plot(*corner, "o", color=colour, markersize=7)
        ax.annotate(f"B = {corner[0]:.0f}", corner, xytext=(6, -5), textcoords="offset points", va="top", color=colour)
        lines.append((batch[-1], float(at["limit"]), f"{gpu_name(str(name))}\n{plain(float(at['limit']))}/s", colour))
        start = (1.0, float(at["single"]))
        ax.annotate(
            f"{start[1]:.0f}/s",
            start,
            xytext=(-5, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            color=colour,
        )
    ax.set_xticks([4**power for power in range(7)])
    ax.set_xlim(batch[0] / 2.8, batch[-1])
    ax.set_ylim(float(ds["single"].min()) / 2, float(ds["limit"].max()) * 2.5)
    low = np.sqrt(float(ds["single"].min()) * float(ds["limit"].min()))
    ax.text(batch[-1] / 1.2, low / 2.2, "left of a dot: bound by memory", color=INK, ha="right")
    titled(ax, ds.attrs["title"], "batch (concurrent sequences)", "output tokens/s of the batch")
    end_labels(ax, lines, gap=2.6)
    return fig
