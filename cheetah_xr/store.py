"""The store of a sweep: a Zarr v3 template, block writes, completion markers, and opening a result."""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xarray as xr
import zarr
from numpy.typing import NDArray

from ._version import MODEL_VERSION
from .blocks import Block, Blocks
from .engine import canonical_json, dataset_attributes
from .recipe import Recipe
from .specs import SpecError

Array = NDArray[Any]
MARKERS = "completed/blocks"
"""Array inside a store with a 1 for every finished block, each in a chunk of its own."""


def fingerprint_parts(recipe: Recipe, blocks: Blocks) -> dict[str, str]:
    """Hash of everything a result depends on, by part, so that a mismatch can say what differs."""
    engine, grid = recipe.engine, recipe.engine.grid
    axes = hashlib.sha256(canonical_json([grid.dims, grid.sizes, [str(p) for p in grid.phases.values]]).encode())
    for name, values in sorted(grid.inputs.items()):
        axes.update(name.encode())
        axes.update(np.ascontiguousarray(values).tobytes())
    attrs = dataset_attributes(engine)
    return {
        "axes and overrides": axes.hexdigest()[:16],
        "specs": _hash(attrs["specs"]),
        "options": _hash(attrs["options"]),
        "outputs": _hash(canonical_json([[p.name, p.dims, str(p.dtype)] for p in recipe.products])),
        "reductions": _hash(canonical_json([r.model_dump(mode="json") for r in recipe.reductions])),
        "block shape": _hash(canonical_json(dict(blocks.steps))),
        "model version": MODEL_VERSION,
    }


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def prepare_store(path: Path, recipe: Recipe, blocks: Blocks, *, resume: bool, overwrite: bool) -> set[int]:
    """Create the template, or check that an existing one is of the same sweep.

    Returns
    -------
    set of int
        Blocks that are already there.

    Raises
    ------
    SpecError
        When something else is at `path`, or the store there is of another sweep; nothing is touched.
    """
    parts = fingerprint_parts(recipe, blocks)
    if path.exists():
        if not is_result(path):
            raise SpecError(f"{path}: exists and is not a result of a sweep; choose another --store")
        if overwrite:
            shutil.rmtree(path)
        elif not resume:
            raise SpecError(f"{path}: exists; use --resume to fill what is missing or --overwrite to start again")
        else:
            _check_same(path, parts)
            return finished(path)
    _create(path, recipe, blocks, parts)
    return set()


def is_result(path: Path) -> bool:
    """Whether a folder holds a result of a sweep, whole or not."""
    return (path / "zarr.json").is_file() and (path / MARKERS / "zarr.json").is_file()


def _check_same(path: Path, parts: Mapping[str, str]) -> None:
    try:
        theirs = json.loads(str(_root(path).attrs.get("fingerprint_parts", "{}")))
    except (ValueError, KeyError) as error:
        raise SpecError(f"{path}: its metadata cannot be read ({error}); use --overwrite to start again") from None
    different = [name for name, value in parts.items() if theirs.get(name) != value]
    if different:
        raise SpecError(
            f"{path}: holds the result of another sweep ({', '.join(different)} differ); use --overwrite to replace it "
            "or --store for another place"
        )


def _root(path: Path, mode: Literal["r", "r+"] = "r+") -> zarr.Group:
    return zarr.open_group(path, mode=mode, use_consolidated=False)


def _create(path: Path, recipe: Recipe, blocks: Blocks, parts: Mapping[str, str]) -> None:
    """Write coordinates, attributes and the empty arrays; whole or not at all."""
    building = path.with_name(path.name + ".building")
    if building.exists():
        shutil.rmtree(building)
    coords = stored_coords(recipe)
    attrs = (
        dataset_attributes(recipe.engine)
        | dict(recipe.described)
        | {
            "fingerprint": _hash(canonical_json(dict(parts))),
            "fingerprint_parts": canonical_json(dict(parts)),
            "blocks": len(blocks),
            "order": canonical_json([*recipe.engine.grid.dims, *coords.coords, *(p.name for p in recipe.products)]),
        }
    )
    with warnings.catch_warnings():
        # Zarr's note that variable-length text has no final specification yet; xarray reads and writes it.
        warnings.filterwarnings("ignore", message=".*Zarr V3 specification.*")
        coords.assign_attrs(attrs).to_zarr(building, mode="w", zarr_format=3, consolidated=False)
    root = _root(building)
    coordinates = " ".join(str(name) for name in coords.coords if name not in coords.dims)
    for product in recipe.products:
        extra = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in product.attrs.items()}
        root.create_array(
            product.name,
            shape=product.shape,
            chunks=tuple(blocks.steps.get(dim, n) for dim, n in zip(product.dims, product.shape, strict=True)),
            dtype=product.dtype,
            fill_value=product.fill_value,
            dimension_names=list(product.dims),
            attributes={**extra, "coordinates": coordinates},
            config={"write_empty_chunks": True},
        )
    root.create_array(
        MARKERS,
        shape=(len(blocks),),
        chunks=(1,),
        dtype=np.int8,
        fill_value=0,
        compressors=None,
        dimension_names=["block"],
    )
    with warnings.catch_warnings():
        # Readers find everything in one file; Zarr notes that version 3 has no final word on it yet.
        warnings.filterwarnings("ignore", message=".*Consolidated metadata.*")
        zarr.consolidate_metadata(building)
    building.rename(path)


def stored_coords(recipe: Recipe) -> xr.Dataset:
    """Coordinates of what is stored: those of the sweep on dims that are left, and those reductions add."""
    used = {dim for product in recipe.products for dim in product.dims}
    kept = {k: (dims, v, attrs) for k, (dims, v, attrs) in recipe.engine.grid.coords.items() if set(dims) <= used}
    added = {
        dim: np.array(labels, dtype=np.dtypes.StringDType())
        for p in recipe.products
        for dim, labels in p.coords.items()
    }
    return xr.Dataset(coords=kept | {dim: (dim, labels) for dim, labels in added.items()})


def write_block(path: Path, recipe: Recipe, block: Block, values: Mapping[str, Array]) -> None:
    """Write a block's chunks, then mark it finished.

    A variable without some of the cut dims is written by the first block along them only: no chunk has two writers.
    """
    root = _root(path)
    for product in recipe.products:
        if all(block.index[dim] == 0 for dim in block.index if dim not in product.dims):
            place = tuple(block.selection.get(dim, slice(None)) for dim in product.dims)
            _array(root, product.name)[place] = values[product.name]
    _array(root, MARKERS)[block.number] = 1


def finished(path: Path) -> set[int]:
    """Numbers of the blocks that are marked finished."""
    done = np.asarray(_array(_root(path, "r"), MARKERS)[:])
    return set(np.flatnonzero(done).tolist())


def _array(root: zarr.Group, name: str) -> Any:
    return root[name]


def open_result(path: str | Path) -> xr.Dataset:
    """Open the result of a sweep, lazily.

    Parameters
    ----------
    path
        Folder of the store.

    Returns
    -------
    xarray.Dataset
        Dask-backed; flags are int8 with CF ``flag_values`` and ``flag_meanings``.

    Raises
    ------
    SpecError
        When there is no result at `path`.

    Warns
    -----
    UserWarning
        When blocks are missing: their points read as NaN, and -1 in flags.

    Examples
    --------
    >>> import cheetah_xr as cx
    >>> ds = cx.open_result("outputs/qwen3-32b-h100.zarr")  # doctest: +SKIP
    """
    folder = Path(path)
    ds = opened(folder, chunks={})
    missing = int(ds.attrs["blocks"]) - len(finished(folder))
    if missing:
        total = ds.attrs["blocks"]
        warnings.warn(f"{folder}: {missing} of {total} blocks are missing; run the sweep again", stacklevel=2)
    return ds


def opened(folder: Path, chunks: dict[str, int] | None) -> xr.Dataset:
    """The result in a folder, whole or not; without `chunks` no Dask array is made, so Dask need not be imported.

    Raises
    ------
    SpecError
        When there is no result in `folder`.
    """
    if not is_result(folder):
        raise SpecError(f"{folder}: no result of a sweep there")
    ds = ordered(xr.open_zarr(folder, consolidated=False, chunks=chunks, decode_timedelta=False))
    for variable in ds.variables.values():
        if "flag_values" in variable.attrs:
            variable.attrs["flag_values"] = np.asarray(variable.attrs["flag_values"], dtype=variable.dtype)
    return ds


def ordered(ds: xr.Dataset) -> xr.Dataset:
    """The same with dims, coordinates (loaded) and variables in one order, whatever order the store gave them in."""
    order = json.loads(ds.attrs["order"])
    places = {name: number for number, name in enumerate(order)}
    names = sorted(map(str, ds.variables), key=lambda name: (places.get(name, len(places)), name))
    coords = {name: ds[name].variable.load() for name in names if name in ds.coords}
    return xr.Dataset({name: ds[name].variable for name in names if name in ds.data_vars}, coords, ds.attrs)
