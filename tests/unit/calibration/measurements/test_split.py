"""Sides of configurations are fixed: a changed rule would choose other held-out rows."""

import pytest

from cheetah_xr.calibration.measurements.split import second_set_side, side


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        (("gloria", "gpt-oss-120b", "h200-sxm"), "held out"),
        (("tensor-economics", "llama-3.3-70b", "h100-sxm"), "held out"),
        (("sgl-cookbook", "minimax-m2.5", "b200-sxm"), "fit"),
        (("sgl-cookbook", "gemma-4-26b-a4b", "mi300x"), "fit"),
        (("trtllm-0.14", "mixtral-8x7b", "a100-sxm-80gb"), "held out"),
        (("trtllm-1.2", "llama-3.3-70b", "b200-sxm"), "fit"),
        (("tt-356", "deepseek-r1", "h100-sxm"), "fit"),
    ],
)
def test_sides_of_the_second_set(configuration, expected):
    assert second_set_side(*configuration) == expected


def test_four_of_ten_configurations_of_the_second_set_may_be_fitted():
    sides = [second_set_side("source", f"model-{n}", "gpu") for n in range(10_000)]
    assert sides.count("fit") / len(sides) == pytest.approx(0.4, abs=0.015)


def test_three_of_ten_configurations_of_the_validation_set_may_be_fitted():
    assert [side(str(n)) for n in range(10_000)].count("fit") / 10_000 == pytest.approx(0.3, abs=0.015)
