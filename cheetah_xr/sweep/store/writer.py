"""The store of a sweep: made or resumed, written block by block, and checked."""

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
from ..plan import Recipe
from .completion import MARKERS, State, mark, state_of, unmark
from .layout import fingerprint_of, template
from .location import ROOT, Place, place_of

Array = NDArray[Any]


def prepare_store(
    place: Place, recipe: Recipe, blocks: Blocks, parts: Mapping[str, str], *, resume: bool, overwrite: bool
) -> State:
    """Create the template, or check an existing one: every chunk is read, and what is damaged is freed again.

    Returns
    -------
    State
        Blocks that are already there, and damage that was found.

    Raises
    ------
    SpecError
        When something else is at `place`, or the store there is of another sweep; nothing is touched.
    """
    files = template(recipe, blocks, parts)
    if not place.exists():
        place.create(files)
    elif not is_result(place):
        if place.folder is not None or not place.listing() <= set(files):
            raise SpecError(f"{place}: exists and is not a result of a sweep; choose another --store")
        place.create(files)  # an object store in which a run was stopped before the root was written
    elif overwrite:
        place.remove()
        place.create(files)
    elif not resume:
        raise SpecError(f"{place}: exists; use --resume to fill what is missing or --overwrite to start again")
    else:
        return _resume(place, files, parts)
    return State(len(blocks), frozenset())


def _resume(place: Place, files: Mapping[str, bytes], parts: Mapping[str, str]) -> State:
    _check_same(place, parts)
    _mend(place, files)
    root = open_root(place, "r+")
    with naming(place):
        state = state_of(place, root, fingerprint_of(parts), checksums=True)
        unmark(root, state.damaged)
    place.delete(key for key in place.listing() if key.endswith(".partial"))  # what a killed write leaves behind
    return state


def is_result(place: Place) -> bool:
    """Whether a place holds a result of a sweep, whole or not."""
    return place.read(ROOT) is not None and place.read(f"{MARKERS}/{ROOT}") is not None


def _check_same(place: Place, parts: Mapping[str, str]) -> None:
    theirs = _json(place.read(ROOT))
    try:
        theirs = json.loads(theirs["attributes"]["fingerprint_parts"])
        different = [name for name, value in parts.items() if theirs.get(name) != value]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SpecError(f"{place}: its metadata in {ROOT} cannot be read; use --overwrite to start again") from None
    if different:
        raise SpecError(
            f"{place}: holds the result of another sweep ({', '.join(different)} differ); use --overwrite to replace "
            "it or --store for another place"
        )


def _json(data: bytes | None) -> Any:
    """Parsed JSON, None where there is none."""
    try:
        return None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        return None


def _mend(place: Place, files: Mapping[str, bytes]) -> None:
    """Write again what a template must hold and is lost or damaged: metadata that is no JSON, and coordinates.

    Raises
    ------
    SpecError
        When an array is not the one the sweep writes.
    """
    for key, data in files.items():
        found = place.read(key)
        if not key.endswith(ROOT):
            if found != data:
                place.write(key, data)
            continue
        metadata, expected = _json(found), json.loads(data)
        if metadata is None:
            place.write(key, data)
        elif not isinstance(metadata, dict) or any(metadata.get(k) != expected.get(k) for k in IDENTITY):
            raise SpecError(f"{place}: {key} does not describe the array of this sweep; use --overwrite to start again")


IDENTITY = ("zarr_format", "node_type", "shape", "data_type", "chunk_grid", "fill_value")
"""What metadata of an array must say for blocks to be written into it."""


def open_root(place: Place, mode: Literal["r", "r+"]) -> zarr.Group:
    """The store as a Zarr group.

    Raises
    ------
    SpecError
        When it cannot be read as one.
    """
    with naming(place):
        store = place.zarr_store(read_only=mode == "r")
        return zarr.open_group(store, mode=mode, zarr_format=3, use_consolidated=False)


@contextmanager
def naming(place: Place) -> Iterator[None]:
    """Whatever Zarr makes of a damaged store is one error that names the place; full disks and the like pass."""
    try:
        yield
    except SpecError as error:
        raise SpecError(f"{place}: {str(error).removeprefix(f'{place}: ')}") from None
    except (FileNotFoundError, KeyError) as error:
        raise SpecError(f"{place}: is not there, or not whole ({_short(error)})") from None
    except OSError:
        raise
    except Exception as error:  # Zarr raises whatever its parsers raise
        raise SpecError(f"{place}: cannot be used as a result ({_short(error)})") from None


def _short(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def write_block(place: Place, recipe: Recipe, fingerprint: str, block: Block, values: Mapping[str, Array]) -> None:
    """Write a block's chunks, then mark it finished.

    A variable without some of the cut dims is written by the first block along them only: no chunk has two writers.

    Raises
    ------
    SpecError
        When the store is not there any more, or is of another sweep by now.
    """
    with naming(place):
        root = open_root(place, "r+")
        if root.attrs.get("fingerprint") != fingerprint:
            raise SpecError(
                "holds another sweep than the one that is run: it was replaced meanwhile, or this worker has another "
                "version of cheetah_xr"
            )
        for product in recipe.products:
            if all(block.index[dim] == 0 for dim in block.index if dim not in product.dims):
                where = tuple(block.selection.get(dim, slice(None)) for dim in product.dims)
                _array(root, product.name)[where] = values[product.name]
        mark(place, root, fingerprint, block)


def state(path: str | Path | Place, *, checksums: bool = False) -> State:
    """Which blocks of a result are there.

    Parameters
    ----------
    path
        The result.
    checksums
        Read every chunk and compare its checksum; otherwise only see whether it is there.

    Raises
    ------
    SpecError
        When there is no result, or its metadata is damaged.
    """
    place = place_of(path)
    if not is_result(place):
        raise SpecError(f"{place}: no result of a sweep there")
    root = open_root(place, "r")
    with naming(place):
        return state_of(place, root, str(root.attrs["fingerprint"]), checksums=checksums)


def finished(path: str | Path | Place) -> frozenset[int]:
    """Numbers of the blocks that are marked finished."""
    return state(path).done


def _array(root: zarr.Group, name: str) -> Any:
    array: Any = root[name]
    return array.with_config({"write_empty_chunks": True})  # a chunk that is not there is a chunk that was lost
