"""Killed runs: whatever was written is kept, the next run computes exactly what is missing, bit for bit the same."""

import os
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest

import cheetah_xr as cx
from cheetah_xr import blocks, run, store

SWEEP = {
    "title": "Killed",
    "question": "Is anything lost?",
    "model": ["llama-3.1-8b", "mixtral-8x7b"],
    "gpu": ["h100-sxm", "mi300x"],
    "tp": [1, 2],
    "batch": {"min": 1, "max": 64, "num": 12},
    "seq_len": [1024, 4096, 16384],
    "outputs": ["step_time", "bottleneck", "status", "weight_bytes"],
}
POINTS = 40

KILL = """
import os, signal, sys
from functools import partial
import cheetah_xr as cx
from cheetah_xr import blocks, run, store

run.cut = partial(blocks.cut, points={points})
when, calls = sys.argv[2], []
original = store.write_block

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def write_block(path, recipe, block, values):
    calls.append(block.number)
    last = len(calls) == 6
    if last and when == "before the chunk":
        die()
    if last and when == "between chunk and marker":
        mark = store._array
        store._array = lambda root, name: die() if name == store.MARKERS else mark(root, name)
    original(path, recipe, block, values)
    if last and when == "after the marker":
        die()

run.write_block = write_block
cx.run_sweep(sys.argv[1], "killed.zarr", progress=False, workers=1)
"""


@pytest.fixture
def sweep(write, elsewhere, monkeypatch):
    monkeypatch.setattr(run, "cut", partial(blocks.cut, points=POINTS))
    return write(SWEEP, "killed.yaml")


def counted(monkeypatch):
    """Numbers of the blocks that are computed from now on."""
    numbers = []
    original = run.run_block

    def run_block(recipe, path, block):
        numbers.append(block.number)
        return original(recipe, path, block)

    monkeypatch.setattr(run, "run_block", run_block)
    return numbers


@pytest.mark.parametrize("when", ["before the chunk", "between chunk and marker", "after the marker"])
def test_sigkill(when, sweep, monkeypatch):
    script = KILL.format(points=POINTS)
    ended = subprocess.run([sys.executable, "-c", script, str(sweep), when], check=False)
    assert ended.returncode == -signal.SIGKILL
    done = store.finished(store.Path("killed.zarr"))
    assert len(done) == (6 if when == "after the marker" else 5)
    assert len(run.make_job(sweep).blocks) > 6
    whole = cx.run_sweep(sweep, "whole.zarr", progress=False)
    computed = counted(monkeypatch)
    path = cx.run_sweep(sweep, "killed.zarr", progress=False)
    assert set(computed) == set(range(len(run.make_job(sweep).blocks))) - done
    assert len(computed) == len(set(computed))
    resumed, expected = cx.open_result(path), cx.open_result(whole)
    for name in SWEEP["outputs"]:
        np.testing.assert_array_equal(resumed[name].values, expected[name].values, err_msg=name)


def test_ctrl_c_leaves_a_store_that_resumes(write, elsewhere):
    """SIGINT in the middle: one line, exit code 130, and the same command finishes the job."""
    long = SWEEP | {
        "batch": {"min": 1, "max": 40_000, "num": 40_000},
        "seq_len": {"min": 1024, "max": 16384, "num": 3000},
    }
    command = [sys.executable, "-m", "cheetah_xr", "sweep", str(write(long, "long.yaml")), "--workers", "1"]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    path = elsewhere / "outputs" / "long.zarr"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (path.exists() and store.finished(path)):
        time.sleep(0.05)
    os.kill(running.pid, signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert "interrupted:" in err
    assert "the same command resumes" in err
    assert "Traceback" not in err
    kept = store.finished(path)
    assert len(kept) > 0
    with pytest.warns(UserWarning, match="missing"):
        cx.open_result(path)


def test_sync_threads_and_processes_agree(sweep):
    """One thread, two threads and processes of a cluster write the same bits."""
    from distributed import Client, LocalCluster

    one = cx.open_result(cx.run_sweep(sweep, "one.zarr", progress=False, workers=1))
    two = cx.open_result(cx.run_sweep(sweep, "two.zarr", progress=False, workers=2))
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        far = cx.open_result(cx.run_sweep(sweep, "far.zarr", progress=False, client=client))
        for name in SWEEP["outputs"]:
            np.testing.assert_array_equal(one[name].values, two[name].values, err_msg=name)
            np.testing.assert_array_equal(one[name].values, far[name].values, err_msg=name)
