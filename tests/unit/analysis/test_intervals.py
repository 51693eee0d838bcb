"""Credible intervals: quantiles over draws and errors, held to hand-computed numbers and to their definition."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import cheetah_xr as cx
from cheetah_xr.analysis.intervals import N_MULTIPLES, TIME_POWERS
from tests.helpers.hypothesis_profiles import examples
from tests.helpers.priors import draws_of_priors, write_csv

S = {"units": "s", "long_name": "a time"}


def result(scale=0.1, dof=3.0, **variables):
    """A dataset on draws; a variable is (dims, values) or (dims, values, attrs)."""
    ds = xr.Dataset(variables)
    return ds.assign_coords(residual_scale=("draw", np.full(ds.sizes["draw"], scale), {"dof": dof}))


def close(value, probability, scale):
    """Whether a value is that quantile of the measurements around 1, as closely as the multiples are spaced."""
    least, most = np.exp(scale * stats.t.ppf(probability + np.array([-0.5, 0.5]) / N_MULTIPLES, 3))
    return least <= value <= most


@pytest.fixture(scope="module")
def posterior(tmp_path_factory):
    return cx.load_posterior(write_csv(tmp_path_factory.mktemp("posterior") / "some.csv", draws_of_priors(30)))


def test_quantiles_of_draws_hand_computed():
    """The k-th of n draws stands at (k - 1/2)/n: of ten, 5 % is the first, 95 % the last, 50 % between two."""
    ds = result(step_time=("draw", [9.0, 1, 2, 3, 4, 5, 6, 7, 8, 10], S))
    actual = cx.summarize(ds, error=False)
    assert actual.step_time.dims == ("quantile",)
    assert actual["quantile"].values.tolist() == [0.05, 0.5, 0.95]
    assert actual.step_time.values.tolist() == [1, 5.5, 10]
    half = cx.summarize(ds, prob=0.5, error=False)  # 25 % and 75 %: the third and the eighth
    assert half.step_time.values.tolist() == [3, 5.5, 8]


def test_errors_hand_computed():
    """One draw of 2 s: 90 % of the measurements lie within 2 s times exp(+-0.1 x 2.3534), Student's t of 3 degrees."""
    ds = result(step_time=("draw", [2.0], S), throughput=("draw", [50.0], {"units": "1/s"}))
    actual = cx.summarize(ds)
    assert actual.step_time.values == pytest.approx([2 * np.exp(-0.23534), 2, 2 * np.exp(0.23534)], rel=3e-3)
    assert actual.throughput.values == pytest.approx([50 * np.exp(-0.23534), 50, 50 * np.exp(0.23534)], rel=3e-3)
    assert cx.summarize(ds, error=False).step_time.values.tolist() == [2, 2, 2]


def test_draws_and_errors_are_combined():
    """Scale 0 leaves the draws; two draws far apart are each spread by their own scale."""
    still = result(scale=0.0, step_time=("draw", np.arange(1.0, 11), S))
    assert cx.summarize(still).step_time.values == pytest.approx(cx.summarize(still, error=False).step_time.values)
    ds = result(step_time=("draw", [1.0, 100.0], S))
    ds["residual_scale"] = ("draw", [0.01, 0.5], {"dof": 3.0})
    actual = cx.summarize(ds)  # 5 % of the mixture is 10 % of the first draw, 95 % is 90 % of the second
    t = stats.t.ppf(0.9, 3)
    assert float(actual.step_time[0]) == pytest.approx(np.exp(-0.01 * t), rel=1e-3)
    assert float(actual.step_time[2]) == pytest.approx(100 * np.exp(0.5 * t), rel=2e-2)


@examples(25)
@given(
    values=st.lists(st.floats(1e-4, 10), min_size=1, max_size=12),
    scale=st.floats(0, 0.5),
    prob=st.floats(0.05, 0.95),
    dof=st.sampled_from([3.0, 5.0]),
)
def test_the_interval_is_that_of_the_mixture(values, scale, prob, dof):
    """Of the measurements the draws predict, the fraction below a quantile is the quantile: an independent count."""
    ds = result(
        scale, dof, step_time=("draw", values, S), tps_per_user=("draw", 1 / np.array(values), {"units": "1/s"})
    )
    actual = cx.summarize(ds, prob)
    low, median, high = actual.step_time.values
    assert low <= median <= high
    t = stats.t.ppf((np.arange(N_MULTIPLES) + 0.5) / N_MULTIPLES, dof)
    times = np.multiply.outer(values, np.exp(scale * t)).reshape(-1)
    for measured, ends in ((times, actual.step_time.values), (1 / times, actual.tps_per_user.values)):
        for quantile, value in zip(actual["quantile"].values, ends, strict=True):
            below, up_to = np.mean(measured < value * (1 - 1e-9)), np.mean(measured <= value * (1 + 1e-9))
            assert below - 0.5001 / times.size <= quantile <= up_to + 0.5001 / times.size
    wider = cx.summarize(ds, min(0.99, prob + 0.04)).step_time
    assert float(wider[0]) <= low * (1 + 1e-12)
    assert float(wider[2]) >= high * (1 - 1e-12)


def test_what_follows_time_and_what_does_not():
    draws = ("draw", [1.0, 1.0])
    kinds = {"tpot": "s", "cost": "USD", "energy": "J", "throughput": "1/s", "work": "FLOP", "share": "1", "mfu": "1"}
    ds = result(scale=np.log(2), **{name: (*draws, {"units": units}) for name, units in kinds.items()})
    ds["mbu"] = (*draws, {"units": "1"})
    actual = cx.summarize(ds)
    for name in ("work", "share"):
        assert actual[name].values.tolist() == [1, 1, 1]
    for name in ("tpot", "cost", "energy", "throughput", "mfu", "mbu"):
        assert close(float(actual[name][0]), 0.05, np.log(2))
        assert close(float(actual[name][2]), 0.95, np.log(2))
    assert set(TIME_POWERS) == {"s", "USD", "J", "1/s"}


def test_every_derived_metric_that_has_draws_follows_time_as_its_formula_does(posterior):
    """Twice the time: a metric doubles or halves, and that is how its error is counted."""
    where = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "batch": 8, "seq_len": 1024, "phase": ["prefill", "decode"]}
    names = list(cx.analysis.DERIVED)
    ds = cx.evaluate(**where, efficiency=posterior)
    now, slow = cx.derive(ds, names), cx.derive(ds.assign(step_time=ds.step_time * 2), names)
    wide = now.assign_coords(residual_scale=xr.ones_like(now.residual_scale))
    for name in names:
        if "draw" not in now[name].dims:
            continue
        assert float((slow[name] / now[name]).mean()) == pytest.approx(2.0 ** cx.analysis.DERIVED[name].time_power)
        assert cx.analysis.DERIVED[name].time_power
        interval = cx.summarize(wide[[name]])[name]
        assert (interval.sel(quantile=0.95) > 5 * interval.sel(quantile=0.5)).all(), f"{name} has no error"


def test_the_rest_of_a_result_is_kept(posterior):
    ds = cx.evaluate("llama-3.1-8b", ["h100-sxm", "l4"], batch=[1, 64], seq_len=2048, efficiency=posterior)
    ds = cx.derive(ds, ["tps_per_user", "throughput_per_gpu"])
    actual = cx.summarize(ds, prob=0.8)
    assert "draw" not in actual.dims
    assert not {"draw", "residual_scale", "memory_lm_head"} & set(actual.coords)
    assert actual.step_time.dims == ("gpu", "quantile", "batch")
    assert actual.step_time.dtype == np.float32
    assert actual.attrs == ds.attrs
    for name, values in ds.data_vars.items():
        assert actual[name].attrs["units"] == values.attrs["units"]
        assert actual[name].attrs["long_name"] == values.attrs["long_name"]
        if "draw" not in values.dims:
            assert actual[name].identical(values.drop_vars([c for c in values.coords if "draw" in values[c].dims]))
    assert actual.step_time.attrs["probability"] == 0.8
    assert actual.step_time.attrs["measurement_error"] == "True"
    assert cx.summarize(ds, error=False).step_time.attrs["measurement_error"] == "False"
    assert "probability" not in actual.status.attrs
    missing = ds.status != 0
    assert missing.any()
    assert (actual.step_time.isnull().all("quantile") == missing).all()
    xr.testing.assert_identical(ds, ds.copy(deep=True))


def test_a_result_alone_and_in_a_grid_has_the_same_intervals(posterior):
    grid = cx.evaluate("llama-3.1-8b", "h100-sxm", batch=[1, 8, 64], seq_len=[128, 2048], efficiency=posterior)
    alone = cx.evaluate("llama-3.1-8b", "h100-sxm", batch=8, seq_len=2048, efficiency=posterior)
    actual = cx.summarize(grid).step_time.sel(batch=8, seq_len=2048)
    np.testing.assert_allclose(actual, cx.summarize(alone).step_time, rtol=1e-6)


def test_chunks_do_not_change_intervals(posterior, monkeypatch):
    grid = cx.evaluate("llama-3.1-8b", "h100-sxm", batch=[1, 8, 64], seq_len=[128, 2048], efficiency=posterior)
    whole = cx.summarize(grid)
    monkeypatch.setattr("cheetah_xr.analysis.intervals.CHUNK", 1)
    assert cx.summarize(grid).identical(whole)
    assert cx.summarize(grid.chunk(batch=1, draw=7)).identical(whole)


def test_flags_are_those_of_most_draws():
    flag = {"units": "1", "flag_values": np.arange(3, dtype=np.int8), "flag_meanings": "a b c"}
    codes = np.array([[1, 1, 1], [1, 0, 1], [2, 0, 2], [2, 1, 2]], dtype=np.int8)
    ds = result(bottleneck=(("draw", "batch"), codes, flag), step_time=("draw", np.ones(4), S))
    actual = cx.summarize(ds).bottleneck
    assert actual.dims == ("batch",)
    assert actual.values.tolist() == [1, 0, 1]
    assert actual.dtype == np.int8
    assert actual.attrs == flag
    nothing = result(bottleneck=(("draw", "batch"), np.full((4, 2), -1, dtype=np.int8), flag))
    assert cx.summarize(nothing).bottleneck.values.tolist() == [-1, -1]


def test_engines_side_by_side_keep_their_own_errors():
    one, two = (result(scale=s, step_time=("draw", np.ones(3), S)) for s in (0.0, 0.2))
    both = xr.concat([one, two], "engine", coords="different", compat="equals", join="outer")
    actual = cx.summarize(both).step_time
    assert actual.dims == ("engine", "quantile")
    assert actual[0].values.tolist() == [1, 1, 1]
    assert close(float(actual[1, 2]), 0.95, 0.2)


GOOD = result(step_time=("draw", np.ones(3), S))
BAD = {
    "no draws": (GOOD.isel(draw=0), {}, "no dim 'draw'"),
    "no scale": (GOOD.drop_vars("residual_scale"), {}, "no coordinate residual_scale"),
    "no dof": (GOOD.assign_coords(residual_scale=("draw", np.ones(3))), {}, "residual_scale with dof"),
    "no units": (GOOD.assign(speed=("draw", np.ones(3))), {}, "speed has no units"),
    "text": (GOOD.assign(word=("draw", list("abc"))), {"error": False}, "word is .*expected numbers or a flag"),
    "zero": (GOOD, {"prob": 0}, "prob 0: expected a number above 0 and below 1"),
    "percent": (GOOD, {"prob": 90}, "prob 90"),
    "nan": (GOOD, {"prob": float("nan")}, "prob nan"),
    "bool": (GOOD, {"prob": True}, "prob True"),
    "words": (GOOD, {"prob": "0.9"}, "prob '0.9'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_one_message(case):
    ds, given, words = BAD[case]
    with pytest.raises(cx.SpecError, match=words):
        cx.summarize(ds, **given)


def test_without_errors_nothing_of_them_is_needed():
    ds = GOOD.drop_vars("residual_scale").assign(speed=("draw", [1.0, 2.0, 3.0]))
    assert cx.summarize(ds, prob=0.5, error=False).speed.values.tolist() == [1.25, 2, 2.75]
