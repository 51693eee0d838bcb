"""The engine: the same numbers whatever the blocks, tiles, threads and order of axes; dims as declared."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import xarray as xr

import cheetah_xr as cx
from cheetah_xr.engine import evaluator as engine
from cheetah_xr.engine import lazy as expressions
from cheetah_xr.engine.inputs.gather import axes_of
from cheetah_xr.engine.variables import VARIABLES
from cheetah_xr.sweep import blocks

FREE = cx.Options(on_infeasible="ignore")

SWEEPS = {
    "dense": {
        "model": ["llama-3.1-8b", "qwen3-32b"],
        "gpu": ["h100-sxm", "mi300x", "rtx-4090"],
        "precision": ["bf16", "fp8", "w4a16"],
        "phase": ["prefill", "decode"],
        "tp": [1, 2, 3],
        "batch": [1, 7, 64, 300],
        "seq_len": [1, 100, 2048, 50_000],
    },
    "experts": {
        "model": ["mixtral-8x7b", "deepseek-v3", "8b"],
        "gpu": ["h100-sxm", "gb200-nvl72"],
        "precision": ["fp8", "fp8-kv8"],
        "phase": ["decode", "prefill"],
        "tp": xr.DataArray([1, 1, 2, 8], dims="layout"),
        "dp": xr.DataArray([16, 8, 8, 1], dims="layout"),
        "ep": xr.DataArray([16, 8, 4, 8], dims="layout"),
        "batch": [1, 64, 500],
        "seq_len": [128, 4096],
        "overrides": {"options.overlap_ep": [0.0, 0.5, 1.0]},
    },
    "user axes": {
        "model": "llama-3.1-70b",
        "gpu": "h100-sxm",
        "tp": 8,
        "batch": [1, 128],
        "seq_len": [512, 8192],
        "overrides": {"gpu.hbm_bandwidth": np.geomspace(1e12, 1e13, 13), "model.n_kv_heads": [1, 8, 64]},
        "scales": {"gpu.peak_bf16": [0.5, 1, 3]},
    },
}


def ready(name, dtype="float32", **more):
    return engine.prepare(axes_of(**SWEEPS[name], **more), None, dtype)


def assert_same(a, b):
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


@pytest.mark.parametrize("name", SWEEPS)
@pytest.mark.parametrize("points", [1, 7, 64])
def test_tiles_do_not_change_a_bit(name, points, monkeypatch):
    job = ready(name, efficiency="default")
    whole = job.compute()
    monkeypatch.setattr(expressions, "FEW", points)
    assert_same(whole, job.compute())
    monkeypatch.setattr(engine, "TILE_POINTS", points)
    assert_same(whole, job.compute())
    monkeypatch.setattr(engine, "CASE_POINTS", 4 * points)
    assert_same(whole, job.compute())


@pytest.mark.parametrize(
    "options", [{"on_infeasible": "clip"}, {"granularity": "component", "overlap_tp": 0.3}], ids=str
)
def test_arithmetic_left_for_later_has_the_same_bits(options, monkeypatch):
    job = ready("experts", options=cx.Options(small_ops="memory", **options))
    whole = job.compute()
    monkeypatch.setattr(expressions, "FEW", 1)
    monkeypatch.setattr(engine, "TILE_POINTS", 50)
    assert_same(whole, job.compute())


@pytest.mark.parametrize("name", SWEEPS)
@pytest.mark.parametrize("points", [5, 100])
def test_blocks_and_threads_do_not_change_a_bit(name, points):
    job = ready(name, efficiency="default")
    whole = job.compute()
    cut = blocks.cut(job.grid, points)
    with ThreadPoolExecutor(2) as pool:
        actual = list(pool.map(lambda block: (block, job.compute(block.selection)), cut))
    built = {n: np.full_like(v, -7) for n, v in whole.items()}
    for block, values in actual:
        for n, value in values.items():
            built[n][tuple(block.selection[dim] for dim in job.dims_of(n))] = value
    assert_same(whole, built)


@pytest.mark.parametrize("name", SWEEPS)
def test_a_point_alone_equals_the_point_in_the_grid(name):
    job = ready(name)
    whole = engine.as_dataset(job, job.compute())
    rng = np.random.default_rng(3)
    for _ in range(40):
        at = {dim: int(rng.integers(size)) for dim, size in job.grid.sizes.items()}
        alone = job.compute({dim: slice(i, i + 1) for dim, i in at.items()})
        for n, value in alone.items():
            np.testing.assert_array_equal(value.reshape(-1)[0], whole[n].isel({d: at[d] for d in whole[n].dims}))


def test_an_axis_made_scalar_agrees():
    axes = SWEEPS["experts"] | {"overrides": {}}
    grid = cx.evaluate(**axes)
    for gpu in axes["gpu"]:
        one = cx.evaluate(**(axes | {"gpu": gpu, "phase": "decode", "model": "deepseek-v3"}))
        same = grid.step_time.sel(gpu=gpu, phase="decode", model="deepseek-v3")
        np.testing.assert_array_equal(same, one.step_time)


@pytest.mark.parametrize("name", SWEEPS)
def test_dims_are_the_declared_ones(name):
    ds = cx.evaluate(**SWEEPS[name])
    user = {"n_kv_heads", "peak_bf16_scale", "hbm_bandwidth", "overlap_ep"}
    for n, variable in VARIABLES.items():
        allowed = {*variable.inputs, "layout"} | user
        assert set(ds[n].dims) <= allowed, n
    order = ["model", "gpu", "precision", "efficiency", "phase", "tp", "layout", *user, "batch", "seq_len"]
    named = [dim for dim in ds.step_time.dims if dim not in user]
    assert named == [dim for dim in order if dim in named]


def test_float64_and_float32_agree():
    single, double = (cx.evaluate(**SWEEPS["experts"], dtype=kind) for kind in ("float32", "float64"))
    assert single.step_time.dtype == np.float32
    assert double.step_time.dtype == np.float64
    xr.testing.assert_allclose(single.step_time, double.step_time, rtol=2e-6)
    assert single.flops.dtype == single.weight_bytes.dtype == np.float64
    xr.testing.assert_identical(single.flops, double.flops)


def test_flags_follow_cf():
    ds = cx.evaluate("llama-3.1-8b", "h100-sxm", batch=[0, 1], seq_len=16)
    for name in ("status", "bottleneck"):
        flag = ds[name]
        assert flag.dtype == np.int8
        assert flag.attrs["flag_values"].dtype == np.int8
        assert len(flag.attrs["flag_values"]) == len(flag.attrs["flag_meanings"].split())
    assert ds.bottleneck.values.tolist()[0] == -1
    assert np.isnan(ds.step_time[0])


def test_sweeping_kv_heads_gives_mqa_gqa_and_mha():
    heads = [1, 8, 64]
    swept = cx.evaluate(
        "llama-3.1-70b", "h100-sxm", tp=4, batch=16, seq_len=4096, overrides={"model.n_kv_heads": heads}
    )
    record = cx.load_model("llama-3.1-70b").model_dump()
    for n in heads:
        hand_computed = cx.evaluate(record | {"n_kv_heads": n}, "h100-sxm", tp=4, batch=16, seq_len=4096)
        for name in ("step_time", "bytes_kv", "weight_bytes", "max_batch", "status"):
            np.testing.assert_allclose(swept[name].sel(n_kv_heads=n), hand_computed[name], rtol=1e-6, err_msg=name)


def test_sweeping_layers():
    """Depth of a model of one kind of layer; a model of several kinds is rejected."""
    swept = cx.evaluate("llama-3.1-8b", "h100-sxm", batch=4, seq_len=2048, overrides={"model.n_layers": [8, 32]})
    plain = cx.evaluate("llama-3.1-8b", "h100-sxm", batch=4, seq_len=2048)
    for name in ("step_time", "flops", "weight_bytes", "kv_bytes_per_sequence", "max_batch"):
        np.testing.assert_array_equal(swept[name].sel(n_layers=32), plain[name], err_msg=name)
    assert float(swept.kv_bytes_per_sequence.sel(n_layers=8)) == 8 * 2 * 8 * 128 * 2 * 2048
    for model, layers in (("deepseek-v3", [8]), ("llama-3.1-8b", [0])):
        with pytest.raises(cx.SpecError, match="n_layers"):
            cx.evaluate(model, "h100-sxm", batch=1, seq_len=1, overrides={"model.n_layers": layers})


def test_sweeping_a_window():
    """Equal to hand-made specs; a model without windows is rejected."""
    record = cx.load_model("llama-3.1-8b").model_dump()
    windowed = [
        record | {"groups": [{"count": 32, "attention": "gqa", "mlp": "dense", "window": w}]} for w in (512, 4096)
    ]
    axes = {"batch": 8, "seq_len": [256, 1024, 8192], "phase": ["prefill", "decode"]}
    swept = cx.evaluate(windowed[0], "h100-sxm", overrides={"model.window": [512, 4096]}, **axes)
    for model, window in zip(windowed, (512, 4096), strict=True):
        one = cx.evaluate(model, "h100-sxm", **axes)
        for name in ("step_time", "flops", "kv_bytes_per_sequence"):
            np.testing.assert_array_equal(swept[name].sel(window=window), one[name], err_msg=name)
    with pytest.raises(cx.SpecError, match="window"):
        cx.evaluate("llama-3.1-8b", "h100-sxm", batch=1, seq_len=1, overrides={"model.window": [512]})


def test_scaling_by_one_is_the_catalogue():
    gpus = ["h100-sxm", "b200-sxm"]
    plain = cx.evaluate("llama-3.1-70b", gpus, tp=8, batch=[1, 64], seq_len=4096)
    scaled = cx.evaluate(
        "llama-3.1-70b", gpus, tp=8, batch=[1, 64], seq_len=4096, scales={"gpu.hbm_bandwidth": [0.5, 1, 2]}
    )
    np.testing.assert_array_equal(scaled.step_time.sel(hbm_bandwidth_scale=1), plain.step_time)
    np.testing.assert_array_equal(scaled.hbm_bandwidth.sel(hbm_bandwidth_scale=2), 2 * plain.hbm_bandwidth)


def test_units_and_words_on_everything():
    ds = cx.evaluate("llama-3.1-8b", "h100-sxm", batch=1, seq_len=16)
    assert set(VARIABLES) == set(ds.data_vars)
    for name, value in ds.data_vars.items():
        assert value.attrs["units"], name
        assert value.attrs["long_name"], name
    assert {"n_gpus", "hbm_bandwidth", "peak_bf16", "price_per_hour", "n_parameters"} <= set(ds.coords)


def test_clip_runs_at_max_batch_and_says_so():
    chosen = cx.Options(on_infeasible="clip")
    with pytest.warns(UserWarning, match="clipped"):
        ds = cx.evaluate("llama-3.1-8b", "h100-sxm", batch=[1, 5000], seq_len=4096, options=chosen)
    most = int(ds.max_batch)
    at_most = cx.evaluate("llama-3.1-8b", "h100-sxm", batch=most, seq_len=4096)
    np.testing.assert_allclose(ds.step_time[1], at_most.step_time, rtol=1e-6)
    assert ds.status.values.tolist() == [0, 15]


def test_breakdown_adds_up():
    for name in ("dense", "experts"):
        axes = {k: v for k, v in SWEEPS[name].items() if k not in ("model", "gpu", "precision")}
        for small_ops in ("none", "flops", "memory"):
            chosen = cx.Options(on_infeasible="ignore", small_ops=small_ops)
            args = (SWEEPS[name]["model"], SWEEPS[name]["gpu"], SWEEPS[name]["precision"])
            parts = cx.breakdown(*args, **axes, options=chosen)
            whole = cx.evaluate(*args, **axes, options=chosen, dtype="float64")
            valid = whole.status == 0
            total = parts.time.sum("kernel", skipna=False) + parts.time_overhead - parts.time_overlapped
            xr.testing.assert_allclose(total.where(valid), whole.step_time.where(valid), rtol=1e-9)
            assert float(parts.time_overlapped.min()) > -1e-12
            for cause in ("weights", "kv", "activations", "link", "nic"):
                moved = parts["bytes"].sel(cause=cause, drop=True).sum("kernel", skipna=False)
                expected = whole[f"bytes_{cause}"].where(valid)
                xr.testing.assert_allclose(moved.where(valid), expected.broadcast_like(moved), rtol=1e-9)
            assert ("small_ops" in parts.kernel.values) == (small_ops != "none")
            assert bool(parts.time.isnull().all("kernel").where(~valid, True).all())
            flops = parts.flops.sum("kernel", skipna=False).where(valid)
            xr.testing.assert_allclose(flops, whole.flops.where(valid).broadcast_like(flops), rtol=1e-9)


def test_component_breakdown_adds_up():
    chosen = cx.Options(granularity="component", on_infeasible="ignore")
    parts = cx.breakdown("llama-3.1-70b", "h100-sxm", tp=8, batch=[1, 1024], seq_len=1024, options=chosen)
    np.testing.assert_allclose(parts.time.sum("kernel") + parts.time_overhead, parts.step_time, rtol=1e-9)


def test_operations_agrees_with_the_totals():
    for model, phase in (
        ("qwen3-32b", "prefill"),
        ("deepseek-v3", "decode"),
        ("deepseek-v3", "prefill"),
        ("8b", "decode"),
    ):
        chosen = cx.Options(small_ops="flops", on_infeasible="ignore")
        operations = cx.operations(model, phase, 777, options=chosen, precision="fp8", batch=3)
        whole = cx.evaluate(model, "h100-sxm", "fp8", batch=3, seq_len=777, phase=phase, options=chosen)
        for name in ("flops", "bytes_weights", "bytes_kv", "bytes_activations"):
            np.testing.assert_allclose(
                (operations[name] * operations["count"]).sum(), whole[name], rtol=1e-12, err_msg=name
            )


def test_operations_of_micro_batches():
    chosen = cx.Options(micro_batches=2, on_infeasible="ignore")
    operations = cx.operations("deepseek-v3", "decode", 3000, options=chosen, precision="fp8", batch=96, dp=8, ep=8)
    whole = cx.evaluate("deepseek-v3", "h100-sxm", "fp8", batch=96, seq_len=3000, dp=8, ep=8, options=chosen)
    for name in ("flops", "bytes_weights", "bytes_kv"):
        np.testing.assert_allclose(
            (operations[name] * operations["count"]).sum(), whole[name], rtol=1e-12, err_msg=name
        )
