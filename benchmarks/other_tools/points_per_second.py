"""Measure points per second of this engine and of other tools, on one core, in one run: ``make bench-other-tools``.

Every other tool runs in an environment of its own, models and tables loaded beforehand; a point is a decode step of
a 70B Llama on H100 at one tensor-parallel degree, batch and length. This engine is timed before and after each of them;
the best round of each counts.
"""

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from timing import SAMPLE, TP

import cheetah_xr as cx
from cheetah_xr.engine.evaluator import prepare
from cheetah_xr.engine.inputs.gather import axes_of

TOOLS = ("aiconfigurator", "llm-analysis", "genz-llm")
OUTPUTS = ["step_time", "bottleneck", "status"]
COMMON: dict[str, Any] = {"model": "llama-3.1-70b", "gpu": "h100-sxm", "options": cx.Options(on_infeasible="ignore")}
ROUNDS = 3


def pin() -> int | None:
    """Keep this process and those it starts on one core, where the system can."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return core


def measure_engine() -> dict[str, Any]:
    """Return the best of some rounds over 25 million points in memory: time, bottleneck and status of each."""
    grid = {"tp": list(TP), "batch": np.arange(1, 2501), "seq_len": np.arange(1, 5001) * 20}
    engine = prepare(axes_of(**COMMON, **grid), OUTPUTS)
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        engine.compute()
        times.append(time.process_time() - start)
    tp, batch, length = SAMPLE
    sample = cx.evaluate(**COMMON, tp=tp, batch=batch, seq_len=length, outputs=["step_time"])["step_time"].item()
    points = engine.grid.n_points
    return {"points_per_second": points / min(times), "points": points, "sample_s": sample}


def measure_tool(name: str) -> dict[str, Any]:
    """Run the script of another tool and return what it measures."""
    script = Path(__file__).with_name(f"speed_{name.replace('-', '_')}.py")
    done = subprocess.run([f".venv-{name}/bin/python", script], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{script.name} failed:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Measure, print a table and write JSON into outputs/."""
    core = pin()
    rounds, results = [measure_engine()], []
    for name in TOOLS:
        results.append(measure_tool(name))
        rounds.append(measure_engine())
    best = max(rounds, key=lambda result: result["points_per_second"])
    rows = [("cheetah_xr", cx.__version__, "engine, 25 million points", best)]
    rows += [
        (result["package"], result["version"], way, speed)
        for result in results
        for way, speed in result["ways"].items()
    ]
    table = Table(title="decode steps of a 70B Llama on H100, tensor parallel over 4 and 8")
    for column in (
        "tool",
        "called through",
        "points/s",
        "ours is",
        f"tp {SAMPLE[0]}, batch {SAMPLE[1]}, {SAMPLE[2]} tokens",
    ):
        table.add_column(column, justify="left" if column in ("tool", "called through") else "right")
    report = []
    for package, version, way, speed in rows:
        ratio = best["points_per_second"] / speed["points_per_second"]
        table.add_row(
            f"{package} {version}",
            way,
            f"{speed['points_per_second']:,.0f}",
            f"{ratio:,.0f} x",
            f"{speed['sample_s'] * 1e3:.2f} ms",
        )
        report.append({"package": package, "version": version, "way": way, "ratio": ratio} | speed)
    Console(width=140).print(table)
    path = Path("outputs") / "bench-other-tools.json"
    path.parent.mkdir(exist_ok=True)
    machine = {"machine": platform.processor() or platform.machine(), "core": core, "python": platform.python_version()}
    path.write_text(json.dumps(machine | {"numpy": np.__version__, "rows": report}, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
