"""The store: equal to the engine bit for bit however it is run, resumable, and never overwritten by accident."""

import json
import re
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import xarray as xr
import zarr

import cheetah_xr as cx
from cheetah_xr.sweep import runner as run
from cheetah_xr.sweep.blocks import cut
from tests.helpers.rejection import rejected

AXES = {
    "model": ["llama-3.1-8b", "mixtral-8x7b"],
    "gpu": ["h100-sxm", "a100-sxm-80gb"],
    "precision": ["bf16", "fp8"],
    "phase": ["prefill", "decode"],
    "tp": [1, 3, 8],
    "batch": [0, 1, 8, 64, 4096],
    "seq_len": [128, 1024, 8192, 200_000],
}
OUTPUTS = ["step_time", "time_kv", "flops", "bytes_weights", "status", "bottleneck", "max_batch", "weight_bytes"]
SWEEP = {"title": "Small", "question": "Are all equal?", **AXES, "outputs": OUTPUTS}
FLAGS = {"status", "bottleneck"}
DOUBLE = {"weight_bytes"}  # float64 on disk: neither batch nor seq_len among its dims


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(run, "cut", partial(cut, points=15))  # batch 5 x seq_len 3 of 4: uneven


@pytest.fixture
def sweep(write):
    return write(SWEEP, "small.yaml")


@pytest.fixture(scope="module")
def in_memory():
    """The same grid from `evaluate`, in the number types of the disk."""
    ds = cx.evaluate(**AXES, outputs=OUTPUTS)
    kinds = {n: "int8" if n in FLAGS else "float64" if n in DOUBLE else "float32" for n in OUTPUTS}
    return ds.assign({name: ds[name].astype(kind) for name, kind in kinds.items()})


def assert_same(path, expected):
    actual = cx.open_result(path).load()
    assert (set(actual.data_vars), set(actual.coords)) == (set(OUTPUTS), set(expected.coords))
    for name, values in expected.variables.items():
        assert actual[name].dims == values.dims, name
        assert actual[name].dtype == values.dtype, name
        equal_nan = np.issubdtype(values.dtype, np.floating)
        assert np.array_equal(actual[name].values, values.values, equal_nan=equal_nan), name
        assert set(actual[name].attrs) == set(values.attrs), name


def contents(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# ---- equality


@pytest.mark.parametrize("workers", [1, 2])
def test_threads_and_small_blocks(workers, sweep, small_blocks, in_memory, tmp_path):
    assert len(run.make_job(sweep).blocks) > 20
    path = cx.run_sweep(sweep, tmp_path / "a.zarr", workers=workers, progress=False)
    assert path == tmp_path / "a.zarr"
    assert_same(path, in_memory)


def test_one_block(sweep, in_memory, tmp_path):
    assert len(run.make_job(sweep).blocks) == 1
    assert_same(cx.run_sweep(str(sweep), str(tmp_path / "a.zarr"), progress=True), in_memory)


@pytest.mark.filterwarnings("ignore")  # noise of sockets and event loops that distributed closes late
def test_distributed(sweep, small_blocks, in_memory, tmp_path):
    from distributed import Client, LocalCluster

    local = LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None)
    with local as cluster, Client(cluster) as client:
        path = cx.run_sweep(sweep, tmp_path / "a.zarr", client=client, progress=False)
    assert_same(path, in_memory)


def test_default_place(sweep, elsewhere):
    path = cx.run_sweep(sweep, progress=False)
    assert path.resolve() == elsewhere / "outputs" / "small.zarr"
    assert cx.open_result(path).attrs["Conventions"].startswith("CF-")


# ---- resuming


@pytest.fixture
def counted(monkeypatch):
    """Numbers of the blocks that were computed; set `counted.stop_after` to fail after so many."""

    class Counted(list):
        stop_after = None

    calls, original = Counted(), run.run_block

    def counting(job, block):
        if calls.stop_after is not None and len(calls) >= calls.stop_after:
            raise KeyboardInterrupt
        calls.append(block.number)
        return original(job, block)

    monkeypatch.setattr(run, "run_block", counting)
    return calls


def interrupt(sweep, path, counted, after):
    counted.stop_after = after
    with pytest.raises(KeyboardInterrupt):
        cx.run_sweep(sweep, path, workers=1, progress=False)
    counted.stop_after = None


def test_resume_fills_only_what_is_missing(sweep, small_blocks, counted, in_memory, tmp_path):
    path, total = tmp_path / "a.zarr", len(run.make_job(sweep).blocks)
    interrupt(sweep, path, counted, after=7)
    first = list(counted)
    assert len(first) == 7
    with pytest.warns(UserWarning, match=f"{total - 7} of {total} blocks are missing"):
        partly = cx.open_result(path)
    assert (partly.status == -1).any()
    assert (partly.status != -1).any()
    counted.clear()
    cx.run_sweep(sweep, path, progress=False)
    assert sorted([*first, *counted]) == list(range(total))
    assert_same(path, in_memory)
    cx.run_sweep(sweep, path, progress=False)
    assert len(counted) == total - 7


OTHERS = {
    "axes": ({"batch": [1, 2]}, "axes"),
    "specs": ({"gpu": ["h100-sxm", "h200-sxm"]}, "specs"),
    "options": ({"options": {"small_ops": "memory"}}, "options"),
    "outputs": ({"outputs": ["step_time", "status"]}, "outputs"),
    "overrides": ({"overrides": {"gpu.hbm_bandwidth": 1e12}}, "overrides"),
}


@pytest.mark.parametrize(("change", "word"), OTHERS.values(), ids=OTHERS)
def test_the_result_of_another_sweep_is_left_alone(change, word, sweep, write, tmp_path):
    path = cx.run_sweep(sweep, tmp_path / "a.zarr", progress=False)
    before, other = contents(path), write({**SWEEP, **change}, "other.yaml")
    message = rejected(lambda: cx.run_sweep(other, path, progress=False), str(path), word, "--overwrite")
    named = re.search(r"\((.*) differ", message)[1]
    unchanged = {"options", "outputs", "model version"} - {word}
    assert not any(part in named for part in unchanged), "only what differs is named"
    rejected(lambda: cx.run_sweep(sweep, path, resume=False, progress=False), str(path), "--overwrite")
    assert contents(path) == before


def test_overwrite_replaces(sweep, write, counted, tmp_path):
    path = cx.run_sweep(sweep, tmp_path / "a.zarr", progress=False)
    other = write({**SWEEP, "outputs": ["step_time"], "batch": [1, 2]}, "other.yaml")
    cx.run_sweep(other, path, overwrite=True, progress=False)
    ds = cx.open_result(path)
    assert set(ds.data_vars) == {"step_time"}
    assert (list(ds.batch), len(counted)) == ([1, 2], 2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.zarr", "other.yaml", "small.yaml"]


def occupy(path, kind):
    """Put something at `path` that is not the result of a sweep."""
    if kind == "file":
        path.write_text("mine")
    elif kind == "group":
        zarr.create_group(path).create_array("mine", shape=(2,), dtype="i4")
    elif kind == "array":
        zarr.create_array(path, shape=(2,), dtype="i4")
    else:
        path.mkdir()
        if kind != "empty":
            (path / {"folder": "mine.txt", "broken": "zarr.json"}[kind]).write_text("{")


@pytest.mark.parametrize("overwrite", [False, True], ids=["resume", "overwrite"])
@pytest.mark.parametrize("kind", ["file", "folder", "empty", "group", "array", "broken"])
def test_what_is_no_result_is_never_touched(kind, overwrite, sweep, tmp_path):
    path = tmp_path / "mine.zarr"
    occupy(path, kind)
    before = contents(tmp_path)
    rejected(lambda: cx.run_sweep(sweep, path, overwrite=overwrite, progress=False), str(path))
    rejected(lambda: cx.open_result(path), str(path))
    assert contents(tmp_path) == before


def test_a_place_that_cannot_be_written(sweep, write, tmp_path):
    rejected(lambda: cx.run_sweep(sweep, write("", "file.txt") / "a.zarr", progress=False), "file.txt")
    rejected(lambda: cx.run_sweep(sweep, tmp_path / "a.zarr", workers=0, progress=False), "workers", "0")
    assert not (tmp_path / "a.zarr").exists()
    rejected(lambda: cx.open_result(tmp_path / "a.zarr"), "a.zarr")


# ---- what is on disk


def test_disk(sweep, tmp_path):
    path = cx.run_sweep(sweep, tmp_path / "a.zarr", progress=False)
    root = zarr.open_group(path, mode="r", use_consolidated=False)
    for name in OUTPUTS:
        kind = np.int8 if name in FLAGS else np.float64 if name in DOUBLE else np.float32
        assert root[name].dtype == kind, name
        assert {"units", "long_name"} <= set(root[name].attrs), name
        assert root[name].metadata.fill_value == -1 if name in FLAGS else np.isnan(root[name].metadata.fill_value)
    ds = cx.open_result(path)
    assert ds.step_time.attrs["units"] == "s"
    assert ds.chunks
    for name in FLAGS:
        assert ds[name].dtype == np.int8
        assert ds[name].attrs["flag_values"].dtype == np.int8
        assert len(ds[name].attrs["flag_meanings"].split()) == len(ds[name].attrs["flag_values"])
    assert {"fingerprint", "model_version", "cheetah_xr_version"} <= set(ds.attrs)
    assert json.loads(ds.attrs["options"])["memory_fraction"] == 0.9
    assert [spec["name"] for spec in json.loads(ds.attrs["specs"])["gpu"]] == AXES["gpu"]
    tpot = cx.derive(ds, "tpot").tpot.load()
    xr.testing.assert_equal(tpot, ds.step_time.sel(phase="decode", drop=True).load())


FOREIGN = """
import sys, warnings
import xarray, zarr, dask.array
warnings.simplefilter("error")
ds = xarray.open_zarr(sys.argv[1]).load()
assert "cheetah_xr" not in sys.modules
assert str(ds.status.dtype) == "int8", ds.status.dtype
assert ds.step_time.sel(model="llama-3.1-8b", gpu="h100-sxm", precision="bf16", phase="decode", tp=1).notnull().any()
assert "completed" not in ds and ds.gpu.values.tolist() == ["h100-sxm", "a100-sxm-80gb"]
"""


def test_readers_need_only_xarray(sweep, tmp_path):
    path = cx.run_sweep(sweep, tmp_path / "a.zarr", progress=False)
    command = [sys.executable, "-c", FOREIGN, str(path)]
    read = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (read.returncode, read.stderr) == (0, "")


def test_a_store_of_another_layout_is_rejected(sweep, tmp_path, small_blocks):
    path = cx.run_sweep(sweep, tmp_path / "old.zarr", progress=False)
    root = path / "zarr.json"
    metadata = json.loads(root.read_text())
    parts = json.loads(metadata["attributes"]["fingerprint_parts"]) | {"store layout": "2"}
    metadata["attributes"]["fingerprint_parts"] = json.dumps(parts)
    root.write_text(json.dumps(metadata))
    for action in (lambda: cx.open_result(path), lambda: cx.run_sweep(sweep, path, progress=False)):
        rejected(action, str(path), "store layout 2", "reads layout 3", "--overwrite")
    cx.run_sweep(sweep, path, progress=False, overwrite=True)
    assert cx.open_result(path).sizes["model"] == 2
