"""Published measurements of DeepSeek-V3/R1 decode, and the engine's answer for the same setups."""

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

NEVER_PUBLISHED = (
    "The post's own points on 2 and 4 nodes of H100 were never published; those shown are of other people, each with "
    "its source in the table of measurements."
)
CHOICES = (
    "Experts overlap their exchange with computation where the source says so (two micro-batches), else not at all; "
    "the context is the stated one, or the prompt and half of the answer; default accounting otherwise."
)


@cache
def measurements() -> pd.DataFrame:
    """Every published point with its setup, its source and ``measured``, output tokens/s of one GPU.

    ``value`` is what the source prints, output tokens/s of ``per_gpus`` GPUs. Column ``decode`` says whether the GPUs
    decode alone or prefill too. Points of speculative decoding are left out, and those that do not state their batch.
    """
    with files(__package__).joinpath("measurements.csv").open(encoding="utf-8") as file:
        table = pd.read_csv(file).fillna({"experts": "", "attn_core": "", "note": ""})
    return table.assign(n_gpus=table.tp * table.dp, measured=table.value / table.per_gpus)


def setups() -> pd.DataFrame:
    """One row per setup, in the order of the file."""
    return measurements().drop_duplicates("setup").set_index("setup", drop=False)


def measured_points() -> dict[str, tuple[str, Any]]:
    """The published points as variables on dim ``point``."""
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
    """Precision of a setup: one of the catalogue, with experts, attention core or cache of another where stated."""
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
    """The engine's result for a setup: decode at its context, or prefill of its prompt."""
    options = {name: getattr(row, name) for name in ("expert_comm", "redundant_experts")}
    if phase == "decode":
        options |= {"micro_batches": row.micro_batches, "overlap_ep": float(row.overlap_ep)}
    return evaluate(
        row.model,
        row.gpu,
        precision_of(row),
        phase=phase,
        batch=batch,
        seq_len=int(row.context if phase == "decode" else row.prompt),
        tp=row.tp,
        dp=row.dp,
        ep=row.ep,
        efficiency=efficiency,
        options=options,
        outputs=outputs,
    )


def predictions() -> pd.DataFrame:
    """Every measurement beside the engine's answer, output tokens/s of one GPU: ``predicted`` and ``ceiling``.

    Where the GPUs prefill too, the prefills of all prompts, one per attention rank at a time, come on top of the
    decode steps of an answer. ``bound`` is the bottleneck of the decode step.
    """
    return pd.concat([_of_setup(rows) for _, rows in measurements().groupby("setup", sort=False)])


def _of_setup(rows: pd.DataFrame) -> pd.DataFrame:
    setup: Any = next(rows.itertuples())
    ds = evaluated(setup, sorted(set(rows.batch)), list(SETS)).sel(batch=rows.batch.to_list())
    seconds = ds["step_time"]
    if setup.decode == "with prefill":
        prefill = evaluated(setup, setup.dp, list(SETS), "prefill")["step_time"]
        seconds = seconds + ds["batch"] / setup.dp * prefill / setup.answer
    found = ds["batch"] / seconds / setup.n_gpus
    columns = {column: found.sel(efficiency=name).to_numpy() for name, column in SETS.items()}
    return rows.assign(**columns, bound=flag_labels(ds["bottleneck"].sel(efficiency="kernels")).to_numpy())


SETS = {"kernels": "predicted", "ideal": "ceiling"}
"""Efficiency sets and the columns of their answers."""
