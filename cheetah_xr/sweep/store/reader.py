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
from .location import Place, place_of
from .writer import naming, open_root, state

LONGEST = 20_000_000
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
    place = place_of(path)
    found = state(place)
    ds = opened(place, chunks={})
    missing = found.total - len(found.done)
    if missing:
        warnings.warn(f"{place}: {missing} of {found.total} blocks are missing; run the sweep again", stacklevel=2)
    return ds


def opened(path: str | Path | Place, chunks: dict[str, int] | None) -> xr.Dataset:
    """A result, whole or not; without `chunks` no Dask array is made, so Dask need not be imported.

    Raises
    ------
    SpecError
        When the metadata or coordinates are damaged.
    """
    place = place_of(path)
    with naming(place):
        _check_sizes(open_root(place, "r"))
        ds = xr.open_zarr(
            place.zarr_store(read_only=True),
            consolidated=False,
            zarr_format=3,
            chunks=chunks,
            decode_timedelta=False,
            create_default_indexes=False,
        )
        large = [str(name) for name, coord in ds.coords.items() if coord.size > LONGEST]
        if large:
            raise SpecError(f"coordinate {', '.join(large)} has more than {LONGEST:,} values")
        ds = ordered(ds)
        for variable in ds.variables.values():
            if "flag_values" in variable.attrs:
                variable.attrs["flag_values"] = np.asarray(variable.attrs["flag_values"], dtype=variable.dtype)
    return ds


def _check_sizes(root: zarr.Group) -> None:
    """Refuse arrays of more chunks than a sweep has, before anything is laid out for each."""
    for name, array in root.arrays():
        if array.nchunks > MOST_BLOCKS:
            raise SpecError(f"{name} has {array.nchunks:,} chunks; a result has at most {MOST_BLOCKS:,}")


def ordered(ds: xr.Dataset) -> xr.Dataset:
    """The same with dims, coordinates (loaded) and variables in one order, whatever order the store gave them in.

    Raises
    ------
    SpecError
        For a coordinate that is damaged.
    """
    order = json.loads(ds.attrs["order"])
    places = {name: number for number, name in enumerate(order)}
    names = sorted(map(str, ds.variables), key=lambda name: (places.get(name, len(places)), name))
    coords = {}
    for name in (name for name in names if name in ds.coords):
        try:
            coords[name] = ds[name].variable.load()
        except (ValueError, RuntimeError) as error:
            raise SpecError(f"coordinate {name} is damaged ({error}); run the sweep again to mend it") from None
    return xr.Dataset({name: ds[name].variable for name in names if name in ds.data_vars}, coords, ds.attrs)
