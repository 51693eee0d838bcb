"""Rows as the package aiconfigurator-core holds them, but synthetic: the tests of rules run without it."""

import pandas as pd

from cheetah_xr.calibration.measurements import rules, silicon

EXPORTS = {
    "database": "db-dump/2026-04-27; config_id=1; silicon_concurrency={c}; measured={d}T00:00:00.000Z; run=2",
    "march": "source_file=2026-03-25.csv; model=M; silicon_concurrency={c}; measured={d}T07:09:01Z; wip=False; image=i",
    "april": "source_file=2026-04-06.csv; model=M; silicon_concurrency={c}; measured={d}T00:00:00.000Z; wip=False",
    "rounded": "source_file=kimi-k2.5-gap-analysis.csv; silicon_concurrency={c}",
    "sweeps": "source_file=/data/h100_sxm/trtllm/1.0.0rc3/model.csv; silicon_concurrency={c}",
    "jobs": "source_file=/data/x.csv; gtl_job_id=1; gtl_task_id=2; silicon_concurrency={c}; measured={d}; image=i",
    "silent": "source_file=/data/x.csv; gtl_job_id=1; gtl_task_id=2; measured={d}; image=i",
}
DEFAULT = {
    "backend": "vllm",
    "backend_version": "0.12.0",
    "model_path": "meta-llama/Llama-3.1-70B",
    "system": "h100_sxm",
    "precision": "fp8",
    "mode": "agg",
    "isl": 1024,
    "osl": 1024,
    "gemm_quant_mode": "fp8",
    "moe_quant_mode": "fp8",
    "batch_size": None,
    "tp_size": 8,
    "pp_size": 1,
    "attention_dp_size": 1,
    "moe_tp_size": 8,
    "moe_ep_size": 1,
    "silicon_ttft_ms": 123.4567,
    "silicon_tpot_ms": 12.3456,
}
POOLS = ("prefill", "decode")
FIELDS = ("tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size", "batch_size", "num_workers")
BLANK = {f"{pool}_{name}": None for pool in POOLS for name in FIELDS}
PLACES = ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")


def row(export="april", date="2025-10-29", concurrency=16, *, degrees=None, **fields):
    """One row; `degrees` are tp, dp, moe_tp and moe_ep, and the batch of a rank follows from the concurrency."""
    made = {**DEFAULT, **BLANK, **fields}
    if degrees is not None:
        made |= dict(zip(PLACES, degrees, strict=True))
    if made["batch_size"] is None and made["mode"] == "agg":
        made["batch_size"] = -(-concurrency // (made["attention_dp_size"] or 1))
    note = EXPORTS[export].format(c=concurrency, d=date)
    return {"id": f"{export}-{date}-{concurrency}", "silicon_data_source": note, **made}


def pools(export="database", prefill=(1, 4, 1, 4), decode=(8, 1, 1, 8), workers=(1, 5), **fields):
    """One row of prefill and decode pools."""
    made = {}
    for pool, degrees, count in zip(POOLS, (prefill, decode), workers, strict=True):
        made |= {f"{pool}_{name}": value for name, value in zip(PLACES, degrees, strict=True)}
        made |= {f"{pool}_num_workers": count, f"{pool}_pp_size": 1}
    blank = dict.fromkeys((*PLACES, "pp_size", "batch_size"))
    return row(export, mode="disagg", **{**DEEPSEEK, **blank, **made, **fields})


DEEPSEEK = {"model_path": "deepseek-ai/DeepSeek-R1", "system": "b200_sxm", "backend": "trtllm", "precision": "fp4"}


def raw(*rows):
    """The package's file with these rows."""
    table = pd.DataFrame(list(rows))
    numbers = [name for name in table if name.endswith(("_size", "_workers"))]
    return table.astype(dict.fromkeys(numbers, "float64"))


def table(*rows):
    """The tidy table of these rows."""
    return rules.of_silicon(silicon.harmonise(raw(*rows)))
