"""Measure the time to start and to import xarray in one run, each time in a fresh process: ``make bench``."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

PYTHON = [sys.executable, "-c"]
COMMAND = str(Path(sys.executable).with_name("cheetah-xr"))
SWEEP = "qwen3-32b-h100"
PEER = "import xarray"
ROUNDS = 10
ESTIMATE = "estimate --model llama-3.1-70b --gpu h100-sxm --tp 8 --batch 32 --seq-len 2048"
BARS = {"import cheetah_xr": 1.25, "cheetah-xr --help": 0.5, f"cheetah-xr {ESTIMATE}": 1.3}
"""At most this many times the import of xarray."""
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Bytecode is kept, as it is where nobody forbids it; otherwise every start would compile all it imports."""


def cases(store: Path) -> dict[str, list[str]]:
    """Return the processes that are timed."""
    lines = [PEER, "import cheetah_xr", "import cheetah_xr, xarray", "from cheetah_xr import evaluate"]
    commands = ["--help", ESTIMATE, "estimate --help", "sweep --help", "list gpus", "list models", "list sweeps"]
    return (
        {line: [*PYTHON, line] for line in lines}
        | {f"cheetah-xr {words}": [COMMAND, *words.split()] for words in commands}
        | {"cheetah-xr info STORE": [COMMAND, "info", str(store)]}
    )


def seconds(command: list[str]) -> float:
    """Return the wall time of one process, the start of Python included."""
    start = time.perf_counter()
    subprocess.run(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def main() -> None:
    """Measure in rounds, so that every case sees the same machine, and print the best of each."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "result.zarr"
        subprocess.run([COMMAND, "sweep", SWEEP, "--store", str(store)], capture_output=True, check=True)
        commands = cases(store)
        rounds = [{name: seconds(command) for name, command in commands.items()} for _ in range(ROUNDS)]
    best = {name: min(times[name] for times in rounds) for name in commands}
    table = Table(title=f"start of a fresh process, best of {ROUNDS}")
    for column in ("process", "ms", f"/ {PEER}", "at most"):
        table.add_column(column, justify="left" if column == "process" else "right")
    for name, time_ in best.items():
        table.add_row(name, f"{time_ * 1e3:.0f}", f"{time_ / best[PEER]:.2f}", str(BARS.get(name, "")))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
