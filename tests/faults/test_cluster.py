"""One sweep on threads, processes and Dask clusters: the same bits, progress under each, workers that die."""

import os
import pickle
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import dask
import pytest
from distributed import Client, LocalCluster

import cheetah_xr as cx
from cheetah_xr.sweep import runner as run
from cheetah_xr.sweep.store.writer import finished_blocks
from tests.helpers.fault_injection import BLOCKS, SWEEP, assert_same, completed_blocks, wait_for
from tests.helpers.rejection import rejected

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # sockets and event loops that distributed closes late
]

MANY = SWEEP | {
    "batch": {"min": 1, "max": 8000, "num": 8000},
    "seq_len": {"min": 1024, "max": 16384, "num": 48},
    "block_memory_mb": 8,
}
"""Dozens of blocks: time to be disturbed in."""


def processes(number):
    return LocalCluster(n_workers=number, threads_per_worker=1, processes=True, dashboard_address=None)


@pytest.fixture(scope="module")
def cluster():
    with dask.config.set({"distributed.scheduler.allowed-failures": 3}), processes(2) as started:
        yield started


@pytest.fixture
def client(cluster):
    with Client(cluster) as connected:
        connected.wait_for_workers(2, timeout=60)
        yield connected


@pytest.fixture
def sweep(write, elsewhere):
    return write(SWEEP, "disturbed.yaml")


@pytest.fixture
def many(write, elsewhere):
    return write(MANY, "many.yaml")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The result of `many`."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return cx.run_sweep(cx.Sweep(name="many", **MANY), folder / "whole.zarr", progress=False)


def test_threads_processes_and_clusters_agree(sweep, cluster, cli):
    """Every way to run from the command line, each with its progress."""
    ways = {
        "one": ["--workers", 1],
        "two": ["--workers", 2],
        "processes": ["--processes", "--workers", 1],
        "scheduler": ["--scheduler", cluster.scheduler_address],
    }
    for name, way in ways.items():
        ran = cli("sweep", sweep, "--store", f"{name}.zarr", *way)
        assert ran.code == 0, ran.err
        assert f"{BLOCKS}/{BLOCKS} blocks" in ran.err, name
        assert "M points/s" in ran.err, name
        assert_same(f"{name}.zarr", "one.zarr")


def test_workers_need_only_the_sweep(client, write, elsewhere):
    """The record holds the specs themselves: files of the driver may be gone, and it is small."""
    write({"name": "mine", **cx.load_gpu("h100-sxm").model_dump(exclude={"name"})}, "mine.yaml")
    job = run.make_job(write(SWEEP | {"gpu": ["mine.yaml", "mi300x"]}, "own.yaml"), "far.zarr")
    expected = cx.run_sweep(elsewhere / "own.yaml", "near.zarr", progress=False)
    (elsewhere / "mine.yaml").unlink()
    (elsewhere / "own.yaml").unlink()
    assert len(pickle.dumps(job.resolved_sweep())) < 20_000
    assert_same(run.run_job(job, how=run.Workers(client), progress=False), expected)


@pytest.mark.parametrize("whom", ["one worker", "every worker"])
def test_sigkill_of_workers(whom, many, elsewhere, undisturbed):
    """Killed in the middle of a run: Dask starts new ones, and the run goes on to the same bits."""
    path = elsewhere / "killed.zarr"
    # In a cluster of its own: Dask loses a worker that is killed while its nanny still starts it.
    allowed = dask.config.set({"distributed.scheduler.allowed-failures": 3})
    with allowed, processes(2) as two, Client(two) as client, ThreadPoolExecutor(1) as pool:
        client.wait_for_workers(2, timeout=60)
        pids = list(client.run(os.getpid).values())
        running = pool.submit(cx.run_sweep, many, path, client=client, progress=False)
        wait_for(lambda: completed_blocks(path) > 5 or running.done(), "some blocks")
        for pid in pids[:1] if whom == "one worker" else pids:
            os.kill(pid, signal.SIGKILL)
        assert not running.done()
        assert_same(running.result(timeout=180), undisturbed)
        client.wait_for_workers(2, timeout=60)
        assert set(client.run(os.getpid).values()) != set(pids)


def test_a_block_that_ends_every_worker(many, elsewhere, undisturbed):
    """Dask gives up a block that killed as many workers as it allows; what others wrote is kept."""
    path = elsewhere / "killed.zarr"
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}), processes(1) as one, Client(one) as client:
        pid = next(iter(client.run(os.getpid).values()))
        killer = threading.Thread(target=lambda: (wait_for(lambda: completed_blocks(path) > 3, "blocks"), kill(pid)))
        killer.start()
        words = (
            "killed.zarr",
            "ended every worker",
            "block_memory_mb",
            "blocks are kept, and the same command resumes",
        )
        rejected(lambda: cx.run_sweep(many, path, client=client, progress=False), *words)
        killer.join()
    assert finished_blocks(path)
    assert_same(cx.run_sweep(many, path, progress=False), undisturbed)


def kill(pid):
    os.kill(pid, signal.SIGKILL)


def test_a_scheduler_that_goes_away(many, elsewhere, undisturbed):
    path = elsewhere / "lost.zarr"
    local = LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None)
    with local as cluster, Client(cluster) as client, ThreadPoolExecutor(1) as pool:
        running = pool.submit(cx.run_sweep, many, path, client=client, progress=False)
        wait_for(lambda: completed_blocks(path) > 3, "blocks")
        cluster.close()
        rejected(lambda: running.result(timeout=60), "lost.zarr", "the scheduler is gone", "are kept")
    assert_same(cx.run_sweep(many, path, progress=False), undisturbed)


def test_a_full_disk_of_a_worker(client, sweep, elsewhere):
    """Errors of workers are the errors of the run."""

    def fill(full):
        import errno

        from zarr.storage import _local

        def failing(*_, **__):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        if full:
            _local.kept, _local._put = _local._put, failing
        else:
            _local._put = _local.kept

    whole = cx.run_sweep(sweep, "whole.zarr", progress=False)
    client.run(fill, True)
    try:
        rejected(lambda: cx.run_sweep(sweep, "a.zarr", client=client, progress=False), "a.zarr", "No space left")
    finally:
        client.run(fill, False)
    assert_same(cx.run_sweep(sweep, "a.zarr", client=client, progress=False), whole)


def test_a_worker_of_another_version(client, sweep, elsewhere):
    def become(version):
        from cheetah_xr.sweep.store import layout

        layout.MODEL_VERSION = version

    client.run(become, "another")
    try:
        words = ("a.zarr", "another version of cheetah_xr")
        rejected(lambda: cx.run_sweep(sweep, "a.zarr", client=client, progress=False), *words)
    finally:
        client.run(become, cx.MODEL_VERSION)
    assert finished_blocks("a.zarr") == set()


def test_a_scheduler_that_is_not_there(cli, sweep):
    ran = cli("sweep", sweep, "--scheduler", "tcp://127.0.0.1:1")
    assert ran.code == 2
    assert "--scheduler tcp://127.0.0.1:1: cannot be reached" in ran.err
    both = cli("sweep", sweep, "--scheduler", "tcp://127.0.0.1:1", "--processes")
    assert (both.code, "--processes" in both.err) == (2, True)
