"""Reductions: in blocks as on the whole dataset, and as a plain loop finds them."""

import itertools
from functools import partial

import numpy as np
import pytest
import xarray as xr

import cheetah_xr as cx
from cheetah_xr.analysis import best, flag_labels, histogram
from cheetah_xr.analysis.conditions import parse
from cheetah_xr.api import evaluate
from cheetah_xr.sweep import blocks
from cheetah_xr.sweep import runner as run
from tests.helpers.rejection import rejected

SMALL = {
    "title": "Small",
    "question": "Which is best?",
    "model": ["llama-3.1-8b", "mixtral-8x7b"],
    "gpu": ["h100-sxm", "rtx-4090"],
    "precision": ["bf16", "fp8", "w4a16"],
    "tp": [1, 2],
    "batch": [1, 4, 16, 64, 256],
    "seq_len": [512, 4096, 16384],
}
BEST = {"maximize": "throughput_per_gpu", "over": ["precision", "tp", "batch"], "where": "tps_per_user >= 60"}
BEST |= {"keep": ["tps_per_user", "bottleneck"]}


def full(**more):
    axes = {k: v for k, v in SMALL.items() if k not in ("title", "question")}
    return evaluate(**axes, **more)


def test_best_is_what_a_loop_finds():
    ds = cx.derive(full(), ["throughput_per_gpu", "tps_per_user"])
    actual = best(ds, BEST["maximize"], BEST["over"], BEST["where"], keep=BEST["keep"])
    for model, gpu, length in itertools.product(SMALL["model"], SMALL["gpu"], SMALL["seq_len"]):
        part = ds.sel(model=model, gpu=gpu, seq_len=length)
        points = [
            (float(p.throughput_per_gpu), precision, tp, batch)
            for precision, tp, batch in itertools.product(SMALL["precision"], SMALL["tp"], SMALL["batch"])
            if float((p := part.sel(precision=precision, tp=tp, batch=batch)).tps_per_user) >= 60
        ]
        one = actual.sel(model=model, gpu=gpu, seq_len=length)
        if not points:
            assert np.isnan(one.throughput_per_gpu)
            assert int(one.bottleneck) == -1
            assert str(one.best_precision.values) == ""
            continue
        largest = max(p[0] for p in points)
        first = next(p for p in points if p[0] == largest)
        labels = (str(one.best_precision.values), int(one.best_tp), int(one.best_batch))
        assert (float(one.throughput_per_gpu), *labels) == first


def test_best_smallest_and_several_conditions():
    ds = full()
    cheap = best(ds, "cost_per_million_tokens", ["batch", "tp"], ["tps_per_user >= 20", "batch <= 16"], minimize=True)
    assert float(cheap.best_batch.max()) <= 16
    every = cx.derive(ds, ["cost_per_million_tokens", "tps_per_user"])
    allowed = every.cost_per_million_tokens.where((every.tps_per_user >= 20) & (every.batch <= 16))
    xr.testing.assert_allclose(cheap.cost_per_million_tokens, allowed.min(["batch", "tp"]))


def test_ties_go_to_the_first():
    ds = xr.Dataset({"speed": (("a", "b"), [[1.0, 3.0], [3.0, 3.0]])}, coords={"a": [10, 20], "b": [1, 2]})
    actual = best(ds, "speed", ["a", "b"])
    assert (int(actual.best_a), int(actual.best_b)) == (10, 2)
    assert int(best(ds, "speed", ["b", "a"]).best_b) == 1


@pytest.mark.parametrize("points", [40, 100, 10_000])
def test_blocks_reduce_as_the_whole(points, write, elsewhere, monkeypatch):
    monkeypatch.setattr(run, "cut", lambda grid, whole: blocks.cut(grid, points, whole))
    file = write(SMALL | {"best": BEST, "histogram": {"over": ["batch", "seq_len"]}}, "small.yaml")
    ds = cx.open_result(cx.run_sweep(file, progress=False))
    whole = full()
    expected = best(whole, BEST["maximize"], BEST["over"], BEST["where"], keep=BEST["keep"])
    for name in (BEST["maximize"], *BEST["keep"], "best_tp", "best_batch"):
        np.testing.assert_array_equal(ds[name].values, expected[name].transpose(*ds[name].dims).values, err_msg=name)
    assert flag_labels(ds.best_precision).values.tolist() == expected.best_precision.values.tolist()
    counts = histogram(whole, "bottleneck", ["batch", "seq_len"])
    np.testing.assert_array_equal(ds.bottleneck_count.values, counts.transpose(*ds.bottleneck_count.dims).values)
    assert "step_time" not in ds


@pytest.mark.parametrize("name", ["experts-and-latent-rank", "gpu-comparison", "hardware-exploration"])
def test_shipped_reductions_equal_the_whole(name, elsewhere, monkeypatch):
    """Small blocks against one evaluation of everything."""
    monkeypatch.setattr(run, "cut", partial(blocks.cut, points=100_000))
    job = run.make_job(name, "result.zarr")
    assert len(job.blocks) > 1
    ds = cx.open_result(run.run_job(job, progress=False))
    names = job.plan.engine.names
    monkeypatch.undo()
    axes = job.sweep.axes()
    given = {k: v for k, v in vars(axes).items() if k not in ("draws", "coords", "errors")}
    whole = evaluate(**given, outputs=list(names))
    expected = job.sweep.best.of(whole)
    for variable in (job.sweep.best.metric, *job.sweep.best.keep, "best_batch"):
        here = expected[variable].transpose(*ds[variable].dims).values
        np.testing.assert_array_equal(ds[variable].values, here, err_msg=variable)


def test_histogram_counts_every_point_once():
    ds = full()
    counts = histogram(ds, "status", ["batch", "tp"])
    assert (counts.sum("status_label") == 10).all()
    assert int(counts.sel(status_label="infeasible_memory").sum()) == int((ds.status == 14).sum())


def test_conditions_are_parsed_not_evaluated():
    assert parse(" tps_per_user>=5e1 ").number == 50
    for text in ("tps_per_user", ">= 5", "a >= b", "__import__('os') >= 1", "a >= 1 and b >= 2", "a => 1", 5, ""):
        rejected(lambda text=text: parse(text), "name op number")


def test_bad_reductions(write):
    ds = full()
    rejected(lambda: best(ds, "speed", "batch"), "speed", "step_time")
    rejected(lambda: best(ds, "step_time", "layout"), "layout", "batch")
    rejected(lambda: best(ds, "step_time", []), "nothing")
    rejected(lambda: histogram(ds, "step_time", "batch"), "step_time")
    rejected(lambda: histogram(ds, "status", "layout"), "layout")
    rejected(lambda: flag_labels(ds.step_time), "step_time")
    for change, word in (
        ({"best": {"over": ["batch"]}}, "maximize"),
        ({"best": BEST | {"over": ["layout"]}}, "layout"),
        ({"best": BEST | {"where": "fast"}}, "fast"),
        ({"best": BEST | {"maximize": "speed"}}, "speed"),
        ({"best": BEST | {"minimise": "x"}}, "minimise"),
        ({"histogram": {"over": []}}, "over"),
        ({"best": BEST | {"keep": ["step_time"]}, "outputs": ["step_time"]}, "step_time would be stored twice"),
        ({"histogram": {"flag": "step_time", "over": ["batch"]}}, "flag"),
    ):
        rejected(lambda change=change: run.make_job(write(SMALL | change, "bad.yaml")), "bad.yaml", word)
