"""Read public measurements as one labelled table, with every repair and exclusion a named rule, and the split for fits.

>>> from cheetah_xr.calibration import measurements
>>> table = measurements.published_table()
>>> table.loc[table.id == "lmsys-96h100-decode", ["layout", "concurrency", "tokens_per_s_gpu"]].values.tolist()
[['tp1-dp72-ep72', 18432, 2785.25]]
"""

from __future__ import annotations

from functools import cache

import pandas as pd

from . import published, rules, silicon
from .rule import Rule, count
from .rules import RULES
from .split import configurations, side, sides
from .table import COLUMNS

__all__ = [
    "COLUMNS",
    "RULES",
    "Rule",
    "configurations",
    "counts",
    "measurements",
    "published_table",
    "side",
    "sides",
    "silicon_table",
]


@cache
def _silicon() -> pd.DataFrame:
    return rules.of_silicon(silicon.harmonise(silicon.read()))


@cache
def _published() -> pd.DataFrame:
    return rules.of_published(published.harmonise(published.read()))


def silicon_table() -> pd.DataFrame:
    """Return the rows of the package's table with the columns of :data:`COLUMNS`.

    Raises
    ------
    SpecError
        When the package aiconfigurator-core is not installed.
    """
    return _silicon().copy()


def published_table() -> pd.DataFrame:
    """Return the rows of the project's own file, in the same columns."""
    return _published().copy()


def counts(table: pd.DataFrame) -> pd.DataFrame:
    """Count by rule the rows that name it and how many of them are eligible, with its kind and reason."""
    return count(table, RULES)


def measurements() -> pd.DataFrame:
    """Return both tables, one below the other. Rows with a blank ``rule`` are eligible.

    Raises
    ------
    SpecError
        When the package aiconfigurator-core is not installed.
    """
    return pd.concat([_silicon(), _published()], ignore_index=True)
