"""Variants, subsets and refits on small tables, and published points by hand."""

import numpy as np
import pandas as pd
import pytest

import cheetah_xr as cx
from cheetah_xr.calibration.measurements import published_table
from cheetah_xr.calibration.parameters import PARAMETERS, fields_of
from cheetah_xr.calibration.predictors import Serving, make_problem
from cheetah_xr.calibration.report import large_scale, refits
from cheetah_xr.calibration.report.bottlenecks import shifts
from cheetah_xr.calibration.report.first_token import first_tokens
from cheetah_xr.calibration.report.gather import kernel_tables
from cheetah_xr.calibration.report.variants import CHOICES, STEPS, WITHOUT, ByComponent, Variant, by_component
from cheetah_xr.calibration.row_table import ENTRIES, FIELDS, RowTable

MEDIANS = np.log([[parameter.median for parameter in PARAMETERS]])


def rows(*given, **more):
    base = {
        "model": "llama-3.1-8b",
        "gpu": "h100-sxm",
        "precision": "bf16",
        "mode": "aggregated",
        "engine": "sglang",
        "layout": "tp1-dp1-ep1",
        "side": "fit",
        "tp": 1,
        "dp": 1,
        "ep": 1,
        "isl": 1000,
        "osl": 1000,
        "length_fraction": 0.9,
        "redundant_experts": 0,
        "kv_bytes": 2.0,
        "concurrency": 16,
        "tpot_s": 0.01,
        "ttft_s": 0.1,
        "elapsed_s": np.nan,
    }
    actual = pd.DataFrame([base | more | row for row in given])
    return actual.assign(id=[f"r{n}" for n in range(len(actual))])


def seconds(table, serving):
    return make_problem(table, serving).seconds(fields_of(MEDIANS))[:, 0]


def test_prompts_add_their_fraction_of_passes():
    table = rows({})
    step, apart = seconds(table, Serving("none")), seconds(table, Serving("apart"))
    prompt = make_problem(rows({"mode": "prefill", "concurrency": 1})).seconds(fields_of(MEDIANS))[:, 0]
    assert apart - step == pytest.approx(16 / 900 * prompt, rel=1e-9)


def test_without_the_limit_all_requests_decode():
    many = rows({"concurrency": 4000})
    assert seconds(many, Serving("none", limited=False))[0] > 2 * seconds(many, Serving("none"))[0]
    few = rows({"concurrency": 4})
    assert seconds(few, Serving("none", limited=False)) == pytest.approx(seconds(few, Serving("none")))


def test_options_reach_every_pass():
    table = rows({})
    assert seconds(table, Serving(options={"small_ops": "memory"})) > seconds(table, Serving())


def empty(**given):
    """One forward pass with nothing but what is given."""
    none = {name: np.zeros(0, int) for key, columns in ENTRIES.items() for name in (key, *columns)}
    return {"n_rows": 1, **none, "paid": np.zeros((1, len(FIELDS))), **given}


def test_a_component_has_one_maximum():
    kernels = ["attn_proj", "attn_core", "routed_experts", "lm_head"]
    given = empty(
        kernel_row=np.zeros(4, int),
        memory=np.array([4.0, 1.0, 2.0, 0.5]),
        memory_field=np.array([FIELDS.index(f"memory_{name}") for name in kernels]),
        compute=np.array([1.0, 3.0, 5.0, 0.1]),
        compute_field=np.array([FIELDS.index(f"compute_{name}") for name in kernels]),
        relative_field=np.full(4, FIELDS.index("1")),
    )
    factors = fields_of(MEDIANS) | {name: np.ones(1) for name in FIELDS if name.startswith(("memory_", "compute_"))}
    kernel, component = RowTable(**given), ByComponent(**given)
    assert kernel.seconds(factors)[0, 0] == pytest.approx(4 + 3 + 5 + 0.5)
    assert component.seconds(factors)[0, 0] == pytest.approx(max(5, 4) + 5 + 0.5)


def test_components_of_a_problem_are_the_engines():
    table = rows({"mode": "prefill", "concurrency": 3})
    actual = by_component(make_problem(table)).seconds(fields_of(MEDIANS))[0, 0]
    efficiency = kernel_tables()
    ds = cx.evaluate(
        "llama-3.1-8b",
        "h100-sxm",
        batch=3,
        seq_len=900,
        phase="prefill",
        efficiency=efficiency,
        options={"granularity": "component"},
        dtype="float64",
    )
    own = float(ds["step_time"]) - 3 * efficiency.tau_sequence
    assert actual == pytest.approx(own, rel=1e-9)


def test_variants_hold_fields_and_follow_others():
    values = {"a": np.array([2.0, 3.0]), "b": np.array([5.0, 6.0])}
    actual = Variant("x", fixed={"a": 1.0}, follows={"b": "a"}).change(values)
    assert actual["a"].tolist() == [1.0, 1.0]
    assert actual["b"].tolist() == [2.0, 3.0]


@pytest.mark.parametrize("variant", [*STEPS, *WITHOUT, *CHOICES], ids=lambda v: v.what[:40])
def test_fields_of_variants_exist(variant):
    values = fields_of(MEDIANS)
    assert {*variant.fixed, *variant.follows, *variant.follows.values()} <= set(values)
    assert set(variant.change(values)) == set(values)


def measured_by(table, factors):
    """The table with the times that some factors give."""
    problem = make_problem(table)
    times = pd.Series(problem.seconds(fields_of(factors))[:, 0], problem.rows["id"])
    return table.assign(tpot_s=table["id"].map(times))


TWO = [{"gpu": gpu, "concurrency": c} for gpu in ("h100-sxm", "b200-sxm") for c in (1, 8, 64, 256)]


def test_subsets_keep_parts_and_rows_together():
    problem = make_problem(rows(*TWO))
    whole = problem.seconds(fields_of(MEDIANS))[:, 0]
    for without in (False, True):
        part = refits.subset(problem, "gpu", "h100-sxm", without=without)
        keep = ((problem.rows["gpu"] == "h100-sxm") ^ without).to_numpy()
        assert part.seconds(fields_of(MEDIANS))[:, 0].tolist() == whole[keep].tolist()
        assert part.rows["id"].tolist() == problem.rows["id"][keep].tolist()
    assert refits.subset(problem, "gpu", "a100-sxm-80gb", without=False) is None


def test_refits_find_what_made_the_times_and_leave_one_out_does_not_see_it():
    truth = MEDIANS.copy()
    names = [parameter.name for parameter in PARAMETERS]
    truth[0, names.index("tau_sequence")] = np.log(20e-6)
    table = measured_by(rows(*({**setup, "isl": isl} for setup in TWO for isl in (100, 1000, 8000))), truth)
    actual = refits.leave_one_out(refits.Cases(table), "gpu")
    assert sorted(actual["id"]) == sorted(table["id"])
    assert (actual["predicted_s"] / actual["measured_s"] - 1).abs().max() < 0.1
    slow = table.assign(tpot_s=table["tpot_s"].where(table["gpu"] != "b200-sxm", 3 * table["tpot_s"]))
    other = refits.leave_one_out(refits.Cases(slow), "gpu")
    b200 = other[other["gpu"] == "b200-sxm"]
    assert b200["predicted_s"].tolist() == actual.loc[actual["gpu"] == "b200-sxm", "predicted_s"].tolist()
    assert (b200["predicted_s"] / b200["measured_s"]).to_numpy() == pytest.approx(1 / 3, rel=0.05)


def test_variants_are_fitted_and_judged_on_held_out_rows():
    table = measured_by(rows(*TWO, *TWO), MEDIANS)
    table = table.assign(side=["fit"] * 8 + ["held out"] * 8, layout=["tp1"] * 8 + ["other"] * 8)
    problems = refits.Cases(table.assign(engine=table["engine"]))
    sets = refits.AGGREGATED
    assert sets == ("sglang", "trtllm", "vllm")
    actual = {name: problems.case(name) for name in ("sglang",)}
    assert len(actual["sglang"].fitted.rows) == 8
    judged = refits.predict(actual["sglang"].predicted, refits.refit(actual["sglang"].fitted))
    held = judged[judged["side"] == "held out"]
    assert (held["predicted_s"] / held["measured_s"] - 1).abs().max() < 0.01


def test_first_tokens_are_the_pass_of_the_prompt():
    table = rows({"concurrency": 1}, efficiency="set")
    actual = first_tokens(table, {"set": kernel_tables()})
    prompt = make_problem(rows({"mode": "prefill", "concurrency": 1})).seconds(fields_of(MEDIANS))[0, 0]
    assert actual["predicted_s"].tolist() == pytest.approx([prompt])
    assert actual["measured_s"].tolist() == [0.1]


def published(name):
    table = published_table()
    return table[table["id"] == name].iloc[0]


def test_options_of_published_rows():
    prefill, decode = published("lmsys-96h100-prefill-4096"), published("lmsys-96h100-decode")
    assert large_scale.options_of(prefill) == {
        "redundant_experts": 32,
        "micro_batches": 2,
        "overlap_ep": 1.0,
        "on_infeasible": "ignore",
        "max_nodes": 4,
    }
    assert "max_nodes" not in large_scale.options_of(decode)
    inside = large_scale.options_of(published("lmsys-gb200-prefill-fp8"))
    assert (inside["micro_batches"], inside["overlap_ep"], "max_nodes" in inside) == (1, 0.0, False)


def test_production_computes_what_the_cache_does_not_hold():
    batch, new, cached = large_scale.shape_of(published("deepseek-production-prefill-all"))
    assert (new, cached) == (1790, 2306)
    assert batch == 288.0  # 32 ranks of 9: 16,110 of 16,384 tokens
    assert large_scale.shape_of(published("lmsys-96h100-prefill-1024")) == (512.0, 1024, 0)


def test_published_points_hand_computed():
    efficiency = kernel_tables()
    actual = large_scale.predict(dict.fromkeys(large_scale.PROFILES.values(), efficiency)).set_index("id")
    assert len(actual) == published_table()["prediction"].sum()
    ds = cx.evaluate(
        "deepseek-v3",
        "h100-sxm",
        "fp8",
        batch=18432,
        seq_len=2000,
        dp=72,
        ep=72,
        efficiency=efficiency,
        options={"micro_batches": 2, "redundant_experts": 32},
        dtype="float64",
    )
    assert actual.loc["lmsys-96h100-decode", "predicted"] == pytest.approx(256 / float(ds["step_time"]))
    both = actual.loc[["deepseek-production-prefill-all", "deepseek-production-prefill-computed"], "predicted"]
    assert both.iloc[0] / both.iloc[1] == pytest.approx(4096 / 1790)
    assert (actual["within"] == ((actual["predicted"] / actual["measured"] - 1).abs() <= 0.25)).all()
    assert actual["predicted"].gt(0).all()


def test_served_points_divide_running_requests_by_their_step():
    row = published("trtllm-r1-h200")
    efficiency = kernel_tables()
    actual = large_scale.predict(dict.fromkeys(large_scale.PROFILES.values(), efficiency)).set_index("id")
    table = pd.DataFrame([row]).assign(tpot_s=1.0)
    seconds_per_token = make_problem(table).seconds(fields_of(MEDIANS))[0, 0]
    line = actual.loc["trtllm-r1-h200"]
    assert line["batch"] <= 1024
    assert line["predicted"] == pytest.approx(line["batch"] / seconds_per_token / 8)


def test_records_are_replaced_not_changed():
    problem = make_problem(rows({}))
    assert by_component(problem) is not problem
    assert not isinstance(problem.parts[0].decode, ByComponent)
    assert isinstance(by_component(problem).parts[0].decode, ByComponent)


def test_bottlenecks_at_the_peaks_and_with_factors():
    slow_launches = cx.Efficiency(name="slow", launch_gemm=1e-2)
    table = rows({"concurrency": 1}, {"concurrency": 8}, efficiency="set")
    actual = shifts(table, {"set": slow_launches})
    assert actual.loc["weights", "overhead"] == 2
    assert actual.to_numpy().sum() == 2
