"""Bad arguments other than axes: names, outputs, overrides, scales, options, sizes."""

import numpy as np
import pydantic
import pytest
import xarray as xr

import cheetah_xr as cx
from tests.helpers.one_point import evaluate
from tests.helpers.rejection import rejected

NAMES = {
    "unknown GPU": ({"gpu": "h1000-sxm"}, "gpu 'h1000-sxm'", "h100-sxm"),
    "unknown model": ({"model": "gpt-5"}, "model 'gpt-5'", "gpt-oss-20b"),
    "unknown precision": ({"precision": "fp9"}, "precision 'fp9'", "fp8"),
    "unknown efficiency": ({"efficiency": "best"}, "efficiency 'best'", "ideal"),
    "one of two": ({"gpu": ["h100-sxm", "h1000"]}, "'h1000'"),
    "given twice": ({"gpu": ["h100-sxm", "H100-SXM"]}, "h100-sxm", "more than once"),
    "no GPU": ({"gpu": []}, "gpu", "at least one"),
    "no model": ({"model": ()}, "model", "at least one"),
    "empty DataArray": ({"gpu": xr.DataArray(np.array([], dtype=str), dims="gpu")}, "gpu"),
    "zero-dimensional array": ({"gpu": np.array("h1000-sxm")}, "gpu"),
    "phase": ({"phase": "train"}, "phase 'train'", "prefill", "decode"),
    "phase twice": ({"phase": ["decode", "decode"]}, "phase", "more than once"),
    "phase number": ({"phase": 1}, "phase 1"),
    "dtype": ({"dtype": "float16"}, "'float16'", "float32", "float64"),
    "output": ({"outputs": ["step_time", "speed"]}, "speed", "step_time", "max_batch"),
    "output beside a derived one": ({"outputs": ["tpot", "speed"]}, "speed"),
    "output of another phase": ({"outputs": ["ttft"]}, "ttft", "prefill"),
    "outputs not a list": ({"outputs": 5}, "outputs", "5"),
    "output not text": ({"outputs": [5]}, "outputs", "5"),
    "options as text": ({"options": "fast"}, "options", "'fast'"),
    "options as dict": ({"options": {"causal": False, "small_ops": "all"}}, "options"),
    "overrides as text": ({"overrides": "gpu.hbm_bandwidth"}, "overrides"),
    "overrides as list": ({"overrides": ["gpu.hbm_bandwidth"]}, "overrides"),
    "max_bytes as text": ({"max_bytes": "1 GB"}, "max_bytes"),
}


@pytest.mark.parametrize("case", NAMES.values(), ids=NAMES)
def test_bad_arguments(case):
    arguments, *words = case
    rejected(lambda: evaluate(**arguments), *words)


OVERRIDES = {
    "no record": ({"hbm_bandwidth": 1e12}, "'hbm_bandwidth'", "record.field", "gpu"),
    "unknown record": ({"cpu.clock": 1}, "'cpu.clock'", "model", "options"),
    "unknown field": ({"gpu.hbm": 1e12}, "'gpu.hbm'", "hbm_bandwidth"),
    "text field": ({"gpu.name": 1}, "'name'"),
    "flag": ({"options.causal": 1}, "'causal'"),
    "structure": ({"model.groups": 3}, "'groups'"),
    "not text": ({5: 3}, "5", "record.field"),
    "zero": ({"gpu.hbm_bandwidth": 0}, "gpu.hbm_bandwidth", "0", "greater than"),
    "negative": ({"gpu.hbm_bandwidth": [1e12, -1e12]}, "gpu.hbm_bandwidth", "-1", "greater than"),
    "NaN": ({"gpu.hbm_bandwidth": [1e12, float("nan")]}, "gpu.hbm_bandwidth", "nan"),
    "text": ({"gpu.hbm_bandwidth": "3 TB/s"}, "gpu.hbm_bandwidth", "'3 TB/s'"),
    "bool": ({"gpu.hbm_bandwidth": True}, "gpu.hbm_bandwidth", "True"),
    "none": ({"gpu.hbm_bandwidth": None}, "gpu.hbm_bandwidth", "None"),
    "empty": ({"gpu.hbm_bandwidth": []}, "gpu.hbm_bandwidth", "at least one"),
    "twice": ({"gpu.hbm_bandwidth": [1e12, 1e12]}, "gpu.hbm_bandwidth", "once"),
    "half a head": ({"model.n_kv_heads": 1.5}, "model.n_kv_heads", "1.5", "integer"),
    "no heads": ({"model.n_heads": [0, 64]}, "model.n_heads", "0", "greater than or equal to 1"),
    "experts of a dense model": ({"model.n_experts": [8]}, "model.n_experts", "llama-3.1-70b"),
    "above one": ({"efficiency.memory_attn_core": 1.5}, "efficiency.memory_attn_core", "1.5"),
    "option above one": ({"options.overlap_ep": [0, 2]}, "options.overlap_ep", "2"),
    "dim of a scalar": ({"gpu.hbm_bandwidth": xr.DataArray([1e12, 2e12], dims="gpu")}, "gpu"),
    "without effect": ({"gpu.memory_label_bytes": 1e9}, "memory_bytes"),
}


@pytest.mark.parametrize("case", OVERRIDES.values(), ids=OVERRIDES)
def test_bad_overrides(case):
    overrides, *words = case
    rejected(lambda: evaluate(overrides=overrides), *words)


SCALES = {
    "zero": ({"gpu.hbm_bandwidth": [0, 1]}, "gpu.hbm_bandwidth", "above 0", "[0, 1]"),
    "negative": ({"gpu.hbm_bandwidth": -1}, "gpu.hbm_bandwidth", "-1"),
    "NaN": ({"gpu.hbm_bandwidth": float("nan")}, "gpu.hbm_bandwidth", "nan"),
    "twice": ({"gpu.hbm_bandwidth": [1, 1]}, "gpu.hbm_bandwidth", "once"),
    "model": ({"model.hidden": 2}, "model.hidden", "gpu"),
    "unknown field": ({"gpu.speed": 2}, "'gpu.speed'", "hbm_bandwidth"),
    # results may never beat bytes/bandwidth, and a domain holds whole GPUs
    "efficiency above one": ({"efficiency.memory_dense_mlp": 2}, "efficiency.memory_dense_mlp", "2"),
    "part of a GPU": ({"gpu.link_domain": 0.3}, "gpu.link_domain", "0.3"),
}


@pytest.mark.parametrize("case", SCALES.values(), ids=SCALES)
def test_bad_scales(case):
    scales, *words = case
    rejected(lambda: evaluate(scales=scales), *words)


def test_a_number_has_one_source():
    field = "gpu.hbm_bandwidth"
    rejected(lambda: evaluate(scales={field: 2}, overrides={field: 2e12}), field, "overrides", "scales")


def test_too_large_a_result_names_the_way_out():
    axis = list(range(1, 2000))
    message = rejected(lambda: evaluate(batch=axis, seq_len=axis, max_bytes=1e6), "3,996,001", "max_bytes", "run_sweep")
    assert "0.0 GB" not in message, "a limit below 0.1 GB is shown as 0.0 GB"
    assert evaluate(batch=axis, outputs=["status"], max_bytes=1e6).sizes == {"batch": 1999}


@pytest.mark.parametrize("n_gpus", [0, -1, 1.5, True, "4", None])
def test_layouts_of_a_number_of_gpus(n_gpus):
    rejected(lambda: cx.layouts(n_gpus, "llama-3.1-8b"), "n_gpus", repr(n_gpus))


def test_operations_and_breakdown_reject_the_same():
    rejected(lambda: cx.operations("qwen3-32b", "train", 1), "phase 'train'")
    rejected(lambda: cx.operations("qwen3-32b", "decode", 0), "workload_below_one")
    rejected(lambda: cx.operations("qwen3-32b", "decode", 10, tp=3), "tp_heads")
    rejected(lambda: cx.breakdown("qwen3-32b", "h1000", batch=1, seq_len=1), "'h1000'")
    rejected(lambda: cx.breakdown("qwen3-32b", "h100-sxm", batch="x", seq_len=1), "batch", "'x'")
    assert cx.breakdown("qwen3-32b", "h100-sxm", batch=0, seq_len=1).step_time.isnull()


def test_derive_names_what_is_missing():
    ds = evaluate(outputs=["status"])
    rejected(lambda: cx.derive(ds, "speed"), "'speed'", "tpot")
    rejected(lambda: cx.derive(ds, "tpot"), "tpot", "step_time")
    rejected(lambda: cx.derive(evaluate().drop_vars("price_per_hour"), "cost_per_million_tokens"), "price_per_hour")


@pytest.mark.parametrize("fields", [{"granularity": "layer"}, {"fast": True}, {"overlap_tp": 2}, {"causal": 1}])
def test_options_are_checked(fields):
    with pytest.raises((cx.SpecError, pydantic.ValidationError), match=next(iter(fields))):
        cx.Options(**fields)


def test_a_number_some_layers_have_of_their_own_is_not_an_axis():
    with pytest.raises(cx.SpecError, match="some layers of mimo-v2-flash have a n_kv_heads of their own"):
        cx.evaluate("mimo-v2-flash", "h200-sxm", batch=1, seq_len=1, overrides={"model.n_kv_heads": [4, 8]})
    with pytest.raises(cx.SpecError, match="0 is another structure"):
        cx.evaluate("deepseek-v3", "h200-sxm", batch=1, seq_len=1, overrides={"model.q_lora_rank": [0, 1536]})


def test_numbers_of_groups_reach_the_mtp_module():
    ds = cx.evaluate(
        "deepseek-v4-flash", "h200-sxm", batch=1, seq_len=65536, outputs=["kv_bytes_per_sequence"],
        overrides={"model.window": [128, 1024]}, options={"drafter": "mtp", "on_infeasible": "ignore"},
    )  # fmt: skip
    layers = cx.load_model("deepseek-v4-flash").n_layers + 1
    assert float(ds.kv_bytes_per_sequence.diff("window").item()) == layers * 512 * 2 * (1024 - 128)
