"""List the layouts of a number of GPUs that a model and its options allow."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from ..specs import AnyModel, Model, Options, SpecError
from . import dims as d
from .breakdowns.operations import ANY_GPU
from .evaluator import evaluate_axes
from .inputs.axes import layout_labels
from .inputs.gather import axes_of
from .validity import CODES

MOST_GPUS = 1_000_000
"""GPUs of an instance whose layouts are listed."""


def valid_layouts(n_gpus: int, model: AnyModel, options: Options) -> xr.Dataset:
    """Return the layouts for which no condition on model and layout applies.

    Parameters
    ----------
    n_gpus
        GPUs of the instance, tp*dp.
    model
        The model.
    options
        Accounting options; memory is not looked at.

    Returns
    -------
    xarray.Dataset
        ``tp``, ``dp`` and ``ep`` over the dim ``layout``.

    Raises
    ------
    SpecError
        For a number of GPUs that is not a positive integer, or above a million.
    """
    if isinstance(n_gpus, bool) or not isinstance(n_gpus, (int, np.integer)) or n_gpus < 1:
        raise SpecError(f"n_gpus: expected a whole number of at least 1, got {n_gpus!r}")
    if n_gpus > MOST_GPUS:
        raise SpecError(f"n_gpus: expected at most {MOST_GPUS:,}, got {n_gpus!r}")
    divisors = [n for n in range(1, n_gpus + 1) if n_gpus % n == 0]
    moe = isinstance(model, Model) and model.is_moe
    pairs = [(tp, ep) for tp in divisors for ep in (divisors if moe else [1])]
    tp = xr.DataArray([p[0] for p in pairs], dims=d.LAYOUT)
    ep = xr.DataArray([p[1] for p in pairs], dims=d.LAYOUT)
    degrees: dict[str, Any] = {"tp": tp, "dp": n_gpus // tp, "ep": ep}
    axes = axes_of(model, ANY_GPU, efficiency="ideal", options=options.ignoring_memory(), **degrees)
    valid = evaluate_axes(axes, ["status"], "float32", 4e9)["status"].values == CODES["ok"]
    columns = {name: (d.LAYOUT, values.values[valid]) for name, values in degrees.items()}
    labels = layout_labels(**{name: column for name, (_, column) in columns.items()})
    return xr.Dataset(columns, coords={d.LAYOUT: labels})
