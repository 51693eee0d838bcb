"""Figures 1 and 10 of [CHEETAH] with credible intervals: the data drawn is that of evaluate and summarize."""

import numpy as np
import pytest

import cheetah_xr as cx
from cheetah_xr.figures import render
from cheetah_xr.figures.catalogue import FIGURES_BY_SOURCE, INTERVALS
from cheetah_xr.figures.shared import measurements
from cheetah_xr.figures.shared.interval_panels import PROBABILITY
from tests.helpers.priors import draws_of_priors, write_csv

WHAT = {"decode-tps-intervals": "tps_per_user", "decode-tps-per-gpu-intervals": "throughput_per_gpu"}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return str(write_csv(tmp_path_factory.mktemp("posterior") / "prior.csv", draws_of_priors(20)))


@pytest.fixture(scope="module")
def data(path):
    return {name: render.data_of(name, posterior=path) for name in FIGURES_BY_SOURCE[INTERVALS]}


@pytest.mark.parametrize("name", FIGURES_BY_SOURCE[INTERVALS])
def test_intervals_are_those_of_the_posterior(name, data, path):
    ds = data[name]
    row = next(measurements.setups().itertuples())
    batch = int(ds.batch[ds.ideal.sel(setup=row.setup).notnull()][0])
    result = measurements.evaluated(row, batch, cx.load_posterior(path))
    expected = cx.summarize(cx.derive(result, WHAT[name]), PROBABILITY)[WHAT[name]]
    np.testing.assert_allclose(ds[WHAT[name]].sel(setup=row.setup, batch=batch), expected, rtol=1e-6)
    ideal = cx.derive(measurements.evaluated(row, batch, "ideal"), WHAT[name])[WHAT[name]]
    np.testing.assert_allclose(ds.ideal.sel(setup=row.setup, batch=batch), ideal, rtol=1e-6)


@pytest.mark.parametrize("name", FIGURES_BY_SOURCE[INTERVALS])
def test_intervals_lie_in_order_where_setups_run(name, data):
    ds = data[name]
    low, median, high = (ds[WHAT[name]].sel(quantile=q) for q in (0.05, 0.5, 0.95))
    runs = ds.ideal.notnull()
    assert runs.any("batch").all()
    assert not runs.sel(batch=1, setup="72 H100, EP72")
    for lower, upper in ((low, median), (median, high), (median, ds.ideal)):
        assert (lower < upper).where(runs, True).all()
    assert (low.isnull() == ~runs).all()


@pytest.mark.parametrize("name", FIGURES_BY_SOURCE[INTERVALS])
def test_captions_name_the_posterior(name, data):
    attrs = data[name].attrs
    assert "90% credible interval of a measurement under the posterior prior" in attrs["shows"]
    assert "sampled from the posterior prior" in attrs["assumptions"]
    assert "default efficiencies" not in attrs["assumptions"]
    assert "never published" in attrs["shows"]


def test_an_unknown_posterior_is_said():
    with pytest.raises(cx.SpecError, match="posterior 'nobody'"):
        render.data_of("decode-tps-intervals", posterior="nobody")
    with pytest.raises(cx.SpecError, match="leave --gpu out"):
        render.data_of("decode-tps-intervals", gpu="h100-sxm")
