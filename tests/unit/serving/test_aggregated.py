"""Serving on one instance: results built up from evaluations, limits, axes, and what cannot be served."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import cheetah_xr as cx
from cheetah_xr.calibration.parameters import KNOWN
from cheetah_xr.engine.inputs.posterior_axis import RESIDUAL_SCALES
from cheetah_xr.engine.validity import CODES
from cheetah_xr.serving.result import LIMITS, VARIABLES
from tests.helpers.hypothesis_profiles import examples
from tests.helpers.rejection import rejected

SETUP = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "tp": 1, "efficiency": "kernels"}
LOAD = {"concurrency": 32, "isl": 2000, "osl": 500}
SHOWN = [name for name in VARIABLES if name != "kv_transfer_time"]


def step(phase, batch, seq_len, **more):
    """Time of a forward pass, as `evaluate` has it."""
    options = {"on_infeasible": "ignore", "overlap_ep": 0.0, **more.pop("options", {})}
    actual = cx.evaluate(**SETUP | more, phase=phase, batch=batch, seq_len=seq_len, options=options, dtype="float64")
    return float(actual.step_time)


def assert_same(ds, one):
    """A point of a result is the result of that point."""
    for name in (*SHOWN, "limit", "status"):
        np.testing.assert_allclose(ds[name].values, one[name].values, rtol=1e-12, err_msg=name)


# ---- built up from evaluations


@pytest.mark.parametrize("prefill", ["mixed", "separate"])
@pytest.mark.parametrize("lengths", ["random", "fixed"])
def test_one_request_is_a_prefill_and_decode_steps(prefill, lengths):
    ds = cx.serve(**SETUP, **LOAD | {"concurrency": 1}, prefill=prefill, lengths=lengths)
    first, decode = step("prefill", 1, 2000), step("decode", 1, 2250)
    assert float(ds.ttft) == pytest.approx(first, rel=1e-12)
    assert float(ds.tpot) == pytest.approx(decode, rel=1e-12)
    assert float(ds.e2e) == pytest.approx(first + 499 * decode, rel=1e-12)
    assert float(ds.throughput) == pytest.approx(500 / (first + 499 * decode), rel=1e-12)
    assert float(ds.tps_per_user) == 1 / float(ds.tpot)


def test_separate_passes_at_random_lengths():
    ds = cx.serve(**SETUP, **LOAD, prefill="separate")
    # 30 prompts of other requests in 500 steps, each in a pass of its own.
    first, decode = step("prefill", 1, 2000), step("decode", 32, 2250)
    tpot = decode + 30 / 500 * first
    assert float(ds.tpot) == pytest.approx(tpot, rel=1e-12)
    # The engine's time: a prompt, and a 32nd of 499 steps.
    rate = 1 / (first + 499 * decode / 32)
    assert float(ds.throughput) == pytest.approx(500 * rate, rel=1e-12)
    assert float(ds.e2e) == pytest.approx(32 / rate, rel=1e-12)
    assert float(ds.queue_time) == pytest.approx(32 / rate - first - 499 * tpot, rel=1e-9)


def test_separate_passes_at_equal_lengths():
    ds = cx.serve(**SETUP, **LOAD, prefill="separate", lengths="fixed")
    # Passes of round(8192/2000) = 4 prompts; 16384/2000 = 8.192 are admitted at once, half of the others wait.
    first, decode = step("prefill", 4, 2000), step("decode", 32, 2250)
    tpot = decode + 0.5 * (32 - 8.192) / 500 * first / 4
    assert float(ds.tpot) == pytest.approx(tpot, rel=1e-12)
    assert float(ds.prefill_time) == pytest.approx(first, rel=1e-12)
    assert float(ds.throughput) == pytest.approx(500 / (first / 4 + 499 * decode / 32), rel=1e-12)


def test_mixed_passes():
    ds = cx.serve(**SETUP, **LOAD)
    decode, first = step("decode", 32, 2250), float(ds.prefill_time)
    # A pass of one prompt alongside 32 requests is a little longer than that of the prompt (see test_mixed_batch.py).
    assert 1.01 < first / step("prefill", 1, 2000) < 1.10
    assert float(ds.tpot) == pytest.approx(decode + 30 / 500 * (first - decode), rel=1e-12)
    # 31 of the others' tokens come in that pass; the other 499 - 31 steps are shared by 32.
    seconds = first + (499 - 31) * decode / 32
    assert float(ds.throughput) == pytest.approx(500 / seconds, rel=1e-12)


def test_mixed_passes_do_not_depend_on_lengths():
    assert_same(cx.serve(**SETUP, **LOAD, lengths="fixed"), cx.serve(**SETUP, **LOAD, lengths="random"))


def test_long_prompts_are_prefilled_in_chunks():
    ds = cx.serve(**SETUP, concurrency=1, isl=20_000, osl=100)
    chunks = [step("prefill", 1, new, options={"cached_tokens": old}) for new, old in ((8192, 0), (8192, 8192))]
    last = step("prefill", 1, 3616, options={"cached_tokens": 16_384})
    assert float(ds.ttft) == pytest.approx(sum(chunks) + last, rel=1e-12)
    whole = cx.serve(**SETUP, concurrency=1, isl=20_000, osl=100, chunked_prefill_size=20_000)
    assert float(whole.ttft) == pytest.approx(step("prefill", 1, 20_000), rel=1e-12)


def test_chunks_come_in_passes_of_their_own():
    one, three = (cx.serve(**SETUP, concurrency=20, isl=6000, osl=400, chunked_prefill_size=n) for n in (6000, 2000))
    decode = step("decode", 20, 6200)
    for ds, passes in ((one, 1), (three, 3)):
        extra = float(ds.prefill_time) - passes * decode
        assert float(ds.tpot) == pytest.approx(decode + 18 / 400 * extra, rel=1e-12)
    # Every further pass reads the weights again and repeats the decode step alongside the prompt.
    assert float(three.prefill_time) > float(one.prefill_time) + decode


def test_cached_tokens_are_not_prefilled():
    ds = cx.serve(**SETUP, **LOAD | {"concurrency": 1}, options={"cached_tokens": 1500})
    assert float(ds.ttft) == pytest.approx(step("prefill", 1, 500, options={"cached_tokens": 1500}), rel=1e-12)
    assert float(ds.tpot) == pytest.approx(step("decode", 1, 2250), rel=1e-12)
    axis = cx.serve(**SETUP, **LOAD | {"concurrency": 1}, overrides={"options.cached_tokens": [0, 1500]})
    assert_same(axis.sel(cached_tokens=1500), ds)
    assert_same(axis.sel(cached_tokens=0), cx.serve(**SETUP, **LOAD | {"concurrency": 1}))


def test_drafts_shorten_the_way():
    # 1 + 0.5 + 0.25 tokens a step: the same load in 1.75 times fewer steps.
    options = {"draft_tokens": 2, "acceptance": 0.5}
    ds = cx.serve(**SETUP, **LOAD, prefill="separate", options=options)
    first, decode = step("prefill", 1, 2000), step("decode", 32, 2250, options=options)
    assert float(ds.tpot) == pytest.approx((decode + 30 * 1.75 / 500 * first) / 1.75, rel=1e-12)
    axis = cx.serve(
        **SETUP, **LOAD, prefill="separate", options={"draft_tokens": 2}, overrides={"options.acceptance": [0.0, 0.5]}
    )
    assert_same(axis.sel(acceptance=0.5), ds)


def test_the_overhead_per_request_is_not_paid_in_prefill():
    slow = cx.serve(**SETUP, **LOAD, prefill="separate", overrides={"efficiency.tau_batch": [0.0, 1e-3]})
    assert slow.prefill_time.dims == ()
    assert float(slow.tpot.diff("tau_batch").squeeze()) == pytest.approx(32e-3, rel=1e-12)


# ---- limits


def test_requests_beyond_the_cache_wait():
    ds = cx.serve(**SETUP, concurrency=[100, 1000], isl=8000, osl=1000)
    most = float(cx.evaluate(**SETUP, batch=1, seq_len=8500, outputs=["max_batch"]).max_batch)
    assert ds.running.values.tolist() == [most, most]
    assert ds.limit.values.tolist() == [LIMITS["kv_cache_capacity"]] * 2
    a, b = (ds.sel(concurrency=n) for n in (100, 1000))
    assert float(a.tpot) == float(b.tpot)
    assert float(a.throughput) == float(b.throughput)
    # The 900 more wait for as long as the instance takes to serve 900.
    assert float(b.queue_time - a.queue_time) == pytest.approx(900 / (float(a.throughput) / 1000), rel=1e-9)


def test_memory_is_not_read_when_given():
    ds = cx.serve(**SETUP, concurrency=100, isl=8000, osl=1000, options={"on_infeasible": "ignore"})
    assert (float(ds.running), int(ds.limit)) == (100, LIMITS["concurrency"])


def test_prefill_cannot_be_faster_than_every_pass():
    # 8 requests of 2 tokens each: prompts come faster than passes.
    ds = cx.serve(**SETUP, concurrency=8, isl=4000, osl=2)
    assert int(ds.limit) == LIMITS["prefill"]
    per_pass = 4
    assert float(ds.throughput) == pytest.approx(2 * per_pass / float(ds.prefill_time), rel=1e-12)


def test_littles_law_holds():
    ds = cx.serve(**SETUP, concurrency=[1, 2, 7, 32, 300], isl=[100, 9000], osl=[2, 64, 2000], dp=[1, 4])
    assert (ds.status == 0).all()
    in_flight = ds.throughput / ds.osl * ds.e2e
    np.testing.assert_allclose(*xr.broadcast(in_flight, ds.concurrency.astype(float)), rtol=1e-9)
    np.testing.assert_allclose(ds.e2e, (ds.ttft + (ds.osl - 1) * ds.tpot).transpose(*ds.e2e.dims), rtol=1e-12)
    assert (ds.queue_time >= -1e-12).all()


def test_experts_all_to_all_is_exposed_unless_set():
    setup = {"model": "mixtral-8x7b", "gpu": "h100-sxm", "dp": 4, "ep": 4, **LOAD}
    plain, exposed, hidden = (cx.serve(**setup, options=o) for o in (None, {"overlap_ep": 0.0}, {"overlap_ep": 1.0}))
    assert float(plain.tpot) == float(exposed.tpot) > float(hidden.tpot)
    assert float(cx.serve(**setup, options=cx.Options(overlap_ep=1.0)).tpot) == float(hidden.tpot)
    assert float(cx.serve(**setup, options=cx.Options()).tpot) == float(plain.tpot)


@examples(12)
@given(
    st.sampled_from(["llama-3.1-8b", "mixtral-8x7b", "deepseek-v2-lite", "kimi-linear-48b-a3b"]),
    st.sampled_from([100, 3000, 20_000]),
    st.sampled_from(["mixed", "separate"]),
    st.sampled_from([1, 2, 4]),
)
def test_more_requests_never_help_one_of_them(model, isl, prefill, dp):
    ds = cx.serve(model, "b200-sxm", concurrency=[1, 2, 4, 8, 32, 128], isl=isl, osl=500, dp=dp, tp=2, prefill=prefill)
    assert (ds.status == 0).all()
    assert (ds.tpot.diff("concurrency") >= -1e-12).all()
    assert (ds.e2e.diff("concurrency") >= -1e-12).all()
    assert (ds.throughput.diff("concurrency") >= -1e-9 * ds.throughput.max()).all()
    assert (ds.running <= ds.concurrency).all()
    # No engine gives more tokens than decode steps do.
    assert (ds.throughput <= ds.running / ds.tpot.isel(concurrency=0) * 1.0000001).all()


# ---- axes


def test_points_of_axes_are_points():
    ds = cx.serve(
        ["llama-3.1-8b", "qwen3-8b"], ["h100-sxm", "b200-sxm"], ["bf16", "fp8"], concurrency=[3, 200],
        isl=[500, 9000], osl=[10, 300], tp=[1, 2], prefill="mixed", overrides={"gpu.hbm_bandwidth": [2e12, 3e12]},
    )  # fmt: skip
    assert ds.tpot.dims == (
        "model", "gpu", "precision", "tp", "hbm_bandwidth", "concurrency", "isl", "osl",
    )  # fmt: skip
    for index in ((0, 0, 0, 0, 0, 0, 0, 0), (1, 0, 1, 1, 0, 1, 1, 0), (0, 1, 1, 0, 1, 0, 1, 1)):
        point = ds.isel(dict(zip(ds.tpot.dims, index, strict=True)))
        one = cx.serve(
            str(point.model.values), str(point.gpu.values), str(point.precision.values), tp=int(point.tp),
            concurrency=int(point.concurrency), isl=int(point.isl), osl=int(point.osl),
            overrides={"gpu.hbm_bandwidth": float(point.hbm_bandwidth)},
        )  # fmt: skip
        assert_same(point, one)


def test_layouts_share_a_dim():
    actual = cx.layouts(8, "mixtral-8x7b")
    ds = cx.serve("mixtral-8x7b", "h100-sxm", **LOAD, tp=actual.tp, dp=actual.dp, ep=actual.ep)
    assert ds.tpot.dims == ("layout",)
    assert list(ds.layout.values) == list(actual.layout.values)
    point = ds.isel(layout=5)
    one = cx.serve("mixtral-8x7b", "h100-sxm", **LOAD, tp=int(point.tp), dp=int(point.dp), ep=int(point.ep))
    assert_same(point, one)
    assert (ds.throughput_per_gpu == ds.throughput / 8).all()


def test_loads_share_a_dim_with_labels():
    loads = {
        name: xr.DataArray(v, {"use": ["chat", "code"]}, "use")
        for name, v in (("isl", [500, 9000]), ("osl", [300, 900]))
    }
    ds = cx.serve(**SETUP, concurrency=[1, 16], **loads)
    assert ds.tpot.dims == ("concurrency", "use")
    assert_same(ds.sel(concurrency=16, use="code"), cx.serve(**SETUP, concurrency=16, isl=9000, osl=900))


def test_results_are_described():
    ds = cx.serve(**SETUP, **LOAD)
    assert set(ds.data_vars) == {*SHOWN, "limit", "status"}
    for name in ds.data_vars:
        assert ds[name].attrs["units"], name
        assert ds[name].attrs["long_name"], name
    assert ds.isl.attrs == {"units": "tokens", "long_name": "prompt tokens, cached ones included"}
    assert not {"batch", "seq_len", "phase"} & set(ds.coords)
    assert cx.analysis.flag_labels(ds.limit).item() == "concurrency"
    assert ds.attrs["Conventions"] == "CF-1.11"


# ---- what cannot be served

REJECTED = {
    "weights do not fit": ({"model": "llama-3.1-70b"}, "infeasible_memory"),
    "one request does not fit": ({"model": "llama-3.1-8b", "gpu": "rtx-4090", "isl": 100_000}, "infeasible_memory"),
    "heads": ({"tp": 3}, "tp_heads"),
    "too long at the end": ({"isl": 131_072 - 499}, "seq_beyond_max"),
    "no peak": ({"gpu": "a100-sxm-80gb", "precision": "fp8"}, "no_peak"),
    "experts of a dense model": ({"tp": 2, "ep": 2}, "ep_dense"),
}


@pytest.mark.parametrize("case", REJECTED.values(), ids=REJECTED)
@pytest.mark.parametrize("prefill", ["mixed", "separate"])
def test_what_cannot_be_served_has_no_numbers(case, prefill):
    changes, reason = case
    ds = cx.serve(**SETUP | LOAD | changes, prefill=prefill)
    assert int(ds.status) == CODES[reason]
    assert int(ds.limit) == -1
    assert all(np.isnan(ds[name]) for name in SHOWN)


def test_invalid_points_leave_others_alone():
    ds = cx.serve("llama-3.1-70b", "h100-sxm", **LOAD, tp=[1, 3, 4])
    assert ds.status.values.tolist() == [CODES["infeasible_memory"], CODES["tp_heads"], 0]
    assert ds.tpot.notnull().values.tolist() == [False, False, True]


def test_the_longest_request_may_end_at_the_maximum():
    assert int(cx.serve(**SETUP, concurrency=1, isl=131_072 - 500, osl=500).status) == 0


BAD = {
    "concurrency 0": ({"concurrency": 0}, "concurrency", "at least 1", "0"),
    "half a request": ({"concurrency": 1.5}, "concurrency", "whole numbers", "1.5"),
    "no concurrency": ({"concurrency": []}, "concurrency", "at least one"),
    "isl 0": ({"isl": [100, 0]}, "isl", "at least 1"),
    "one output token": ({"osl": 1}, "osl", "at least 2", "1"),
    "osl as text": ({"osl": "long"}, "osl", "'long'"),
    "osl as a flag": ({"osl": True}, "osl", "True"),
    "chunks of nothing": ({"chunked_prefill_size": 0}, "chunked_prefill_size", "at least 1"),
    "no chunks": ({"chunked_prefill_size": None}, "chunked_prefill_size", "None"),
    "prefill": ({"prefill": "chunked"}, "prefill", "mixed", "separate", "'chunked'"),
    "prefill as a list": ({"prefill": ["mixed"]}, "prefill", "mixed", "separate"),
    "lengths": ({"lengths": "equal"}, "lengths", "random", "fixed", "'equal'"),
    "model": ({"model": "gpt-5"}, "'gpt-5'"),
    "tp 0": ({"tp": 0}, "tp", "at least 1"),
    "options": ({"options": {"fast": True}}, "'fast'", "overlap_ep"),
    "all is cached": ({"options": {"cached_tokens": 2000}}, "cached_tokens", "2000", "at least one"),
    "overrides": ({"overrides": {"gpu.hbm": 1}}, "'gpu.hbm'"),
    "sizes": ({"isl": xr.DataArray([1, 2], dims="x"), "osl": xr.DataArray([2, 3, 4], dims="x")}, "osl", "'x'", "3"),
    "size of an axis": ({"gpu": ["h100-sxm", "h200-sxm"], "isl": xr.DataArray([1, 2, 3], dims="gpu")}, "isl", "'gpu'"),
    "labels": (
        {"gpu": ["h100-sxm", "h200-sxm"], "isl": xr.DataArray([1, 2], {"gpu": ["h200-sxm", "h100-sxm"]}, "gpu")},
        "isl", "'gpu'", "differ",
    ),
    "name of something else": ({"isl": xr.DataArray([1, 2], dims="tdp")}, "isl", "'tdp'", "another dim"),
    "name of the batch": ({"isl": xr.DataArray([1, 2], dims="batch")}, "isl", "'batch'", "another dim"),
    "size": ({"concurrency": list(range(1, 1001)), "isl": list(range(1, 1001)), "max_bytes": 1e6}, "max_bytes"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_bad_input_is_one_message(case):
    changes, *words = case
    rejected(lambda: cx.serve(**SETUP | LOAD | changes), *words)


@pytest.mark.parametrize("prefill", ["mixed", "separate"])
def test_draws_of_a_posterior_are_single_records(prefill):
    posterior = cx.load_posterior("vllm").isel(draw=[0, 100, 255])
    given = {**SETUP, **LOAD, "prefill": prefill}
    ds = cx.serve(**{**given, "efficiency": posterior})
    assert ds.tpot.dims == ("draw",)
    assert len(set(ds.tpot.values.tolist())) == 3
    base = cx.load_efficiency("ideal").model_copy(update=KNOWN)
    for place in range(3):
        fields = {
            str(name): float(posterior[name][place]) for name in posterior.data_vars if name not in RESIDUAL_SCALES
        }
        one = cx.serve(**{**given, "efficiency": base.with_numbers({"name": "one", **fields})})
        assert_same(ds.isel(draw=place), one)


@pytest.mark.parametrize("prefill", ["mixed", "separate"])
def test_errors_are_between_those_of_passes_and_of_prompts(prefill):
    """ln(scale) lies as far from that of passes as prompts of other requests have a fraction of the time per token."""
    posterior = cx.load_posterior("vllm").isel(draw=[0, 100])
    given = {**SETUP, **LOAD, "prefill": prefill, "efficiency": posterior}
    ds = cx.serve(**given | {"concurrency": [1, 16, 64]})
    context = LOAD["isl"] + LOAD["osl"] // 2
    own = {"options": {"overlap_ep": 0.0}, "efficiency": posterior, "dtype": "float64", "outputs": ["step_time"]}
    layout = {name: SETUP[name] for name in ("tp", "dp", "ep") if name in SETUP}
    where = {name: SETUP[name] for name in ("model", "gpu", "precision") if name in SETUP}
    for place in range(3):
        one = ds.isel(concurrency=place)
        step = cx.evaluate(**where, **layout, **own, batch=int(one.running), seq_len=context).step_time
        interference = 1 - step.values / one.tpot.values
        assert (interference >= 0).all()
        assert (interference < 1).all()
        low, high = np.log(posterior.residual_scale_dense.values), np.log(posterior.residual_scale_prefill.values)
        np.testing.assert_allclose(np.log(one.residual_scale.values), low + interference * (high - low), rtol=1e-9)
    bands = cx.summarize(ds).isel(concurrency=1)
    alone = xr.Dataset({"x": ("draw", ds.tpot.isel(concurrency=1).values, {"units": "s"})})
    alone = alone.assign_coords(residual_scale=("draw", ds.residual_scale.isel(concurrency=1).values, {"dof": 3.0}))
    np.testing.assert_allclose(bands.tpot, cx.summarize(alone).x, rtol=1e-9)


def test_draws_reach_both_pools():
    posterior = cx.load_posterior("vllm").isel(draw=[0, 100])
    workers = {"prefill_workers": 1, "decode_workers": 2}
    ds = cx.serve_disaggregated("llama-3.1-8b", "h100-sxm", **LOAD, **workers, efficiency=posterior)
    assert "draw" in ds.tpot.dims
    assert "draw" in ds.ttft.dims
    np.testing.assert_allclose(ds.residual_scale, posterior.residual_scale_dense.broadcast_like(ds.tpot))
