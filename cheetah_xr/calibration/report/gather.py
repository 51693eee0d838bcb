"""Compute everything the validation page shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ...engine.inputs.efficiency_rules import GROUPED_EXPERTS
from ...specs import Efficiency
from ..parameters import PARAMETERS, fields_of
from . import large_scale, refits, sections
from .bottlenecks import shifts
from .first_token import by_waiting, first_tokens
from .other_tools import MODES
from .statistics import summary
from .variants import CHOICES, STEPS, WITHOUT, Variant

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Report:
    """Tables of the report; see :func:`gather`."""

    held_out: pd.DataFrame
    fitted: pd.DataFrame
    criteria: pd.DataFrame
    by: dict[str, pd.DataFrame]
    intervals: dict[str, pd.DataFrame]
    separately: pd.DataFrame
    left_out: dict[str, pd.DataFrame]
    ranking: dict[str, pd.DataFrame]
    variants: dict[str, pd.DataFrame]
    floor: pd.DataFrame
    decompositions: pd.DataFrame
    worst: dict[str, pd.DataFrame]
    first_token: pd.DataFrame
    bottlenecks: pd.DataFrame
    profiles: dict[str, str]
    large_scale: pd.DataFrame
    other_tool: pd.DataFrame | None


DECODE_96 = "lmsys-96h100-decode"
"""Two micro-batches: the all-to-all takes longer than attention overlaps (LMSYS, 5 May 2025, profile of decode)."""

TABLES = "kernel tables"
FUSED = "fused experts"
"""Columns of large-scale points: predicted over measured with the medians of the priors, and with the fitted profiles
and fused kernels for experts behind an all-to-all."""


def kernel_tables() -> Efficiency:
    """Return the profile before any fit: the medians of the priors."""
    fields = fields_of(np.log([[parameter.median for parameter in PARAMETERS]]))
    values: dict[str, Any] = {name: float(value[0]) for name, value in fields.items()}
    return Efficiency(name="kernel-tables", **values)


def gather(
    rows: pd.DataFrame,
    table: pd.DataFrame,
    efficiencies: Mapping[str, Efficiency],
    other: pd.DataFrame | None = None,
    progress: Progress = lambda what: None,
) -> Report:
    """Compute the report.

    Parameters
    ----------
    rows
        Measured rows with predictions and intervals, and their side.
    table
        Eligible rows with their side, to refit.
    efficiencies
        Every shipped efficiency profile by name.
    other
        Predictions of aiconfigurator, if there are any.
    progress
        Callback with the name of the next step.
    """
    held_out, fitted = rows[rows["side"] == "held out"], rows[rows["side"] == "fit"]
    problems = refits.Cases(table)
    progress("leave-one-out refits")
    left = {column: _left_out(problems, held_out, column) for column in ("gpu", "model")}
    progress("refits of variants")
    variants = {
        name: pd.concat([_variant(problems, variant, progress) for variant in group]).set_index("variant")
        for name, group in (("steps", STEPS), ("without", WITHOUT), ("choices", CHOICES))
    }
    progress("large-scale points")
    large = _large(efficiencies)
    aggregated = held_out[held_out["mode"] == "aggregated"]
    return Report(
        held_out=held_out,
        fitted=fitted,
        criteria=criteria_of(held_out, fitted, left, large, other),
        by=sections.errors_by(held_out),
        intervals={
            mode: sections.intervals(*(part[part["mode"] == mode] for part in (held_out, fitted))) for mode in MODES
        },
        separately=_separately(held_out),
        left_out=left,
        ranking=sections.ranking(aggregated),
        variants=variants,
        floor=sections.floor(rows[rows["mode"] == "aggregated"]),
        decompositions=_decompositions(held_out),
        worst=_worst(held_out),
        first_token=by_waiting(first_tokens(held_out, efficiencies)),
        bottlenecks=shifts(aggregated, efficiencies),
        profiles={name: " ".join(efficiency.notes.split()) for name, efficiency in efficiencies.items()},
        large_scale=large,
        other_tool=None if other is None else sections.compared(held_out, other, "aiconfigurator"),
    )


def _decompositions(held_out: pd.DataFrame) -> pd.DataFrame:
    aggregated, h100 = held_out["mode"] == "aggregated", held_out["gpu"] == "h100-sxm"
    falls = held_out["reported"].str.contains("falls_with_load")
    return sections.decompositions(
        held_out,
        {
            "aggregated": aggregated,
            "aggregated, H100": aggregated & h100,
            "aggregated, H100, without falls_with_load": aggregated & h100 & ~falls,
            "disaggregated": held_out["mode"] == "disaggregated",
        },
    )


def _worst(held_out: pd.DataFrame) -> dict[str, pd.DataFrame]:
    aggregated = held_out[held_out["mode"] == "aggregated"]
    return {
        "aggregated": sections.worst(aggregated),
        "aggregated, H100": sections.worst(aggregated[aggregated["gpu"] == "h100-sxm"], 6),
        "disaggregated": sections.worst(held_out[held_out["mode"] == "disaggregated"]),
    }


def _large(efficiencies: Mapping[str, Efficiency]) -> pd.DataFrame:
    alternatives = {
        TABLES: dict.fromkeys(efficiencies, kernel_tables()),
        FUSED: {name: efficiency.with_numbers({GROUPED_EXPERTS[1]: None}) for name, efficiency in efficiencies.items()},
    }
    ratios = {what: large_scale.predict(profiles)["ratio"] for what, profiles in alternatives.items()}
    return large_scale.predict(efficiencies).assign(**ratios)


def _left_out(problems: refits.Cases, held_out: pd.DataFrame, column: str) -> pd.DataFrame:
    rows = refits.leave_one_out(problems, column).assign(low_s=np.nan, high_s=np.nan)
    served = rows[rows["mode"].isin(MODES)]
    errors = summary(served, ["mode", column])[["rows", "MAPE", "median", "bias"]]
    usual = summary(held_out[held_out["mode"].isin(MODES)], ["mode", column])
    rest = summary(served[served["reported"] == ""], ["mode", column])
    more = {"without reported": rest["MAPE"], "held out": usual["MAPE"]}
    more = {name: values.reindex(errors.index) for name, values in more.items()}
    return errors.rename(columns={"MAPE": "left out"}).assign(**more)


def _variant(problems: refits.Cases, variant: Variant, progress: Progress) -> pd.DataFrame:
    progress(variant.what)
    rows = refits.variant_errors(problems, variant).assign(low_s=np.nan, high_s=np.nan)
    served, first = rows[rows["mode"] == "aggregated"], rows[rows["mode"] == "prefill"]
    one = {"variant": variant.what} | summary(served)[["MAPE", "median"]].iloc[0].to_dict()
    one["H100 MAPE"] = summary(served[served["gpu"] == "h100-sxm"])["MAPE"].iloc[0]
    one["prefill MAPE"] = summary(first)["MAPE"].iloc[0]
    return pd.DataFrame([one])


def _separately(held_out: pd.DataFrame) -> pd.DataFrame:
    listed = held_out.assign(reported=held_out["reported"].str.split(",")).explode("reported")
    return summary(listed[listed["reported"] != ""], ["mode", "reported"])


def criteria_of(
    held_out: pd.DataFrame,
    fitted: pd.DataFrame,
    left: Mapping[str, pd.DataFrame],
    large: pd.DataFrame,
    other: pd.DataFrame | None,
) -> pd.DataFrame:
    """Return the acceptance criteria with the measured values."""
    by_mode = summary(held_out, ["mode"])
    aggregated = held_out[held_out["mode"] == "aggregated"]
    h100 = summary(aggregated[aggregated["gpu"] == "h100-sxm"])["MAPE"].iloc[0]
    score = sections.intervals(aggregated, fitted[fitted["mode"] == "aggregated"])
    worst = left["gpu"].loc["aggregated"]["left out"].max()
    model, constant = score.iloc[0], score.iloc[1]
    lines: list[tuple[str, str, str, bool]] = []

    def at_most(what: str, limit: float, value: Any) -> None:
        lines.append((what, f"at most {100 * limit:.0f} %", f"{100 * value:.1f} %", bool(value <= limit)))

    at_most("aggregated TPOT, MAPE", 0.12, by_mode.loc["aggregated", "MAPE"])
    at_most("aggregated TPOT, median", 0.07, by_mode.loc["aggregated", "median"])
    at_most("aggregated TPOT on H100, MAPE", 0.09, h100)
    at_most("aggregated TPOT of the worst accelerator left out of the fit, MAPE", 0.18, worst)
    at_most("disaggregated TPOT, MAPE", 0.20, by_mode.loc["disaggregated", "MAPE"])
    at_most("time of prefill batches, MAPE", 0.15, by_mode.loc["prefill", "MAPE"])
    inside = summary(held_out)["coverage"].iloc[0]
    lines.append(("rows inside their 90 % interval", "85 to 95 %", f"{100 * inside:.1f} %", 0.85 <= inside <= 0.95))
    for what in ("mean half-width", "CRPS", "interval score"):
        better = bool(model[what] < constant[what])
        lines.append(
            (f"aggregated, {what}", f"below constant width's {constant[what]:.4f}", f"{model[what]:.4f}", better)
        )
    if other is not None:
        table = sections.compared(held_out, other, "aiconfigurator", by=((),))
        for mode, row in table.iterrows():
            own, tool = row["this model mape"], row["aiconfigurator mape"]
            lines.append(
                (
                    f"{mode} TPOT where both predict, MAPE",
                    f"below aiconfigurator's {100 * tool:.1f} %",
                    f"{100 * own:.1f} %",
                    own < tool,
                )
            )
    within = int(large["within"].sum())
    lines.append(("large-scale points within 25 %", f"all {len(large)}", f"{within}", within == len(large)))
    bound = large.loc[large["id"] == DECODE_96, "bound"].iloc[0]
    lines.append(("what bounds decode on 96 H100s", "communication", bound, bound == "communication"))
    return pd.DataFrame(lines, columns=["criterion", "required", "measured", "met"]).set_index("criterion")
