"""Nanoseconds per point beside the floors of this machine, measured in one run: ``make bench``.

Floors: ``np.copyto`` of as many bytes as the result has, into memory the process already owns and into fresh memory.
Peer: the scalar oracle of the tests, one point at a time.
"""

import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import cheetah_xr as cx
from cheetah_xr.api import axes_of
from cheetah_xr.engine import Engine, prepare

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import oracle

OUTPUTS = ["step_time", "bottleneck", "status"]
FREE = cx.Options(on_infeasible="ignore")
ROUNDS = 3


def cases() -> dict[str, Engine]:
    """Sweeps that are timed."""
    batch, length = np.arange(1, 5001), np.arange(1, 5001) * 20
    short = {"batch": batch[:2000], "seq_len": length[:2000]}
    user = {"gpu.hbm_bandwidth": np.geomspace(1e12, 1e13, 500), "gpu.peak_bf16": np.geomspace(1e14, 1e16, 500)}
    dense = {"model": "llama-3.1-70b", "gpu": "h100-sxm", "tp": 8, "efficiency": "ideal", "options": FREE}
    experts = {"model": "deepseek-v3", "gpu": "h100-sxm", "precision": "fp8", "dp": 64, "ep": 64, "options": FREE}
    asked: dict[str, dict[str, Any]] = {
        "dense decode, 25 million points": dense | {"batch": batch, "seq_len": length},
        "the same, what does not fit masked": dense | {"batch": batch, "seq_len": length, "options": cx.Options()},
        "dense prefill, 4 million points": dense | short | {"phase": "prefill"},
        "MoE MLA decode with EP, 4 million points": experts | short | {"efficiency": "ideal"},
        "two user axes, 4 million points": dense
        | {"batch": [1, 8, 64, 128], "seq_len": [1024, 2048, 4096, 8192], "overrides": user},
    }
    hybrids = {
        "qwen3.5-27b": {"tp": 8},
        "gemma-3-27b": {"tp": 8},
        "deepseek-v3.2": {"precision": "fp8", "dp": 64, "ep": 64},
        "deepseek-v4-flash": {"precision": "fp8", "dp": 64, "ep": 64},
        "qwen3-next-80b-a3b": {"dp": 64, "ep": 64},
    }
    asked |= {
        f"{name} decode, 4 million points": dense | short | layout | {"model": name, "tp": layout.get("tp", 1)}
        for name, layout in hybrids.items()
    }
    return {name: prepare(axes_of(**arguments), OUTPUTS) for name, arguments in asked.items()}


def best_of(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of the first round and of the best; results are dropped between rounds."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return times[0], min(times)


def copy_floor(engine: Engine) -> tuple[float, float]:
    """Seconds of np.copyto of the result's bytes: fresh memory first, then memory in use."""
    source = np.zeros(engine.nbytes(), dtype=np.uint8)
    source[:] = 1
    target = np.empty_like(source)
    return best_of(lambda: np.copyto(target, source))


def oracle_seconds_per_point() -> float:
    """Seconds of one point of the dense decode in the scalar oracle."""
    records = (cx.load_model("llama-3.1-70b"), cx.load_gpu("h100-sxm"), cx.load_precision("bf16"))
    arguments = [record.model_dump() for record in (*records, cx.load_efficiency("ideal"), FREE)]
    arguments[0]["n_parameters"] = None
    start = time.perf_counter()
    for batch in range(1, 1001):
        oracle.evaluate(*arguments, phase="decode", batch=batch, seq_len=2048, tp=8)
    return (time.perf_counter() - start) / 1000


def main() -> None:
    """Measure, print a table, write JSON beside the results of sweeps."""
    rows = []
    for name, engine in cases().items():
        points = engine.grid.n_points
        first, best = best_of(engine.compute)
        fresh, warm = copy_floor(engine)
        rows.append(
            {
                "case": name,
                "ns_per_point_first": first / points * 1e9,
                "ns_per_point_best": best / points * 1e9,
                "copyto_fresh": fresh / points * 1e9,
                "copyto_warm": warm / points * 1e9,
                "peak_memory_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
            }
        )
    scalar = oracle_seconds_per_point()
    table = Table(title="nanoseconds per point (step_time, bottleneck, status)")
    for column in ("case", "first", "best", "copyto, fresh", "copyto, warm", "peak GB so far", "scalar oracle / best"):
        table.add_column(column, justify="left" if column == "case" else "right")
    for row in rows:
        numbers = [f"{row[k]:.2f}" for k in row if k != "case"]
        table.add_row(str(row["case"]), *numbers, f"{scalar * 1e9 / float(row['ns_per_point_best']):,.0f} x")
    cores = len(os.sched_getaffinity(0))
    Console(width=140).print(
        table, f"scalar oracle: {scalar * 1e6:.1f} us/point; {cores} cores, numpy {np.__version__}"
    )
    report = {"machine": platform.processor() or platform.machine(), "cores": cores, "numpy": np.__version__}
    path = Path("outputs") / "bench.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        json.dumps(report | {"rows": rows, "oracle_us_per_point": scalar * 1e6}, indent=2), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
