"""Statistics of the error report on tables small enough to compute by hand."""

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats

from cheetah_xr.calibration.report import statistics as s


def rows(predicted, measured, low=None, high=None, **more):
    low = np.full(len(predicted), np.nan) if low is None else low
    high = np.full(len(predicted), np.nan) if high is None else high
    return pd.DataFrame({"predicted_s": predicted, "measured_s": measured, "low_s": low, "high_s": high, **more})


def test_errors_are_signed_and_relative_to_the_measured_time():
    assert s.errors([1.1, 0.5], [1.0, 2.0]).tolist() == pytest.approx([0.1, -0.75])


def test_summary_hand_computed():
    table = rows([1.1, 0.8, 3.0], [1.0, 1.0, 2.0], low=[0.9, 0.7, 2.5], high=[1.2, 0.9, 3.5], gpu=["a", "a", "b"])
    actual = s.summary(table, ["gpu"])
    assert actual.loc["a"].tolist() == pytest.approx([2, 0.15, 0.15, -0.05, 0.5])
    assert actual.loc["b"].tolist() == pytest.approx([1, 0.5, 0.5, 0.5, 0.0])
    assert s.summary(table).loc["all", "MAPE"] == pytest.approx((0.1 + 0.2 + 0.5) / 3)


def test_coverage_of_rows_without_intervals_is_blank():
    assert np.isnan(s.summary(rows([1.0], [1.0])).loc["all", "coverage"])


def test_coverage_counts_ends():
    assert s.coverage([1.0, 1.0, 1.0], [2.0, 2.0, 2.0], np.array([1.0, 2.0, 2.1])) == pytest.approx(2 / 3)


def test_half_width_of_a_factor_of_e():
    assert s.half_widths([1.0], [np.exp(0.4)]).tolist() == pytest.approx([0.2])


@pytest.mark.parametrize("z", [-4.0, -0.3, 0.0, 1.7])
@pytest.mark.parametrize("dof", [3.0, 8.0])
def test_crps_is_the_integral_of_its_definition(z, dof):
    below = integrate.quad(lambda x: stats.t.cdf(x, dof) ** 2, -np.inf, z)[0]
    above = integrate.quad(lambda x: stats.t.sf(x, dof) ** 2, z, np.inf)[0]
    assert s.crps_student(z, dof) == pytest.approx(below + above, rel=1e-6)


def test_crps_of_an_interval_scales_with_its_width():
    half = 0.3
    scale = half / stats.t.ppf(0.95, 3)
    actual = s.crps([np.exp(-half)], [np.exp(half)], [np.exp(0.1)])
    assert actual[0] == pytest.approx(scale * float(s.crps_student(0.1 / scale)))


def test_interval_score_hand_computed():
    low, high = np.exp([0.0, 0.0, 0.0]), np.exp([1.0, 1.0, 1.0])
    measured = np.exp([0.5, 1.1, -0.2])
    assert s.interval_score(low, high, measured).tolist() == pytest.approx([1.0, 1.0 + 20 * 0.1, 1.0 + 20 * 0.2])


def test_constant_width_holds_the_requested_fraction():
    measured = np.exp(np.linspace(-1, 1, 21))
    half = s.constant_half_width(np.ones(21), measured, 0.9)
    assert np.mean(np.abs(np.log(measured)) <= half + 1e-12) == pytest.approx(19 / 21)
    assert half == pytest.approx(0.9)


def test_decomposition_takes_offsets_of_configurations_out():
    table = rows([1.2, 1.2, 0.9, 1.1], [1.0, 1.0, 1.0, 1.0])
    actual = s.decomposition(table, pd.Series(["a", "a", "b", "b"]))
    assert actual["MAPE"] == pytest.approx(0.15)
    assert actual["within"] == pytest.approx((0 + 0 + 0.1 + 0.1) / 4)
    assert actual["three"] == pytest.approx(1.0)
    assert np.isnan(actual["without_three"])


def test_decomposition_without_the_three_worst():
    table = rows([2.0, 1.5, 1.4, 1.1], [1.0, 1.0, 1.0, 1.0])
    actual = s.decomposition(table, pd.Series(list("abcd")))
    assert actual["three"] == pytest.approx(1.9 / 2.0)
    assert actual["without_three"] == pytest.approx(0.1)


def test_repeats_deviate_from_their_mean():
    table = pd.DataFrame({"setup": ["a", "a", "b", "c", "c"], "measured_s": [0.9, 1.1, 5.0, 2.0, 2.0]})
    actual = s.repeats(table, ["setup"]).iloc[0]
    assert actual.tolist() == pytest.approx([2, 4, 0.05, 0.05])
