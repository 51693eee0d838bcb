"""Define named rules over a table of measurements, apply them and count their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

Where = Callable[[pd.DataFrame], "pd.Series[bool]"]
Change = Callable[[pd.DataFrame], pd.DataFrame]
Kind = Literal["repair", "exclusion", "ttft", "report"]

COLUMN: dict[Kind, str] = {"repair": "repairs", "exclusion": "rule", "ttft": "ttft_rule", "report": "reported"}
"""Column in which a row names the rules of a kind."""


@dataclass(frozen=True)
class Rule:
    """One repair, exclusion or remark.

    Parameters
    ----------
    name
        What stands in the table.
    kind
        "repair" changes rows, "exclusion" takes rows out of every fit and error, "ttft" keeps their time to first
        token out of fits, "report" only has them reported separately.
    reason
        Why, from the fields themselves or from public recipes; never how well a row fits.
    where
        Which rows of a table it concerns.
    change
        What a repair makes of these rows.
    """

    name: str
    kind: Kind
    reason: str
    where: Where
    change: Change | None = None


def apply(table: pd.DataFrame, rules: Sequence[Rule]) -> pd.DataFrame:
    """Apply rules in order.

    A row names every repair and remark that concerns it, and the first exclusion; repairs see the rows as the rules
    before have left them.
    """
    rows = table.copy()
    for rule in rules:
        where, column = rule.where(rows), COLUMN[rule.kind]
        if rule.change is not None and where.any():
            changed = rule.change(rows[where])
            rows.loc[where, changed.columns] = changed
        if rule.kind in ("exclusion", "ttft"):
            rows.loc[where & (rows[column] == ""), column] = rule.name
        else:
            rows.loc[where, column] = (rows.loc[where, column] + "," + rule.name).str.removeprefix(",")
    return rows


def count(table: pd.DataFrame, rules: Sequence[Rule]) -> pd.DataFrame:
    """Count by rule the rows that name it and how many of them are eligible, with its kind and reason."""
    rows = []
    for rule in rules:
        named = table[COLUMN[rule.kind]].str.split(",").map(frozenset([rule.name]).issubset)
        eligible = named & (table["rule"] == "")
        rows.append((rule.name, rule.kind, int(named.sum()), int(eligible.sum()), rule.reason))
    return pd.DataFrame(rows, columns=["rule", "kind", "rows", "eligible", "reason"]).set_index("rule")
