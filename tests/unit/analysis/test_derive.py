"""Derived metrics, each against a hand-computed value from the stored variables or the specs."""

import numpy as np
import pytest
import xarray as xr

import cheetah_xr as cx
from cheetah_xr.analysis import DERIVED, best, mean_ttft, pareto, request_latency
from cheetah_xr.analysis.derive import Metric, lower_is_better
from cheetah_xr.cli.estimate import evaluate_point
from cheetah_xr.cli.sweep_summary import best_along, best_point
from cheetah_xr.engine.inputs.gather import axes_of
from tests.helpers.rejection import rejected

GPU = {"name": "g", "memory_gb": 80, "hbm_bandwidth_gb_s": 2000, "peak_bf16_tflops": 1000, "peak_fp8_tflops": 2000}
GPU |= {"link_gb_s": 400, "link_domain": 8, "tdp_w": 500, "price_usd_per_hour": 1.8}


def evaluate(outputs=None, **more):
    arguments = {"model": "8b", "gpu": GPU, "batch": 4, "seq_len": 1000, "efficiency": "ideal", "outputs": outputs}
    return cx.evaluate(**{**arguments, **more})


def test_decode_of_a_parameter_count_model_hand_computed():
    """16 GB at 2 TB/s: 8 ms for 4 sequences."""
    ds = evaluate([n for n in DERIVED if n != "ttft"])
    hand_computed = {
        "tpot": 0.008,
        "tps_per_user": 125,
        "throughput": 500,
        "throughput_per_gpu": 500,
        "arithmetic_intensity": 4,
        "ridge": 500,
        "mfu": 4 * 16e9 / 1e15 / 0.008,
        "mbu": 1,
        "cost_per_million_tokens": 1.8 / (500 * 3600) * 1e6,
        "energy_per_token": 1.0,
    }
    assert set(hand_computed) == set(ds.data_vars)
    for name, value in hand_computed.items():
        assert float(ds[name]) == pytest.approx(value, rel=1e-6), name
        assert ds[name].attrs["units"] == DERIVED[name].units
        assert ds[name].attrs["long_name"]


def test_prefill_of_a_parameter_count_model_hand_computed():
    """4 prompts of 1000 tokens: 4000 * 16 GFLOP at 1 PFLOP/s are 64 ms."""
    ds = evaluate(["ttft", "throughput", "mfu", "cost_per_million_tokens"], phase="prefill")
    assert float(ds.ttft) == pytest.approx(0.064, rel=1e-6)
    assert float(ds.throughput) == pytest.approx(62_500, rel=1e-6)
    assert float(ds.mfu) == pytest.approx(1, rel=1e-6)
    assert float(ds.cost_per_million_tokens) == pytest.approx(1.8 / (62_500 * 3600) * 1e6, rel=1e-6)


def test_per_gpu_and_cost_count_every_gpu():
    one, two = (evaluate(["throughput", "throughput_per_gpu", "cost_per_million_tokens"], tp=tp) for tp in (1, 2))
    assert float(two.throughput) == pytest.approx(2 * float(one.throughput), rel=1e-6)
    assert float(two.throughput_per_gpu) == pytest.approx(float(one.throughput_per_gpu), rel=1e-6)
    assert float(two.cost_per_million_tokens) == pytest.approx(float(one.cost_per_million_tokens), rel=1e-6)


@pytest.mark.parametrize(("drafts", "chance", "tokens"), [(0, 0.9, 1), (2, 0.5, 1.75), (3, 1.0, 4), (4, 0.0, 1)])
def test_accepted_drafts(drafts, chance, tokens):
    chosen = cx.Options(draft_tokens=drafts, acceptance=chance)
    ds = evaluate(["step_time", "tpot", "throughput"], options=chosen)
    assert float(ds.step_time / ds.tpot) == pytest.approx(tokens, rel=1e-6)
    assert float(ds.throughput * ds.step_time) == pytest.approx(4 * tokens, rel=1e-6)


def test_drafts_as_axes():
    ds = evaluate(["tpot", "step_time"], overrides={"options.draft_tokens": [0, 3], "options.acceptance": [0.5, 0.8]})
    tokens = (ds.step_time / ds.tpot).transpose("draft_tokens", "acceptance")
    np.testing.assert_allclose(tokens, [[1, 1], [1.875, 2.952]], rtol=1e-6)


def test_overridden_hardware_is_what_counts():
    names = ["mbu", "mfu", "ridge", "cost_per_million_tokens", "energy_per_token"]
    changed = {"gpu.hbm_bandwidth": 1e12, "gpu.peak_bf16": 5e14, "gpu.price_per_hour": 3.6, "gpu.tdp": 250.0}
    ds = evaluate(names, overrides=changed)
    assert float(ds.mbu) == pytest.approx(1, rel=1e-6)
    assert float(ds.ridge) == 500
    assert float(ds.mfu) == pytest.approx(4 * 16e9 / 5e14 / 0.016, rel=1e-6)
    assert float(ds.cost_per_million_tokens) == pytest.approx(3.6 / (250 * 3600) * 1e6, rel=1e-6)
    assert float(ds.energy_per_token) == pytest.approx(1.0, rel=1e-6)
    scaled = evaluate(["mbu"], scales={"gpu.hbm_bandwidth": [0.5, 1, 2]})
    np.testing.assert_allclose(scaled.mbu, 1, rtol=1e-6)


def test_a_clipped_batch_counts_the_sequences_that_run():
    with pytest.warns(UserWarning, match="clipped"):
        ds = cx.evaluate(
            "llama-3.1-8b", "h100-sxm", batch=[56, 4096], seq_len=8192, efficiency="ideal",
            options={"on_infeasible": "clip"}, outputs=["throughput", "max_batch", "step_time", "energy_per_token"],
        )  # fmt: skip
    assert int(ds.max_batch) == 56
    np.testing.assert_allclose(ds.throughput, 56 / ds.step_time, rtol=1e-6)
    assert float(ds.throughput[0]) == pytest.approx(float(ds.throughput[1]), rel=1e-6)
    rejected(lambda: cx.derive(ds.drop_vars(["max_batch", "throughput"]), "throughput"), "max_batch")


def test_phase_is_dropped_or_kept():
    ds = evaluate(phase=["prefill", "decode"])
    actual = cx.derive(ds, ["tpot", "ttft", "throughput"])
    assert "phase" not in actual.tpot.dims
    assert "phase" not in actual.ttft.dims
    assert actual.throughput.dims == ("phase",)
    assert float(actual.tpot) == float(ds.step_time.sel(phase="decode"))
    assert float(actual.ttft) == float(ds.step_time.sel(phase="prefill"))
    rejected(lambda: cx.derive(evaluate(), "ttft"), "ttft", "prefill", "decode")
    rejected(lambda: cx.derive(evaluate().drop_vars("phase"), "ttft"), "phase")


def test_phase_on_a_dim_of_its_own():
    cases = {
        "batch": xr.DataArray([1, 8, 16], dims="case"),
        "phase": xr.DataArray(["decode", "prefill", "decode"], dims="case"),
    }
    ds = cx.derive(evaluate(**cases), ["tpot", "ttft", "throughput"])
    assert ds.tpot.isnull().values.tolist() == [False, True, False]
    assert ds.ttft.isnull().values.tolist() == [True, False, True]
    assert not ds.throughput.isnull().any()


def test_an_invalid_reason_wins_over_memory():
    """top_k above the experts is reported before what does not fit, and never runs clipped."""
    for rule in ("mask", "clip", "ignore"):
        ds = cx.evaluate(
            "mixtral-8x7b", "h100-sxm", tp=2, batch=4096, seq_len=8192, efficiency="ideal",
            overrides={"model.top_k": 16}, options={"on_infeasible": rule},
        )  # fmt: skip
        assert int(ds.status) == 16
        assert np.isnan(ds.step_time)


def test_mean_ttft_and_latency():
    assert mean_ttft(0.1, 1, "together") == mean_ttft(0.1, 1, "in_turn")
    batch = np.arange(2, 50)
    assert (mean_ttft(0.1, batch, "in_turn") < mean_ttft(0.1, batch, "together")).all()
    np.testing.assert_allclose(mean_ttft(0.1, batch, "in_turn"), [np.mean(0.1 * np.arange(1, b + 1)) for b in batch])
    rejected(lambda: mean_ttft(1, 2, "random"), "random", "in_turn")
    assert request_latency(1.0, np.array([0.1, 0.2, 0.3]), 4) == pytest.approx(1.6)
    rejected(lambda: request_latency(1, 1, 0), "output_tokens", "0")


def test_metrics_of_coordinates_alone_keep_their_axis():
    ds = cx.evaluate("8b", ["h100-sxm", "a100-sxm-80gb"], batch=1, seq_len=1, outputs=["ridge"])
    np.testing.assert_allclose(ds.ridge, [989.4 / 3.35, 312 / 2.039], rtol=1e-12)


@pytest.fixture(params=["lower", "higher"])
def added(request, monkeypatch):
    """A metric of one row, and whether less of it is better: seconds of a step, or steps per second."""
    power = 1 if request.param == "lower" else -1
    row = Metric(
        units="s" if power == 1 else "1/s",
        comment="synthetic",
        better=request.param,
        time_power=power,
        needs=("step_time",),
        formula=lambda v: v["step_time"] ** power,
    )
    monkeypatch.setitem(DERIVED, "synthetic", row)
    return power


def test_a_row_is_all_a_metric_needs(added):
    """Every reader of the table finds a row added at run time, with its direction, unit and power of time."""
    batches = [1, 4, 16]
    ds = evaluate(["step_time", "throughput", "synthetic"], batch=batches, seq_len=8000, model="llama-3.1-8b")
    np.testing.assert_array_equal(ds.synthetic, ds.step_time**added)
    assert lower_is_better("synthetic") is (added == 1)
    chosen = best(ds.drop_vars("synthetic"), "synthetic", "batch", minimize=lower_is_better("synthetic"))
    assert int(chosen.best_batch) == 1, "the shortest step is that of the smallest batch"
    unless = [name for name in ("synthetic",) if lower_is_better(name)]
    front = pareto(ds.drop_vars("synthetic"), "throughput", "synthetic", "batch", minimize=unless)
    assert sorted(front.batch.values.tolist()) == batches, "throughput rises and the step gets longer"
    word = "lowest" if added == 1 else "highest"
    assert best_point(ds.synthetic).startswith(f"{word} synthetic: ")
    assert "batch 1," in best_point(ds.synthetic)
    assert best_along(ds.synthetic.expand_dims("seq_len"), "seq_len").endswith(f"= {float(ds.synthetic[0]):.4g}")
    point, _ = evaluate_point(axes_of("llama-3.1-8b", GPU, "bf16", batch=1, seq_len=8000, efficiency="ideal"))
    assert float(point.synthetic) == pytest.approx(float(ds.synthetic[0]), rel=1e-6)


def test_a_row_says_how_errors_of_time_carry_over(added):
    drawn = xr.Dataset({"synthetic": ("draw", [1.0], {"units": "of its own"})})
    drawn = drawn.assign_coords(residual_scale=("draw", [0.1], {"dof": 3}))
    low, _, high = cx.summarize(drawn).synthetic.values
    assert low < 1 < high


def test_less_of_a_time_is_better_and_more_of_what_else_is_stored():
    assert lower_is_better("step_time")
    assert not lower_is_better("max_batch")
    assert not lower_is_better("no such name")
