"""Which blocks of a store are finished, and whether what they wrote is still what they wrote.

Every chunk ends with its CRC-32C, which Zarr checks whenever it is read. A block's marker is written after its chunks
and repeats these checksums, so a chunk that is lost, cut off, changed or of another run is found without decoding it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import google_crc32c
import numpy as np
import zarr
from zarr.codecs import Crc32cCodec

from ...specs import SpecError
from ..blocks import MOST_BLOCKS, Block, Blocks
from .location import Place

MARKERS = "completed/blocks"
"""Array inside a store with a row for every block, each in a chunk of its own: whose it is, then the checksum of each
of its chunks (0 for one it does not write), or -1 throughout until the block is finished."""

FREE = -1
CHECKSUM_BYTES = 4


@dataclass(frozen=True)
class Chunks:
    """Chunks of every block: names and dims of the arrays, and the number of blocks along each dim."""

    arrays: Mapping[str, tuple[str, ...]]
    counts: Mapping[str, int]

    def index(self, number: int) -> dict[str, int]:
        """Place of a block along each dim."""
        return dict(zip(self.counts, map(int, np.unravel_index(number, tuple(self.counts.values()))), strict=True))

    def of(self, index: Mapping[str, int]) -> dict[str, str]:
        """Arrays a block writes, and the key of its chunk of each.

        An array without some of the cut dims is written by the first block along them only: no chunk has two writers.
        """
        return {
            name: "/".join([name, "c", *(str(index.get(dim, 0)) for dim in dims)])
            for name, dims in self.arrays.items()
            if all(i == 0 for dim, i in index.items() if dim not in dims)
        }


@dataclass(frozen=True)
class State:
    """Blocks that are finished, and keys that are lost or damaged, by the block they belong to."""

    total: int
    done: frozenset[int]
    damaged: Mapping[int, list[str]] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every block is there."""
        return len(self.done) == self.total


def create_markers(root: zarr.Group, arrays: Mapping[str, tuple[str, ...]], blocks: Blocks) -> None:
    """The array of markers of a new store."""
    width = 1 + len(arrays)
    about: dict[str, Any] = {
        "arrays": [[name, list(dims)] for name, dims in arrays.items()],
        "blocks": [[dim, count] for dim, count in zip(blocks.dims, blocks.counts, strict=True)],
    }
    root.create_array(
        MARKERS,
        shape=(len(blocks), width),
        chunks=(1, width),
        dtype=np.int64,
        fill_value=FREE,
        compressors=[Crc32cCodec()],
        dimension_names=["block", "array"],
        attributes=about,
    )


def owner(fingerprint: str) -> int:
    """First number of a marker: which sweep its block is of."""
    return int(fingerprint[:12], 16)


def mark(place: Place, root: zarr.Group, fingerprint: str, block: Block) -> None:
    """Say that a block's chunks are written, with the checksums they end with."""
    markers = _markers(root)
    chunks = _chunks(markers)
    keys = chunks.of(block.index)
    ends = {name: place.read(key, start=-CHECKSUM_BYTES) for name, key in keys.items()}
    lost = [keys[name] for name, end in ends.items() if end is None]
    if lost:
        raise SpecError(f"{place}: {', '.join(lost)} is not there right after it was written")
    sums = [int.from_bytes(ends.get(name) or b"", "little") for name in chunks.arrays]
    markers[block.number] = [owner(fingerprint), *sums]


def unmark(root: zarr.Group, numbers: Mapping[int, Any]) -> None:
    """Take marks back."""
    for number in numbers:
        _markers(root)[number] = FREE


def state_of(place: Place, root: zarr.Group, fingerprint: str, *, checksums: bool) -> State:
    """Which blocks are finished.

    Parameters
    ----------
    place, root
        The store.
    fingerprint
        Whose blocks count.
    checksums
        Read every chunk; otherwise only see whether it is there.
    """
    markers = _markers(root)
    chunks = _chunks(markers)
    damaged: dict[int, list[str]] = {}
    rows = _rows(markers, damaged)
    there = set() if checksums else place.listing()
    done = set()
    for number in np.flatnonzero((rows != FREE).any(axis=1)).tolist():
        if rows[number, 0] != owner(fingerprint) or (rows[number] < 0).any():
            damaged[number] = [_key(number)]
            continue
        sums = dict(zip(chunks.arrays, rows[number, 1:].tolist(), strict=True))
        keys = chunks.of(chunks.index(number))
        if checksums:
            bad = [key for name, key in keys.items() if not _intact(place.read(key), sums[name])]
        else:
            bad = [key for key in keys.values() if key not in there]
        if bad:
            damaged[number] = bad
        else:
            done.add(number)
    return State(len(rows), frozenset(done), dict(sorted(damaged.items())))


def _rows(markers: Any, damaged: dict[int, list[str]]) -> np.ndarray[Any, Any]:
    """All markers; one that cannot be read is told in `damaged` and counts as free."""
    try:
        return np.asarray(markers[:])
    except (ValueError, RuntimeError):
        rows = np.full(markers.shape, FREE, dtype=np.int64)
        for number in range(len(rows)):
            try:
                rows[number] = markers[number]
            except (ValueError, RuntimeError):
                damaged[number] = [_key(number)]
        return rows


def _key(number: int) -> str:
    """Key of a block's marker."""
    return f"{MARKERS}/c/{number}/0"


def _intact(data: bytes | None, checksum: int) -> bool:
    if data is None or len(data) < CHECKSUM_BYTES:
        return False
    end = int.from_bytes(data[-CHECKSUM_BYTES:], "little")
    return end == checksum == int(google_crc32c.value(data[:-CHECKSUM_BYTES]))


def _markers(root: zarr.Group) -> Any:
    return root[MARKERS]


def _chunks(markers: Any) -> Chunks:
    """What the store itself says of its chunks.

    Raises
    ------
    SpecError
        When that is not what this version writes.
    """
    try:
        arrays = {str(name): tuple(map(str, dims)) for name, dims in markers.attrs["arrays"]}
        counts = {str(dim): int(count) for dim, count in markers.attrs["blocks"]}
        size = 1
        for count in counts.values():
            size *= count
        if not 0 < size <= MOST_BLOCKS or markers.shape != (size, 1 + len(arrays)) or markers.dtype != np.int64:
            raise ValueError("wrong shape")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise SpecError(f"{MARKERS}: is not what this version writes ({error})") from None
    return Chunks(arrays, counts)
