"""Find the kernel timings in the package aiconfigurator-core and choose their versions."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

import pandas as pd
from packaging.version import Version

from ....specs import SpecError
from ..silicon import EXTRA, GPUS, PACKAGE

SUPPLEMENT = 0.1
"""A newer table with fewer than this fraction of an older one's rows only adds shapes to it, and is passed over."""


@dataclass(frozen=True)
class KernelFile:
    """One table of one accelerator, written by one version of one engine (or of NCCL)."""

    gpu: str
    engine: str
    version: str
    path: Traversable

    def read(self) -> pd.DataFrame:
        """Read the table as it is."""
        with self.path.open("rb") as file:
            return pd.read_parquet(file)

    def rows(self) -> int:
        """Return the number of its rows, from the file's footer."""
        parquet: Any = importlib.import_module("pyarrow.parquet")
        with self.path.open("rb") as file:
            return int(parquet.ParquetFile(file).metadata.num_rows)


def _folders(folder: Traversable) -> list[Traversable]:
    return sorted((entry for entry in folder.iterdir() if entry.is_dir()), key=lambda entry: entry.name)


def _data() -> Traversable:
    try:
        package = importlib.import_module(PACKAGE)
    except ImportError:
        raise SpecError(f"the kernel timings come with the package aiconfigurator-core: {EXTRA}") from None
    return resources.files(package) / "systems" / "data"


def find(table: str) -> list[KernelFile]:
    """Find every version of a table, by accelerator and engine; the folders are accelerator/family/engine/version.

    Parameters
    ----------
    table
        The file's name without its suffix, ``gemm_perf``.

    Raises
    ------
    SpecError
        When the package is not installed, naming the extra that brings it.
    """
    data = _data()
    return [
        KernelFile(gpu, engine.name, version.name, path)
        for system, gpu in GPUS.items()
        for family in _folders(data / system)
        for engine in _folders(family)
        for version in _folders(engine)
        if (path := version / f"{table}.parquet").is_file()
    ]


def newest(files: list[KernelFile]) -> Iterator[KernelFile]:
    """Yield for every accelerator and engine the newest table that is not a supplement to an older one."""
    for key in sorted({(file.gpu, file.engine) for file in files}):
        versions = [(file, file.rows()) for file in files if (file.gpu, file.engine) == key]
        most = max(rows for _, rows in versions)
        whole = [file for file, rows in versions if rows >= SUPPLEMENT * most]
        yield max(whole, key=lambda file: Version(file.version))
