"""Ranking of configurations on hand-made tables."""

import pandas as pd
import pytest

from cheetah_xr.calibration.report import ranking

TASK = {"model": "m", "gpu": "g", "isl": 1024, "osl": 1024, "engine": "e", "precision": "p", "mode": "aggregated"}


def table(*rows):
    """Rows of (layout, GPUs, requests, measured ms, predicted ms)."""
    names = ("layout", "n_gpus", "concurrency", "measured_s", "predicted_s")
    actual = pd.DataFrame([{**TASK, **dict(zip(names, row, strict=True))} for row in rows])
    return actual.assign(measured_s=actual["measured_s"] / 1e3, predicted_s=actual["predicted_s"] / 1e3)


def test_rates_are_per_gpu_and_repeats_one_point():
    actual = ranking.points(table(("tp4", 4, 8, 10, 20), ("tp4", 4, 8, 12, 20), ("tp8", 8, 8, 5, 10)))
    assert actual["measured"].tolist() == pytest.approx([8 / 4 / 0.011, 8 / 8 / 0.005])
    assert actual["predicted"].tolist() == pytest.approx([100.0, 100.0])


def test_pairs_of_one_load_only():
    actual = ranking.points(
        table(("tp1", 1, 8, 10, 10), ("tp2", 2, 8, 4, 6), ("tp4", 4, 8, 5, 1), ("tp8", 8, 16, 1, 1))
    )
    pairs = ranking.pairs(actual)
    # Measured per GPU: 800, 1000, 400; predicted: 800, 667, 2000.
    assert sorted(pairs["margin"].round(6)) == pytest.approx([0.25, 1.0, 1.5])
    assert pairs["right"].sum() == 0
    assert ranking.pairs(actual.assign(predicted=actual["measured"] * 3))["right"].all()


def test_regret_at_load_is_what_the_chosen_one_loses():
    actual = ranking.points(table(("tp1", 1, 8, 10, 10), ("tp2", 2, 8, 4, 6), ("tp8", 8, 16, 1, 1)))
    regret = ranking.regret_at_load(actual)
    assert len(regret) == 1
    line = regret.iloc[0]
    assert (line["offers"], line["best"]) == (2, False)
    assert line["regret"] == pytest.approx(1 - 800 / 1000)
    assert line["random"] == pytest.approx(0.1)


def test_regret_at_speed_uses_the_best_load_that_reaches_it():
    # 50 tokens/s are 20 ms: tp1 reaches it with 8 requests (rate 800), tp2 with 16 (rate 500); tp4 never.
    rows = table(
        ("tp1", 1, 8, 10, 30),
        ("tp1", 1, 16, 40, 50),
        ("tp2", 2, 8, 8, 9),
        ("tp2", 2, 16, 16, 18),
        ("tp4", 4, 8, 25, 25),
    )
    line = ranking.regret_at_speed(ranking.points(rows), 50.0).iloc[0]
    assert line["offers"] == 3
    assert line["regret"] == pytest.approx(1 - 500 / 800)
    assert line["random"] == pytest.approx((0 + 0.375 + 1) / 3)


def test_choosing_what_cannot_reach_the_speed_loses_everything():
    rows = table(("tp1", 1, 8, 10, 30), ("tp4", 4, 8, 25, 15))
    assert ranking.regret_at_speed(ranking.points(rows), 50.0)["regret"].tolist() == [1.0]


def test_no_choice_where_nothing_reaches_the_speed():
    rows = table(("tp1", 1, 8, 30, 30), ("tp4", 4, 8, 25, 15))
    assert ranking.regret_at_speed(ranking.points(rows), 50.0).empty
