"""Label flags, and count the points that carry each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from ..errors import SpecError


def flag_labels(flags: xr.DataArray) -> xr.DataArray:
    """Return the labels of a flag variable, "" where there is none (-1).

    Raises
    ------
    SpecError
        For a variable without flags.

    Examples
    --------
    >>> import cheetah_xr as cx
    >>> ds = cx.evaluate("llama-3.1-8b", "h100-sxm", batch=[1, 5000], seq_len=4096)
    >>> flag_labels(ds.status).values.tolist()
    ['ok', 'infeasible_memory']
    """
    if "flag_values" not in flags.attrs:
        raise SpecError(f"flag_labels: {flags.name!r} is not a flag")
    meanings = np.array([*str(flags.attrs["flag_meanings"]).split(), ""], dtype=object)
    labels = xr.apply_ufunc(lambda codes: meanings[codes], flags, dask="parallelized", output_dtypes=[object])
    return xr.DataArray(labels).assign_attrs(long_name=flags.attrs.get("long_name", ""))


def histogram(ds: xr.Dataset, of: str, over: Sequence[str] | str) -> xr.DataArray:
    """Count the points of every flag.

    Parameters
    ----------
    ds
        A result.
    of
        A flag variable: "bottleneck" or "status".
    over
        Dims to count along.

    Returns
    -------
    xarray.DataArray
        ``<of>_count`` on the remaining dims and ``<of>_label``; points without a flag (-1) are not counted.

    Raises
    ------
    SpecError
        For a variable without flags, or an unknown dim.

    Examples
    --------
    >>> import cheetah_xr as cx
    >>> ds = cx.evaluate("llama-3.1-8b", "h100-sxm", batch=[1, 2, 64], seq_len=4096, efficiency="ideal")
    >>> counts = histogram(ds, "bottleneck", "batch")
    >>> int(counts.sel(bottleneck_label="weights"))
    2
    """
    dims = [over] if isinstance(over, str) else list(over)
    if of not in ds or "flag_values" not in ds[of].attrs:
        raise SpecError(f"histogram: {of!r} is not a flag of the dataset")
    absent = [dim for dim in dims if dim not in ds.dims]
    if absent or not dims:
        raise SpecError(f"histogram: over {', '.join(absent) or 'nothing'}; dims are {', '.join(map(str, ds.dims))}")
    flags = ds[of].expand_dims({dim: ds.sizes[dim] for dim in dims if dim not in ds[of].dims})
    labels = str(ds[of].attrs["flag_meanings"]).split()
    codes = np.asarray(ds[of].attrs["flag_values"])
    counts = xr.concat([(flags == code).sum(dims) for code in codes], dim=f"{of}_label").astype(np.int64)
    named = counts.assign_coords({f"{of}_label": labels}).rename(f"{of}_count")
    rest = [dim for dim in flags.dims if dim not in dims]
    described = {"units": "1", "long_name": f"points by {of}, along {', '.join(dims)}"}
    counted: xr.DataArray = named.transpose(*rest, f"{of}_label").assign_attrs(described)
    return counted
