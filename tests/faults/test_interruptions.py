"""Runs that are killed or disturbed: what was written is kept, the next run computes what is missing, bit for bit."""

import os
import re
import signal
import time

import numpy as np
import pytest

import cheetah_xr as cx
from cheetah_xr.sweep import runner as run
from cheetah_xr.sweep.store.writer import finished_blocks, read_completion
from tests.helpers.fault_injection import (
    BLOCKS,
    LONG,
    SWEEP,
    assert_same,
    command,
    completed_blocks,
    contents,
    ended,
    python,
    wait_for,
)
from tests.helpers.rejection import rejected

KILL = """
import os, signal, sys
import cheetah_xr as cx
from cheetah_xr.sweep import runner as run
from cheetah_xr.sweep.store import writer as store

when, calls = sys.argv[2], []
original, record_completion = store.write_block, store.record_completion

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def write_block(*args):
    calls.append(args)
    last = len(calls) == 6
    if last and when == "before the chunk":
        die()
    store.record_completion = (
        die if last and when == "between chunk and completion record" else record_completion
    )
    original(*args)
    if last and when == "after the completion record":
        die()

run.write_block = write_block
cx.run_sweep(sys.argv[1], "killed.zarr", progress=False, workers=1)
"""


@pytest.fixture
def sweep(write, elsewhere):
    return write(SWEEP, "disturbed.yaml")


@pytest.fixture
def whole(sweep):
    """The undisturbed result."""
    path = cx.run_sweep(sweep, "whole.zarr", progress=False)
    assert len(finished_blocks(path)) == BLOCKS
    return path


@pytest.mark.parametrize(
    "when", ["before the chunk", "between chunk and completion record", "after the completion record"]
)
def test_sigkill_of_the_driver(when, sweep, whole, computed):
    assert ended(python(KILL, sweep, when))[0] == -signal.SIGKILL
    done = finished_blocks("killed.zarr")
    assert len(done) == (6 if when == "after the completion record" else 5)
    computed.clear()
    path = cx.run_sweep(sweep, "killed.zarr", progress=False)
    assert sorted(computed) == sorted(set(range(BLOCKS)) - done)
    assert_same(path, whole)


@pytest.mark.slow
def test_sigkill_at_any_moment(write, elsewhere):
    """A run that is killed again and again, wherever it happens to be, comes to the same end."""
    many = write(SWEEP | {"seq_len": {"min": 1024, "max": 16384, "num": 60}}, "many.yaml")
    expected = cx.run_sweep(many, "whole.zarr", progress=False)
    path = elsewhere / "killed.zarr"
    for tries in range(1, 3):
        running = command("sweep", many, "--store", path, "--workers", "2")
        wait_for(lambda n=tries: path.exists() and completed_blocks(path) > 3 * n, "some blocks", running)
        time.sleep(0.003 * tries)
        running.kill()
        ended(running)
    kept = len(finished_blocks(path))
    assert kept > 0
    assert_same(cx.run_sweep(many, path, progress=False), expected)
    assert not list(path.rglob("*.partial"))


def test_a_kill_while_the_store_is_made_leaves_none(sweep, whole, elsewhere):
    script = """
        import os, signal, sys
        import cheetah_xr as cx
        from cheetah_xr.sweep.store.location import Location
        write, calls = Location.write, []

        def dying(self, key, data):
            calls.append(key)
            if len(calls) == 5:
                os.kill(os.getpid(), signal.SIGKILL)
            write(self, key, data)

        Location.write = dying
        cx.run_sweep(sys.argv[1], "made.zarr", progress=False)
    """
    assert ended(python(script, sweep))[0] == -signal.SIGKILL
    assert not (elsewhere / "made.zarr").exists()
    assert_same(cx.run_sweep(sweep, "made.zarr", progress=False), whole)
    assert not list(elsewhere.glob("*.building"))


@pytest.mark.slow
def test_ctrl_c_leaves_a_store_that_resumes(write, elsewhere):
    """SIGINT in the middle: one line, exit code 130, and the same command finishes the job."""
    running = command("sweep", write(LONG, "long.yaml"), "--workers", "1")
    path = elsewhere / "outputs" / "long.zarr"
    wait_for(lambda: path.exists() and completed_blocks(path), "a block", running)
    running.send_signal(signal.SIGINT)
    code, err = ended(running)
    assert code == 130, err
    assert "interrupted:" in err
    assert "the same command resumes" in err
    assert "Traceback" not in err
    assert len(finished_blocks(path)) > 0
    with pytest.warns(UserWarning, match="missing"):
        cx.open_result(path)


def test_ctrl_c_then_the_same_command(sweep, whole, elsewhere, monkeypatch, computed):
    original = run.run_block

    def interrupted(job, block):
        if len(computed) >= 5:
            raise KeyboardInterrupt
        return original(job, block)

    with monkeypatch.context() as patch:
        patch.setattr(run, "run_block", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cx.run_sweep(sweep, "stopped.zarr", progress=False, workers=1)
    first = set(computed[-5:])
    computed.clear()
    path = cx.run_sweep(sweep, "stopped.zarr", progress=False)
    assert set(computed) == set(range(BLOCKS)) - first
    assert_same(path, whole)


# ---- two runs on one store


@pytest.mark.slow
def test_two_runs_on_one_store(write, elsewhere):
    """The second is rejected while the first runs, and may go on once the first is killed."""
    long, path = write(LONG, "long.yaml"), elsewhere / "one.zarr"
    first = command("sweep", long, "--store", path, "--workers", "1")
    wait_for(lambda: path.exists() and completed_blocks(path), "a block", first)
    for more in ([], ["--overwrite"]):
        code, err = ended(command("sweep", long, "--store", path, *more))
        assert code == 2
        assert f"error: {path}: another run is writing to it" in err
        assert "Traceback" not in err
    assert first.poll() is None
    first.kill()
    ended(first)
    kept = completed_blocks(path)
    third = command("sweep", long, "--store", path, "--workers", "1")
    wait_for(lambda: completed_blocks(path) > kept, "another block", third)
    third.kill()
    ended(third)


@pytest.mark.slow
def test_two_runs_that_start_together(sweep, whole, elsewhere):
    path = elsewhere / "both.zarr"
    runs = [command("sweep", sweep, "--store", path) for _ in range(2)]
    ends = [ended(process) for process in runs]
    assert {code for code, _ in ends} <= {0, 2}
    assert 0 in {code for code, _ in ends}
    assert all("another run is writing" in err for code, err in ends if code)
    assert_same(path, whole)


def test_a_store_replaced_while_a_run_writes(sweep, write, elsewhere, monkeypatch):
    """Whoever goes round the lock, on a shared folder or an object store, is found out at the next block."""
    other = run.make_job(write(SWEEP | {"seq_len": [2048, 4096]}, "other.yaml"), "one.zarr")
    original = run.run_block

    def replaced(job, block):
        if block.number == 5 and job is not other:
            job.location.remove()
            run.prepare_store(other.location, other.plan, other.blocks, other.parts, resume=True, overwrite=False)
        return original(job, block)

    monkeypatch.setattr(run, "run_block", replaced)
    rejected(lambda: cx.run_sweep(sweep, "one.zarr", workers=1, progress=False), "one.zarr", "another sweep")
    monkeypatch.undo()
    monkeypatch.chdir(elsewhere)
    expected = cx.run_sweep(elsewhere / "other.yaml", "expected.zarr", progress=False)
    assert_same(cx.run_sweep(elsewhere / "other.yaml", "one.zarr", progress=False), expected)


def test_completion_records_of_another_run_do_not_count(sweep, whole, write, elsewhere):
    """A block of another sweep that lies at the right place, completion record and all, is computed again."""
    other = cx.run_sweep(write(SWEEP | {"options": {"small_ops": "memory"}}, "other.yaml"), "a.zarr", progress=False)
    mixed = cx.run_sweep(sweep, "mixed.zarr", progress=False)
    chunk = sorted(p.relative_to(mixed) for p in mixed.glob("step_time/c/*/*/*/*/*"))[3]
    for name in ("completed/blocks/c/3/0", chunk):
        (mixed / name).write_bytes((other / name).read_bytes())
    assert set(read_completion(mixed).damaged) == {3}
    assert_same(cx.run_sweep(sweep, mixed, progress=False), whole)


def test_a_store_removed_while_a_run_writes(sweep, elsewhere, monkeypatch):
    original = run.run_block

    def removed(job, block):
        if block.number == 5:
            job.location.remove()
        return original(job, block)

    monkeypatch.setattr(run, "run_block", removed)
    rejected(lambda: cx.run_sweep(sweep, "one.zarr", workers=1, progress=False), "one.zarr", "is missing")


# ---- another spec, another clock


def test_a_spec_that_changes_between_runs(write, elsewhere, monkeypatch):
    """A store is never filled up with numbers of another accelerator of the same name."""
    gpu = {"name": "mine", **cx.load_gpu("h100-sxm").model_dump(exclude={"name"})}
    write(gpu, "mine.yaml")
    sweep = write(SWEEP | {"gpu": "mine.yaml"}, "own.yaml")
    original, calls = run.run_block, []

    def stopped(job, block):
        calls.append(block)
        if len(calls) > 3:
            raise KeyboardInterrupt
        return original(job, block)

    with monkeypatch.context() as patch:
        patch.setattr(run, "run_block", stopped)
        with pytest.raises(KeyboardInterrupt):
            cx.run_sweep(sweep, "own.zarr", workers=1, progress=False)
    before = contents(elsewhere / "own.zarr")
    write(gpu | {"hbm_bandwidth": 2 * gpu["hbm_bandwidth"]}, "mine.yaml")
    message = rejected(lambda: cx.run_sweep(sweep, "own.zarr", progress=False), "own.zarr", "specs", "--overwrite")
    assert re.search(r"\((.*) differ", message)[1].split(", ") in (["specs"], ["axes and overrides", "specs"])
    assert contents(elsewhere / "own.zarr") == before
    write(gpu, "mine.yaml")
    expected = cx.run_sweep(sweep, "expected.zarr", progress=False)
    assert_same(cx.run_sweep(sweep, "own.zarr", progress=False), expected)


def test_clocks_that_jump(sweep, whole, elsewhere, monkeypatch):
    """Neither the time of day nor the dates of files decide anything."""
    script = KILL.replace(
        "import os,", "import random, time\ntime.time = lambda: random.uniform(-1e9, 4e9)\nimport os,"
    )
    assert ended(python(script, sweep, "between chunk and completion record"))[0] == -signal.SIGKILL
    for number, path in enumerate(sorted(p for p in (elsewhere / "killed.zarr").rglob("*") if p.is_file())):
        os.utime(path, (0, 0) if number % 2 else (4e9, 4e9))
    clock = np.random.default_rng(0)
    monkeypatch.setattr(time, "time", lambda: float(clock.uniform(0, 4e9)))
    monkeypatch.setattr(time, "time_ns", lambda: int(clock.uniform(0, 4e18)))
    assert_same(cx.run_sweep(sweep, "killed.zarr", progress=True), whole)
