"""Nanoseconds per point beside the floors of this machine, measured in one run: ``make bench`` (ARGS="--billion").

Every case is evaluated in memory, reduced in blocks and stored without compression, on one pinned core. Floors are
``np.copyto`` of as many bytes as the result has into fresh memory, and writing them to files of a block each. Peer: the
scalar oracle of the tests, one point at a time. Scaling: points, workers and blocks of a reduced sweep, each in a
process of its own. Wall time is the best round's; CPU time beside it tells a busy machine from a slow program.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import zarr
from rich.console import Console
from rich.table import Table

import cheetah_xr as cx
from cheetah_xr.engine.evaluator import prepare
from cheetah_xr.sweep import runner as run
from cheetah_xr.sweep.blocks import REDUCED_POINTS
from cheetah_xr.sweep.plan import make_plan

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.helpers import oracle

OUTPUTS = ["step_time", "bottleneck", "status"]
FREE = {"on_infeasible": "ignore"}
ROUNDS = 3
GRID = {"batch": list(range(1, 5001)), "seq_len": list(range(20, 100_001, 20))}
USER = {"gpu.hbm_bandwidth": {"min": 1e12, "max": 1e13, "num": 1250, "spacing": "log"}}
USER |= {"gpu.peak_bf16": {"min": 1e14, "max": 1e16, "num": 1250, "spacing": "log"}}
DENSE = {"model": "llama-3.1-70b", "gpu": "h100-sxm", "tp": 8, "efficiency": "ideal", "options": FREE, **GRID}
SPREAD = DENSE | {"precision": "fp8", "tp": 1, "dp": 64, "ep": 64}

CASES: dict[str, tuple[float | None, dict[str, Any]]] = {
    "dense decode": (5, DENSE),
    "dense prefill": (12, DENSE | {"phase": "prefill"}),
    "MoE MLA decode, DP and EP": (12, SPREAD | {"model": "deepseek-v3"}),
    "MoE MLA prefill, DP and EP": (30, SPREAD | {"model": "deepseek-v3", "phase": "prefill"}),
    "hybrid decode, qwen3.5-27b": (12, DENSE | {"model": "qwen3.5-27b"}),
    "hybrid decode, qwen3-next-80b-a3b": (12, SPREAD | {"model": "qwen3-next-80b-a3b", "precision": "bf16"}),
    "dense decode, what does not fit masked": (None, DENSE | {"options": {}}),
    "gemma-3-27b decode": (None, DENSE | {"model": "gemma-3-27b"}),
    "deepseek-v3.2 decode": (None, SPREAD | {"model": "deepseek-v3.2"}),
    "deepseek-v4-flash decode": (None, SPREAD | {"model": "deepseek-v4-flash"}),
    "two user axes": (None, DENSE | {"batch": [1, 8, 64, 128], "seq_len": [1024, 2048, 4096, 8192], "overrides": USER}),
}
"""Sweeps of 25 million points, and the budget in memory in ns/point."""


def sweep_of(arguments: dict[str, Any], *, reduced: bool) -> cx.Sweep:
    """A case as a sweep: stored as it is, or the best batch of every length."""
    best = {"maximize": "throughput_per_gpu", "over": ["batch"], "keep": OUTPUTS}
    if arguments.get("phase") != "prefill":
        best["where"] = "tps_per_user >= 20"
    wanted = {"best": best} if reduced else {"outputs": OUTPUTS}
    return cx.Sweep(name="speed", title="speed", question="How fast?", **arguments, **wanted)


def best_of(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of the best of some rounds, on the wall and of this process; results are dropped between rounds."""
    walls, cpus = [], []
    for _ in range(ROUNDS):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return min(walls), min(cpus)


@contextmanager
def one_core() -> Iterator[None]:
    """This process pinned to its last core, where the system can pin."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def uncompressed() -> Any:
    """Arrays of a store without compression."""
    create = zarr.Group.create_array
    return patch.object(zarr.Group, "create_array", lambda *a, **k: create(*a, **(k | {"compressors": None})))


def write_files(folder: Path, nbytes: int, blocks: int) -> None:
    """As many bytes in as many files, without anything else."""
    data = np.ones(nbytes // blocks, dtype=np.uint8)
    for number in range(blocks):
        (folder / str(number)).write_bytes(data)


def measure(arguments: dict[str, Any]) -> dict[str, float]:
    """One case in ns/point: in memory, reduced, stored, and the floors of the same bytes."""
    sweep = sweep_of(arguments, reduced=False)
    engine = prepare(sweep.axes(), OUTPUTS)
    points = engine.grid.n_points
    found: dict[str, float] = {"points": points}

    def note(name: str, work: Callable[[], Any]) -> None:
        wall, cpu = best_of(work)
        found[name], found[f"{name}_cpu"] = wall / points * 1e9, cpu / points * 1e9

    source = np.ones(engine.nbytes(), dtype=np.uint8)
    note("memory", engine.compute)
    note("copyto", lambda: np.copyto(np.empty_like(source), source))
    plan = make_plan(sweep_of(arguments, reduced=True))
    blocks = list(run.cut(plan.engine.grid, whole=plan.whole_dims))
    note("reduced", lambda: [plan.compute_block(block.selection) for block in blocks])
    found["blocks"] = len(blocks)
    with tempfile.TemporaryDirectory(dir=".") as folder, uncompressed():
        job = run.make_job(sweep, Path(folder) / "speed.zarr")
        note("stored", lambda: run.run_job(job, overwrite=True, progress=False, how=run.Workers(number=1)))
        note("files", lambda: write_files(Path(folder), job.bytes_on_disk, 3 * len(job.blocks)))
    return found


ONE_POINT_MS = 4.0
"""Budget of evaluating one point whose records are given by name, all stored variables."""


def one_point_ms() -> dict[str, float]:
    """Milliseconds of one point by name: the best and the median of 100 calls after the first."""
    seconds = []
    for _ in range(101):
        start = time.perf_counter()
        cx.evaluate("llama-3.1-70b", "h100-sxm", tp=8, batch=32, seq_len=2048)
        seconds.append(time.perf_counter() - start)
    return {"best": min(seconds[1:]) * 1e3, "median": float(np.median(seconds[1:])) * 1e3}


def oracle_seconds_per_point() -> float:
    """Seconds of one point of the dense decode in the scalar oracle."""
    records = (cx.load_model("llama-3.1-70b"), cx.load_gpu("h100-sxm"), cx.load_precision("bf16"))
    arguments = [record.model_dump() for record in (*records, cx.load_efficiency("ideal"), cx.Options(**FREE))]
    arguments[0]["n_parameters"] = None
    start = time.perf_counter()
    for batch in range(1, 1001):
        oracle.evaluate(*arguments, phase="decode", batch=batch, seq_len=2048, tp=8)
    return (time.perf_counter() - start) / 1000


SCALE = """
import json, resource, sys, time
from functools import partial
import cheetah_xr as cx
from cheetah_xr.sweep import runner as run
points, workers, block, store = int(float(sys.argv[1])), int(sys.argv[2]), int(float(sys.argv[3])), sys.argv[4]
lengths = max(1, points // (4 * 4 * 2 * 500))
run.cut = partial(run.cut, points=block)
job = run.make_job(cx.Sweep(
    name="scale", title="scale", question="How much?", model="llama-3.1-70b",
    gpu=["a100-sxm-80gb", "h100-sxm", "h200-sxm", "mi300x"], precision=["bf16", "fp8"], tp=[1, 2, 4, 8],
    batch=list(range(1, 501)), seq_len={"min": 1, "max": 131072, "num": lengths},
    best={"maximize": "throughput_per_gpu", "over": ["precision", "tp", "batch"], "where": "tps_per_user >= 20"},
), store)
start, used = time.perf_counter(), time.process_time()
run.run_job(job, progress=False, how=run.Workers(number=workers))
seconds, used = time.perf_counter() - start, time.process_time() - used
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
n = job.grid.n_points
print(json.dumps({"points": n, "workers": workers, "blocks": len(job.blocks), "seconds": seconds,
                  "ns_per_point": seconds / n * 1e9, "cpu_ns_per_point": used / n * 1e9, "peak_gb": peak}))
"""


def scaling(*, billion: bool) -> list[dict[str, float]]:
    """A reduced sweep: points, then workers and blocks of 10 million points."""
    block = REDUCED_POINTS
    wanted = [(points, 2, block) for points in (1e6, 1e7, 1e8, *([1e9] if billion else []))]
    wanted += [(1e7, 1, block), *((1e7, 2, size) for size in (131_072, 1_048_576, 16_777_216))]
    rows = []
    for points, workers, size in wanted:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-c", SCALE, str(points), str(workers), str(size), f"{folder}/scale.zarr"]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
        rows.append(json.loads(done.stdout))
    return rows


def table_of_cases(rows: dict[str, dict[str, float]], scalar: float) -> Table:
    """Cases with their ratios to the floors of the same run, and the budgets in memory and reduced (1.5 times that)."""
    table = Table(title=f"ns/point on one core: {', '.join(OUTPUTS)}; CPU time in brackets")
    memory, reduced = ("in memory", "x copyto", "budget"), ("reduced", "x in memory", "budget")
    for column in ("case", *memory, *reduced, "stored", "x (files + compute)"):
        table.add_column(column, justify="left" if column == "case" else "right")
    table.add_column("scalar oracle / in memory", justify="right")
    for name, row in rows.items():
        budget = CASES[name][0]
        table.add_row(
            name,
            *(f"{row['memory']:.2f} ({row['memory_cpu']:.2f})", f"{row['memory'] / row['copyto']:.1f}"),
            f"{budget:g}" if budget else "",
            *(f"{row['reduced']:.2f} ({row['reduced_cpu']:.2f})", f"{row['reduced'] / row['memory']:.2f}"),
            f"{1.5 * budget:g}" if budget else "",
            *(
                f"{row['stored']:.2f} ({row['stored_cpu']:.2f})",
                f"{row['stored'] / (row['files'] + row['memory']):.2f}",
            ),
            f"{scalar * 1e9 / row['memory']:,.0f} x",
        )
    return table


def main() -> None:
    """Measure, print tables, write JSON beside the results of sweeps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--billion", action="store_true", help="also a reduced sweep of 1e9 points")
    parser.add_argument("--case", action="append", choices=CASES, help="only these cases, and no scaling")
    chosen = parser.parse_args()
    console = Console(width=170)
    with one_core():
        scalar, point = oracle_seconds_per_point(), one_point_ms()
        rows = {name: measure(CASES[name][1]) for name in chosen.case or CASES}
    console.print(table_of_cases(rows, scalar), f"scalar oracle: {scalar * 1e6:.1f} us/point", highlight=False)
    words = f"one point by name, ms: {point['best']:.2f} (median {point['median']:.2f}; budget {ONE_POINT_MS:g})"
    console.print(words, highlight=False)
    scaled = [] if chosen.case else scaling(billion=chosen.billion)
    table = Table(title="a reduced sweep: points, workers, blocks")
    for column in ("points", "workers", "blocks", "seconds", "ns_per_point", "cpu_ns_per_point", "peak_gb"):
        table.add_column(column, justify="right")
    for row in scaled:
        table.add_row(*(f"{v:,}" if isinstance(v, int) else f"{v:.2f}" for v in row.values()))
    if scaled:
        console.print(table)
    machine = {"machine": platform.processor() or platform.machine(), "system": platform.platform()}
    machine |= {"cores": os.cpu_count(), "load": os.getloadavg(), "python": platform.python_version()}
    machine |= {name: version(name) for name in ("cheetah_xr", "numpy", "xarray", "zarr", "dask")}
    report = {**machine, "cases": rows, "scaling": scaled, "oracle_us_per_point": scalar * 1e6}
    report["one_point_by_name_ms"] = point
    path = Path("outputs") / "bench.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(report, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
