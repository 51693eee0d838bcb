"""Measure peak memory and time of the billion-point sweep: ``python benchmarks/memory.py [POINTS ...]``.

Smaller sweeps have fewer accelerators, models and lengths, and blocks of the same size. Every size runs in a process of
its own on two threads; the peak is that of all processes. CPU time next to wall time tells a busy machine from a slow
program.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

SWEEP = Path(__file__).parent.parent / "sweeps" / "large" / "billion.yaml"
RUN = """
import math, resource, sys, time
import cheetah_xr as cx
from cheetah_xr.sweep import runner as run
points, file, folder = float(sys.argv[1]), sys.argv[2], sys.argv[3]
sweep = cx.load_sweep(file)
each = run.make_job(sweep).grid.n_points / len(sweep.model) / len(sweep.gpu)
pairs = max(1, round(points / each))
models = min(len(sweep.model), math.ceil(pairs / len(sweep.gpu)))
gpus = min(len(sweep.gpu), pairs)
fewer = {"model": sweep.model[-models:], "gpu": sweep.gpu[:gpus]}
if pairs == 1:
    fewer["seq_len"] = {**sweep.seq_len, "num": max(1, round(sweep.seq_len["num"] * points / each)), "include": []}
sweep = sweep.model_copy(update=fewer)
job = run.make_job(sweep, folder + "/memory.zarr")
start, used = time.perf_counter(), time.process_time()
run.run_job(job, progress=False, how=run.Workers(number=2))
seconds, used = time.perf_counter() - start, time.process_time() - used
peak = sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1e6
n, blocks = job.grid.n_points, len(job.blocks)
print(f"{n:>13,} points  {blocks:>4} blocks  {peak:.2f} GB peak  {seconds:.1f} s  {seconds / n * 1e9:.1f} ns/point  "
      f"{used:.1f} s CPU  {used / n * 1e9:.1f} ns/point")
"""


def main() -> None:
    """Run every size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("points", nargs="*", type=float, default=[1e7, 1e8, 1e9], help="default 1e7 1e8 1e9")
    for points in parser.parse_args().points:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-c", RUN, str(points), SWEEP, folder], check=True)


if __name__ == "__main__":
    main()
