"""Disaggregated serving: limits in which the answer is known, the balance between them, and what cannot be served."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import cheetah_xr as cx
from cheetah_xr.engine.validity import CODES
from cheetah_xr.serving.disaggregated import batches, interpolated
from cheetah_xr.serving.result import LIMITS, VARIABLES
from tests.helpers.hypothesis_profiles import examples
from tests.helpers.rejection import rejected

SETUP = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "efficiency": "kernels"}
LOAD = {"concurrency": 32, "isl": 4000, "osl": 500}
IGNORE = {"on_infeasible": "ignore", "overlap_ep": 0.0}


def step(phase, batch, seq_len, **more):
    """Time of a forward pass, as `evaluate` has it."""
    ds = cx.evaluate(**SETUP | more, phase=phase, batch=batch, seq_len=seq_len, options=IGNORE, dtype="float64")
    return float(ds.step_time)


def number(ds, name):
    """A scalar of a result."""
    return float(ds[name])


# ---- limits


def test_one_request_goes_through_both_pools():
    ds = cx.serve_disaggregated(**SETUP, **LOAD | {"concurrency": 1}, prefill_tp=2)
    first, decode = step("prefill", 1, 4000, tp=2), step("decode", 1, 4250)
    # 4000 tokens of 2 * 8 * 128 * 32 elements of 2 bytes: a GPU that decodes takes all of it, over a link.
    transfer = 4000 * 2 * 8 * 128 * 32 * 2 / 450e9
    assert number(ds, "kv_transfer_time") == pytest.approx(transfer, rel=1e-12)
    assert number(ds, "ttft") == pytest.approx(first + transfer, rel=1e-9)
    assert number(ds, "tpot") == pytest.approx(decode, rel=1e-12)
    assert number(ds, "throughput") == pytest.approx(500 / (first + transfer + 499 * decode), rel=1e-9)
    assert number(ds, "running") == pytest.approx(499 * decode / (first + transfer + 499 * decode), rel=1e-9)
    assert int(ds.n_gpus) == 3


def test_with_endless_prefill_all_but_those_in_it_decode():
    ds = cx.serve_disaggregated(**SETUP, **LOAD, prefill_workers=10_000, transfer_bandwidth=1e18)
    assert int(ds.limit) == LIMITS["concurrency"]
    assert number(ds, "queue_time") == pytest.approx(0, abs=1e-9)
    in_prefill = number(ds, "throughput") / 500 * number(ds, "prefill_time")
    assert number(ds, "running") + in_prefill == pytest.approx(32, rel=1e-9)
    assert in_prefill < 1.5
    assert step("decode", 30, 4250) < number(ds, "tpot") < step("decode", 32, 4250)


def test_slow_prefill_sets_the_rate():
    ds = cx.serve_disaggregated(**SETUP, concurrency=200, isl=8000, osl=100)
    assert int(ds.limit) == LIMITS["prefill"]
    first = step("prefill", 1, 8000)
    assert number(ds, "throughput") == pytest.approx(100 / first, rel=1e-6)
    # As many decode as the steps of a request last: 99 steps, at one request per prefill.
    assert number(ds, "running") == pytest.approx(99 * number(ds, "tpot") / first, rel=1e-6)
    n = number(ds, "running")
    assert 1 < n < 16
    between = [step("decode", int(b), 8050) for b in (np.floor(n), np.ceil(n))]
    assert number(ds, "tpot") == pytest.approx(between[0] + (n % 1) * (between[1] - between[0]), rel=1e-9)
    assert number(ds, "queue_time") == pytest.approx(
        200 * first - number(ds, "prefill_time") - number(ds, "kv_transfer_time") - 99 * number(ds, "tpot"), rel=1e-6
    )


def test_short_prompts_share_a_pass():
    ds = cx.serve_disaggregated(**SETUP, concurrency=[3, 200], isl=1000, osl=4, prefill_dp=2)
    # round(8192/1000) = 8 prompts on each of 2 ranks, or the 3 there are.
    expected = [step("prefill", n, 1000, dp=2) for n in (3, 16)]
    np.testing.assert_allclose(ds.prefill_time, expected, rtol=1e-12)
    assert float(ds.throughput[1]) == pytest.approx(4 * 16 / expected[1], rel=1e-6)


def test_a_full_decode_pool_keeps_the_rest_waiting():
    ds = cx.serve_disaggregated(**SETUP, concurrency=[200, 1000], isl=8000, osl=1000, prefill_workers=8)
    most = float(cx.evaluate(**SETUP, batch=1, seq_len=8500, outputs=["max_batch"]).max_batch)
    assert ds.running.values.tolist() == [most, most]
    assert ds.limit.values.tolist() == [LIMITS["kv_cache_capacity"]] * 2
    assert float(ds.tpot[0]) == float(ds.tpot[1])
    more = (ds.queue_time[1] - ds.queue_time[0]) * ds.throughput[0] / 1000
    assert float(more) == pytest.approx(800, rel=1e-9)
    free = cx.serve_disaggregated(
        **SETUP, concurrency=200, isl=8000, osl=1000, prefill_workers=8, options={"on_infeasible": "ignore"}
    )
    assert float(free.running) > most


def test_decode_workers_share_the_requests():
    workers = {"prefill_workers": xr.DataArray([4, 8], dims="x"), "decode_workers": xr.DataArray([1, 2], dims="x")}
    both = LOAD | {"concurrency": xr.DataArray([32, 64], dims="x")}
    ds = cx.serve_disaggregated(**SETUP, **both, **workers, transfer_bandwidth=1e10)
    for name, factor in (("tpot", 1), ("ttft", 1), ("running", 2), ("throughput", 2), ("throughput_per_gpu", 1)):
        assert float(ds[name][1]) == pytest.approx(factor * float(ds[name][0]), rel=1e-9), name


def test_cached_tokens_are_handed_over_but_not_prefilled():
    ds = cx.serve_disaggregated(**SETUP, **LOAD | {"concurrency": 1}, options={"cached_tokens": 3000})
    plain = cx.serve_disaggregated(**SETUP, **LOAD | {"concurrency": 1})
    cached = cx.evaluate(
        **SETUP, phase="prefill", batch=1, seq_len=1000, options={"cached_tokens": 3000}, dtype="float64"
    )
    assert number(ds, "prefill_time") == pytest.approx(float(cached.step_time), rel=1e-12)
    assert number(ds, "kv_transfer_time") == number(plain, "kv_transfer_time")


def test_drafts_shorten_the_way():
    # Every draft is accepted: two tokens a step.
    options = {"draft_tokens": 1, "acceptance": 1.0}
    ds = cx.serve_disaggregated(**SETUP, **LOAD | {"concurrency": 12}, prefill_workers=2, options=options)
    n = number(ds, "running")
    between = [
        float(
            cx.evaluate(
                **SETUP, batch=int(b), seq_len=4250, options=IGNORE | {"draft_tokens": 1}, dtype="float64"
            ).step_time
        )
        for b in (np.floor(n), np.ceil(n))
    ]
    step_time = between[0] + (n % 1) * (between[1] - between[0])
    assert number(ds, "tpot") == pytest.approx(step_time / 2, rel=1e-9)
    assert number(ds, "throughput") == pytest.approx(500 * n / (499 / 2 * step_time), rel=1e-9)


# ---- the transfer


def test_pools_in_one_domain_use_the_link():
    ds = cx.serve_disaggregated(**SETUP, **LOAD, decode_workers=[7, 8])
    gpu = cx.load_gpu("h100-sxm")
    ratio = ds.kv_transfer_time[1] / ds.kv_transfer_time[0]
    assert float(ratio) == pytest.approx(gpu.link_bandwidth / gpu.nic_bandwidth, rel=1e-12)


def test_heads_that_both_pools_split_go_in_parallel():
    ds = cx.serve_disaggregated(**SETUP, **LOAD, prefill_tp=[1, 4], decode_tp=[1, 2], transfer_bandwidth=1e9)
    whole = 4000 * 131_072 / 1e9
    # The side with fewer GPUs holds more on each.
    expected = {(1, 1): whole, (1, 2): whole, (4, 1): whole, (4, 2): whole / 2}
    for (p, d), time in expected.items():
        assert float(ds.kv_transfer_time.sel(prefill_tp=p, decode_tp=d)) == pytest.approx(time, rel=1e-12)


def test_an_unknown_nic_is_a_reason():
    gpu = {"name": "alone", "memory_gb": 80, "hbm_bandwidth": 3e12, "peak_bf16": 1e15}
    ds = cx.serve_disaggregated("llama-3.1-8b", gpu, **LOAD)
    assert int(ds.status) == CODES["no_nic"]
    assert np.isnan(ds.tpot)
    linked = gpu | {"link_domain": 8}
    assert int(cx.serve_disaggregated("llama-3.1-8b", linked, **LOAD).status) == CODES["no_link"]
    given_rate = cx.serve_disaggregated("llama-3.1-8b", gpu, **LOAD, transfer_bandwidth=1e10)
    assert int(given_rate.status) == 0


# ---- balance and axes


@examples(12)
@given(
    st.sampled_from(["llama-3.1-8b", "mixtral-8x7b", "deepseek-v2-lite"]),
    st.sampled_from([200, 3000, 20_000]),
    st.sampled_from([2, 50, 1000]),
    st.sampled_from([1, 4]),
)
def test_little_and_monotony(model, isl, osl, dp):
    ds = cx.serve_disaggregated(
        model, "b200-sxm", concurrency=[1, 4, 32, 500], isl=isl, osl=osl, prefill_workers=[1, 3, 20], decode_dp=dp,
        transfer_bandwidth=1e11,
    )  # fmt: skip
    assert (ds.status == 0).all()
    in_flight = (ds.throughput / osl * ds.e2e).transpose("concurrency", ...)
    np.testing.assert_allclose(in_flight, np.broadcast_to([[1], [4], [32], [500]], in_flight.shape), rtol=1e-9)
    assert (ds.queue_time >= 0).all()
    assert (ds.running <= ds.concurrency).all()
    for dim in ("concurrency", "prefill_workers"):
        assert (ds.tpot.diff(dim) >= -1e-9 * ds.tpot.max()).all()
        assert (ds.throughput.diff(dim) >= -1e-9 * ds.throughput.max()).all()


def test_points_of_axes_are_points():
    ds = cx.serve_disaggregated(
        ["llama-3.1-8b", "qwen3-8b"], "h100-sxm", concurrency=[3, 300], isl=[500, 9000], osl=64, prefill_workers=[1, 4],
        prefill_tp=[1, 2], decode_tp=[1, 2], overrides={"gpu.hbm_bandwidth": [2e12, 3e12]},
    )  # fmt: skip
    assert set(ds.tpot.dims) == {
        "model", "concurrency", "isl", "prefill_workers", "prefill_tp", "decode_tp", "hbm_bandwidth",
    }  # fmt: skip
    sizes = ds.tpot.sizes
    for seed in range(3):
        point = ds.isel({dim: np.random.default_rng(seed).integers(size) for dim, size in sizes.items()})
        one = cx.serve_disaggregated(
            str(point.model.values), "h100-sxm", overrides={"gpu.hbm_bandwidth": float(point.hbm_bandwidth)},
            **{n: int(point[n]) for n in ("concurrency", "isl", "osl", "prefill_workers", "prefill_tp", "decode_tp")},
        )  # fmt: skip
        for name in (*VARIABLES, "limit", "status"):
            np.testing.assert_allclose(point[name], one[name], rtol=1e-12, err_msg=name)
        assert int(point.n_gpus) == int(one.n_gpus)


def test_layouts_share_a_dim():
    actual = cx.layouts(4, "mixtral-8x7b")
    ds = cx.serve_disaggregated(
        "mixtral-8x7b", "h100-sxm", **LOAD, prefill_tp=4, decode_tp=actual.tp, decode_dp=actual.dp, decode_ep=actual.ep
    )
    assert ds.tpot.dims == ("layout",)
    assert list(ds.layout.values) == list(actual.layout.values)
    assert {"tp", "dp", "ep"}.isdisjoint(ds.coords)
    assert ds.decode_tp.values.tolist() == actual.tp.values.tolist()


def test_results_are_described():
    ds = cx.serve_disaggregated(**SETUP, **LOAD)
    assert set(ds.data_vars) == {*VARIABLES, "limit", "status"}
    assert all(ds[name].attrs["units"] and ds[name].attrs["long_name"] for name in ds.data_vars)


# ---- tables of decode steps


def test_batches_are_the_same_however_many():
    assert batches(1).tolist() == list(range(1, 17))
    assert batches(33).tolist() == [*range(1, 17), 19, 23, 27, 32, 38]
    assert batches(5000).tolist()[: len(batches(300))] == batches(300).tolist()
    assert batches(5000)[-2] < 5000 <= batches(5000)[-1]


def test_times_between_batches_lie_on_a_line():
    knots, values = np.array([1, 2, 4]), np.array([[10.0, 20.0, 60.0], [1.0, 1.0, 1.0]])
    for at, expected in ((0.2, 10), (1, 10), (1.5, 15), (2, 20), (3, 40), (4, 60), (9, 60)):
        assert interpolated(knots, values, np.array([at, at])).tolist() == [expected, 1]


# ---- what cannot be served

REJECTED = {
    "prefill does not fit": ({"model": "llama-3.1-70b", "decode_tp": 4}, "infeasible_memory"),
    "decode does not fit": ({"model": "llama-3.1-70b", "prefill_tp": 4}, "infeasible_memory"),
    "heads of prefill": ({"prefill_tp": 3}, "tp_heads"),
    "heads of decode": ({"decode_tp": 3}, "tp_heads"),
    "experts of a dense model": ({"decode_tp": 2, "decode_ep": 2}, "ep_dense"),
    "too long at the end": ({"isl": 131_072 - 499}, "seq_beyond_max"),
}


@pytest.mark.parametrize("case", REJECTED.values(), ids=REJECTED)
def test_what_cannot_be_served_has_no_numbers(case):
    changes, reason = case
    ds = cx.serve_disaggregated(**SETUP | LOAD | changes)
    assert int(ds.status) == CODES[reason]
    assert int(ds.limit) == -1
    assert all(np.isnan(ds[name]) for name in VARIABLES)


BAD = {
    "no workers": ({"decode_workers": 0}, "decode_workers", "at least 1"),
    "half a worker": ({"prefill_workers": 1.5}, "prefill_workers", "whole numbers"),
    "tp": ({"prefill_tp": 0}, "prefill_tp", "at least 1"),
    "ep as text": ({"decode_ep": "all"}, "decode_ep", "'all'"),
    "no bandwidth": ({"transfer_bandwidth": 0}, "transfer_bandwidth", "above 0", "0"),
    "bandwidth as text": ({"transfer_bandwidth": "50 GB/s"}, "transfer_bandwidth", "'50 GB/s'"),
    "bandwidth as a flag": ({"transfer_bandwidth": True}, "transfer_bandwidth", "True"),
    "endless bandwidth": ({"transfer_bandwidth": float("inf")}, "transfer_bandwidth", "inf"),
    "one output token": ({"osl": 1}, "osl", "at least 2"),
    "dim of an instance": ({"prefill_tp": xr.DataArray([1, 2], dims="tp")}, "prefill_tp", "'tp'", "another dim"),
    "sizes": (
        {"prefill_tp": xr.DataArray([1, 2], dims="x"), "decode_tp": xr.DataArray([1, 2, 4], dims="x")},
        "decode_tp", "'x'", "3", "2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_bad_input_is_one_message(case):
    changes, *words = case
    rejected(lambda: cx.serve_disaggregated(**SETUP | LOAD | changes), *words)
