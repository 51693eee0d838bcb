"""Completion records: which blocks of a store are finished, and whether their chunks are intact.

Every chunk ends with its CRC-32C, which Zarr checks whenever it is read. A block's completion record is
written after its chunks and repeats these checksums, so a chunk that is lost, truncated, changed or of another run is
detected without decoding it.
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
from .location import Location

RECORDS_KEY = "completed/blocks"
"""Array inside a store with one completion record (a row, in a chunk of its own) per block: a number of the sweep, then
the checksum of each of the block's chunks (0 for one it does not write), or -1 throughout until it is finished."""

UNFINISHED = -1
CHECKSUM_BYTES = 4


@dataclass(frozen=True)
class Chunks:
    """Chunks of every block: names and dims of the arrays, and the number of blocks along each dim."""

    arrays: Mapping[str, tuple[str, ...]]
    counts: Mapping[str, int]

    def index(self, number: int) -> dict[str, int]:
        """Location of a block along each dim."""
        return dict(zip(self.counts, map(int, np.unravel_index(number, tuple(self.counts.values()))), strict=True))

    def of(self, index: Mapping[str, int]) -> dict[str, str]:
        """Return the arrays a block writes, with the key of its chunk of each.

        An array without some of the cut dims is written by the first block along them only: no chunk has two writers.
        """
        return {
            name: "/".join([name, "c", *(str(index.get(dim, 0)) for dim in dims)])
            for name, dims in self.arrays.items()
            if all(i == 0 for dim, i in index.items() if dim not in dims)
        }


@dataclass(frozen=True)
class Completion:
    """Finished blocks of a store, and lost or damaged keys by the block they belong to."""

    total: int
    done: frozenset[int]
    damaged: Mapping[int, list[str]] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Return whether every block is finished."""
        return len(self.done) == self.total


def create_completion_records(root: zarr.Group, arrays: Mapping[str, tuple[str, ...]], blocks: Blocks) -> None:
    """Create the array of completion records of a new store."""
    width = 1 + len(arrays)
    about: dict[str, Any] = {
        "arrays": [[name, list(dims)] for name, dims in arrays.items()],
        "blocks": [[dim, count] for dim, count in zip(blocks.dims, blocks.counts, strict=True)],
    }
    root.create_array(
        RECORDS_KEY,
        shape=(len(blocks), width),
        chunks=(1, width),
        dtype=np.int64,
        fill_value=UNFINISHED,
        compressors=[Crc32cCodec()],
        dimension_names=["block", "array"],
        attributes=about,
    )


def sweep_number(fingerprint: str) -> int:
    """Return the first number of a completion record: which sweep its block is of."""
    return int(fingerprint[:12], 16)


def record_completion(location: Location, root: zarr.Group, fingerprint: str, block: Block) -> None:
    """Record that a block's chunks are written, with their checksums."""
    records = _records(root)
    chunks = _chunks(records)
    keys = chunks.of(block.index)
    ends = {name: location.read(key, start=-CHECKSUM_BYTES) for name, key in keys.items()}
    lost = [keys[name] for name, end in ends.items() if end is None]
    if lost:
        raise SpecError(f"{location}: {', '.join(lost)} is missing right after it was written")
    sums = [int.from_bytes(ends.get(name) or b"", "little") for name in chunks.arrays]
    records[block.number] = [sweep_number(fingerprint), *sums]


def erase_completion(root: zarr.Group, numbers: Mapping[int, Any]) -> None:
    """Reset the completion records of some blocks."""
    for number in numbers:
        _records(root)[number] = UNFINISHED


def check_completion(location: Location, root: zarr.Group, fingerprint: str, *, checksums: bool) -> Completion:
    """Find which blocks are finished.

    Parameters
    ----------
    location, root
        The store.
    fingerprint
        The sweep whose blocks count.
    checksums
        Read every chunk; otherwise only whether it exists.
    """
    records = _records(root)
    chunks = _chunks(records)
    damaged: dict[int, list[str]] = {}
    rows = _rows(records, damaged)
    present = set() if checksums else location.listing()
    done = set()
    for number in np.flatnonzero((rows != UNFINISHED).any(axis=1)).tolist():
        if rows[number, 0] != sweep_number(fingerprint) or (rows[number] < 0).any():
            damaged[number] = [_key(number)]
            continue
        sums = dict(zip(chunks.arrays, rows[number, 1:].tolist(), strict=True))
        keys = chunks.of(chunks.index(number))
        if checksums:
            bad = [key for name, key in keys.items() if not _intact(location.read(key), sums[name])]
        else:
            bad = [key for key in keys.values() if key not in present]
        if bad:
            damaged[number] = bad
        else:
            done.add(number)
    return Completion(len(rows), frozenset(done), dict(sorted(damaged.items())))


def _rows(records: Any, damaged: dict[int, list[str]]) -> np.ndarray[Any, Any]:
    """Return all completion records; one that cannot be read is listed in `damaged` and counts as unfinished."""
    try:
        return np.asarray(records[:])
    except (ValueError, RuntimeError):
        rows = np.full(records.shape, UNFINISHED, dtype=np.int64)
        for number in range(len(rows)):
            try:
                rows[number] = records[number]
            except (ValueError, RuntimeError):
                damaged[number] = [_key(number)]
        return rows


def _key(number: int) -> str:
    """Return the key of a block's completion record."""
    return f"{RECORDS_KEY}/c/{number}/0"


def _intact(data: bytes | None, checksum: int) -> bool:
    if data is None or len(data) < CHECKSUM_BYTES:
        return False
    end = int.from_bytes(data[-CHECKSUM_BYTES:], "little")
    return end == checksum == int(google_crc32c.value(data[:-CHECKSUM_BYTES]))


def _records(root: zarr.Group) -> Any:
    return root[RECORDS_KEY]


def _chunks(records: Any) -> Chunks:
    """Read how a store says it is chunked.

    Raises
    ------
    SpecError
        When this version does not write it so.
    """
    try:
        arrays = {str(name): tuple(map(str, dims)) for name, dims in records.attrs["arrays"]}
        counts = {str(dim): int(count) for dim, count in records.attrs["blocks"]}
        size = 1
        for count in counts.values():
            size *= count
        if not 0 < size <= MOST_BLOCKS or records.shape != (size, 1 + len(arrays)) or records.dtype != np.int64:
            raise ValueError("wrong shape")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise SpecError(f"{RECORDS_KEY}: is not what this version writes ({error})") from None
    return Chunks(arrays, counts)
