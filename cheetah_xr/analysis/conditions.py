"""Parse conditions in text, ``name op number``; they are never evaluated as code."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import xarray as xr

from ..errors import SpecError

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}
_FORM = re.compile(r"\s*([A-Za-z_]\w*)\s*(>=|<=|==|!=|>|<)\s*([-+0-9.eE_]+)\s*")


@dataclass(frozen=True)
class Condition:
    """One comparison of a variable with a number, or with the numbers of the coordinate named; NaN never holds."""

    name: str
    op: str
    number: float | str

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the variables it reads."""
        return (self.name, self.number) if isinstance(self.number, str) else (self.name,)

    def holds(self, ds: xr.Dataset) -> xr.DataArray:
        """Return where the condition holds; the variable must be in the dataset, and a number."""
        values = number(ds, self.name)
        limit = ds[self.number] if isinstance(self.number, str) else self.number
        return OPERATORS[self.op](values, limit) & values.notnull()  # type: ignore[no-any-return]


def number(ds: xr.Dataset, name: str) -> xr.DataArray:
    """Return a variable that must be a number.

    Raises
    ------
    SpecError
        For text, such as the labels of an axis of records.
    """
    values = ds[name]
    if values.dtype.kind not in "biuf":
        raise SpecError(f"{name}: is text, expected a number")
    return values


def parse(text: str) -> Condition:
    """Read one condition.

    Raises
    ------
    SpecError
        For anything but a name, an operator and a number.

    Examples
    --------
    >>> parse("tps_per_user >= 50")
    Condition(name='tps_per_user', op='>=', number=50.0)
    """
    match = _FORM.fullmatch(text) if isinstance(text, str) else None
    try:
        if match is None:
            raise ValueError
        return Condition(match[1], match[2], float(match[3]))
    except ValueError:
        operators = " ".join(OPERATORS)
        raise SpecError(
            f"condition {text!r}: expected name op number, such as 'tps_per_user >= 50'; op is one of {operators}"
        ) from None


def parse_all(where: str | Sequence[str | Condition] | None) -> tuple[Condition, ...]:
    """Read one condition or several that must all hold; some may be read already."""
    if where is None:
        return ()
    given = [where] if isinstance(where, str) else where
    return tuple(c if isinstance(c, Condition) else parse(c) for c in given)
