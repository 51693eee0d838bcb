"""Open the result of a sweep."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import xarray as xr
import zarr

from ...analysis import accessor as accessor  # registers ds.cheetah
from ...specs import SpecError
from ..blocks import MOST_BLOCKS
from .location import Location, location_of
from .writer import naming, open_root, read_completion

LONGEST_COORDINATE = 20_000_000
"""Values of a coordinate that are read into memory; a sweep's axis has at most half as many."""


def open_result(path: str | Path) -> xr.Dataset:
    """Open the result of a sweep, lazily.

    Parameters
    ----------
    path
        Folder or URL of the store.

    Returns
    -------
    xarray.Dataset
        Dask-backed; flags are int8 with CF ``flag_values`` and ``flag_meanings``. A chunk whose checksum is wrong
        raises when it is read.

    Raises
    ------
    SpecError
        When there is no result at `path`, or its metadata or coordinates are damaged.

    Warns
    -----
    UserWarning
        When blocks are missing: their points read as NaN, and -1 in flags.

    Examples
    --------
    >>> import cheetah_xr as cx
    >>> ds = cx.open_result("outputs/qwen3-32b-h100.zarr")  # doctest: +SKIP
    """
    location = location_of(path)
    completion = read_completion(location)
    ds = open_store(location, chunks={})
    missing = completion.total - len(completion.done)
    if missing:
        warnings.warn(
            f"{location}: {missing} of {completion.total} blocks are missing; run the sweep again", stacklevel=2
        )
    return ds


def open_store(path: str | Path | Location, chunks: dict[str, int] | None) -> xr.Dataset:
    """Open a store, complete or not; without `chunks` no Dask array is made, so Dask need not be imported.

    Raises
    ------
    SpecError
        When the metadata or coordinates are damaged.
    """
    location = location_of(path)
    with naming(location):
        _check_sizes(open_root(location, "r"))
        ds = xr.open_zarr(
            location.zarr_store(read_only=True),
            consolidated=False,
            zarr_format=3,
            chunks=chunks,
            decode_timedelta=False,
            create_default_indexes=False,
        )
        large = [str(name) for name, coord in ds.coords.items() if coord.size > LONGEST_COORDINATE]
        if large:
            raise SpecError(f"coordinate {', '.join(large)} has more than {LONGEST_COORDINATE:,} values")
        ds = in_stored_order(ds)
        for variable in ds.variables.values():
            if "flag_values" in variable.attrs:
                variable.attrs["flag_values"] = np.asarray(variable.attrs["flag_values"], dtype=variable.dtype)
    return ds


def _check_sizes(root: zarr.Group) -> None:
    """Reject arrays of more chunks than a sweep has, before anything is laid out for each."""
    for name, array in root.arrays():
        if array.nchunks > MOST_BLOCKS:
            raise SpecError(f"{name} has {array.nchunks:,} chunks; a result has at most {MOST_BLOCKS:,}")


def in_stored_order(ds: xr.Dataset) -> xr.Dataset:
    """Put dims, coordinates (loaded) and variables in the stored order, whatever order Zarr lists them in.

    Raises
    ------
    SpecError
        For a coordinate that is damaged.
    """
    order = json.loads(ds.attrs["order"])
    rank = {name: number for number, name in enumerate(order)}
    names = sorted(map(str, ds.variables), key=lambda name: (rank.get(name, len(rank)), name))
    coords = {}
    for name in (name for name in names if name in ds.coords):
        try:
            coords[name] = ds[name].variable.load()
        except (ValueError, RuntimeError) as error:
            raise SpecError(f"coordinate {name} is damaged ({error}); run the sweep again to mend it") from None
    return xr.Dataset({name: ds[name].variable for name in names if name in ds.data_vars}, coords, ds.attrs)
