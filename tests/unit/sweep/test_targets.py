"""The best point for every value of a target, against one choice per value and against the whole grid."""

import numpy as np
import pytest

import cheetah_xr as cx
from cheetah_xr.analysis.best import best
from cheetah_xr.specs.catalogue import catalogue_root
from cheetah_xr.sweep import runner as run
from cheetah_xr.sweep.runner import make_job
from tests.helpers.rejection import rejected

BEST = {"maximize": "throughput_per_gpu", "over": ["precision", "tp", "batch"], "keep": ["tps_per_user", "bottleneck"]}
SMALL = {
    "title": "Small",
    "question": "Which is best at every speed?",
    "model": ["llama-3.1-8b", "mixtral-8x7b"],
    "gpu": ["h100-sxm", "a100-sxm-80gb"],
    "precision": ["bf16", "fp8"],
    "tp": [1, 2, 3],
    "batch": [1, 4, 16, 64, 256],
    "seq_len": [1024, 8192],
}
SPEEDS = [1, 20.5, 50, 400, 1e9]


def expected(where, *, minimize=False, metric="throughput_per_gpu"):
    axes = {k: v for k, v in SMALL.items() if k not in ("title", "question")}
    whole = cx.evaluate(**axes)
    return best(whole, metric, BEST["over"], where, keep=BEST["keep"], minimize=minimize)


@pytest.mark.parametrize("points", [40, 100_000])
def test_each_value_is_a_choice_of_its_own(points, write, elsewhere, monkeypatch):
    original = run.cut
    monkeypatch.setattr(run, "cut", lambda grid, whole: original(grid, points, whole))
    asked = SMALL | {"best": BEST | {"targets": {"tps_per_user": SPEEDS}, "where": "throughput >= 300"}}
    ds = cx.open_result(cx.run_sweep(write(asked, "small.yaml"), progress=False))
    assert ds.min_tps_per_user.values.tolist() == SPEEDS
    for speed in SPEEDS:
        one = expected([f"tps_per_user >= {speed}", "throughput >= 300"])
        here = ds.sel(min_tps_per_user=speed)
        for name in ("throughput_per_gpu", "tps_per_user", "bottleneck", "best_batch", "best_tp"):
            np.testing.assert_array_equal(here[name].values, one[name].transpose(*here[name].dims).values, err_msg=name)
        names = np.array([*here.best_precision.attrs["flag_meanings"].split(), ""], dtype=object)
        assert names[here.best_precision.values].tolist() == one.best_precision.values.tolist()
    assert ds.throughput_per_gpu.sel(min_tps_per_user=1e9).isnull().all()
    assert ds.throughput_per_gpu.sel(min_tps_per_user=1, seq_len=1024).notnull().any()


def test_as_small_as_possible(write, elsewhere):
    asked = BEST | {"minimize": "cost_per_million_tokens", "targets": {"tps_per_user": [20, 50]}}
    del asked["maximize"]
    ds = cx.open_result(cx.run_sweep(write(SMALL | {"best": asked}, "small.yaml"), progress=False))
    one = expected("tps_per_user >= 50", minimize=True, metric="cost_per_million_tokens")
    here = ds.sel(min_tps_per_user=50)
    for name in ("cost_per_million_tokens", "best_batch", "best_tp"):
        np.testing.assert_array_equal(here[name].values, one[name].transpose(*here[name].dims).values, err_msg=name)


BAD = {
    "two": ({"tps_per_user": [1], "throughput": [1]}, "targets"),
    "none": ({"tps_per_user": []}, "targets"),
    "twice": ({"tps_per_user": [5, 5]}, "targets", "once"),
    "text": ({"tps_per_user": ["5"]}, "targets"),
    "nan": ({"tps_per_user": [float("nan")]}, "targets"),
    "unknown": ({"speed": [5]}, "speed", "tps_per_user"),
    "other phase": ({"ttft": [5]}, "ttft", "prefill"),
    "labels": ({"gpu": [5]}, "'gpu'", "tps_per_user"),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_bad_targets(case, write, elsewhere):
    targets, *words = case
    bad = write(SMALL | {"best": BEST | {"targets": targets}}, "bad.yaml")
    rejected(lambda: cx.run_sweep(bad, progress=False), "bad.yaml", *words)


def test_the_billion_point_sweep():
    """More than a billion points, and an answer that opens in pandas; a few lengths of it run here."""
    file = catalogue_root() / "sweeps" / "large" / "billion.yaml"
    job = make_job(file)
    assert job.grid.n_points > 1e9
    assert job.bytes_on_disk < 50e6
    assert job.sweep.name not in cx.list_sweeps()


def test_a_slice_of_the_billion(elsewhere):
    sweep = cx.load_sweep(catalogue_root() / "sweeps" / "large" / "billion.yaml")
    less = sweep.model_copy(update={"model": ["qwen3-30b-a3b"], "gpu": ["h100-sxm", "mi300x"], "seq_len": [1024, 8192]})
    ds = cx.open_result(cx.run_sweep(less, "less.zarr", progress=False))
    frame = ds.to_dataframe()
    assert len(frame) == 2 * 2 * len(ds.min_tps_per_user)
    reached = frame[frame.throughput_per_gpu.notnull()]
    assert (reached.tps_per_user >= reached.index.get_level_values("min_tps_per_user")).all()
    by_speed = ds.throughput_per_gpu.fillna(0)
    assert (by_speed.diff("min_tps_per_user") <= 0).all()
