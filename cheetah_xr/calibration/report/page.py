"""Render the page docs/evidence/validation.md: the largest errors first, then the errors by group."""

from __future__ import annotations

from typing import Any

import pandas as pd

from .gather import FUSED, TABLES, Report
from .large_scale import TOLERANCE
from .text import markdown

PARITY, GPUS, LARGE = "parity", "left_out_gpu", "large_scale"
"""Figures of the page."""


def render(report: Report) -> str:
    """Render the page as Markdown; its figures are in the folder ``validation`` next to it."""
    parts = [
        "# Validation",
        INTRODUCTION,
        "## What the model gets wrong",
        wrong(report),
        "## Acceptance criteria",
        markdown(report.criteria),
        "## Errors on held-out rows",
        ABOUT_ERRORS,
        f"![Predicted against measured time per token](validation/{PARITY}.png)",
        *(f"**By {name}**\n\n{markdown(frame)}" for name, frame in report.by.items()),
        "**Rows reported separately** (they count above; [measurements](measurements.md#rules) gives the reasons)",
        markdown(report.separately),
        BOTTLENECKS,
        markdown(report.bottlenecks),
        "## Efficiency profiles",
        "\n".join(f"- `{name}`: {notes}" for name, notes in report.profiles.items()),
        "## Intervals",
        ABOUT_INTERVALS,
        *(f"**{mode}**\n\n{markdown(frame)}" for mode, frame in report.intervals.items()),
        "## Left out of the fit",
        ABOUT_LEFT_OUT,
        f"![Errors without an accelerator in the fit](validation/{GPUS}.png)",
        *(markdown(frame) for frame in report.left_out.values()),
        "## Ranking",
        ABOUT_RANKING,
        *(markdown(frame) for frame in report.ranking.values()),
        "## Effect of each refinement",
        ABOUT_VARIANTS,
        *(f"**{TITLES[name]}**\n\n{markdown(frame)}" for name, frame in report.variants.items()),
        "## Floor and decomposition",
        ABOUT_FLOOR,
        markdown(report.floor),
        ABOUT_DECOMPOSITION,
        markdown(report.decompositions),
        *(f"**{name}: configurations with most error**\n\n{markdown(frame)}" for name, frame in report.worst.items()),
        "## Served time to first token",
        ABOUT_FIRST_TOKEN,
        markdown(report.first_token),
        "## Large-scale points, never fitted",
        ABOUT_LARGE,
        f"![Large-scale points](validation/{LARGE}.png)",
        markdown(_large(report)),
    ]
    if report.other_tool is not None:
        parts += ["## Compared with aiconfigurator 0.12.0", ABOUT_OTHER_TOOL, markdown(report.other_tool)]
    return "\n\n".join(parts) + "\n"


def _rows(frame: pd.DataFrame) -> list[tuple[tuple[Any, ...], Any]]:
    """Return labels and rows of a table with two levels of labels."""
    return [(tuple(key), row) for key, (_, row) in zip(frame.index, frame.iterrows(), strict=True)]


def wrong(report: Report) -> str:
    """List the criteria that are not met and the largest errors."""
    missed = report.criteria[~report.criteria["met"].astype(bool)]
    lines = [f"- Not met: {what}: {row['measured']} ({row['required']})." for what, row in missed.iterrows()]
    lines += _left_out(report) + _without_effect(report)
    off = report.large_scale[~report.large_scale["within"]]
    if len(off):
        listed = ", ".join(f"{row['id']} ({row['ratio']:.2f})" for _, row in off.iterrows())
        lines.append(f"- Large-scale points more than {100 * TOLERANCE:.0f} % off, predicted over measured: {listed}.")
        inside = {what: int(((report.large_scale[what] - 1).abs() <= TOLERANCE).sum()) for what in (TABLES, FUSED)}
        lines.append(
            f"- With the medians of the priors, before any fit, {inside[TABLES]} of {len(report.large_scale)} are "
            f"within; with fused kernels in place of grouped ones, {inside[FUSED]}."
        )
    for name in ("model", "accelerator", "precision"):
        frame = report.by[name]
        enough = frame[frame["rows"] >= 5].nlargest(3, "MAPE")
        listed = ", ".join(f"{' '.join(map(str, key))} {100 * row['MAPE']:.1f} %" for key, row in _rows(enough))
        lines.append(f"- Largest mean errors by {name} (5 rows and more): {listed}.")
    served = report.first_token.loc["aggregated"]
    medians = 100 * served["median"][served["rows"] >= 5]
    lines.append(
        "- Served time to first token is mostly waiting, which is not predicted: by requests per attention rank half "
        f"of the aggregated rows are off by {medians.min():.0f} to {medians.max():.0f} % and more, low."
    )
    return "\n".join(lines)


def _left_out(report: Report) -> list[str]:
    """List the largest errors of accelerators and models left out of the fit."""
    lines = []
    for column, frame in report.left_out.items():
        enough = frame[frame["rows"] >= 20].nlargest(3, "left out")
        keys = enough.index.to_frame().agg(" ".join, axis=1)
        listed = ", ".join(f"{key} {100 * error:.1f} %" for key, error in zip(keys, enough["left out"], strict=True))
        lines.append(f"- Largest mean errors of a {column} left out of the fit (20 rows and more): {listed}.")
    return lines


def _without_effect(report: Report) -> list[str]:
    """List refinements without which held-out rows are predicted as well or better."""
    model = report.variants["steps"]["MAPE"].iloc[-1]
    same = report.variants["without"].loc[lambda t: t["MAPE"] <= model, "MAPE"]
    listed = ", ".join(f"{what} ({100 * error:.1f} %)" for what, error in same.items())
    return [f"- As good on held-out aggregated rows ({100 * model:.1f} %) with less: {listed}."] if len(same) else []


def _large(report: Report) -> pd.DataFrame:
    columns = ["gpu", "layout", "mode", "batch", "efficiency", "measured", "predicted", "ratio", "within", "bound"]
    return report.large_scale.set_index("id")[[*columns, "communication", TABLES, FUSED]]


BOTTLENECKS = (
    "**By what bounds the decode step at the peaks (rows) and with fitted efficiencies (columns)**, aggregated rows"
)

INTRODUCTION = """Generated by

    cheetah-xr validate --predictions outputs/calibration/predictions.csv --to docs/evidence/validation.md

from the public [measurements](measurements.md) and the predictions that `cheetah-xr calibrate --public` writes; with
`--aiconfigurator FILE` (from `make compare-aiconfigurator`) it compares the two. Factors are fitted to 30 % of the
configurations per engine, none per model or accelerator; every number below is of held-out rows unless it says
otherwise. No row is left out for its error. Errors are relative to the measured time: MAPE is the mean, median the
middle of absolute errors, bias the median of signed ones (above 0: predicted too slow)."""

ABOUT_ERRORS = """Aggregated and disaggregated rows are judged by their time per output token, prefill rows by the time
of the batch, all held-out rows with the profile of their engine (disaggregated ones with its `-disaggregated` profile
where it exists). Coverage is the fraction of rows inside their 90 % interval."""

ABOUT_INTERVALS = """Half-widths are of ln(time): 0.2 is an interval of -18 to +22 %. CRPS (continuous ranked
probability score) is of ln(time), of the Student distribution with 3 degrees of freedom that has these 90 % intervals;
the interval score is the width plus 20 times the distance outside of it. Lower is better for both. The first baseline
puts one constant width around the same predictions, chosen to cover nine tenths of the fitted rows; the second has the
width that covers as many of these held-out rows as the model's: it uses their measured times."""

ABOUT_LEFT_OUT = """Factors are fitted again to the fit side without one accelerator, or one model, and predict all its
rows, on both sides of the split: `left out`, and the same `without reported` rows (those reported separately). Column
`held out` is the error of its held-out rows with the shipped profiles."""

ABOUT_RANKING = """Configurations (engine, precision, layout) of the same model, accelerator and lengths compete by
output tokens per second and GPU: requests over time per token and GPUs, without the time to the first token. Held-out
aggregated rows; repeats are one point. Regret is what the configuration predicted best loses in measured rate against
the best one; at a given interactivity every configuration runs at its best measured load that reaches it, and one that
cannot reach it counts as 0."""

ABOUT_VARIANTS = """Every variant is fitted again to the same rows and judged on the same held-out aggregated rows
(last column: prefill batches). Fits start at the medians of the priors."""

TITLES = {
    "steps": "From the assumptions of [CHEETAH] to the model",
    "without": "The model with one refinement left out",
    "choices": "The model with another choice of the cost model",
}

ABOUT_FLOOR = """Repeats of one point (same configuration, lengths and requests) differ from their mean by this much;
no model that predicts one time for both can do better."""

ABOUT_DECOMPOSITION = """`within` is the mean error left when the median ratio of every configuration is set to 1: what
the model gets wrong along loads and lengths. The rest is an offset per configuration. `three` is the fraction of all
error in the three configurations with most of it, `without_three` the mean error of the others. Rows named
`falls_with_load` are gpt-oss-120b on H100 at 512 requests: they ran faster per token than at 64, some faster than the
ideal step allows. They count in every number above."""

ABOUT_FIRST_TOKEN = """Measured means contain prefill interference, the wait for other prefills, and the opening burst,
in which all requests arrive at once; only rows without waiting compare with a prediction. The prediction is the time
of the forward pass that prefills the request, so the other rows show how much of the measured time is waiting rather
than how good the model is. Rows by requests per attention rank that prefills."""

ABOUT_LARGE = """Single published numbers, predicted with profiles that were not fitted to them, tokens/s and GPU.
Two micro-batches overlap the all-to-all where the source says so, redundant experts as stated, a token goes to at most
4 nodes in DeepSeek's prefill over nodes. DeepSeek's production counts 56.3 % prompt tokens from the cache (`-all`).
Where the batch is not stated it is the KV-cache capacity. `bound` is the largest part of the time and `communication`
the exposed fraction. `kernel tables` is the ratio with the medians of the priors, before any fit; `fused experts` that
with the fitted profile and fused kernels for experts behind an all-to-all: these points use grouped kernels
(DeepGEMM)."""

ABOUT_OTHER_TOOL = (
    """Held-out rows that both predict, time per token; [other tools](other-tools.md) describes its settings."""
)
