"""Bad input: one clear message, or a status code inside a grid that leaves every other point alone."""

import array

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import cheetah_xr as cx
from cheetah_xr.engine.validity import CODES
from tests.helpers.one_point import GPU, evaluate
from tests.helpers.rejection import rejected

TIMES = ("step_time", "time_compute", "time_weights", "time_communication")


def status_of(ds):
    return [next(name for name, code in CODES.items() if code == value) for value in np.ravel(ds.status)]


def heads(n_heads, n_kv_heads):
    """A model of one layer whose widths decide nothing: only its heads do."""
    widths = {"hidden": 128, "vocab": 1024, "intermediate": 28 * 1024, "head_dim": 64}
    return {**widths, "n_heads": n_heads, "n_kv_heads": n_kv_heads, "groups": [dense(1)]}


def dense(count):
    return {"count": count, "attention": "gqa", "mlp": "dense"}


# ---- a point that cannot run has a code and no times


CANNOT_RUN = {
    "batch 0": ({"batch": 0}, "workload_below_one"),
    "batch -5": ({"batch": -5}, "workload_below_one"),
    "seq 0": ({"seq_len": 0}, "workload_below_one"),
    "seq -1": ({"seq_len": -1}, "workload_below_one"),
    "tp 3 on 64 heads": ({"tp": 3}, "tp_heads"),
    "tp 128 on 64 heads": ({"tp": 128}, "tp_heads"),
    "beyond the maximum": ({"seq_len": 131_073}, "seq_beyond_max"),
    "cached beyond the maximum": (
        {"phase": "prefill", "batch": 1, "seq_len": 131_072, "options": cx.Options(cached_tokens=1)},
        "seq_beyond_max",
    ),
    "ep of a dense model": ({"ep": 2}, "ep_dense"),
    "ep beyond the GPUs": ({"model": "mixtral-8x7b", "tp": 1, "ep": 2}, "ep_layout"),
    "ep 3 of 8 experts": ({"model": "mixtral-8x7b", "tp": 1, "dp": 3, "ep": 3}, "ep_layout"),
    "fp8 on an A100": ({"gpu": "a100-sxm-80gb", "precision": "fp8"}, "no_peak"),
    "no link": ({"model": "llama-3.1-8b", "gpu": "rtx-4090", "tp": 8}, "no_link"),
    "two nodes, no NIC": ({"gpu": cx.load_gpu(GPU).model_copy(update={"nic_bandwidth": None}), "tp": 16}, "no_nic"),
    "does not fit": ({"tp": 1}, "infeasible_memory"),
    "cache does not fit": ({"batch": 249}, "infeasible_memory"),
}


@pytest.mark.parametrize(("arguments", "reason"), CANNOT_RUN.values(), ids=CANNOT_RUN)
def test_a_point_that_cannot_run(arguments, reason):
    ds = evaluate(**arguments)
    assert status_of(ds) == [reason]
    assert all(np.isnan(ds[name]) for name in TIMES)
    assert ds.bottleneck == -1


@pytest.mark.parametrize(
    ("n_heads", "n_kv_heads", "tp", "reason"),
    [
        *((28, 4, tp, "ok") for tp in (1, 2, 4, 28)),
        *((28, 4, tp, "tp_kv_heads") for tp in (7, 14)),
        *((28, 4, tp, "tp_heads") for tp in (3, 8, 56)),
        *((52, 4, 8, "tp_heads"), (32, 8, 3, "tp_heads"), (52, 4, 4, "ok")),
        *((32, 1, tp, "ok") for tp in (1, 8, 32)),  # multi-query: the one KV head is copied
        *((32, 32, tp, "ok") for tp in (1, 8, 32)),  # multi-head
        (32, 32, 64, "tp_heads"),
    ],
)
def test_head_rules(n_heads, n_kv_heads, tp, reason):
    ds = evaluate(heads(n_heads, n_kv_heads) | {"intermediate": 28 * 1024 * 39}, tp=tp, batch=1, options=ONE_DOMAIN)
    assert status_of(ds) == [reason]
    if reason == "ok":
        assert ds.kv_bytes_per_sequence == 2 * max(n_kv_heads // tp, 1) * 64 * 2 * 2048


ONE_DOMAIN = cx.Options(on_infeasible="ignore")


def test_experts_without_tensor_parallelism():
    assert status_of(evaluate("mixtral-8x7b", tp=1, dp=[2, 4, 8], ep=2)) == ["ok"] * 3
    assert status_of(evaluate("deepseek-v3", precision="fp8", tp=1, dp=64, ep=64, batch=64)) == ["ok"]


def test_deepseek_on_a_gpu_it_does_not_fit():
    ds = evaluate("deepseek-v3", precision="fp8", tp=8, batch=1, seq_len=1)
    assert status_of(ds) == ["infeasible_memory"]
    missing = float(ds.weight_bytes + ds.kv_bytes_per_sequence) - 0.9 * 85_520_809_984
    assert float(ds.weight_bytes) == pytest.approx(85.117e9, rel=1e-5)
    assert float(ds.memory_shortfall) == pytest.approx(missing, rel=1e-12)
    assert ds.max_batch == 0


# ---- inside a grid


def test_bad_points_of_a_grid_leave_the_others_alone():
    grid = evaluate(tp=[3, 4, 8], batch=[-5, 0, 1, 32, 100_000], seq_len=[0, 2048, 131_073])
    assert grid.status.dims == ("tp", "batch", "seq_len")
    for tp, batch, seq_len in ((4, 1, 2048), (4, 32, 2048), (8, 32, 2048)):
        where = {"tp": tp, "batch": batch, "seq_len": seq_len}
        point, alone = grid.sel(where), evaluate(**where)
        assert point.status == CODES["ok"]
        np.testing.assert_allclose(point.step_time, alone.step_time, rtol=1e-6)
    codes = grid.status.sel(tp=4)
    assert (codes.sel(batch=[-5, 0]) == CODES["workload_below_one"]).all()
    assert (codes.sel(seq_len=0) == CODES["workload_below_one"]).all()
    assert (codes.sel(batch=[1, 32], seq_len=131_073) == CODES["seq_beyond_max"]).all()
    assert codes.sel(batch=100_000, seq_len=2048) == CODES["infeasible_memory"]
    assert set(np.unique(grid.status.sel(tp=3))) == {CODES["workload_below_one"], CODES["tp_heads"]}
    runs = grid.status == CODES["ok"]
    assert int(runs.sum()) == 4
    for name in TIMES:
        assert (np.isfinite(grid[name]) == runs).all()
    assert ((grid.bottleneck >= 0) == runs).all()


# ---- arguments that are no numbers at all


NOT_NUMBERS = [float("nan"), float("inf"), "32", "eight", True, None, 1.5, 1j, {1: 2}, {1, 2}, 2**54, 10**30]
NOT_AXES = [[], [1, 1], [[1, 2]], [1, [2, 3]], [1, float("nan")], [1, "a"], [True, False], np.array([])]


@pytest.mark.parametrize("name", ["batch", "seq_len", "tp", "dp", "ep"])
def test_what_is_not_a_number_is_rejected(name):
    for value in (*NOT_NUMBERS, *NOT_AXES):
        rejected(lambda value=value: evaluate(**{name: value}), f"{name}: ")


@pytest.mark.parametrize("name", ["tp", "dp", "ep"])
@pytest.mark.parametrize("value", [0, -1, [1, 0]])
def test_degrees_start_at_one(name, value):
    rejected(lambda: evaluate(**{name: value}), f"{name}: ", "at least 1", repr(value))


AXES = {
    "tuple": (1, 2),
    "range": range(1, 3),
    "array": np.array([1, 2], dtype=np.uint8),
    "floats": [1.0, 2.0],
    "Series": pd.Series([1, 2]),
    "Index": pd.Index([1, 2]),
    "array.array": array.array("i", [1, 2]),
}


@pytest.mark.parametrize("value", AXES.values(), ids=AXES)
def test_every_kind_of_list_is_an_axis(value):
    words = ["model", "gpu", "precision", "efficiency", "phase"]  # older pandas cannot compare StringDType
    actual, plain = (evaluate(batch=b).drop_vars(words) for b in (value, [1, 2]))
    xr.testing.assert_identical(actual, plain)


@pytest.mark.parametrize("dim", ["gpu", "seq_len", "tp", "hbm_bandwidth", "n_gpus"])
def test_a_dim_named_like_something_else_is_rejected(dim):
    rejected(lambda: evaluate(batch=xr.DataArray([1, 2], dims=dim)), dim)


def test_dims_must_agree():
    two, three = xr.DataArray([1, 2], dims="layout"), xr.DataArray([1, 2, 4], dims="layout")
    rejected(lambda: evaluate(tp=two, dp=three), "dp", "'layout'", "3", "2")
    rejected(lambda: evaluate(tp=xr.DataArray([], dims="layout")), "tp")
