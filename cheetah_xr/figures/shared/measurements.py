"""Read published measurements of DeepSeek-V3/R1 decode and predict the same setups."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import pandas as pd
import xarray as xr

from ...analysis import flag_labels
from ...api import evaluate
from ...specs import Precision, load_precision
from .common import model_name

NEVER_PUBLISHED = (
    "The points of [CHEETAH] on 2 and 4 nodes of H100 were never published; those shown are from other sources, each "
    "named in the table of measurements."
)
CHOICES = (
    "The expert-parallel all-to-all is overlapped with computation where the source says so (two micro-batches), else "
    "exposed; the context is the stated one, or the input and half of the output; default accounting otherwise."
)


@cache
def measurements() -> pd.DataFrame:
    """Read every published point with its setup, its source and ``measured``, output tokens/s of one GPU.

    ``value`` is what the source prints, output tokens/s of ``per_gpus`` GPUs. Column ``decode`` says whether the GPUs
    decode alone or prefill too. Points of speculative decoding are left out, and those that do not state their batch.
    """
    with files(__package__).joinpath("measurements.csv").open(encoding="utf-8") as file:
        table = pd.read_csv(file).fillna({"experts": "", "attn_core": "", "note": ""})
    return table.assign(n_gpus=table.tp * table.dp, measured=table.value / table.per_gpus)


def setups() -> pd.DataFrame:
    """Return one row per setup, in the order of the file."""
    return measurements().drop_duplicates("setup").set_index("setup", drop=False)


def measured_points() -> dict[str, tuple[str, Any]]:
    """Return the published points as variables on dim ``point``."""
    points = measurements()
    marks = {
        "measured_batch": points.batch,
        "measured_tps_per_user": points.measured * points.n_gpus / points.batch,
        "measured_throughput_per_gpu": points.measured,
        "measured_setup": points.setup,
        "measured_decode": points.decode,
        "measured_source": points.source,
    }
    return {name: ("point", values.to_numpy()) for name, values in marks.items()}


def precision_of(row: Any) -> Precision:
    """Return the precision of a setup: one of the catalogue, with experts, attention core or KV cache changed."""
    base = load_precision(row.precision)
    changed: dict[str, Any] = {}
    if row.experts:
        other = load_precision(row.experts)
        changed |= {f"experts_{part}": getattr(other, f"experts_{part}") for part in EXPERT_FIELDS}
    if row.attn_core:
        changed["attn_core_compute"] = row.attn_core
    if pd.notna(row.kv_bytes):
        changed["kv_bytes"] = float(row.kv_bytes)
    return base.model_copy(update=changed)


EXPERT_FIELDS = ("weight_bytes", "input_bytes", "compute")


def evaluated(
    row: Any, batch: Any, efficiency: Any = "kernels", phase: str = "decode", outputs: Sequence[str] | None = None
) -> xr.Dataset:
    """Evaluate a setup: decode at its context, or prefill of its input."""
    options = {name: getattr(row, name) for name in ("expert_comm", "redundant_experts")}
    if phase == "decode":
        options |= {"micro_batches": row.micro_batches, "overlap_ep": float(row.overlap_ep)}
    return evaluate(
        row.model,
        row.gpu,
        precision_of(row),
        phase=phase,
        batch=batch,
        seq_len=int(row.context if phase == "decode" else row.input_tokens),
        tp=row.tp,
        dp=row.dp,
        ep=row.ep,
        efficiency=efficiency,
        options=options,
        outputs=outputs,
    )


def predictions() -> pd.DataFrame:
    """Return every measurement with output tokens/s of one GPU as ``predicted`` and at ideal efficiencies (``ideal``).

    Where the GPUs prefill too, the prefills of all requests, one per attention rank at a time, are added to the
    decode steps of an output. ``bound`` is the bottleneck of the decode step.
    """
    return pd.concat([_of_setup(rows) for _, rows in measurements().groupby("setup", sort=False)])


def _of_setup(rows: pd.DataFrame) -> pd.DataFrame:
    setup: Any = next(rows.itertuples())
    ds = evaluated(setup, sorted(set(rows.batch)), list(EFFICIENCIES)).sel(batch=rows.batch.to_list())
    seconds = ds["step_time"]
    if setup.decode == "with prefill":
        prefill = evaluated(setup, setup.dp, list(EFFICIENCIES), "prefill")["step_time"]
        seconds = seconds + ds["batch"] / setup.dp * prefill / setup.output_tokens
    rates = ds["batch"] / seconds / setup.n_gpus
    columns = {column: rates.sel(efficiency=name).to_numpy() for name, column in EFFICIENCIES.items()}
    return rows.assign(**columns, bound=flag_labels(ds["bottleneck"].sel(efficiency="kernels")).to_numpy())


EFFICIENCIES = {"kernels": "predicted", "ideal": "ideal"}
"""Efficiency profiles and the columns of their predictions."""


def assumptions(efficiencies: str = "default efficiencies") -> str:
    """Describe the assumptions of all setups."""
    layouts = "; ".join(
        f"{row.setup}: tp {row.tp}, dp {row.dp}, ep {row.ep}, {precision_of(row).name}" for row in setups().itertuples()
    )
    return f"{model_name('deepseek-v3')} and R1 without speculative decoding; {layouts}; {efficiencies}. {CHOICES}"
