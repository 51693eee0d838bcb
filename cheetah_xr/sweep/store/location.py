"""The location of a store: a folder of this machine, or the prefix of an object store that a URL names."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import zarr
from zarr.abc.store import Store

from ...specs import SpecError

ROOT = "zarr.json"
"""Key every result has: it is written last of an empty store, so that a store exists whole or not at all."""

UNCACHED = {"use_listings_cache": False}
"""Other processes write too, so every listing is read anew."""


@dataclass(frozen=True)
class Location:
    """A folder or a URL; keys are those of Zarr, with ``/`` between their parts."""

    url: str

    def __str__(self) -> str:
        return self.url

    @property
    def folder(self) -> Path | None:
        """Return the folder, None for a URL."""
        return None if "://" in self.url else Path(self.url)

    @property
    def path(self) -> Path | str:
        """Return the folder or URL as users give it."""
        return self.folder or self.url

    def absolute(self) -> Location:
        """Return the same location with an absolute path."""
        return self if self.folder is None else Location(str(self.folder.resolve()))

    @cached_property
    def _files(self) -> tuple[Any, str]:
        """Return the file system and the prefix in it.

        Raises
        ------
        SpecError
            For a kind of URL that is not known, or whose package is not installed.
        """
        from fsspec.core import url_to_fs

        try:
            fs, prefix = url_to_fs(self.url, **({} if self.folder else UNCACHED))
        except (ValueError, ImportError) as error:
            raise SpecError(f"{self.url}: cannot be used as the location of a store ({error})") from None
        return fs, str(prefix).rstrip("/")

    def zarr_store(self, *, read_only: bool = False) -> Store:
        """Open the location as a Zarr store."""
        if self.folder is not None:
            return zarr.storage.LocalStore(self.folder.resolve(), read_only=read_only)
        return zarr.storage.FsspecStore.from_url(self.url, storage_options=UNCACHED, read_only=read_only)

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Turn whatever a client of an object store raises into one SpecError; let errors of folders pass."""
        try:
            yield
        except (SpecError, FileNotFoundError):
            raise
        except Exception as error:
            if self.folder is not None:
                raise
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise SpecError(f"{self.url}: cannot be reached ({reason[:300]})") from None

    def exists(self) -> bool:
        """Return whether the location holds anything."""
        fs, prefix = self._files
        with self._reaching():
            return bool(fs.exists(prefix))

    def listing(self) -> set[str]:
        """Return every key of the location."""
        fs, prefix = self._files
        with self._reaching():
            return {str(name)[len(prefix) + 1 :] for name in fs.find(prefix)}

    def read(self, key: str, start: int | None = None) -> bytes | None:
        """Read the bytes under a key, from `start` on (from the end where negative); None where there are none."""
        fs, prefix = self._files
        with self._reaching():
            try:
                return bytes(fs.cat_file(f"{prefix}/{key}", start=start))
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None

    def write(self, key: str, data: bytes) -> None:
        """Replace what is under a key."""
        fs, prefix = self._files
        name = f"{prefix}/{key}"
        if self.folder is not None:
            fs.makedirs(name.rpartition("/")[0], exist_ok=True)
        with self._reaching():
            fs.pipe_file(name, data)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove keys."""
        fs, prefix = self._files
        for key in keys:
            fs.rm_file(f"{prefix}/{key}")

    def remove(self) -> None:
        """Remove everything."""
        fs, prefix = self._files
        fs.rm(prefix, recursive=True)

    def create(self, files: Mapping[str, bytes]) -> None:
        """Write an empty store, whole or not at all: a folder is renamed at the end, a URL gets its root last."""
        if self.folder is None:
            for key in sorted(files, key=lambda key: (key == ROOT, key)):
                self.write(key, files[key])
            return
        building = Location(f"{self.folder}.building")
        assert building.folder is not None
        shutil.rmtree(building.folder, ignore_errors=True)
        try:
            for key, data in files.items():
                building.write(key, data)
        except OSError:
            shutil.rmtree(building.folder, ignore_errors=True)
            raise
        building.folder.rename(self.folder)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock a folder for this run; the lock ends with the process, however that ends. Object stores have none.

        Raises
        ------
        SpecError
            When another run has locked it.
        """
        if self.folder is None:
            yield
            return
        from filelock import FileLock, Timeout

        self.folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(f"{self.folder}.lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise SpecError(f"{self}: another run is writing to it; wait for it, or choose another --store") from None
        try:
            yield
        finally:
            Path(lock.lock_file).unlink(
                missing_ok=True
            )  # still locked: a process that opened the unlinked file tries again
            lock.release()


def location_of(path: str | Path | Location) -> Location:
    """Make a location of what users give: a path, a URL such as ``s3://bucket/name.zarr``, or ``file:///...``."""
    if isinstance(path, Location):
        return path
    return Location(str(path).removeprefix("file://"))
