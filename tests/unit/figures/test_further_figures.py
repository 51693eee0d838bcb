"""Further comparisons: their numbers, checked against loops, specs and formulas written out here."""

import math
import re
import time

import numpy as np
import pytest

import cheetah_xr as cx
from cheetah_xr.figures import render
from cheetah_xr.figures.shared.frontiers import (
    BATCHES,
    CONTEXT,
    GPUS,
    N_GPUS,
    PRECISIONS,
    USER,
    frontiers,
    gpus_of,
    of_gpu,
)
from tests.helpers.rejection import rejected

FRONTIERS = {
    "pareto-gpus": ("throughput_per_gpu", 1),
    "cost-interactivity": ("cost_per_million_tokens", -1),
    "pareto-tokens-per-mw": ("tokens_per_mw", 1),
}


@pytest.fixture(scope="module")
def made():
    """Data of every figure of this file, with the seconds it took."""
    actual = {}
    for name in (*FRONTIERS, "capacity-frontier", "capacity-by-family"):
        started = time.perf_counter()
        actual[name] = render.data_of(name), time.perf_counter() - started
    return actual


def points_of(gpu, model="llama-3.1-70b", context=CONTEXT):
    """Every point the frontiers choose among, evaluated layout by layout."""
    for precision in map(cx.load_precision, PRECISIONS):
        for tp in (1, 2, 4, 8):
            yield cx.evaluate(
                model, gpu, precision, batch=BATCHES, seq_len=context, tp=tp, dp=N_GPUS // tp,
                outputs=[USER, "throughput", "step_time", "status"],
            )  # fmt: skip


def test_no_figure_takes_long(made):
    assert {name: round(seconds, 1) for name, (_, seconds) in made.items() if seconds > 5} == {}


@pytest.mark.parametrize("name", FRONTIERS)
def test_no_point_of_a_frontier_is_beaten(made, name):
    ds, (metric, sign) = made[name][0], FRONTIERS[name]
    assert gpus_of(ds) == list(GPUS)
    for gpu in GPUS:
        front = of_gpu(ds, gpu)
        assert front.sizes["point"] > 20
        assert (np.diff(front[USER]) > 0).all()
        assert (sign * np.diff(front[metric]) < 0).all(), "faster for the user costs throughput"


@pytest.mark.parametrize("gpu", ["h100-sxm", "mi355x"])
def test_no_layout_precision_or_batch_beats_the_frontier(made, gpu):
    front = of_gpu(made["pareto-gpus"][0], gpu)
    speed, rate = front[USER].values, front["throughput_per_gpu"].values
    some = 1 - 1e-6
    points = 0
    for ds in points_of(gpu):
        for x, y in zip(ds[USER].values.tolist(), (ds.throughput / N_GPUS).values.tolist(), strict=True):
            if math.isfinite(x):
                assert ((speed >= x * some) & (rate >= y * some)).any(), (x, y)
                points += 1
    assert points > 200


def test_a_precision_without_a_peak_is_not_on_the_frontier(made):
    ds = made["pareto-gpus"][0]
    assert {gpu for gpu in GPUS if cx.load_gpu(gpu).peak_fp4 is None} == {"h100-sxm", "h200-sxm"}
    for gpu in GPUS:
        assert ("mxfp4-kv8" in of_gpu(ds, gpu)["precision"].values) == (cx.load_gpu(gpu).peak_fp4 is not None)


def test_labels_give_the_point(made):
    ds = made["pareto-gpus"][0]
    named = {precision.name: precision for precision in map(cx.load_precision, PRECISIONS)}
    for i in range(0, ds.sizes["point"], 9):
        point = ds.isel(point=i)
        again = cx.evaluate(
            "llama-3.1-70b", point["gpu"].item(), named[point["precision"].item()], batch=int(point["batch"]),
            seq_len=CONTEXT, tp=int(point["tp"]), dp=int(point["dp"]), ep=int(point["ep"]),
            outputs=[USER, "throughput_per_gpu"],
        )  # fmt: skip
        assert float(again[USER]) == float(point[USER])
        assert float(again["throughput_per_gpu"]) == float(point["throughput_per_gpu"])


@pytest.mark.parametrize("name", FRONTIERS)
def test_both_ends_of_every_frontier_are_stated(made, name):
    ds, metric = made[name][0], FRONTIERS[name][0]
    said = ds.attrs["shows"].split("Ends, ")[1]
    for gpu, words in zip(GPUS, said.split("; "), strict=True):
        front = of_gpu(ds, gpu)
        numbers = re.findall(r"([\d.,]+) at (\d+) \(batch ([\d,]+)", words)
        assert len(numbers) == 2
        for at, (value, speed, batch) in zip((0, -1), numbers, strict=True):
            assert float(value.replace(",", "")) == pytest.approx(float(front[metric][at]), rel=0.05)
            assert int(speed) == round(float(front[USER][at]))
            assert int(batch.replace(",", "")) == int(front["batch"][at])
    assert (ds["batch"].values[np.flatnonzero(np.diff(ds[USER].values) < 0)] == 1).all(), "it ends at batch 1"


def test_cost_is_price_over_throughput(made):
    ds = made["cost-interactivity"][0]
    for i in range(ds.sizes["point"]):
        point = ds.isel(point=i)
        price = cx.load_gpu(point["gpu"].item()).price_per_hour
        hand_computed = N_GPUS * price / (float(point["throughput"]) * 3600) * 1e6
        assert float(point["cost_per_million_tokens"]) == pytest.approx(hand_computed, rel=1e-6)
    words = ds.attrs["assumptions"]
    assert "owning" in words
    assert "SemiAnalysis" in words
    assert "2026-04-03" in words
    assert "no quotes" in words


def test_tokens_of_a_megawatt_are_throughput_over_power(made):
    ds = made["pareto-tokens-per-mw"][0]
    rates = made["pareto-gpus"][0]
    tdp = np.array([cx.load_gpu(gpu).tdp for gpu in ds["gpu"].values])
    np.testing.assert_allclose(ds["tokens_per_mw"], rates["throughput_per_gpu"] / tdp * 1e6, rtol=1e-6)


def test_accelerators_on_which_nothing_fits_are_named():
    ds = frontiers("deepseek-v3", "throughput_per_gpu")
    assert gpus_of(ds) == [gpu for gpu in GPUS if gpu != "h100-sxm"]
    assert ds.attrs["absent"] == "H100 SXM"
    assert (ds["ep"] == 8).any()


def test_batches_that_fit_hand_computed(made):
    """Llama-3.1-70B in bf16 over 8 ranks: one KV head of 128 in 80 layers, keys and values."""
    ds = made["capacity-frontier"][0]
    layer = 8192 * (2 * 8192 + 2 * 1024) + 3 * 8192 * 28672
    weights = 2 * (80 * layer + 2 * 128256 * 8192) / 8
    per_token = 2 * 80 * 128 * 2
    memory = {"h100-sxm": 85520809984, "h200-sxm": 150754820096, "mi355x": 309220868096}
    for gpu, held in memory.items():
        for length in ds["seq_len"].values.tolist():
            hand_computed = math.floor((0.9 * held - weights) / (per_token * length))
            assert int(ds["max_batch"].sel(gpu=gpu, seq_len=length)) == hand_computed
    assert set(ds["best_layout"].values.ravel()) == {"tp8-dp1-ep1"}
    assert int(ds["seq_len"][-1]) == 131072
    assert "H100 SXM 11, " in ds.attrs["shows"]


def test_the_layout_that_holds_most_is_taken():
    ds = render.data_of("capacity-frontier", model="deepseek-v3")
    actual = cx.layouts(N_GPUS, "deepseek-v3")
    every = cx.evaluate(
        "deepseek-v3", "mi355x", batch=1, seq_len=ds["seq_len"].values, tp=actual.tp, dp=actual.dp, ep=actual.ep
    )
    np.testing.assert_array_equal(every["max_batch"].max("layout"), ds["max_batch"].sel(gpu="mi355x"))
    assert ds["max_batch"].sel(gpu="h100-sxm").isnull().all()


def test_the_widest_precision_that_fits_is_taken(made):
    assert made["capacity-frontier"][0]["precision"].item() == "bf16"
    ds = render.data_of("capacity-frontier", model="qwen3.8-2.4t-a95b")
    assert ds["precision"].item() == "mxfp4"
    assert ds.attrs["title"].endswith("in mxfp4")
    rejected(lambda: render.data_of("capacity-frontier", model="8b"), "nothing to draw")


def test_caches_of_the_families_hand_computed(made):
    """Bytes of one sequence of 131,072 tokens in bf16."""
    held = made["capacity-by-family"][0]["kv_bytes_per_sequence"].sel(seq_len=131072)
    s = 131072
    hand_computed = {
        "llama-3.1-70b": 2 * 80 * 8 * 128 * 2 * s,
        "deepseek-v3": 61 * (512 + 64) * 2 * s,
        "gemma-3-27b": 2 * 16 * 128 * 2 * (10 * s + 52 * 1024),
        "gpt-oss-120b": 2 * 8 * 64 * 2 * (18 * s + 18 * 128),
    }
    for model, value in hand_computed.items():
        assert float(held.sel(model=model)) == value, model


def test_families_differ_as_the_caption_says(made):
    ds = made["capacity-by-family"][0]
    held = ds["kv_bytes_per_sequence"]
    assert held.sel(seq_len=[1024, 1048576]).notnull().all()
    assert (held.diff("seq_len") > 0).all()
    growth = (held.sel(seq_len=2048) / held.sel(seq_len=1024)).sel
    assert float(growth(model="llama-3.1-70b")) == 2
    for model in ("gemma-3-27b", "qwen3-next-80b-a3b", "kimi-linear-48b-a3b", "minimax-m1"):
        assert float(growth(model=model)) < 1.3, "windows and states are most of a short sequence"
    sparse, dense = (float(held.sel(model=m, seq_len=65536)) for m in ("deepseek-v3.2", "deepseek-v3"))
    assert sparse > dense, "sparse attention holds no less"
    for model, longest in zip(ds["model"].values, ds["max_context"].values, strict=True):
        assert longest == cx.load_model(model).max_seq_len
