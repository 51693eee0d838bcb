"""Every rule on synthetic rows, the labels of the tidy table, and the split; nothing here needs the package."""

import numpy as np
import pandas as pd
import pytest

from cheetah_xr import SpecError
from cheetah_xr.calibration import measurements as validation
from cheetah_xr.calibration.measurements import configurations, counts, layouts, side, sides, silicon
from cheetah_xr.calibration.measurements.precisions import precision_list
from cheetah_xr.calibration.measurements.rule import Rule, apply
from cheetah_xr.calibration.measurements.rules import RULES
from cheetah_xr.calibration.measurements.table import COLUMNS
from tests.helpers.measured import DEEPSEEK, pools, raw, row, table

MINIMAX = {"model_path": "MiniMaxAI/MiniMax-M2.5", "system": "b200_sxm"}


def only(*rows):
    """The single row of a table."""
    return table(*rows).iloc[0]


def rule_of(*rows):
    return only(*rows)["rule"]


# The tidy table


def test_units_names_and_columns():
    actual = only(row("march", "2026-02-07", 4, degrees=(4, 1, 4, 1)))
    assert list(actual.index) == list(COLUMNS)
    assert actual["rule"] == actual["repairs"] == actual["reported"] == ""
    assert (actual["model"], actual["gpu"], actual["engine"], actual["mode"]) == (
        "llama-3.1-70b",
        "h100-sxm",
        "vllm",
        "aggregated",
    )
    assert (actual["ttft_s"], actual["tpot_s"]) == pytest.approx((0.1234567, 0.0123456))
    assert (actual["date"], actual["collection"], actual["concurrency"]) == ("2026-02-07", "inferencex-2026-03-25", 4)
    assert (actual["layout"], actual["n_gpus"], actual["status"]) == ("tp4-dp1-ep1", 4, "ok")
    assert (actual["precision"], actual["kv_bytes"], actual["kv_source"]) == ("fp8-kv8", 1.0, "recipe")
    assert actual["length_fraction"] == 0.9


def test_lengths_of_sweeps_are_not_drawn():
    assert only(row("sweeps", model_path="Qwen/Qwen3-32B", precision=None))["length_fraction"] == 1.0


@pytest.mark.parametrize(
    ("export", "collection"),
    [
        ("database", "inferencex-2026-04-27"),
        ("march", "inferencex-2026-03-25"),
        ("april", "inferencex-2026-04-06"),
        ("rounded", "rounded-copies"),
        ("sweeps", "nvidia-sweeps"),
        ("jobs", "nvidia-jobs"),
    ],
)
def test_collections(export, collection):
    assert only(row(export))["collection"] == collection


def test_two_pools_have_layouts_of_their_own():
    actual = only(pools(concurrency=10))
    assert actual["layout"] == "1x(tp1-dp4-ep4)+5x(tp8-dp1-ep8)"
    assert actual["n_gpus"] == 44
    assert pd.isna(actual["tp"])
    assert actual["rule"] == ""


def test_dense_models_have_no_expert_parallelism():
    actual = only(row("sweeps", degrees=(2, None, 1, 1), model_path="Qwen/Qwen3-32B", precision=None))
    assert (actual["layout"], actual["precision"], actual["repairs"]) == ("tp2-dp1-ep1", "bf16", "")


def test_absent_package_names_the_extra(monkeypatch):
    monkeypatch.setattr(silicon, "PACKAGE", "aiconfigurator_core_that_is_absent")
    with pytest.raises(SpecError, match=r"pip install 'cheetah_xr\[validation\]'"):
        silicon.read()


# Repairs


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("attention", ["tp", "dp"])
def test_squared_degrees_are_those_of_one_node(ranks, attention):
    label = (ranks**2, 1) if attention == "tp" else (1, ranks**2)
    actual = only(row(degrees=(*label, ranks, ranks), concurrency=256, **DEEPSEEK))
    assert actual["repairs"] == "squared_degrees"
    assert (actual[attention], actual["ep"], actual["n_gpus"]) == (ranks, ranks, ranks)
    assert actual["concurrency"] == 256
    assert actual["rule"] == ""


def test_degrees_that_agree_stay():
    actual = only(row("march", degrees=(1, 8, 1, 8), concurrency=256, **DEEPSEEK))
    assert (actual["layout"], actual["repairs"]) == ("tp1-dp8-ep8", "")
    sweep = {"model_path": "Qwen/Qwen3-235B-A22B-FP8", "backend": "trtllm"}
    assert only(row("sweeps", degrees=(4, None, 2, 2), **sweep))["layout"] == "tp4-dp1-ep2"


def test_vllm_expert_parallel_rows_keep_tensor_parallel_attention():
    actual = only(row("database", "2026-04-22", degrees=(4, 4, 1, 16), **MINIMAX))
    assert (actual["layout"], actual["repairs"], actual["rule"]) == ("tp4-dp1-ep4", "squared_vllm", "")


def test_one_label_of_two_recipes_is_excluded():
    actual = only(row("database", "2026-04-22", degrees=(2, 2, 1, 4), **{**MINIMAX, "precision": "fp4"}))
    assert (actual["repairs"], actual["rule"]) == ("squared_vllm", "either_attention")


def test_expert_parallelism_without_a_label():
    actual = only(row("database", "2026-03-28", degrees=(8, 1, 8, 1), **{**MINIMAX, "system": "h200_sxm"}))
    assert (actual["layout"], actual["repairs"]) == ("tp8-dp1-ep8", "unlabelled_ep")
    assert only(row("database", "2026-03-01", degrees=(4, 1, 4, 1), **{**MINIMAX, "system": "h200_sxm"}))["ep"] == 1


def test_blank_dp_follows_from_the_experts():
    fields = {"model_path": "Qwen/Qwen3-235B-A22B-FP8", "system": "h200_sxm"}
    actual = only(row("sweeps", degrees=(1, None, 2, 1), **fields))
    assert (actual["layout"], actual["repairs"], actual["rule"]) == ("tp1-dp2-ep1", "blank_dp", "")


def test_the_database_calls_r1_v3():
    actual = only(row("database", **{**DEEPSEEK, "model_path": "deepseek-ai/DeepSeek-V3"}))
    assert (actual["model"], actual["repairs"]) == ("deepseek-r1", "r1_named_v3")


# Exclusions


def test_copies_keep_the_row_of_the_best_export():
    v3 = {**DEEPSEEK, "model_path": "deepseek-ai/DeepSeek-V3"}
    rounded = {"silicon_ttft_ms": 123.46, "silicon_tpot_ms": 12.35}
    actual = table(
        row("april", **DEEPSEEK), row("march", **DEEPSEEK), row("database", **v3), row("rounded", **DEEPSEEK | rounded)
    )
    assert actual["rule"].tolist() == ["copy", "copy", "", "copy"]
    other = table(row("april", **DEEPSEEK), row("april", **DEEPSEEK, silicon_tpot_ms=12.36))
    assert other["rule"].tolist() == ["", ""]


@pytest.mark.parametrize(
    ("made", "rule"),
    [
        (row(model_path="some/model"), "unknown_model"),
        (row(system="tpu"), "unknown_gpu"),
        (row(model_path="openai/gpt-oss-120b"), "unknown_precision"),
        (row("silent", batch_size=16), "no_concurrency"),
        (row("jobs", concurrency=416, batch_size=13), "ambiguous_concurrency"),
        (pools(workers=(None, 5)), "no_workers"),
        (row(degrees=(72, 1, 72, 1), concurrency=4096, **{**DEEPSEEK, "system": "gb200"}), "pools_as_tp"),
        (row("march", degrees=(8, 1, 4, 4), **DEEPSEEK), "contradicting_degrees"),
        (row(pp_size=2), "contradicting_degrees"),
        (row(degrees=(3, 1, 3, 1)), "invalid_layout"),
        (pools(decode=(3, 1, 3, 1)), "invalid_layout"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_exclusions(made, rule):
    assert rule_of(made) == rule


def test_status_says_why_a_layout_is_invalid():
    assert only(row(degrees=(3, 1, 3, 1)))["status"] == "tp_heads"
    assert only(pools(decode=(3, 1, 3, 1)))["status"] == "tp_heads"


def test_batch_of_a_rank_times_ranks_is_the_concurrency():
    assert rule_of(row("march", degrees=(1, 8, 1, 8), concurrency=256, batch_size=32, **DEEPSEEK)) == ""


# Draft tokens


@pytest.mark.parametrize(
    ("date", "fields", "rule"),
    [
        ("2026-01-13", DEEPSEEK, ""),
        ("2026-01-14", DEEPSEEK, "draft_tokens"),
        ("2026-01-14", {}, ""),
        ("2026-03-19", {**DEEPSEEK, "model_path": "Qwen/Qwen3.5-397B-A17B", "backend": "sglang"}, ""),
        ("2026-03-20", {**DEEPSEEK, "model_path": "Qwen/Qwen3.5-397B-A17B", "backend": "sglang"}, "draft_tokens"),
    ],
)
def test_draft_tokens_are_possible_from_a_day_on(date, fields, rule):
    assert rule_of(row("march", date, **fields)) == rule


def test_the_database_has_no_draft_tokens():
    v3 = {**DEEPSEEK, "model_path": "deepseek-ai/DeepSeek-V3"}
    drafted = {**DEEPSEEK, "silicon_tpot_ms": 6.0}
    actual = table(
        row("march", "2026-02-07", **DEEPSEEK),
        row("database", "2026-02-07", **v3),
        row("march", "2026-02-07", **drafted),
    )
    assert actual["drafts"].tolist() == ["none", "none", "possible"]
    assert actual["rule"].tolist() == ["copy", "", "draft_tokens"]


def test_pools_may_have_had_draft_tokens_earlier():
    assert only(pools("march", date="2025-12-01"))["drafts"] == "possible"
    assert only(pools("database", date="2025-12-01"))["drafts"] == "none"


# Times


@pytest.mark.parametrize(
    ("made", "rule"),
    [
        (row(concurrency=1), ""),
        (row(concurrency=2), "ttft_queueing"),
        (row("march", degrees=(1, 8, 1, 8), concurrency=8, **DEEPSEEK), ""),
        (row("march", degrees=(1, 8, 1, 8), concurrency=9, **DEEPSEEK), "ttft_queueing"),
        (pools(concurrency=4), ""),
        (pools(concurrency=5), "ttft_queueing"),
    ],
)
def test_first_tokens_that_may_have_waited(made, rule):
    actual = only(made)
    assert (actual["ttft_rule"], actual["rule"]) == (rule, "")


def test_a_load_that_is_faster_than_half_of_it_is_reported():
    rows = [row(concurrency=c, silicon_tpot_ms=t) for c, t in ((8, 10.0), (16, 12.0), (32, 5.9), (64, 13.0))]
    actual = table(*rows)
    assert actual["reported"].tolist() == ["", "", "falls_with_load", ""]
    assert (actual["rule"] == "").all()


def test_repeats_that_differ_are_reported():
    actual = table(*(row(date=f"2025-10-{day}", silicon_tpot_ms=t) for day, t in ((28, 10.0), (29, 15.1))))
    assert actual["reported"].tolist() == ["repeats_differ"] * 2


def test_doubtful_rows_stay():
    fields = {"model_path": "nvidia/Llama-3.1-8B-Instruct-FP8", "system": "h200_sxm", "degrees": (1, None, 1, 1)}
    actual = only(row("sweeps", **fields))
    assert (actual["reported"], actual["rule"]) == ("llama_8b_fp8_h200", "")


# Rules in general


def test_the_first_exclusion_counts_and_nothing_is_dropped():
    frame = pd.DataFrame({"x": [1, 2, 3], "rule": "", "repairs": "", "reported": "", "ttft_rule": ""})
    steps = [
        Rule("double", "repair", "r", lambda t: t["x"] == 1, lambda t: t.assign(x=t["x"] * 2)),
        Rule("again", "repair", "r", lambda t: t["x"] == 2, lambda t: t.assign(x=t["x"] * 2)),
        Rule("four", "exclusion", "r", lambda t: t["x"] == 4),
        Rule("even", "exclusion", "r", lambda t: t["x"] % 2 == 0),
        Rule("odd", "report", "r", lambda t: t["x"] % 2 == 1),
    ]
    actual = apply(frame, steps)
    assert actual["x"].tolist() == [4, 4, 3]
    assert actual["repairs"].tolist() == ["double,again", "again", ""]
    assert actual["rule"].tolist() == ["four", "four", ""]
    assert actual["reported"].tolist() == ["", "", "odd"]
    assert frame["x"].tolist() == [1, 2, 3]


def test_counts_add_up():
    actual = table(
        row(), row(concurrency=32), row("silent", batch_size=1), row("silent", batch_size=2), row(system="tpu")
    )
    by_rule = counts(actual)
    excluded = by_rule.query("kind == 'exclusion'")["rows"].sum()
    assert (actual["rule"] == "").sum() + excluded == len(actual)
    assert by_rule.loc["no_concurrency", "rows"] == 1
    assert by_rule.loc["copy", "rows"] == 1


def test_rules_have_names_and_reasons_of_their_own():
    assert len({rule.name for rule in RULES}) == len({rule.reason for rule in RULES}) == len(RULES)
    assert all((rule.change is not None) == (rule.kind == "repair") for rule in RULES)


def test_precisions_are_in_the_catalogue():
    from cheetah_xr import list_precisions

    assert set(precision_list()["precision"]) <= set(list_precisions())
    assert set(precision_list()["model"]) <= set(silicon.MODELS.values())


@pytest.mark.parametrize(
    ("date", "kv_bytes"), [("2025-11-30", 2.0), ("2025-12-01", 1.0)], ids=["before the recipe's change", "after"]
)
def test_the_cache_follows_the_recipe_of_the_day(date, kv_bytes):
    fields = {"model_path": "openai/gpt-oss-120b", "system": "b200_sxm", "precision": "fp4"}
    actual = only(row(date=date, degrees=(1, 1, 1, 1), **fields))
    assert (actual["precision"], actual["kv_bytes"]) == ("mxfp4-experts-in8", kv_bytes)


@pytest.mark.parametrize("backend", ["vllm", "trtllm", "sglang"])
@pytest.mark.parametrize(
    ("system", "precision"),
    [
        ("b200_sxm", "mxfp4-experts-in8"),
        ("gb200", "mxfp4-experts-in8"),
        ("h100_sxm", "mxfp4-experts"),
        ("h200_sxm", "mxfp4-experts"),
    ],
)
def test_blackwell_quantises_the_inputs_of_gpt_oss(system, precision, backend):
    fields = {"model_path": "openai/gpt-oss-120b", "precision": "fp4", "backend": backend}
    actual = table(row(system=system, degrees=(1, 1, 1, 1), **fields))
    assert actual["precision"].tolist() == [precision]
    # the split knows the weights only
    gpu = actual["gpu"].iloc[0]
    assert configurations(actual).tolist() == [f"gpt-oss-120b|{gpu}|{backend}|mxfp4-experts|tp1-dp1-ep1|aggregated"]


def test_conditions_leave_the_rows_they_see():
    rows = silicon.harmonise(raw(row(degrees=(64, 1, 8, 8), **DEEPSEEK)))
    before = rows.copy()
    layouts.unsquare(rows)
    pd.testing.assert_frame_equal(rows, before)


# Published numbers


def test_published_rows_have_sources_and_setups():
    actual = validation.published_table()
    assert actual["id"].is_unique
    assert actual["source"].str.startswith("https://").all()
    assert actual["mode"].isin(["aggregated", "prefill", "decode", "static"]).all()
    eligible = actual[actual["rule"] == ""]
    assert (eligible["status"] == "ok").all()
    assert eligible[["ttft_s", "tpot_s", "elapsed_s", "tokens_per_s_gpu"]].notna().any(axis=1).all()
    assert set(actual["rule"]) == {"", "no_concurrency", "stalled"}


def test_published_decode_times_follow_from_their_throughput():
    decode = validation.published_table().query("mode == 'decode' and rule == ''")
    made = decode["concurrency"] / (decode["tokens_per_s_gpu"] * decode["n_gpus"])
    np.testing.assert_allclose(decode["tpot_s"].to_numpy("float64"), made.to_numpy("float64"), rtol=1e-3)


def test_a_stalled_batch_is_one_that_more_work_outruns():
    actual = validation.published_table().set_index("id")
    assert actual.loc["tokenomics-massive-seq16384-out1-b1", "rule"] == "stalled"
    assert actual.loc["tokenomics-massive-seq32768-out1-b1", "rule"] == ""
    assert (
        actual.loc["tokenomics-massive-seq16384-out1-b1", "ttft_s"]
        > actual.loc["tokenomics-massive-seq32768-out1-b1", "ttft_s"]
    )


# The split

KNOWN = {
    "llama-3.1-70b|b200-sxm|vllm|fp8|tp4-dp1-ep1|aggregated": "held out",
    "llama-3.1-70b|h100-sxm|vllm|fp8|tp8-dp1-ep1|aggregated": "held out",
    "deepseek-r1|h200-sxm|trtllm|fp8|tp8-dp1-ep8|aggregated": "held out",
    "gpt-oss-120b|b200-sxm|vllm|mxfp4-experts|tp1-dp1-ep1|aggregated": "fit",
    "qwen3-32b|h100-sxm|trtllm|fp8|tp2-dp1-ep1|aggregated": "held out",
    "minimax-m2.5|b200-sxm|vllm|fp8|tp2-dp1-ep1|aggregated": "held out",
    "deepseek-r1|gb200-nvl72|trtllm|nvfp4-mlp|1x(tp1-dp4-ep4)+4x(tp8-dp1-ep8)|disaggregated": "held out",
    "llama-3.3-70b|h100-sxm|vllm|bf16|tp4-dp1-ep1|static": "fit",
}


@pytest.mark.parametrize("configuration", KNOWN)
def test_the_split_is_fixed(configuration):
    assert side(configuration) == KNOWN[configuration]


def test_about_three_tenths_may_be_fitted():
    made = [side(f"model-{i}|gpu|engine|fp8|tp1-dp1-ep1|aggregated") for i in range(4000)]
    assert made.count("fit") / len(made) == pytest.approx(0.3, abs=0.03)


def test_a_curve_and_its_repeats_stay_together():
    rows = [
        row("march", "2026-03-11", 4, degrees=(2, 1, 2, 1), **MINIMAX),
        row("database", "2026-04-22", 512, degrees=(2, 1, 2, 1), isl=8192, **MINIMAX, backend_version="0.19.0"),
    ]
    actual = table(*rows)
    assert actual["precision"].tolist() == ["fp8", "fp8-kv8"]
    assert configurations(actual).tolist() == ["minimax-m2.5|b200-sxm|vllm|fp8|tp2-dp1-ep1|aggregated"] * 2
    assert len(set(sides(actual))) == 1


@pytest.mark.parametrize("suffix", ["", "-kv8", "-in8", "-in8-kv8"])
def test_types_of_cache_and_inputs_change_no_side(suffix):
    actual = table(row(degrees=(2, 1, 2, 1), **MINIMAX))
    named = actual.assign(precision=pd.Series([f"mxfp4-experts{suffix}"], actual.index, dtype="string"))
    assert configurations(named).tolist() == ["minimax-m2.5|b200-sxm|vllm|mxfp4-experts|tp2-dp1-ep1|aggregated"]
    other = actual.assign(precision=pd.Series(["fp8-in16"], actual.index, dtype="string"))
    assert "|fp8-in16|" in configurations(other).iloc[0]


def test_predictions_are_never_fitted():
    actual = validation.published_table()
    assert (sides(actual)[actual["prediction"]] == "prediction").all()
    assert not (sides(actual)[~actual["prediction"]] == "prediction").any()
    assert actual.set_index("id").loc["lmsys-96h100-decode", "prediction"]
