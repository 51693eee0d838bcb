"""The command ``cheetah-xr info``: what a stored result holds, and whether all of it is there and intact."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import errors, out

if TYPE_CHECKING:
    from ..sweep.store.completion import Completion


def info(store: Annotated[str, typer.Argument(help="Folder or URL of a result.")]) -> None:
    """Describe a result: question, axes, variables, provenance; every block is read and its checksums compared.

    The exit code is 1 when blocks are missing or damaged.

    Example: `cheetah-xr info outputs/qwen3-32b-h100.zarr`
    """
    from ..sweep.store.writer import read_completion

    with errors.status("reading every block"):
        completion = read_completion(store, checksums=True)
    out.print(describe(store, completion), highlight=False, soft_wrap=True, markup=False)
    if not completion.complete:
        raise typer.Exit(1)


def describe(path: str | Path, completion: Completion) -> str:
    """Describe what a store holds: question, completeness, axes, variables, provenance.

    Parameters
    ----------
    path
        Folder or URL.
    completion
        Its blocks, checked.

    Raises
    ------
    SpecError
        When there is no result at `path`.
    """
    from ..sweep.store.reader import open_store
    from .sweep_summary import label_text

    ds = open_store(path, chunks=None)
    lines = [str(ds.attrs.get(name, "")) for name in ("title", "question")]
    lines += [*_completeness(completion), f"computed by cheetah_xr {ds.attrs['cheetah_xr_version']}, model version "]
    lines[-1] += f"{ds.attrs['model_version']}, fingerprint {ds.attrs['fingerprint']}"
    for dim, size in ds.sizes.items():
        ends = f": {label_text(ds[dim].values[0])} to {label_text(ds[dim].values[-1])}" if dim in ds.coords else ""
        lines.append(f"axis {dim}: {size}{ends}")
    for name, values in ds.data_vars.items():
        shape = f"({', '.join(map(str, values.dims))}) {values.dtype}, {values.nbytes / 1e6:,.3g} MB"
        lines.append(f"variable {name} [{values.attrs.get('units', '1')}] {shape}: {values.attrs.get('long_name', '')}")
    return "\n".join(lines)


def _completeness(completion: Completion) -> list[str]:
    """List whether all blocks are there and intact, and which are not."""
    if completion.complete:
        return [f"complete: {completion.total} of {completion.total} blocks, all checksums right"]
    lines = [f"incomplete: {len(completion.done)} of {completion.total} blocks; run the sweep again to fill it"]
    return lines + [f"damaged: block {number}: {', '.join(keys)}" for number, keys in completion.damaged.items()]
