"""Everything the page shows, computed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ...engine.efficiency_by_layout import GROUPED
from ...specs import Efficiency
from ..parameters import FACTORS, fields_of
from . import large_scale, refits, sections
from .bottlenecks import shifts
from .first_token import by_waiting, first_tokens
from .other_tools import MODES
from .statistics import summary
from .variants import CHOICES, STEPS, WITHOUT, Variant

Told = Callable[[str], None]


@dataclass(frozen=True)
class Report:
    """Tables of the report; see :func:`gather`."""

    held: pd.DataFrame
    fitted: pd.DataFrame
    bars: pd.DataFrame
    by: dict[str, pd.DataFrame]
    intervals: dict[str, pd.DataFrame]
    apart: pd.DataFrame
    left_out: dict[str, pd.DataFrame]
    ranking: dict[str, pd.DataFrame]
    variants: dict[str, pd.DataFrame]
    floor: pd.DataFrame
    decompositions: pd.DataFrame
    worst: dict[str, pd.DataFrame]
    first_token: pd.DataFrame
    bottlenecks: pd.DataFrame
    sets: dict[str, str]
    large_scale: pd.DataFrame
    beside: pd.DataFrame | None


DECODE_96 = "lmsys-96h100-decode"
"""Two micro-batches: the exchange takes longer than attention hides (LMSYS, 5 May 2025, on its profile of decode)."""

TABLES = "kernel tables"
FUSED = "fused experts"
"""Columns of large-scale points: predicted over measured with the medians of the priors, and with the fitted sets where
experts that get tokens by exchange run on the kernels of all others."""


def kernel_tables() -> Efficiency:
    """The set before any fit: the medians of the priors."""
    found = fields_of(np.log([[factor.median for factor in FACTORS]]))
    values: dict[str, Any] = {name: float(value[0]) for name, value in found.items()}
    return Efficiency(name="kernel-tables", **values)


def gather(
    rows: pd.DataFrame,
    table: pd.DataFrame,
    efficiencies: Mapping[str, Efficiency],
    other: pd.DataFrame | None = None,
    told: Told = lambda what: None,
) -> Report:
    """Compute the report.

    Parameters
    ----------
    rows
        Measured rows with predictions and intervals, and their side.
    table
        Eligible rows with their side, to refit.
    efficiencies
        Every shipped set by name.
    other
        Predictions of aiconfigurator, if there are any.
    told
        Called with what is done next.
    """
    held, fitted = rows[rows["side"] == "held out"], rows[rows["side"] == "fit"]
    problems = refits.Cases(table)
    told("leave-one-out refits")
    left = {column: _left_out(problems, held, column) for column in ("gpu", "model")}
    told("refits of variants")
    variants = {
        name: pd.concat([_variant(problems, variant, told) for variant in group]).set_index("variant")
        for name, group in (("steps", STEPS), ("without", WITHOUT), ("choices", CHOICES))
    }
    told("large-scale points")
    large = _large(efficiencies)
    aggregated, pooled = held[held["mode"] == "aggregated"], held[held["mode"] == "disaggregated"]
    h100 = aggregated["gpu"] == "h100-sxm"
    falls = aggregated["reported"].str.contains("falls_with_load")
    return Report(
        held,
        fitted,
        bars_of(held, fitted, left, large, other),
        sections.errors_by(held),
        {mode: sections.intervals(held[held["mode"] == mode], fitted[fitted["mode"] == mode]) for mode in MODES},
        _apart(held),
        left,
        sections.ranking(aggregated),
        variants,
        sections.floor(rows[rows["mode"] == "aggregated"]),
        sections.decompositions(
            held,
            {
                "aggregated": held["mode"] == "aggregated",
                "aggregated, H100": held["id"].isin(aggregated[h100]["id"]),
                "aggregated, H100, without falls_with_load": held["id"].isin(aggregated[h100 & ~falls]["id"]),
                "disaggregated": held["mode"] == "disaggregated",
            },
        ),
        {
            "aggregated": sections.worst(aggregated),
            "aggregated, H100": sections.worst(aggregated[h100], 6),
            "disaggregated": sections.worst(pooled),
        },
        by_waiting(first_tokens(held, efficiencies)),
        shifts(aggregated, efficiencies),
        {name: " ".join(efficiency.notes.split()) for name, efficiency in efficiencies.items()},
        large,
        None if other is None else sections.beside(held, other, "aiconfigurator"),
    )


def _large(efficiencies: Mapping[str, Efficiency]) -> pd.DataFrame:
    others = {
        TABLES: dict.fromkeys(efficiencies, kernel_tables()),
        FUSED: {name: efficiency.with_numbers({GROUPED[1]: None}) for name, efficiency in efficiencies.items()},
    }
    ratios = {what: large_scale.predict(sets)["ratio"] for what, sets in others.items()}
    return large_scale.predict(efficiencies).assign(**ratios)


def _left_out(problems: refits.Cases, held: pd.DataFrame, column: str) -> pd.DataFrame:
    rows = refits.leave_one_out(problems, column).assign(low_s=np.nan, high_s=np.nan)
    served = rows[rows["mode"].isin(MODES)]
    found = summary(served, ["mode", column])[["rows", "MAPE", "median", "bias"]]
    usual = summary(held[held["mode"].isin(MODES)], ["mode", column])
    rest = summary(served[served["reported"] == ""], ["mode", column])
    more = {"without reported": rest["MAPE"], "held out": usual["MAPE"]}
    more = {name: values.reindex(found.index) for name, values in more.items()}
    return found.rename(columns={"MAPE": "left out"}).assign(**more)


def _variant(problems: refits.Cases, variant: Variant, told: Told) -> pd.DataFrame:
    told(variant.what)
    rows = refits.variant_errors(problems, variant).assign(low_s=np.nan, high_s=np.nan)
    served, first = rows[rows["mode"] == "aggregated"], rows[rows["mode"] == "prefill"]
    one = {"variant": variant.what} | summary(served)[["MAPE", "median"]].iloc[0].to_dict()
    one["H100 MAPE"] = summary(served[served["gpu"] == "h100-sxm"])["MAPE"].iloc[0]
    one["prefill MAPE"] = summary(first)["MAPE"].iloc[0]
    return pd.DataFrame([one])


def _apart(held: pd.DataFrame) -> pd.DataFrame:
    named = held.assign(reported=held["reported"].str.split(",")).explode("reported")
    return summary(named[named["reported"] != ""], ["mode", "reported"])


def bars_of(
    held: pd.DataFrame,
    fitted: pd.DataFrame,
    left: Mapping[str, pd.DataFrame],
    large: pd.DataFrame,
    other: pd.DataFrame | None,
) -> pd.DataFrame:
    """The bars with what is measured."""
    by_mode = summary(held, ["mode"])
    aggregated = held[held["mode"] == "aggregated"]
    h100 = summary(aggregated[aggregated["gpu"] == "h100-sxm"])["MAPE"].iloc[0]
    score = sections.intervals(aggregated, fitted[fitted["mode"] == "aggregated"])
    worst = left["gpu"].loc["aggregated"]["left out"].max()
    model, constant = score.iloc[0], score.iloc[1]
    lines: list[tuple[str, str, str, bool]] = []

    def most(what: str, bar: float, value: Any) -> None:
        lines.append((what, f"at most {100 * bar:.0f} %", f"{100 * value:.1f} %", bool(value <= bar)))

    most("aggregated TPOT, MAPE", 0.12, by_mode.loc["aggregated", "MAPE"])
    most("aggregated TPOT, median", 0.07, by_mode.loc["aggregated", "median"])
    most("aggregated TPOT on H100, MAPE", 0.09, h100)
    most("aggregated TPOT of the worst accelerator left out of the fit, MAPE", 0.18, worst)
    most("disaggregated TPOT, MAPE", 0.20, by_mode.loc["disaggregated", "MAPE"])
    most("time of prefill batches, MAPE", 0.15, by_mode.loc["prefill", "MAPE"])
    inside = summary(held)["coverage"].iloc[0]
    lines.append(("rows inside their 90 % interval", "85 to 95 %", f"{100 * inside:.1f} %", 0.85 <= inside <= 0.95))
    for what in ("mean half-width", "CRPS", "interval score"):
        better = bool(model[what] < constant[what])
        lines.append(
            (f"aggregated, {what}", f"below constant width's {constant[what]:.4f}", f"{model[what]:.4f}", better)
        )
    if other is not None:
        table = sections.beside(held, other, "aiconfigurator", by=((),))
        for mode, row in table.iterrows():
            own, its = row["this model mape"], row["aiconfigurator mape"]
            lines.append(
                (
                    f"{mode} TPOT where both answer, MAPE",
                    f"below aiconfigurator's {100 * its:.1f} %",
                    f"{100 * own:.1f} %",
                    own < its,
                )
            )
    within = int(large["within"].sum())
    lines.append(("large-scale points within 25 %", f"all {len(large)}", f"{within}", within == len(large)))
    bound = large.loc[large["id"] == DECODE_96, "bound"].iloc[0]
    lines.append(("what bounds decode on 96 H100s", "communication", bound, bound == "communication"))
    return pd.DataFrame(lines, columns=["bar", "asked", "measured", "met"]).set_index("bar")
