"""Results in object stores: the in-memory file system of fsspec, and a local S3-compatible server."""

import gc
import uuid

import fsspec
import numpy as np
import pytest
import xarray as xr

import cheetah_xr as cx
from cheetah_xr.sweep import runner as run
from cheetah_xr.sweep.store.location import Location
from cheetah_xr.sweep.store.writer import finished_blocks, read_completion
from tests.helpers.fault_injection import SWEEP, assert_same, command, ended
from tests.helpers.rejection import rejected

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # sessions that aiohttp closes late
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


FEW = SWEEP | {"model": "llama-3.1-8b", "gpu": "h100-sxm"}
BLOCKS = 4


@pytest.fixture
def sweep(write, elsewhere):
    return write(FEW, "disturbed.yaml")


@pytest.fixture
def whole(sweep):
    return cx.run_sweep(sweep, "whole.zarr", progress=False)


@pytest.fixture(scope="module")
def server():
    """An S3-compatible server of this process, and what clients must know of it."""
    pytest.importorskip("s3fs")
    moto = pytest.importorskip("moto.server")
    started = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    started.start()
    host, port = started.get_host_and_port()
    yield {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    started.stop()
    gc.collect()  # here, where its warnings are known


@pytest.fixture
def bucket(server, monkeypatch):
    """A new bucket, with what clients must know in the environment, as users have it."""
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    name = uuid.uuid4().hex
    fsspec.filesystem("s3").mkdir(name)
    yield name
    fsspec.get_filesystem_class("s3").clear_instance_cache()


@pytest.fixture(params=["memory", pytest.param("s3", marks=pytest.mark.slow)])
def url(request):
    """A place nothing is at yet."""
    if request.param == "memory":
        return f"memory://{uuid.uuid4().hex}/a.zarr"
    return f"s3://{request.getfixturevalue('bucket')}/results/a.zarr"


def files(url):
    fs, prefix = fsspec.url_to_fs(url, use_listings_cache=False)
    return {name: fs.cat_file(name) for name in fs.find(prefix)}


def test_an_object_store(url, sweep, whole, cli):
    """Run, looked at, read with nothing but xarray, run again, overwritten."""
    ran = cli("sweep", sweep, "--store", url)
    assert ran.code == 0, ran.err
    assert f"points in {url}" in ran.out
    assert_same(url, whole)
    assert cx.run_sweep(sweep, url, progress=False) == url
    about = cli("info", url)
    assert (about.code, f"complete: {BLOCKS} of {BLOCKS} blocks" in about.out) == (0, True)
    plain = xr.open_zarr(url, decode_timedelta=False).load()
    np.testing.assert_array_equal(plain.step_time.values, cx.open_result(whole).step_time.values)
    before = files(url)
    less = sweep.with_name("less.yaml")
    less.write_text(sweep.read_text().replace("800", "80"))
    rejected(lambda: cx.run_sweep(less, url, progress=False), url, "axes", "--overwrite")
    assert files(url) == before
    cx.run_sweep(less, url, overwrite=True, progress=False)
    assert_same(url, cx.run_sweep(less, "less.zarr", progress=False))


def test_an_interrupted_run_resumes(url, sweep, whole, monkeypatch):
    original, calls = run.run_block, []

    def stopped(job, block):
        if len(calls) >= 2:
            raise KeyboardInterrupt
        calls.append(block.number)
        return original(job, block)

    monkeypatch.setattr(run, "run_block", stopped)
    with pytest.raises(KeyboardInterrupt):
        cx.run_sweep(sweep, url, progress=False, workers=1)
    assert finished_blocks(url) == set(calls)
    monkeypatch.setattr(run, "run_block", original)
    assert_same(cx.run_sweep(sweep, url, progress=False), whole)


@pytest.mark.parametrize("key", ["step_time/c/0/0/1", "completed/blocks/c/1/0", "seq_len/c/0"])
def test_damage(key, url, sweep, whole):
    cx.run_sweep(sweep, url, progress=False)
    place = Location(url)
    place.write(key, place.read(key)[:-1])
    assert list(read_completion(url, checksums=True).damaged) == ([] if key.startswith("seq_len") else [1])
    assert_same(cx.run_sweep(sweep, url, progress=False), whole)


@pytest.mark.parametrize("after", [1, 5, 20])
def test_a_run_stopped_while_the_store_is_made(after, url, sweep, whole, monkeypatch):
    """The root is written last: until then there is no result, and the same sweep may start again."""
    original, calls = Location.write, []

    def stopped(self, key, data):
        calls.append(key)
        if len(calls) > after:
            raise KeyboardInterrupt
        original(self, key, data)

    with monkeypatch.context() as patch:
        patch.setattr(Location, "write", stopped)
        with pytest.raises(KeyboardInterrupt):
            cx.run_sweep(sweep, url, progress=False)
    assert len(files(url)) == after
    rejected(lambda: cx.open_result(url), url, "no store of a sweep")
    assert_same(cx.run_sweep(sweep, url, progress=False), whole)


def test_what_is_no_result_is_never_touched(url, sweep):
    Location(url).write("mine.txt", b"mine")
    for overwrite in (False, True):
        rejected(
            lambda o=overwrite: cx.run_sweep(sweep, url, overwrite=o, progress=False), url, "not the store of a sweep"
        )
    assert list(files(url).values()) == [b"mine"]


def test_two_runs_of_one_sweep_agree(url, sweep, whole, monkeypatch):
    """Object stores have no lock: a second run of the same sweep in the middle of the first writes the same bits."""
    original, nested = run.run_block, []

    def doubled(job, block):
        if block.number == 2 and not nested:
            nested.append(True)
            cx.run_sweep(sweep, url, progress=False, workers=1)
        return original(job, block)

    monkeypatch.setattr(run, "run_block", doubled)
    assert_same(cx.run_sweep(sweep, url, progress=False, workers=1), whole)
    assert nested


def test_two_runs_of_different_sweeps(url, sweep, whole, write, monkeypatch):
    """The one whose store was replaced ends in an error, and the other is whole."""
    other = write(FEW | {"seq_len": [2048, 4096]}, "other.yaml")
    original, nested = run.run_block, []

    def replaced(job, block):
        if len(nested) == 0 and block.number == 2:
            nested.append(True)
            cx.run_sweep(other, url, overwrite=True, progress=False, workers=1)
        return original(job, block)

    monkeypatch.setattr(run, "run_block", replaced)
    rejected(lambda: cx.run_sweep(sweep, url, progress=False, workers=1), url, "another sweep")
    monkeypatch.setattr(run, "run_block", original)
    assert_same(url, cx.run_sweep(other, "other.zarr", progress=False))


UNUSABLE = {
    "unknown kind": "nowhere://x/a.zarr",
    "no bucket": "s3://no-such-bucket-here/a.zarr",
    "nobody answers": "s3://bucket/a.zarr",
}


@pytest.mark.parametrize("case", UNUSABLE)
@pytest.mark.slow
def test_places_that_cannot_be_used(case, sweep, bucket, monkeypatch, cli):
    if case == "nobody answers":
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        fsspec.get_filesystem_class("s3").clear_instance_cache()
    for ran in (cli("sweep", sweep, "--store", UNUSABLE[case]), cli("info", UNUSABLE[case])):
        assert ran.code == 2
        assert ran.err.splitlines()[-1].startswith(f"error: {UNUSABLE[case]}: ")
        assert "Traceback" not in ran.err


@pytest.mark.slow
def test_processes_and_an_object_store(bucket, sweep, whole):
    """Workers in processes of their own reach the bucket by its URL."""
    url = f"s3://{bucket}/a.zarr"
    code, err = ended(command("sweep", sweep, "--store", url, "--processes", "--workers", 1))
    assert code == 0, err
    assert_same(url, whole)


@pytest.mark.slow
def test_a_memory_of_another_process_is_reported(sweep):
    """memory:// lives in one process: workers of another would write into nothing."""
    code, err = ended(command("sweep", sweep, "--store", "memory://x/a.zarr", "--processes", "--workers", 1))
    assert code == 2
    assert "memory://x/a.zarr" in err.splitlines()[-1]
