"""Create, resume, write and check the store of a sweep."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import zarr
from numpy.typing import NDArray

from ...specs import SpecError
from ..blocks import Block, Blocks
from ..plan import Plan
from .completion import RECORDS_KEY, Completion, check_completion, erase_completion, record_completion
from .layout import LAYOUT_VERSION, empty_store, fingerprint_of
from .location import ROOT, Location, location_of

Array = NDArray[Any]


def prepare_store(
    location: Location, plan: Plan, blocks: Blocks, parts: Mapping[str, str], *, resume: bool, overwrite: bool
) -> Completion:
    """Create a store, or check an existing one: every chunk is read, and damaged blocks become unfinished again.

    Returns
    -------
    Completion
        Finished blocks, and damaged keys.

    Raises
    ------
    SpecError
        When something else is at `location`, or the store is of another sweep; nothing is changed.
    """
    files = empty_store(plan, blocks, parts)
    if not location.exists():
        location.create(files)
    elif not is_result(location):
        if location.folder is not None or not location.listing() <= set(files):
            raise SpecError(f"{location}: exists and is not the store of a sweep; choose another --store")
        location.create(files)  # an object store in which a run was stopped before the root was written
    elif overwrite:
        location.remove()
        location.create(files)
    elif not resume:
        raise SpecError(f"{location}: exists; use --resume to fill what is missing or --overwrite to start again")
    else:
        return _resume(location, files, parts)
    return Completion(len(blocks), frozenset())


def _resume(location: Location, files: Mapping[str, bytes], parts: Mapping[str, str]) -> Completion:
    _check_same(location, parts)
    _mend(location, files)
    root = open_root(location, "r+")
    with naming(location):
        state = check_completion(location, root, fingerprint_of(parts), checksums=True)
        erase_completion(root, state.damaged)
    location.delete(key for key in location.listing() if key.endswith(".partial"))  # what a killed write leaves behind
    return state


def is_result(location: Location) -> bool:
    """Return whether a location holds the store of a sweep, complete or not."""
    return location.read(ROOT) is not None and location.read(f"{RECORDS_KEY}/{ROOT}") is not None


def _check_same(location: Location, parts: Mapping[str, str]) -> None:
    root = _json(location.read(ROOT))
    try:
        stored = json.loads(root["attributes"]["fingerprint_parts"])
        different = [name for name, value in parts.items() if stored.get(name) != value]
        version = stored.get("store layout")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SpecError(f"{location}: its metadata in {ROOT} cannot be read; use --overwrite to start again") from None
    if "store layout" in different:
        raise SpecError(f"{location}: {other_layout(version)}")
    if different:
        raise SpecError(
            f"{location}: holds the result of another sweep ({', '.join(different)} differ); use --overwrite "
            "to replace it or --store for another location"
        )


def other_layout(version: object) -> str:
    """Describe a store that another version of this package laid out."""
    return (
        f"was written with store layout {version}, and this version of cheetah_xr reads layout {LAYOUT_VERSION}; "
        "run the sweep again with --overwrite"
    )


def _json(data: bytes | None) -> Any:
    """Parse JSON; None where it cannot be."""
    try:
        return None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        return None


def _mend(location: Location, files: Mapping[str, bytes]) -> None:
    """Write lost or damaged files of an empty store again: metadata that is no JSON, and coordinates.

    Raises
    ------
    SpecError
        When an array is not the one the sweep writes.
    """
    for key, data in files.items():
        content = location.read(key)
        if not key.endswith(ROOT):
            if content != data:
                location.write(key, data)
            continue
        metadata, expected = _json(content), json.loads(data)
        if metadata is None:
            location.write(key, data)
        elif not isinstance(metadata, dict) or any(metadata.get(k) != expected.get(k) for k in IDENTITY):
            raise SpecError(
                f"{location}: {key} does not describe the array of this sweep; use --overwrite to start again"
            )


IDENTITY = ("zarr_format", "node_type", "shape", "data_type", "chunk_grid", "fill_value")
"""What metadata of an array must say for blocks to be written into it."""


def open_root(location: Location, mode: Literal["r", "r+"]) -> zarr.Group:
    """Open the store as a Zarr group.

    Raises
    ------
    SpecError
        When it cannot be read as one.
    """
    with naming(location):
        store = location.zarr_store(read_only=mode == "r")
        return zarr.open_group(store, mode=mode, zarr_format=3, use_consolidated=False)


@contextmanager
def naming(location: Location) -> Iterator[None]:
    """Turn what Zarr raises for a damaged store into one SpecError with the location; full disks and the like pass."""
    try:
        yield
    except SpecError as error:
        raise SpecError(f"{location}: {str(error).removeprefix(f'{location}: ')}") from None
    except (FileNotFoundError, KeyError) as error:
        raise SpecError(f"{location}: is missing or incomplete ({_short(error)})") from None
    except OSError:
        raise
    except Exception as error:  # Zarr raises whatever its parsers raise
        raise SpecError(f"{location}: cannot be read as the store of a sweep ({_short(error)})") from None


def _short(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def write_block(location: Location, plan: Plan, fingerprint: str, block: Block, values: Mapping[str, Array]) -> None:
    """Write a block's chunks, then its completion record.

    A variable without some of the cut dims is written by the first block along them only: no chunk has two writers.

    Raises
    ------
    SpecError
        When the store is gone, or is of another sweep by now.
    """
    with naming(location):
        root = open_root(location, "r+")
        if root.attrs.get("fingerprint") != fingerprint:
            raise SpecError(
                "holds another sweep than the one that is run: it was replaced meanwhile, or this worker has another "
                "version of cheetah_xr"
            )
        for product in plan.products:
            if all(block.index[dim] == 0 for dim in block.index if dim not in product.dims):
                where = tuple(block.selection.get(dim, slice(None)) for dim in product.dims)
                _array(root, product.name)[where] = values[product.name]
        record_completion(location, root, fingerprint, block)


def read_completion(path: str | Path | Location, *, checksums: bool = False) -> Completion:
    """Read which blocks of a store are finished.

    Parameters
    ----------
    path
        The result.
    checksums
        Read every chunk and compare its checksum; otherwise only whether it exists.

    Raises
    ------
    SpecError
        When there is no result, or its metadata is damaged.
    """
    location = location_of(path)
    if not is_result(location):
        raise SpecError(f"{location}: no store of a sweep there")
    root = open_root(location, "r")
    with naming(location):
        version = json.loads(str(root.attrs["fingerprint_parts"])).get("store layout")
        if version != LAYOUT_VERSION:
            raise SpecError(other_layout(version))
        return check_completion(location, root, str(root.attrs["fingerprint"]), checksums=checksums)


def finished_blocks(path: str | Path | Location) -> frozenset[int]:
    """Return the numbers of the finished blocks."""
    return read_completion(path).done


def _array(root: zarr.Group, name: str) -> Any:
    array: Any = root[name]
    return array.with_config({"write_empty_chunks": True})  # so that a missing chunk is always a lost one
