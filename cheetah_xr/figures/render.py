"""Make figures and tables: data, drawing, numbers on disk, gallery."""

from __future__ import annotations

import html
import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
import xarray as xr

from .._version import __version__ as version
from ..specs import SpecError, load_gpu, load_model
from .catalogue import FIGURES, TABLES, by_source, names, select
from .shared.common import caption
from .shared.style import RC

FORMATS = ("png", "pdf")
FOLDER = Path("outputs/figures")


@dataclass(frozen=True)
class Made:
    """One figure or table on disk."""

    name: str
    title: str
    caption: str
    files: tuple[Path, ...]


@dataclass(frozen=True)
class LeftOut:
    """A figure that cannot be redrawn for the requested model or accelerator, and why."""

    name: str
    reason: str


def figure_module(name: str) -> Any:
    """Import the module of a figure or table."""
    return importlib.import_module(f"{__package__}.{(FIGURES | TABLES)[name]}")


def data_of(name: str, **requested: str | None) -> xr.Dataset:
    """Return the data of a figure, for another model or accelerator where it takes one.

    Raises
    ------
    SpecError
        When the figure cannot be redrawn for the request.
    """
    make: Callable[..., xr.Dataset] = figure_module(name).data
    takes = inspect.signature(make).parameters
    given = {key: value for key, value in requested.items() if value is not None}
    fixed = [key for key in given if key not in takes]
    if fixed:
        raise SpecError(f"figures: {name} is not redrawn for another {' or '.join(fixed)}; leave --{fixed[0]} out")
    return make(**given)


def folder_for(out: Path | None, model: str | None, gpu: str | None) -> Path:
    """Return the output folder: redrawn figures get a folder of their own inside outputs/figures."""
    if out is not None:
        return out
    redrawn = [load(given).name for given, load in ((model, load_model), (gpu, load_gpu)) if given is not None]
    return FOLDER / "-".join(re.sub(r"[^A-Za-z0-9._-]|^\.+", "-", name) for name in redrawn) if redrawn else FOLDER


def make(
    requested: Sequence[str], out: Path, model: str | None = None, gpu: str | None = None
) -> Iterator[Made | LeftOut]:
    """Make figures and tables into a folder, one after the other.

    Parameters
    ----------
    requested
        Names; empty is all that can be drawn for that model and accelerator.
    out
        Folder.
    model, gpu
        Redraw for another model or accelerator; with no names, figures that cannot be are left out.

    Yields
    ------
    Made or LeftOut
        What was written, or why a figure was left out.

    Raises
    ------
    SpecError
        For an unknown name, model or accelerator; when a figure requested by name cannot be redrawn.
    """
    for given, load in ((model, load_model), (gpu, load_gpu)):
        if given is not None:
            load(given)
    out.mkdir(parents=True, exist_ok=True)
    for name in select(requested):
        try:
            ds = data_of(name, model=model, gpu=gpu)
        except SpecError as error:
            if requested:
                raise
            yield LeftOut(name, str(error))
            continue
        yield _write_table(name, ds, out) if name in TABLES else _write_figure(name, ds, out)


def _write_figure(name: str, ds: xr.Dataset, out: Path) -> Made:
    with mpl.rc_context(RC):
        fig = figure_module(name).draw(ds)
        pictures = [out / f"{name}.{kind}" for kind in FORMATS]
        for path in pictures:
            fig.savefig(path, metadata={"Creator": f"cheetah_xr {version}"} if path.suffix == ".pdf" else None)
    numbers = out / f"{name}.nc"
    ds.to_netcdf(numbers, engine="netcdf4")
    return Made(name, ds.attrs["title"], caption(ds), (*pictures, numbers))


def _write_table(name: str, ds: xr.Dataset, out: Path) -> Made:
    frame = table_frame(ds)
    numbers, text = out / f"{name}.csv", out / f"{name}.txt"
    frame.to_csv(numbers, index=False)
    text.write_text(aligned(frame) + "\n", encoding="utf-8")
    return Made(name, ds.attrs["title"], caption(ds), (text, numbers))


def table_frame(ds: xr.Dataset) -> pd.DataFrame:
    """Return the rows of a table in their order."""
    return ds.to_dataframe().reset_index(drop=True)[list(ds.data_vars)]


def aligned(frame: pd.DataFrame) -> str:
    """Format a table as aligned text: numbers right, text left."""
    columns = []
    for name in frame.columns:
        numeric = pd.api.types.is_numeric_dtype(frame[name])
        cells = [_cell(value) for value in frame[name]]
        width = max(map(len, [str(name), *cells]))
        columns.append([f"{cell:>{width}}" if numeric else f"{cell:<{width}}" for cell in (str(name), *cells)])
    lines = ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _cell(value: Any) -> str:
    if isinstance(value, float):
        if value != value:
            return "-"
        return f"{value:,.0f}" if value == round(value) and abs(value) < 1e18 else f"{value:,.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def write_gallery(made: Sequence[Made], out: Path) -> Path:
    """Write the gallery: figures and tables under their source, with captions and links to their numbers.

    An existing gallery of all figures is not replaced by one of a few.
    """
    path = out / "index.html"
    if path.exists() and len(made) < len(names()) and path.read_text(encoding="utf-8").count("<section") > len(made):
        return path
    path.write_text(PAGE.format(version=html.escape(version), entries="\n".join(_groups(made))), encoding="utf-8")
    return path


def _groups(made: Sequence[Made]) -> Iterator[str]:
    """Yield the heading of every source with the entries of its figures and tables."""
    entries = {item.name: item for item in made}
    for source, members in by_source().items():
        here = [_entry(entries[name]) for name in members if name in entries]
        if here:
            yield "\n".join((f"<h2>{html.escape(source)}</h2>", *here))


def _entry(item: Made) -> str:
    first, *_ = item.files
    links = " · ".join(f'<a href="{path.name}">{path.suffix[1:].upper()}</a>' for path in item.files)
    if first.suffix == ".png":
        body = f'<a href="{first.name}"><img src="{first.name}" alt="{html.escape(item.title)}" loading="lazy"></a>'
    else:
        body = f"<pre>{html.escape(first.read_text(encoding='utf-8'))}</pre>"
    text = html.escape(item.caption)
    heading = html.escape(item.title)
    end = f'<p>{text}</p><p class="links">{item.name}: {links}</p></section>'
    return f'<section id="{item.name}"><h3>{heading}</h3>{body}{end}'


PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>cheetah_xr figures</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }}
img {{ width: 100%; height: auto; }} pre {{ overflow-x: auto; font-size: 12px; background: #f7f7f7; padding: 1rem; }}
h2 {{ margin: 3rem 0 0; }} h3 {{ font-size: 1.1rem; margin: 2rem 0 .5rem; }}
p {{ margin: .5rem 0; }} .links {{ color: #777; font-size: .85rem; }}
</style>
<h1>Figures and tables</h1>
<p>Made by cheetah_xr {version}; every number comes from a spec or from the engine. The numbers behind a figure are in
its NetCDF file, those of a table in its CSV file. Tags in brackets are the source texts listed in
docs/references.md.</p>
{entries}
</html>
"""
