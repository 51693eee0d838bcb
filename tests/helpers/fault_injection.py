"""A sweep to be disturbed, and what must hold afterwards: the same bits as the undisturbed run."""

import signal
import subprocess
import sys
import textwrap
import time

import numpy as np

import cheetah_xr as cx
from cheetah_xr.sweep.store.writer import read_completion

SWEEP = {
    "title": "Disturbed",
    "question": "Is anything lost?",
    "model": ["llama-3.1-8b", "mixtral-8x7b"],
    "gpu": ["h100-sxm", "mi300x"],
    "tp": [1, 2],
    "batch": {"min": 1, "max": 800, "num": 800},
    "seq_len": {"min": 1024, "max": 16384, "num": 12},
    "outputs": ["step_time", "bottleneck", "status", "weight_bytes"],
    "block_memory_mb": 1,
}
BLOCKS = 16
LONG = SWEEP | {
    "batch": {"min": 1, "max": 40_000, "num": 40_000},
    "seq_len": {"min": 1024, "max": 16384, "num": 3000},
    "block_memory_mb": 60,
}
"""A sweep that is still running when it is disturbed."""


def assert_same(path, expected):
    """Two results have the same bits, and both are whole."""
    assert read_completion(path, checksums=True).complete
    actual, undisturbed = cx.open_result(path), cx.open_result(expected)
    assert actual.attrs["fingerprint"] == undisturbed.attrs["fingerprint"]
    for name, values in undisturbed.variables.items():
        np.testing.assert_array_equal(actual[name].values, values.values, err_msg=str(name))


def contents(folder):
    """Every file of a folder."""
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def python(script, *args):
    """Start a script in a process of its own."""
    return started([sys.executable, "-c", textwrap.dedent(script), *map(str, args)])


def command(*args):
    """Start ``cheetah-xr ARGS`` in a process of its own."""
    return started([sys.executable, "-m", "cheetah_xr", *map(str, args)])


def started(line):
    """A process that Ctrl-C interrupts, also where a shell started the tests in the background and ignores it there."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)


def ended(process, seconds=120):
    """Exit code and standard error of a process once it has ended; one that does not end is ended."""
    try:
        _, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return process.returncode, err


def wait_for(condition, what, running=None, seconds=120):
    """Wait until something holds, while a process runs."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert running is None or running.poll() is None, f"ended before {what}: {running.communicate()}"
        if time.monotonic() > deadline:
            if running is not None:
                running.kill()
                running.communicate()
            raise AssertionError(f"{what}: not in {seconds} s")
        time.sleep(0.02)


def completed_blocks(path):
    """Return how many blocks are recorded as complete so far, seen from outside."""
    return len(list(path.glob("completed/blocks/c/*/0")))
