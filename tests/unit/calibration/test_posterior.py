"""Posteriors: files in, efficiency fields on draws out, and results that are those of every draw on its own."""

import json
import pkgutil
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import cheetah_xr as cx
from cheetah_xr import calibration
from cheetah_xr.calibration.objective import TAIL, search
from cheetah_xr.calibration.parameters import KNOWN, NAMES, PARAMETERS, fields_of
from cheetah_xr.calibration.sampling import diagnostics, sample
from cheetah_xr.engine.inputs.posterior_axis import RESIDUAL_SCALES
from cheetah_xr.specs import Efficiency
from tests.helpers.hypothesis_profiles import examples
from tests.helpers.priors import draws_of_priors, write_csv

POINT = {"model": "deepseek-v3", "gpu": "h100-sxm", "precision": "fp8", "dp": 64, "ep": 64, "seq_len": 4096}
NUMBERS = Efficiency.numeric_fields()


@pytest.fixture(scope="module")
def posterior(tmp_path_factory):
    return cx.load_posterior(write_csv(tmp_path_factory.mktemp("posterior") / "some.csv", draws_of_priors()))


def record_of(posterior, draw):
    """The efficiency record of one draw."""
    at = posterior.isel(draw=draw)
    own = {name: float(at[name]) for name in NUMBERS if name in at}
    return Efficiency(**{**json.loads(posterior.attrs["base"]), **own, "name": "one"})


# Files


def test_a_file_becomes_the_fields_its_factors_set(posterior):
    columns = draws_of_priors()
    assert posterior.attrs["name"] == "some"
    assert posterior.attrs["dof"] == posterior.residual_scale_dense.attrs["dof"] == TAIL == 3
    assert set(posterior.data_vars) == {
        *RESIDUAL_SCALES,
        *(field for parameter in PARAMETERS for field in parameter.fields),
    }
    np.testing.assert_array_equal(posterior.memory_dense_mlp, np.array(columns["memory_gemm"], float))
    np.testing.assert_array_equal(posterior.launch_routed_experts_w4, np.array(columns["launch_experts_w4"], float))
    for scale in ("residual_scale_dense", "residual_scale_moe", "residual_scale_prefill"):
        np.testing.assert_array_equal(posterior[scale], np.array(columns[scale], float))
    assert posterior.launch_gemm.attrs["units"] == "s"
    assert posterior.memory_lm_head.attrs["units"] == "1"
    assert all(posterior[name].attrs["long_name"] for name in posterior.data_vars)
    base = json.loads(posterior.attrs["base"])
    assert {name: base[name] for name in KNOWN} == KNOWN
    assert base["tau_global"] == 0


def test_the_fields_are_those_the_fit_uses(posterior):
    points = np.log(np.stack([np.array(draws_of_priors()[name], float) for name in NAMES], axis=1))
    for draw in (0, 7):
        record = record_of(posterior, draw)
        fitted = {name: values[draw] for name, values in fields_of(points).items()}
        assert {name: getattr(record, name) for name in NUMBERS} == pytest.approx(fitted, rel=1e-12)


def test_columns_may_come_in_any_order(tmp_path, posterior):
    columns = draws_of_priors()
    actual = cx.load_posterior(write_csv(tmp_path / "some.csv", dict(reversed(columns.items()))))
    assert actual.identical(posterior)


def test_every_shipped_posterior_loads():
    for name in cx.list_posteriors():
        actual = cx.load_posterior(name)
        assert actual.attrs["name"] == name
        assert actual.sizes["draw"] >= 100


def edited(**columns):
    return {**draws_of_priors(4), **columns}


def without(name):
    return {key: values for key, values in draws_of_priors(4).items() if key != name}


BAD_FILES = {
    "missing": (without("latency"), ("columns missing: latency", "residual_scale_dense")),
    "no error": (without("residual_scale_dense"), ("columns missing: residual_scale_dense",)),
    "unknown": (edited(speed=["1"] * 4), ("columns unknown: speed", "memory_gemm")),
    "above its most": (edited(memory_gemm=["0.5", "0.5", "1.5", "0.5"]), ("'memory_gemm', row 4: 1.5", "at most 1")),
    "a second": (edited(latency=["1", "1e-6", "1e-6", "1e-6"]), ("'latency', row 2: 1.0", "at most 0.001")),
    "zero": (edited(residual_scale_dense=["0", "1", "1", "1"]), ("'residual_scale_dense', row 2: 0.0", "above 0")),
    "not a number": (edited(latency=["1e-6", "nan", "1e-6", "1e-6"]), ("'latency', row 3: nan", "at most 0.001")),
    "infinite": (edited(residual_scale_moe=["1", "1", "inf", "1"]), ("'residual_scale_moe', row 4: inf", "above 0")),
    "text": (edited(latency=["1e-6", "fast", "1e-6", "1e-6"]), ("'latency', row 3: 'fast' is not a number",)),
    "empty cell": (edited(latency=["", "1", "1", "1"]), ("'latency', row 2: '' is not a number",)),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_is_one_message(case, tmp_path):
    columns, words = BAD_FILES[case]
    path = write_csv(tmp_path / "bad.csv", columns)
    with pytest.raises(cx.SpecError) as error:
        cx.load_posterior(path)
    assert "\n" not in str(error.value)
    assert all(word in str(error.value) for word in (str(path), *words))


HEADER = ",".join((*NAMES, *RESIDUAL_SCALES))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        (HEADER, "no draws"),
        (f"{HEADER}\n1,2,3", "row 2 has 3 cells; the header has 18"),
        (f"{HEADER},latency\n", "columns given twice: latency"),
        (b"\xff\xfe\x00", "not a CSV file in UTF-8"),
        (f'{HEADER}\n"1', "not a CSV file"),
        ("a" * 4_000_001, "larger than 4,000,000 bytes"),
    ],
)
def test_what_is_no_table_is_said(text, words, write):
    with pytest.raises(cx.SpecError, match=words):
        cx.load_posterior(write(text, "bad.csv"))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("vlm-of-no-one", "neither in the catalogue nor a file"),
        ("no/such/file.csv", "cannot be read"),
        ("nothing.nc", "cannot be read"),
        (".", "cannot be read"),
        ("a" * 300, "at most 255"),
        ("", "expected a catalogue name"),
        (3, "expected a catalogue name"),
        (None, "expected a catalogue name"),
    ],
)
def test_unknown_names_and_paths(source, words, elsewhere):
    with pytest.raises(cx.SpecError, match=words):
        cx.load_posterior(source)


# Chains


class Bowl:
    """Stands in for a target: the logarithms are independent and normal around the priors' medians."""

    def log_probability(self, points):
        points = np.atleast_2d(points)
        median = np.log([parameter.median for parameter in PARAMETERS] + [0.08] * len(RESIDUAL_SCALES))
        most = np.log([parameter.most for parameter in PARAMETERS] + [np.inf] * len(RESIDUAL_SCALES))
        actual = -0.5 * np.sum(((points - median) / 0.05) ** 2, axis=1)
        return np.where(np.all(points <= most, axis=1), actual, -np.inf)


@pytest.fixture(scope="module")
def chains():
    start = np.log([parameter.median for parameter in PARAMETERS])
    return sample(Bowl(), start, walkers=36, steps=40, seed=1)


def test_chains_are_loaded_from_their_file(chains, tmp_path):
    path = tmp_path / "mine.nc"
    chains.to_netcdf(path, engine="netcdf4")
    actual = cx.load_posterior(path)
    assert actual.attrs["name"] == "mine"
    assert actual.sizes == {"draw": chains.sizes["chain"] * chains.sizes["draw"]}
    np.testing.assert_array_equal(actual.latency_all_to_all, chains.latency.values.reshape(-1))
    assert actual.drop_attrs().identical(cx.load_posterior(chains).drop_attrs())
    ds = cx.evaluate(**POINT, batch=64, efficiency=actual.isel(draw=slice(0, None, 100)))
    assert ds.step_time.notnull().all()


def test_a_posterior_survives_a_file_of_its_own(posterior, tmp_path):
    posterior.to_netcdf(tmp_path / "loaded.nc", engine="netcdf4")
    with xr.open_dataset(tmp_path / "loaded.nc", engine="netcdf4") as stored:
        ds = cx.evaluate(**POINT, batch=64, efficiency=stored.load())
    assert ds.equals(cx.evaluate(**POINT, batch=64, efficiency=posterior))


def test_bad_chains_are_one_message(chains, tmp_path, write):
    with pytest.raises(cx.SpecError, match="variables missing: latency"):
        cx.load_posterior(chains.drop_vars("latency"))
    with pytest.raises(cx.SpecError, match="variable 'latency': expected numbers on the dims chain and draw"):
        cx.load_posterior(chains.assign(latency=chains.latency.isel(chain=0)))
    wrong = chains.copy(deep=True)
    wrong.latency[2, 3] = -1
    with pytest.raises(cx.SpecError, match=r"column 'latency', chain 2, draw 3: -1.0 is not a number above 0"):
        cx.load_posterior(wrong)
    with pytest.raises(cx.SpecError, match="no netCDF file"):
        cx.load_posterior(write("not netCDF", "bad.nc"))


def test_diagnostics_and_search_run_on_the_extra(chains):
    table = diagnostics(chains)
    assert list(table.columns) == ["r_hat", "effective_samples"]
    assert set(table.index) == {*NAMES, *RESIDUAL_SCALES}
    assert table.notna().all(axis=None)
    best = search(Bowl(), trials=12, seed=0)  # the medians themselves are tried first, and nothing is better
    np.testing.assert_allclose(best, np.log([parameter.median for parameter in PARAMETERS]))


def test_calibration_is_imported_without_its_extra():
    names = [m.name for m in pkgutil.walk_packages(calibration.__path__, "cheetah_xr.calibration.")]
    assert "cheetah_xr.calibration.sampling" in names
    code = (
        "import importlib, sys\n"
        "for n in ('optuna', 'emcee', 'arviz'): sys.modules[n] = None\n"
        f"for n in {names!r}: importlib.import_module(n)"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


# Results


def test_a_draw_is_the_result_of_its_own_record(posterior):
    where = {**POINT, "batch": [64, 2048, 16384], "precision": ["fp8", "nvfp4-experts-kv8", "int4-experts"]}
    where["gpu"] = ["h100-sxm", "b200-sxm"]
    ds = cx.evaluate(**where, efficiency=posterior, dtype="float64")
    assert ds.step_time.dims == ("gpu", "precision", "draw", "batch")
    assert "draw" not in {*ds.status.dims, *ds.flops.dims, *ds.max_batch.dims}
    assert str(ds.efficiency.values) == "some"
    np.testing.assert_array_equal(ds.residual_scale, posterior.residual_scale_moe)
    assert ds.residual_scale.attrs["dof"] == 3
    np.testing.assert_array_equal(ds.memory_dense_mlp, posterior.memory_dense_mlp)
    for draw in (0, 11, 39):
        one = cx.evaluate(**where, efficiency=record_of(posterior, draw), dtype="float64")
        assert one.step_time.notnull().sum() > 6
        for name in ("step_time", "time_overhead", "time_weights", "time_communication"):
            xr.testing.assert_allclose(
                ds[name].isel(draw=draw).reset_coords(drop=True), one[name].reset_coords(drop=True), rtol=1e-12
            )


@examples(12)
@given(
    draw=st.integers(0, 39),
    batch=st.sampled_from([1, 7, 64, 900]),
    phase=st.sampled_from(["prefill", "decode"]),
    model=st.sampled_from(["llama-3.1-8b", "gpt-oss-20b", "qwen3-30b-a3b"]),
    granularity=st.sampled_from(["kernel", "component"]),
)
def test_any_draw_alone_gives_the_same(posterior, draw, batch, phase, model, granularity):
    options = {"granularity": granularity, "on_infeasible": "ignore"}
    where = {"batch": batch, "seq_len": 1024, "phase": phase, "options": options}
    every = cx.evaluate(model, "h100-sxm", efficiency=posterior, outputs=["step_time"], **where)
    alone = cx.evaluate(model, "h100-sxm", efficiency=posterior.isel(draw=draw), outputs=["step_time"], **where)
    record = cx.evaluate(model, "h100-sxm", efficiency=record_of(posterior, draw), outputs=["step_time"], **where)
    assert alone.step_time.dims == ()
    assert int(alone.draw) == draw
    assert float(every.step_time[draw]) == pytest.approx(float(record.step_time), rel=1e-6)
    assert float(alone.step_time) == pytest.approx(float(record.step_time), rel=1e-6)


def test_a_breakdown_has_draws(posterior):
    where = {**POINT, "batch": [64, 2048]}
    ds = cx.breakdown(**where, efficiency=posterior)
    one = cx.breakdown(**where, efficiency=record_of(posterior, 5))
    assert set(ds.time.dims) == {"kernel", "draw", "batch"}
    for name in ("time", "step_time", "time_overlapped", "bytes"):
        xr.testing.assert_allclose(
            ds[name].isel(draw=5).reset_coords(drop=True), one[name].reset_coords(drop=True), rtol=1e-12
        )


def test_fields_that_follow_another_follow_its_draws(posterior):
    """Without draws of its own, what four-bit experts achieve is what the others do, draw by draw."""
    followers = ["memory_routed_experts_w4", "launch_routed_experts_w4", "launch_routed_experts_fp4"]
    less = posterior.drop_vars(followers)
    same = posterior.assign({name: posterior[name.rpartition("_")[0]] for name in followers})
    for precision in ("int4-experts", "nvfp4-experts-kv8"):
        where = {**POINT, "gpu": "b200-sxm", "precision": precision, "batch": 512}
        followed = cx.evaluate(**where, efficiency=less)
        np.testing.assert_array_equal(followed.step_time, cx.evaluate(**where, efficiency=same).step_time)
        assert (followed.step_time != cx.evaluate(**where, efficiency=posterior).step_time).any()


def test_overrides_replace_draws_and_scales_multiply_them(posterior):
    where = {**POINT, "batch": 512, "outputs": ["step_time"], "dtype": "float64"}
    fixed = cx.evaluate(**where, efficiency=posterior, overrides={"efficiency.launch_gemm": [0.0, 1e-5]})
    assert fixed.step_time.sizes == {"draw": 40, "launch_gemm": 2}
    replaced = posterior.assign(launch_gemm=xr.full_like(posterior.launch_gemm, 1e-5))
    expected = cx.evaluate(**where, efficiency=replaced).step_time
    np.testing.assert_allclose(fixed.step_time.sel(launch_gemm=1e-5), expected, rtol=1e-12)
    scaled = cx.evaluate(**where, efficiency=posterior, scales={"efficiency.launch_gemm": [0.5, 2.0]})
    twice = cx.evaluate(**where, efficiency=posterior.assign(launch_gemm=2 * posterior.launch_gemm))
    np.testing.assert_allclose(scaled.step_time.sel(launch_gemm_scale=2), twice.step_time, rtol=1e-12)
    np.testing.assert_array_equal(scaled.launch_gemm.sel(launch_gemm_scale=2), 2 * posterior.launch_gemm)
    other = cx.evaluate(
        **where, efficiency=posterior, scales={"gpu.hbm_bandwidth": 0.5, "efficiency.nic_all_to_all": 0.5}
    )
    base = json.loads(posterior.attrs["base"])
    slower = posterior.assign_attrs(base=json.dumps({**base, "nic_all_to_all": base["nic_all_to_all"] / 2}))
    card = cx.load_gpu("h100-sxm")
    half = card.model_copy(update={"hbm_bandwidth": card.hbm_bandwidth / 2})
    np.testing.assert_allclose(
        other.step_time, cx.evaluate(**{**where, "gpu": half}, efficiency=slower).step_time, rtol=1e-12
    )


def test_a_scale_may_take_no_draw_out_of_range(posterior):
    most = float(posterior.memory_dense_mlp.max())
    with pytest.raises(cx.SpecError, match=r"scales: efficiency\.memory_dense_mlp.*less than or equal to 1"):
        cx.evaluate(**POINT, batch=64, efficiency=posterior, scales={"efficiency.memory_dense_mlp": 1.01 / most})


def test_memory_is_guarded(posterior):
    asked = {**POINT, "batch": list(range(64, 1064)), "outputs": ["step_time"], "max_bytes": 40 * 1000 * 4 - 1}
    with pytest.raises(cx.SpecError, match="max_bytes"):
        cx.evaluate(**asked, efficiency=posterior)
    assert cx.evaluate(**{**asked, "max_bytes": 40 * 1000 * 4}, efficiency=posterior).step_time.size == 40_000
    with pytest.raises(cx.SpecError, match="max_bytes"):
        cx.breakdown(**POINT, batch=list(range(64, 1064)), efficiency=posterior, max_bytes=1e6)


def test_errors_are_those_of_the_kind_of_model(posterior):
    """Dense models and models with routed experts have scales of their own, alone and on an axis."""
    where = {"gpu": "h100-sxm", "precision": "fp8", "batch": 64, "seq_len": 1024, "outputs": ["step_time"]}
    dense = cx.evaluate("llama-3.1-8b", **where, efficiency=posterior)
    np.testing.assert_array_equal(dense.residual_scale, posterior.residual_scale_dense)
    both = cx.evaluate(["llama-3.1-8b", "gpt-oss-20b"], **where, efficiency=posterior)
    assert both.residual_scale.dims == ("draw", "model")
    np.testing.assert_array_equal(both.residual_scale.isel(model=0), posterior.residual_scale_dense)
    np.testing.assert_array_equal(both.residual_scale.isel(model=1), posterior.residual_scale_moe)
    bands = cx.summarize(both)
    assert bands.step_time.dims == ("model", "quantile")
    xr.testing.assert_allclose(
        bands.step_time.isel(model=0).reset_coords(drop=True), cx.summarize(dense).step_time.reset_coords(drop=True)
    )


BAD_ARGUMENTS = {
    "list": (lambda p: [p, "ideal"], "given alone, not in a list"),
    "no posterior": (lambda p: xr.Dataset({"memory_lm_head": 1.0}), "must be a posterior"),
    "unknown": (lambda p: p.assign(speed=p.residual_scale_dense), "speed: is no number of an efficiency record"),
    "range": (lambda p: p.assign(memory_lm_head=p.memory_lm_head + 1), "posterior some: memory_lm_head: value 1"),
    "nan": (lambda p: p.assign(memory_lm_head=p.memory_lm_head * np.nan), "posterior some: memory_lm_head"),
    "dims": (lambda p: p.assign(launch_gemm=p.launch_gemm.rename(draw="other")), "expected numbers on the dim 'draw'"),
    "text": (lambda p: p.assign(launch_gemm=p.launch_gemm.astype(str)), "launch_gemm: expected numbers"),
    "none": (lambda p: p.isel(draw=slice(0)), "expected numbers on the dim 'draw'"),
    "base": (lambda p: p.assign_attrs(base='{"name": "x", "memory_lm_head": 2}'), "attribute 'base'.*memory_lm_head"),
}


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_what_is_no_posterior_is_rejected(case, posterior):
    change, words = BAD_ARGUMENTS[case]
    for ask in (cx.evaluate, cx.breakdown):
        with pytest.raises(cx.SpecError, match=words):
            ask(**POINT, batch=64, efficiency=change(posterior))
