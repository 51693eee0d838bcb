"""The page docs/evidence/validation.md: what the model gets wrong first, then how large every error is."""

from __future__ import annotations

from typing import Any

import pandas as pd

from .gather import FUSED, TABLES, Report
from .large_scale import BAR
from .text import markdown

PARITY, GPUS, LARGE = "parity", "left_out_gpu", "large_scale"
"""Figures of the page."""


def render(report: Report) -> str:
    """The page as Markdown; figures are in the folder ``validation`` beside it."""
    parts = [
        "# Validation",
        INTRODUCTION,
        "## What the model gets wrong",
        wrong(report),
        "## Bars",
        markdown(report.bars),
        "## Errors on held-out rows",
        ABOUT_ERRORS,
        f"![Predicted against measured time per token](validation/{PARITY}.png)",
        *(f"**By {name}**\n\n{markdown(frame)}" for name, frame in report.by.items()),
        "**Rows reported apart** (they count above; [measurements](measurements.md#rules) says why)",
        markdown(report.apart),
        "**By what bounds the decode step at the peaks (lines) and with fitted factors (columns)**, aggregated rows",
        markdown(report.bottlenecks),
        "## Sets of factors",
        "\n".join(f"- `{name}`: {notes}" for name, notes in report.sets.items()),
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
        "## What each refinement buys",
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
        "## Large scale, never fitted",
        ABOUT_LARGE,
        f"![Large-scale points](validation/{LARGE}.png)",
        markdown(_large(report)),
    ]
    if report.beside is not None:
        parts += ["## Beside aiconfigurator 0.12.0", ABOUT_BESIDE, markdown(report.beside)]
    return "\n\n".join(parts) + "\n"


def _rows(frame: pd.DataFrame) -> list[tuple[tuple[Any, ...], Any]]:
    """Labels and rows of a table with two levels of labels."""
    return [(tuple(key), row) for key, (_, row) in zip(frame.index, frame.iterrows(), strict=True)]


def wrong(report: Report) -> str:
    """The largest misses, in words, from the tables."""
    missed = report.bars[~report.bars["met"].astype(bool)]
    lines = [f"- Not met: {what}: {row['measured']} ({row['asked']})." for what, row in missed.iterrows()]
    lines += _left_out(report) + _bought_nothing(report)
    off = report.large_scale[~report.large_scale["within"]]
    if len(off):
        named = ", ".join(f"{row['id']} ({row['ratio']:.2f})" for _, row in off.iterrows())
        lines.append(f"- Large-scale points more than {100 * BAR:.0f} % off, predicted over measured: {named}.")
        inside = {what: int(((report.large_scale[what] - 1).abs() <= BAR).sum()) for what in (TABLES, FUSED)}
        lines.append(
            f"- Before any fit, with the medians of the priors, {inside[TABLES]} of {len(report.large_scale)} are "
            f"within; with the kernels of other experts in place of grouped ones, {inside[FUSED]}."
        )
    for name in ("model", "accelerator", "precision"):
        frame = report.by[name]
        enough = frame[frame["rows"] >= 5].nlargest(3, "MAPE")
        named = ", ".join(f"{' '.join(map(str, key))} {100 * row['MAPE']:.1f} %" for key, row in _rows(enough))
        lines.append(f"- Largest mean errors by {name} (5 rows and more): {named}.")
    served = report.first_token.loc["aggregated"]
    medians = 100 * served["median"][served["rows"] >= 5]
    lines.append(
        "- Served time to first token is mostly waiting, which is not predicted: by requests per attention rank half "
        f"of the aggregated rows are off by {medians.min():.0f} to {medians.max():.0f} % and more, low."
    )
    return "\n".join(lines)


def _left_out(report: Report) -> list[str]:
    """What is predicted worst when no factor has seen it."""
    lines = []
    for column, frame in report.left_out.items():
        enough = frame[frame["rows"] >= 20].nlargest(3, "left out")
        keys = enough.index.to_frame().agg(" ".join, axis=1)
        named = ", ".join(f"{key} {100 * error:.1f} %" for key, error in zip(keys, enough["left out"], strict=True))
        lines.append(f"- Largest mean errors of a {column} left out of the fit (20 rows and more): {named}.")
    return lines


def _bought_nothing(report: Report) -> list[str]:
    """Refinements without which held-out rows are predicted as well or better."""
    model = report.variants["steps"]["MAPE"].iloc[-1]
    same = report.variants["without"].loc[lambda t: t["MAPE"] <= model, "MAPE"]
    named = ", ".join(f"{what} ({100 * error:.1f} %)" for what, error in same.items())
    return [f"- As good on held-out aggregated rows ({100 * model:.1f} %) with less: {named}."] if len(same) else []


def _large(report: Report) -> pd.DataFrame:
    columns = ["gpu", "layout", "mode", "batch", "factors", "measured", "predicted", "ratio", "within", "bound"]
    return report.large_scale.set_index("id")[[*columns, "communication", TABLES, FUSED]]


INTRODUCTION = """Generated by

    cheetah-xr validate --predictions outputs/calibration/predictions.csv --to docs/evidence/validation.md

from the public [measurements](measurements.md) and the predictions that `cheetah-xr calibrate --public` writes; with
`--aiconfigurator FILE` (from `make compare-aiconfigurator`) it compares the two. Factors are fitted to 30 % of the
configurations per engine, none per model or accelerator; every number below is of the others unless it says
otherwise. Nothing is left out because it fits badly. Errors are relative to the measured time: MAPE is the mean,
median the middle of absolute errors, bias the median of signed ones (above 0: predicted too slow)."""

ABOUT_ERRORS = """Aggregated and disaggregated rows are judged by their time per output token, prefill rows by the
time of the batch, all held-out rows by their own engine's set (disaggregated ones by its `-pools` set where there is
one). Coverage is the share of rows inside their 90 % interval."""

ABOUT_INTERVALS = """Half-widths are of ln(time): 0.2 is an interval of -18 to +22 %. CRPS (continuous ranked
probability score) is of ln(time), of the Student distribution with 3 degrees of freedom that has these 90 %
intervals; the interval score is a width and 20 times what lies outside of it. Lower is better for both. The first
baseline puts the same width around the same predictions everywhere, such that it holds nine tenths of the fitted
rows; the second has the width that holds as many of these held-out rows as the model's: only someone who knows the
answers could choose it."""

ABOUT_LEFT_OUT = """Factors are fitted again to the fit side without one accelerator, or one model, and predict all
its rows, on both sides of the split: `left out`, and the same `without reported` rows (those reported apart).
`held out` is the error of its held-out rows with the factors shipped."""

ABOUT_RANKING = """Configurations (engine, precision, layout) of the same model, accelerator and lengths compete by
output tokens per second and GPU: requests over time per token and GPUs, without the time to the first token.
Held-out aggregated rows; repeats are one point. Regret is what the configuration predicted best loses in measured
rate against the best one; at a given speed of each request every configuration runs at its best measured load that
reaches it, and one that cannot reach it counts as 0."""

ABOUT_VARIANTS = """Every line is fitted anew to the same rows and judged on the same held-out aggregated rows (last
column: prefill batches). Fits start at the medians of the priors."""

TITLES = {
    "steps": "From the paper's assumptions to the model",
    "without": "The model with one refinement left out",
    "choices": "The model with another choice of the cost model",
}

ABOUT_FLOOR = """Repeats of one point (same configuration, lengths and requests) differ from their mean by this
much; no model that has one answer for both can do better."""

ABOUT_DECOMPOSITION = """`within` is the mean error left when the median ratio of every configuration is set to 1:
what the model gets wrong along loads and lengths. The rest is an offset per configuration. `three` is the share of
all error in the three configurations with most of it, `without_three` the mean error of the others. Rows named
`falls_with_load` are gpt-oss-120b on H100 at 512 requests: they ran faster per token than at 64, some faster than
the ideal step allows. They count in every number above."""

ABOUT_FIRST_TOKEN = """Measured means contain waiting for the prompts of others, and the opening burst, in which all
requests arrive at once; only rows without waiting compare with a prediction. The prediction is the time of the pass
that holds the prompt, so the other lines show how much of the measured time is waiting rather than how good the
model is. Rows by requests per attention rank that prefills."""

ABOUT_LARGE = """Single published numbers, predicted by the engine with factors that never saw them, tokens/s and
GPU. Two micro-batches hide the exchange where the source says so, redundant experts as stated, a token goes to at
most 4 nodes in DeepSeek's prefill over nodes. DeepSeek's production counts 56.3 % prompt tokens from the cache
(`-all`). Where the batch is not stated the cache is full. `bound` is the largest part of the time and
`communication` the share that nothing hides. `kernel tables` is the ratio with the medians of the priors, before any
fit; `fused experts` that with the fitted set where experts that get tokens by exchange are multiplied by the kernels
of all others: these points use grouped kernels (DeepGEMM)."""

ABOUT_BESIDE = """Held-out rows that both answer, time per token; [other tools](other-tools.md) says how it is asked."""
