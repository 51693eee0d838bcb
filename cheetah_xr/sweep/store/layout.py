"""The layout of a store before any block: coordinates, attributes, empty arrays, and the fingerprint of the sweep."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping

import numpy as np
import xarray as xr
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec
from zarr.core.buffer import Buffer

from ..._version import MODEL_VERSION
from ...engine.evaluator import canonical_json, dataset_attributes
from ..blocks import Blocks
from ..plan import Plan
from .completion import create_completion_records

LAYOUT_VERSION = "3"
"""Raised whenever names or files of a store change; a store of another version is rejected."""

COMPRESSORS = (ZstdCodec(), Crc32cCodec())
"""Every chunk ends with its checksum, so that reading a damaged one raises."""


def fingerprint_parts(plan: Plan, blocks: Blocks) -> dict[str, str]:
    """Hash everything a result depends on, by part, so that a mismatch can say what differs."""
    engine, grid = plan.engine, plan.engine.grid
    axes = hashlib.sha256(canonical_json([grid.dims, grid.sizes, [str(p) for p in grid.phases.values]]).encode())
    for name, values in sorted(grid.inputs.items()):
        axes.update(name.encode())
        axes.update(np.ascontiguousarray(values).tobytes())
    attrs = dataset_attributes(engine.grid)
    return {
        "axes and overrides": axes.hexdigest()[:16],
        "specs": _hash(attrs["specs"]),
        "options": _hash(attrs["options"]),
        "outputs": _hash(canonical_json([[p.name, p.dims, str(p.dtype)] for p in plan.products])),
        "reductions": _hash(canonical_json([r.model_dump(mode="json") for r in plan.reductions])),
        "block shape": _hash(canonical_json(dict(blocks.steps))),
        "store layout": LAYOUT_VERSION,
        "model version": MODEL_VERSION,
    }


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def fingerprint_of(parts: Mapping[str, str]) -> str:
    """Return one hash of all parts."""
    return _hash(canonical_json(dict(parts)))


def empty_store(plan: Plan, blocks: Blocks, parts: Mapping[str, str]) -> dict[str, bytes]:
    """Return coordinates, attributes and the metadata of the empty arrays, by key."""
    files: dict[str, Buffer] = {}
    memory = zarr.storage.MemoryStore(files)
    coords = stored_coords(plan)
    attrs = (
        dataset_attributes(plan.engine.grid)
        | dict(plan.attrs)
        | {
            "fingerprint": fingerprint_of(parts),
            "fingerprint_parts": canonical_json(dict(parts)),
            "blocks": len(blocks),
            "order": canonical_json([*plan.engine.grid.dims, *coords.coords, *(p.name for p in plan.products)]),
        }
    )
    with warnings.catch_warnings():
        # Zarr's note that variable-length text has no final specification yet; xarray reads and writes it.
        warnings.filterwarnings("ignore", message=".*Zarr V3 specification.*")
        checked = {name: {"compressors": COMPRESSORS} for name in coords.coords}
        coords.assign_attrs(attrs).to_zarr(memory, mode="w", zarr_format=3, consolidated=False, encoding=checked)
    root = zarr.open_group(memory, mode="r+", use_consolidated=False)
    coordinates = " ".join(str(name) for name in coords.coords if name not in coords.dims)
    for product in plan.products:
        extra = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in product.attrs.items()}
        root.create_array(
            product.name,
            shape=product.shape,
            chunks=tuple(blocks.steps.get(dim, n) for dim, n in zip(product.dims, product.shape, strict=True)),
            dtype=product.dtype,
            fill_value=product.fill_value,
            compressors=COMPRESSORS,
            dimension_names=list(product.dims),
            attributes={**extra, "coordinates": coordinates},
        )
    create_completion_records(root, {product.name: product.dims for product in plan.products}, blocks)
    with warnings.catch_warnings():
        # Readers find everything in one file; Zarr notes that version 3 has no final word on it yet.
        warnings.filterwarnings("ignore", message=".*Consolidated metadata.*")
        zarr.consolidate_metadata(memory)
    return {key: bytes(data.to_bytes()) for key, data in files.items()}


def stored_coords(plan: Plan) -> xr.Dataset:
    """Return the coordinates of a store: those of the sweep on dims that are not reduced, and those reductions add."""
    used = {dim for product in plan.products for dim in product.dims}
    unreduced = {k: (dims, v, attrs) for k, (dims, v, attrs) in plan.engine.grid.coords.items() if set(dims) <= used}
    added = {
        dim: np.array(labels, dtype=np.dtypes.StringDType() if isinstance(labels[0], str) else np.float64)
        for p in plan.products
        for dim, labels in p.coords.items()
    }
    return xr.Dataset(coords=unreduced | {dim: (dim, labels) for dim, labels in added.items()})
