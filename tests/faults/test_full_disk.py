"""Full and unwritable disks: one clear error, what was written is kept, and the run resumes when there is room."""

import errno
import os
import re
import subprocess

import pytest
from zarr.storage import _local

import cheetah_xr as cx
from cheetah_xr.sweep import runner as run
from cheetah_xr.sweep.store import writer as store
from cheetah_xr.sweep.store.location import Location
from cheetah_xr.sweep.store.writer import finished_blocks, read_completion
from tests.helpers.fault_injection import BLOCKS, SWEEP, assert_same, contents
from tests.helpers.rejection import rejected


@pytest.fixture
def sweep(write):
    return write(SWEEP, "disturbed.yaml")


@pytest.fixture
def whole(sweep, tmp_path):
    return cx.run_sweep(sweep, tmp_path / "whole.zarr", progress=False)


@pytest.fixture
def small_disk(tmp_path, record_property):
    """A file system of 8 MB: a tmpfs. Skipped where mounting is not allowed; the injected errors are tested anyway."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs may be mounted here ({mounted.stderr.strip()}): only the injected errors are tested")
    record_property("full disk", "tmpfs")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(folder, room):
    """Leave only `room` bytes."""
    (folder / "others").write_bytes(bytes(os.statvfs(folder).f_bavail * 4096 - int(room)))


def remount(folder, options):
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)


def test_a_disk_that_fills_up(sweep, whole, small_disk, cli):
    """Room for most of a result, then for all: the second run computes what the first could not write."""
    needed = sum(-(-len(data) // 4096) * 4096 for data in contents(whole).values())
    fill(small_disk, 0.8 * needed)
    path = small_disk / "a.zarr"
    ran = cli("sweep", sweep, "--store", path)
    assert ran.code == 2
    message = re.search(r"error: (\S+): cannot be written \(No space left on device\); (\d+) of 16 blocks are", ran.err)
    assert message is not None, ran.err
    assert "the same command resumes" in ran.err
    kept = finished_blocks(path)
    assert (message[1], int(message[2])) == (str(path), len(kept))
    assert 0 < len(kept) < BLOCKS
    assert not list(path.rglob("*.partial"))
    assert cli("sweep", sweep, "--store", path).code == 2
    assert finished_blocks(path) >= kept
    (small_disk / "others").unlink()
    assert cli("sweep", sweep, "--store", path).code == 0
    assert_same(path, whole)


def test_a_disk_that_is_full_from_the_start(sweep, whole, small_disk):
    fill(small_disk, 0)
    path = small_disk / "a.zarr"
    rejected(lambda: cx.run_sweep(sweep, path, progress=False), str(path), "No space left", "nothing is kept")
    assert [p.name for p in small_disk.iterdir()] == ["others"]
    (small_disk / "others").unlink()
    assert_same(cx.run_sweep(sweep, path, progress=False), whole)


def test_a_disk_that_becomes_read_only(sweep, whole, small_disk):
    path = cx.run_sweep(sweep, small_disk / "a.zarr", progress=False)
    (path / "completed/blocks/c/7/0").unlink()
    before = contents(path)
    remount(small_disk, "ro")
    rejected(lambda: cx.run_sweep(sweep, path, progress=False), str(path), "Read-only file system")
    rejected(lambda: cx.run_sweep(sweep, small_disk / "b.zarr", progress=False), "b.zarr", "Read-only file system")
    assert contents(path) == before
    with pytest.warns(UserWarning, match="1 of 16 blocks are missing"):
        cx.open_result(path)
    remount(small_disk, "rw")
    assert_same(cx.run_sweep(sweep, path, progress=False), whole)


WHERE = {
    "the empty store": (Location, "write", 3),
    "a chunk": (_local, "_put", 40),
    "a completion record": (store, "record_completion", 6),
}


OTHERS = [errno.EDQUOT, errno.EIO, errno.EACCES, errno.EROFS]


@pytest.mark.parametrize("code", [errno.ENOSPC, *(pytest.param(code, marks=pytest.mark.slow) for code in OTHERS)])
@pytest.mark.parametrize("where", WHERE)
def test_injected_errors(where, code, sweep, whole, tmp_path, monkeypatch, record_property):
    """The same wherever the error strikes, without a file system of its own: it is raised in place of a write."""
    record_property("full disk", "injected")
    owner, attribute, after = WHERE[where]
    original, calls = getattr(owner, attribute), []

    def failing(*args, **kwargs):
        calls.append(args)
        if len(calls) >= after:
            raise OSError(code, os.strerror(code), "somewhere")
        return original(*args, **kwargs)

    path = tmp_path / "a.zarr"
    with monkeypatch.context() as patch:
        patch.setattr(owner, attribute, failing)
        message = rejected(lambda: cx.run_sweep(sweep, path, progress=False, workers=1), str(path), os.strerror(code))
    assert message.count("\n") == 0
    if where == "the empty store":
        assert not path.exists()
        assert not list(tmp_path.glob("*.building"))
    else:
        actual = read_completion(path, checksums=True)
        assert actual.damaged == {}
        assert len(actual.done) in (
            {5} if where == "a completion record" else range(7, 11)
        )  # of 3 or 4 chunks and a record each
    assert_same(cx.run_sweep(sweep, path, progress=False), whole)


def test_a_block_that_is_not_there_after_writing(sweep, tmp_path, monkeypatch):
    """A write that says nothing and keeps nothing is not marked as done."""
    job = run.make_job(sweep, tmp_path / "a.zarr")
    job.location.create(store.empty_store(job.plan, job.blocks, job.parts))
    monkeypatch.setattr(Location, "read", lambda self, key, start=None: None)
    block = next(iter(job.blocks))
    rejected(lambda: run.run_block(job, block), "a.zarr", "missing right after it was written")
