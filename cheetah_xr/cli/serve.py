"""Print the result of a serving model as a table."""

from __future__ import annotations

import xarray as xr
from rich.table import Table

from ..engine.validity import CODES, REASONS
from ..serving.result import LIMITS, VARIABLES
from ..serving.workload import MEANINGS
from ..specs import SpecError

LIMIT_WORDS = {
    "concurrency": "all concurrent requests decode",
    "kv_cache_capacity": "the KV cache holds no more requests",
    "prefill": "prefill is saturated",
}
SECONDS_FROM = 10.0
"""Times from here on are shown in seconds, shorter ones in milliseconds."""


def render(ds: xr.Dataset) -> Table:
    """Table of one point.

    Raises
    ------
    SpecError
        When the point cannot be served: the reason.
    """
    code = int(ds["status"])
    if code != CODES["ok"]:
        name = next(n for n, value in CODES.items() if value == code)
        raise SpecError(f"{REASONS[name]} ({name})")
    title = "  ".join(str(ds[name].values) for name in ("model", "gpu", "precision", "efficiency"))
    table = Table(title=title, show_header=False, title_justify="left", box=None)
    for name in (*(n for n in MEANINGS if n in ds.coords), "tp", "dp", "ep", "n_gpus"):
        if name in ds.coords:
            table.add_row(name, f"{int(ds[name]):,}", str(ds[name].attrs["long_name"]))
    for name in VARIABLES:
        if name in ds:
            table.add_row(name, _shown(ds[name]), str(ds[name].attrs["long_name"]))
    limit = next(n for n, value in LIMITS.items() if value == int(ds["limit"]))
    table.add_row("limit", limit, LIMIT_WORDS[limit])
    return table


def _shown(value: xr.DataArray) -> str:
    """A value with its unit."""
    number, units = float(value), str(value.attrs["units"])
    if units == "s":
        return f"{number:,.1f} s" if number >= SECONDS_FROM else f"{number * 1e3:,.2f} ms"
    return f"{number:,.1f} {units}" if units == "1/s" else f"{number:,.1f}"
