"""``ds.cheetah``: the analysis functions as methods of a result. Importing this module registers it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import xarray as xr

from .best import best
from .derive import derive
from .histogram import histogram
from .pareto import pareto, pareto_mask
from .regimes import max_batch, regimes


@xr.register_dataset_accessor("cheetah")  # type: ignore[no-untyped-call]
class Cheetah:
    """Analysis of one result; every method is the function of :mod:`cheetah_xr.analysis` of its name.

    Examples
    --------
    >>> import cheetah_xr as cx
    >>> ds = cx.evaluate("llama-3.1-8b", "h100-sxm", batch=[1, 64], seq_len=2048)
    >>> [round(float(t), 4) for t in ds.cheetah.derive("tpot").tpot]
    [0.0074, 0.0148]
    """

    def __init__(self, ds: xr.Dataset) -> None:
        self._ds = ds

    def derive(self, names: Sequence[str] | str) -> xr.Dataset:
        """Add derived metrics; see :func:`cheetah_xr.derive`."""
        return derive(self._ds, names)

    def regimes(self) -> xr.DataArray:
        """Return what bounds each point; see :func:`cheetah_xr.analysis.regimes`."""
        return regimes(self._ds)

    def max_batch(self, where: str | Sequence[str] | None = None) -> xr.DataArray:
        """Return the largest batch; see :func:`cheetah_xr.analysis.max_batch`."""
        return max_batch(self._ds, where)

    def best(self, maximize: str, over: Sequence[str] | str, where: Any = None, **more: Any) -> xr.Dataset:
        """Find the best point along some axes; see :func:`cheetah_xr.analysis.best`."""
        return best(self._ds, maximize, over, where, **more)

    def pareto(self, x: str, y: str, over: Sequence[str] | str, **more: Any) -> xr.Dataset:
        """Return the Pareto frontier of two metrics; see :func:`cheetah_xr.analysis.pareto`."""
        return pareto(self._ds, x, y, over, **more)

    def pareto_mask(self, x: str, y: str, over: Sequence[str] | str, **more: Any) -> xr.DataArray:
        """Mark the points on the frontier; see :func:`cheetah_xr.analysis.pareto_mask`."""
        return pareto_mask(self._ds, x, y, over, **more)

    def histogram(self, of: str, over: Sequence[str] | str) -> xr.DataArray:
        """Count the points of every flag; see :func:`cheetah_xr.analysis.histogram`."""
        return histogram(self._ds, of, over)
