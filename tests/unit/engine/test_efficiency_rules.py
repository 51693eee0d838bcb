"""Routed experts whose tokens arrive by all-to-all reach a fraction of peak of their own."""

import numpy as np
import pytest

import cheetah_xr as cx

FUSED = cx.load_efficiency("ideal").with_numbers({"name": "fused", "compute_routed_experts": 0.2})
GROUPED = FUSED.with_numbers({"name": "grouped", "compute_routed_experts_grouped": 0.6})
PROMPTS = {"phase": "prefill", "batch": 64, "seq_len": 4096, "options": cx.Options(on_infeasible="ignore")}


def experts(precision="fp8", efficiency=GROUPED, **layout):
    """Seconds of the routed experts' kernel, bound by compute."""
    ds = cx.breakdown("deepseek-v3", "h200-sxm", precision, efficiency=efficiency, **PROMPTS, **layout)
    return ds["time"].sel(kernel="routed_experts").values


@pytest.mark.parametrize(
    ("dp", "ep", "tp", "share"), [(8, 8, 1, 0.6), (4, 8, 2, 0.6), (8, 1, 1, 0.2), (1, 8, 8, 0.2), (1, 1, 8, 0.2)]
)
def test_hand_computed(dp, ep, tp, share):
    # 58 layers, 8 of 256 experts of three 7168 x 2048 matrices for every token, over 8 GPUs of 1978.9 TFLOP/s each
    flops = 58 * 64 * 4096 * 8 * 3 * 2 * 7168 * 2048 / 8
    assert experts(dp=dp, ep=ep, tp=tp) == pytest.approx(flops / (share * 1978.9e12), rel=1e-6)


def test_relative_peaks_multiply_it_too():
    slow = GROUPED.with_numbers({"name": "slow", "compute_fp8": 0.5})
    assert experts(efficiency=slow, dp=8, ep=8) == pytest.approx(2 * experts(dp=8, ep=8), rel=1e-9)


def test_without_a_number_layouts_are_alike():
    assert experts(efficiency=FUSED, dp=8, ep=8) == experts(efficiency=FUSED, dp=8, ep=1)


def test_the_same_on_axes():
    records = [FUSED, GROUPED]
    order = ("precision", "efficiency", "dp", "ep")
    ds = cx.breakdown(
        "deepseek-v3", "h200-sxm", ["fp8", "bf16"], efficiency=records, dp=[1, 2, 8], ep=[1, 2, 4], **PROMPTS
    )
    grid = ds["time"].sel(kernel="routed_experts").transpose(*order)
    for precision in ("fp8", "bf16"):
        for record in records:
            for dp in (1, 2, 8):
                for ep in (1, 2, 4):
                    one = grid.sel(precision=precision, efficiency=record.name, dp=dp, ep=ep).item()
                    alone = experts(precision, record, dp=dp, ep=ep)
                    assert one == alone or (np.isnan(one) and np.isnan(alone))


def test_it_is_an_axis():
    swept = cx.evaluate(
        "deepseek-v3", "h200-sxm", "fp8", dp=8, ep=8, efficiency=FUSED, **PROMPTS,
        overrides={"efficiency.compute_routed_experts_grouped": [0.3, 0.6]},
    )  # fmt: skip
    ones = [
        cx.evaluate("deepseek-v3", "h200-sxm", "fp8", dp=8, ep=8, efficiency=record, **PROMPTS)
        for record in (GROUPED.with_numbers({"compute_routed_experts_grouped": 0.3}), GROUPED)
    ]
    np.testing.assert_array_equal(swept["step_time"], [one["step_time"] for one in ones])


def test_bad_numbers_are_rejected():
    with pytest.raises(cx.SpecError, match=r"compute_routed_experts_grouped.*1\.5"):
        cx.load_efficiency({"name": "x", "compute_routed_experts_grouped": 1.5})
