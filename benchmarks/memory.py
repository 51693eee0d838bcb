"""Peak memory of a reduced sweep beside its number of points: ``python benchmarks/memory.py [POINTS ...]``.

Every size runs in a process of its own, on two threads, and stores one answer per context length.
"""

import subprocess
import sys
import tempfile

RUN = """
import resource, sys, time
import cheetah_xr as cx
points = int(float(sys.argv[1]))
lengths = max(1, points // (4 * 4 * 2 * 500))
sweep = cx.Sweep(
    name="memory", title="memory", question="How much?", model="llama-3.1-70b",
    gpu=["a100-sxm-80gb", "h100-sxm", "h200-sxm", "mi300x"], precision=["bf16", "fp8"], tp=[1, 2, 4, 8],
    batch=list(range(1, 501)), seq_len={"min": 1, "max": 131072, "num": lengths},
    best={"maximize": "throughput_per_gpu", "over": ["precision", "tp", "batch"], "where": "tps_per_user >= 20"},
)
start = time.perf_counter()
cx.run_sweep(sweep, sys.argv[2] + "/memory.zarr", progress=False, workers=2)
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
n = lengths * 4 * 4 * 2 * 500
print(f"{n:>12,} points  {peak:.2f} GB peak  {seconds:.1f} s  {seconds / n * 1e9:.1f} ns/point")
"""


def main() -> None:
    """Run every size."""
    for points in sys.argv[1:] or ["1e6", "1e7", "1e8"]:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-c", RUN, points, folder], check=True)


if __name__ == "__main__":
    main()
