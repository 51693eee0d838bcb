"""Credible intervals: quantiles of a result over the samples of a posterior."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..engine.dims import DRAW, QUANTILE
from ..engine.inputs.posterior_axis import RESIDUAL_SCALE
from ..errors import SpecError
from .derive import DERIVED

Array = NDArray[Any]

TIME_POWERS = {"s": 1, "USD": 1, "J": 1, "1/s": -1}
"""Power of time that a variable which is no derived metric is proportional to, by its units; 0 for other units."""

N_MULTIPLES = 64
"""Equally probable multiples of the residual scale: an end of an interval is off by less than 1/64 in probability."""

CHUNK = 2_097_152
"""Numbers sorted at once."""


def summarize(ds: xr.Dataset, prob: float = 0.9, error: bool = True) -> xr.Dataset:
    """Reduce a result evaluated with a posterior to credible intervals.

    Parameters
    ----------
    ds
        Result with the dim ``draw``, of :func:`cheetah_xr.evaluate` with ``efficiency=posterior``; derived metrics too.
    prob
        Probability of the central interval, above 0 and below 1.
    error
        Whether the interval is one of a measurement, or of the prediction alone. A measured time is the predicted one
        times exp(residual_scale * t), t of a Student distribution with ``residual_scale.attrs["dof"]`` degrees of
        freedom; a rate is divided by that.

    Returns
    -------
    xarray.Dataset
        In place of ``draw`` the dim ``quantile`` with the labels (1 - prob)/2, 1/2 and (1 + prob)/2 (0.05, 0.5 and
        0.95 by default), taken over draws, each with every multiple t of a set of equally probable ones. Seconds, costs
        and energies follow time, rates, ``mfu`` and ``mbu`` its inverse; what else has draws has no error. A flag is
        that of most draws, the lower code where two have as many, without ``quantile``. Variables without draws are
        unchanged; coordinates on draws are dropped. Attributes say the probability. Quantiles of parts do not add up
        to those of the sum.

    Raises
    ------
    SpecError
        When there is no ``draw`` dim, or no ``residual_scale``; for a probability that is none; for a
        variable with draws and no units, whose error is not known.

    Examples
    --------
    >>> import cheetah_xr as cx
    >>> ds = xr.Dataset({"step_time": ("draw", [1e-3, 2e-3, 3e-3], {"units": "s"})})
    >>> cx.summarize(ds, prob=0.5, error=False).step_time.values.tolist()
    [0.00125, 0.002, 0.00275]
    """
    if isinstance(prob, bool) or not isinstance(prob, (int, float)) or not 0 < prob < 1:
        raise SpecError(f"summarize: prob {prob!r}: expected a number above 0 and below 1")
    if DRAW not in ds.dims:
        raise SpecError(f"summarize: the dataset has no dim {DRAW!r}; evaluate with efficiency=load_posterior(...)")
    if error and (RESIDUAL_SCALE not in ds.coords or "dof" not in ds[RESIDUAL_SCALE].attrs):
        raise SpecError(
            f"summarize: the dataset has no coordinate {RESIDUAL_SCALE} with dof; error=False leaves errors out"
        )
    quantiles = np.array([(1 - prob) / 2, 0.5, (1 + prob) / 2])
    summary = ds.drop_vars([name for name in ds.coords if DRAW in ds[name].dims])
    # Labels are rounded: (1 - 0.9) / 2 is not the number 0.05 that a caller selects.
    summary = summary.assign_coords({QUANTILE: (QUANTILE, np.round(quantiles, 12), {"units": "1"})})
    for name, values in ds.data_vars.items():
        if DRAW not in values.dims:
            continue
        if "flag_values" in values.attrs:
            summary[name] = _of_most(values)
        else:
            summary[name] = _quantiles(values, ds, quantiles, _power(values) if error else 0)
            summary[name].attrs |= {"probability": float(prob), "measurement_error": str(bool(error))}
    return summary.drop_vars(DRAW, errors="ignore")


def _power(values: xr.DataArray) -> int:
    """Return the power of time a variable is proportional to."""
    if values.name in DERIVED:
        return DERIVED[str(values.name)].time_power
    if "units" not in values.attrs:
        raise SpecError(
            f"summarize: {values.name} has no units, which say how it follows time; set attrs['units'] or error=False"
        )
    return TIME_POWERS.get(values.attrs["units"], 0)


def _quantiles(values: xr.DataArray, ds: xr.Dataset, quantiles: Array, power: int) -> xr.DataArray:
    """Return quantiles of a variable in place of its draws."""
    if values.dtype.kind not in "iuf":
        raise SpecError(f"summarize: {values.name} is {values.dtype}: expected numbers or a flag")
    scale, t = xr.zeros_like(ds[DRAW], dtype=float), np.zeros(1)
    if power:
        scale, t = power * ds[RESIDUAL_SCALE], multiples(N_MULTIPLES, ds[RESIDUAL_SCALE].attrs["dof"])
    ends: xr.DataArray = xr.apply_ufunc(
        _spread_quantiles,
        values.compute(),
        scale.compute(),
        input_core_dims=[[DRAW], [DRAW]],
        output_core_dims=[[QUANTILE]],
        kwargs={"t": t, "quantiles": quantiles},
        keep_attrs="override",
    )
    order = [QUANTILE if dim == DRAW else dim for dim in values.dims]
    return ends.astype(values.dtype if values.dtype.kind == "f" else np.float64).transpose(*order, ...)


def _spread_quantiles(values: Array, scale: Array, t: Array, quantiles: Array) -> Array:
    """Return quantiles of values * exp(scale * t) over draws, the last axis, and all t."""
    shape = np.broadcast_shapes(values.shape, scale.shape)
    rows = np.broadcast_to(values, shape).reshape(-1, shape[-1]).astype(np.float64)
    scales = np.broadcast_to(scale, shape).reshape(rows.shape)
    ends = np.empty((len(rows), len(quantiles)))
    step = max(1, CHUNK // (shape[-1] * len(t)))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        many = rows[part, :, None] * np.exp(scales[part, :, None] * t)
        # The k-th of n equally probable numbers stands for the probability (k - 1/2)/n.
        ends[part] = np.quantile(many.reshape(len(many), -1), quantiles, axis=1, method="hazen").T
    return ends.reshape(*shape[:-1], len(quantiles))


def _of_most(values: xr.DataArray) -> xr.DataArray:
    """Return the code most draws have."""
    values = values.compute()
    codes = np.unique(values)
    counts = xr.concat([(values == code).sum(DRAW) for code in codes], "code")
    most: xr.DataArray = counts.argmax("code")
    return most.copy(data=codes[most.values]).assign_attrs(values.attrs)


def multiples(n: int, dof: float) -> Array:
    """Return the middles of `n` equally probable slices of a Student distribution: multiples of the residual scale."""
    from scipy import stats

    return np.asarray(stats.t.ppf((np.arange(n) + 0.5) / n, dof))
