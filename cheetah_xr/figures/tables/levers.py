"""Tabulate [CHEETAH], the four corner regimes of decode, what bounds a point of each, and the lever against it."""

from __future__ import annotations

import numpy as np
import xarray as xr

from ...analysis import flag_labels, regimes
from ..shared.common import assumed, described, drawable, gpu_name, instance, model_name
from ..shared.decode_corners import CORNERS, LEVERS, at_corners
from ..shared.style import BOUND_NAMES


def data(model: str = "llama-3.1-70b", gpu: str = "h100-sxm") -> xr.Dataset:
    """Return one row per corner."""
    tp = instance(gpu)
    ds = at_corners(model, gpu, "bf16", tp)
    drawable(ds["max_batch"])
    bound = flag_labels(regimes(ds)).values.tolist()
    columns = {
        "corner": list(CORNERS),
        "batch": ds["batch"].values,
        "context": ds["seq_len"].values,
        "bound_by": [BOUND_NAMES[cause] for cause in bound],
        "max_batch": ds["max_batch"].where(np.isfinite(ds["max_batch"])).values.astype(float),
        "tokens_per_s_per_request": (1 / ds["step_time"]).values.astype(float),
        "lever": [LEVERS.get(cause, "-") for cause in bound],
    }
    return described(
        {name: ("row", values) for name, values in columns.items()},
        title=f"Four corners of {model_name(model)} decode on {tp} {gpu_name(gpu)}",
        shows="What bounds a point of each corner of the regime map, the largest batch that fits at its context, the "
        "output tokens/s of one request, and the lever that [CHEETAH] names against that bound.",
        assumptions=assumed(ds.drop_vars(["batch", "seq_len"])),
    )
