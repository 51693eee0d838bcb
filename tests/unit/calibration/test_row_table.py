"""Row tables: the same seconds as the engine's, for any efficiencies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import cheetah_xr as cx
from cheetah_xr.calibration import cases as rows
from cheetah_xr.calibration import row_table
from cheetah_xr.calibration.parameters import PARAMETERS, base_values, fields_of, log_prior
from cheetah_xr.engine.case_values import time_values
from cheetah_xr.engine.mixed_batch import mixed_case

CASES = [
    ("llama-3.1-70b", "h100-sxm", "fp8-kv8"),
    ("deepseek-r1", "b200-sxm", "nvfp4-mlp-kv8"),
    ("qwen3.5-397b-a17b", "h200-sxm", "bf16"),
    ("gpt-oss-120b", "b200-sxm", "mxfp4-experts-in8"),
    ("gpt-oss-120b", "h100-sxm", "mxfp4-experts"),
    ("glm-5", "h200-sxm", "fp8"),
]
DEGREES = {"tp": "tp", "dp": "dp", "ep": "ep"}
LAYOUTS = {"tp": [8, 4, 1, 2], "dp": [1, 2, 8, 1], "ep": [1, 8, 8, 2]}


def table(model: str, gpu: str, precision: str) -> pd.DataFrame:
    moe = model != "llama-3.1-70b"
    ep = LAYOUTS["ep"] if moe else [1, 1, 1, 1]
    actual = pd.DataFrame({"tp": LAYOUTS["tp"], "dp": LAYOUTS["dp"], "ep": ep})
    kv = cx.load_precision(precision).kv_bytes
    return actual.assign(model=model, gpu=gpu, precision=precision, kv_bytes=kv, redundant_experts=0)


def random_efficiency(seed: int) -> cx.Efficiency:
    """Every field away from its default."""
    generator = np.random.default_rng(seed)
    values: dict[str, Any] = {}
    for name in cx.Efficiency.numeric_fields():
        share = name.startswith(("memory", "compute", "link", "nic"))
        values[name] = float(generator.uniform(0.2, 1.0) if share else generator.uniform(1e-7, 5e-5))
    return cx.Efficiency(name="random", **values)


@pytest.mark.parametrize(("model", "gpu", "precision"), CASES)
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_tables_take_the_engines_time(model: str, gpu: str, precision: str, phase: str) -> None:
    batch, seq_len = np.array([1, 16, 40, 300]), np.array([100, 1000, 4000, 9000])
    given = table(model, gpu, precision)
    case = rows.case_of_rows(given, phase, DEGREES, batch, seq_len)
    flat = row_table.forward_pass_table(case, 4)
    for seed in (1, 2):
        efficiency = random_efficiency(seed)
        seconds = flat.seconds(row_table.field_values(efficiency))[:, 0]
        ds = cx.evaluate(
            model,
            gpu,
            precision,
            phase=phase,
            batch=xr.DataArray(batch, dims="row"),
            seq_len=xr.DataArray(seq_len, dims="row"),
            **{name: xr.DataArray(given[name].to_numpy(), dims="row") for name in ("tp", "dp", "ep")},
            efficiency=efficiency,
            options={"on_infeasible": "ignore", "overlap_ep": 0.0},
            dtype="float64",
            outputs=["step_time", "status"],
        )
        assert ds["status"].to_numpy().tolist() == [0] * 4
        np.testing.assert_allclose(seconds, ds["step_time"].to_numpy(), rtol=1e-12)


def test_prompts_cost_the_host_nothing_per_request() -> None:
    given = table("llama-3.1-70b", "h100-sxm", "bf16")
    case = rows.case_of_rows(given, "decode", DEGREES, np.array([3, 8, 16, 32]), np.full(4, 1000))
    flat, values = row_table.forward_pass_table(case, 4), row_table.field_values(random_efficiency(3))
    apart = flat.seconds(values) - flat.without_requests().seconds(values)
    per_rank, whole = np.array([3, 4, 2, 32]), np.array([3, 8, 16, 32])
    expected = values["tau_sequence"] * per_rank + values["tau_batch"] * whole
    np.testing.assert_allclose(apart[:, 0], expected, rtol=1e-9)


def test_fields_that_follow_another_have_its_value() -> None:
    plain = cx.Efficiency(name="plain", launch_routed_experts=3e-6, memory_routed_experts=0.5)
    values = row_table.field_values(plain)
    assert values["launch_routed_experts_fp4"][0] == values["launch_routed_experts_w4"][0] == 3e-6
    assert values["memory_routed_experts_w4"][0] == 0.5


def test_a_mixed_pass_hand_computed() -> None:
    """One prompt of 1000 tokens alongside 100 decoding requests: linear kernels do 1.1 times the prompt's work."""
    given = table("llama-3.1-70b", "h100-sxm", "bf16").head(1)
    prefill = rows.case_of_rows(given, "prefill", DEGREES, np.array([1]), np.array([1000]))
    decode = rows.case_of_rows(given, "decode", DEGREES, np.array([100]), np.array([2000]))
    seconds = row_table.mixed_batch_table(prefill, decode, 1.1, 1).seconds(
        row_table.field_values(cx.load_efficiency("ideal"))
    )
    tp, layers = 8, 80
    gpu = cx.load_gpu("h100-sxm")
    peak, bandwidth, link = gpu.peak_bf16, gpu.hbm_bandwidth, float(gpu.link_bandwidth or 0)
    d, f, vocab, tokens = 8192, 28672, 128256, 1100
    projections = d * 128 * (2 * 64 + 2 * 8) / tp
    mlp = 3 * d * f / tp
    expected = layers * 2 * tokens * (projections + mlp) / peak  # compute-bound: 1100 tokens
    scores = 4 * 128 * (64 / tp) * (1000 * 1001 / 2)
    expected += layers * scores / peak  # the prompt's attention, compute-bound
    cache = 100 * 2 * 128 * (8 / tp) * 2 * (2000 + 1)
    moved = cache + 100 * 2 * (2 * 64 / tp) * 128  # q in, o out
    expected += layers * moved / bandwidth  # the decoding requests' attention, memory-bound
    head = d * vocab / tp * 2 + 100 * (d * 2 + vocab / tp * 2)
    expected += head / bandwidth + 100 * d * 2 / bandwidth  # LM head and look-up of the decoding requests
    expected += layers * 2 * (2 * 7 / 8) * tokens * d * 2 / link + 100 * vocab * 2 * (7 / 8) / link
    assert seconds[0, 0] == pytest.approx(expected, rel=1e-9)


def test_the_engines_mixed_batches_are_tables_too() -> None:
    """Row 0 has few prompt tokens and replays CUDA graphs, the others do not."""
    given = table("llama-3.1-70b", "h100-sxm", "bf16")
    prefill = rows.case_of_rows(given, "prefill", DEGREES, np.array([1, 3, 1, 7]), np.array([300, 1000, 4000, 700]))
    decode = rows.case_of_rows(given, "decode", DEGREES, np.array([40, 10, 300, 5]), np.array([500, 1000, 90, 9000]))
    efficiency = random_efficiency(4)
    case = mixed_case(*(replace(one, efficiency=efficiency) for one in (prefill, decode)))
    seconds = row_table.forward_pass_table(case, 4).seconds(row_table.field_values(efficiency))[:, 0]
    expected = time_values(case, ["step_time"], np.dtype(np.float64))["step_time"]
    np.testing.assert_allclose(seconds, np.ravel(expected), rtol=1e-12)


def test_chosen_rows_and_joined_tables() -> None:
    given = table("deepseek-r1", "b200-sxm", "fp8")
    case = rows.case_of_rows(given, "decode", DEGREES, np.array([8, 16, 32, 64]), np.array([100, 200, 300, 400]))
    flat, values = row_table.forward_pass_table(case, 4), fields_of(np.log([[f.median for f in PARAMETERS]] * 3))
    whole = flat.seconds(values)
    np.testing.assert_array_equal(flat.take(np.array([3, 1])).seconds(values), whole[[3, 1]])
    both = row_table.concatenate([flat.take(np.array([2])), flat.take(np.array([0, 1]))])
    np.testing.assert_array_equal(both.seconds(values), whole[[2, 0, 1]])


def test_the_prior_is_log_normal_and_bounded() -> None:
    middle = np.log([parameter.median for parameter in PARAMETERS])
    one_off = middle.copy()
    one_off[0] -= PARAMETERS[0].spread
    above = middle.copy()
    above[0] = np.log(1.01)
    assert log_prior(np.stack([middle, one_off, above])).tolist() == [0.0, pytest.approx(-0.5), -np.inf]
    assert set(fields_of(middle)) == set(cx.Efficiency.numeric_fields())
    assert not any(name.endswith(("_fp4", "_w4")) for name in base_values() if name != "compute_fp4")
    assert fields_of(middle)["memory_dense_mlp"].tolist() == pytest.approx([0.75])
