"""Tabulate numbers that a source text prints and those of the engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from .common import described


class Quote(NamedTuple):
    """A number as a source text prints it (its digits count), its section, and the engine's number."""

    item: str
    unit: str
    printed: str
    computed: Any
    place: str
    note: str = ""


def half_unit(printed: str) -> float:
    """Return half a unit of the last printed digit; zeros at the end of a whole number do not count as printed."""
    digits = Decimal(printed.replace(",", ""))
    return 0.5 * 10.0 ** int((digits.normalize() if "." not in printed else digits).as_tuple().exponent)


def verdict(quote: Quote, difference: float) -> str:
    """Return the note of a quotation: its own, else whether the difference is exact, rounded or neither."""
    if quote.note:
        return quote.note
    if difference == 0:
        return "exact"
    return "rounded" if abs(difference) <= half_unit(quote.printed) else "differs"


def quoted(quotes: Iterable[Quote], *, title: str, shows: str, assumptions: str) -> xr.Dataset:
    """Return a table with one row per quotation: printed, computed, their difference, and a note."""
    rows = list(quotes)
    printed = np.array([float(q.printed.replace(",", "")) for q in rows])
    computed = np.array([float(q.computed) for q in rows])
    difference = computed - printed
    difference[np.abs(difference) < 1e-12 * np.abs(printed)] = 0.0  # the last bits of a division
    columns: Mapping[str, Any] = {
        "item": [q.item for q in rows],
        "unit": [q.unit for q in rows],
        "printed": printed,
        "computed": computed,
        "difference": difference,
        "note": [verdict(q, d) for q, d in zip(rows, difference, strict=True)],
        "place": [q.place for q in rows],
    }
    return described(
        {name: ("row", values) for name, values in columns.items()}, title=title, shows=shows, assumptions=assumptions
    )
