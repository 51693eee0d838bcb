"""Inputs of other tools, their predictions read and rejected, hand-computed errors; calls of aiconfigurator."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from cheetah_xr.calibration import measurements as validation
from cheetah_xr.calibration.measurements.precisions import precision_list
from cheetah_xr.calibration.report import other_tools
from tests.helpers import ROOT
from tests.helpers.measured import pools, row, table
from tests.helpers.rejection import rejected

sys.path.insert(0, str(ROOT / "benchmarks" / "other_tools"))
import aiconfigurator_rows as adapter
import timing

TOOLS = Path(adapter.__file__).parent
IDS = ["april-2025-10-29-16", "april-2025-10-29-32"]


def two_rows():
    """Llama 70B in 8-bit on 8 H100 at 16 and 32 requests, TTFT 123.4567 and 200 ms, TPOT 12.3456 and 20 ms."""
    return table(row(concurrency=16), row(concurrency=32, silicon_ttft_ms=200.0, silicon_tpot_ms=20.0))


def predictions_file(tmp_path, text, header="id,ttft_s,tpot_s,reason"):
    path = tmp_path / "predictions.csv"
    path.write_text(f"{header}\n{text}\n", encoding="utf-8")
    return path


def read(tmp_path, text, **kwargs):
    return other_tools.read_predictions(predictions_file(tmp_path, text, **kwargs))


# Questions


def test_inputs_state_the_run_and_no_measured_time():
    actual = other_tools.tool_inputs(two_rows())
    assert list(actual.columns) == list(other_tools.INPUTS)
    assert not set(actual.columns) & {"ttft_s", "tpot_s", "elapsed_s", "tokens_per_s_gpu"}
    first = actual.iloc[0]
    assert (first["model"], first["gpu"], first["precision"], first["kv_bytes"]) == (
        "llama-3.1-70b",
        "h100-sxm",
        "fp8-kv8",
        1.0,
    )
    assert (first["tp"], first["dp"], first["ep"], first["moe_tp"], first["concurrency"]) == (8, 1, 1, 8, 16)


def test_experts_tensor_parallel_degree_of_pools():
    actual = other_tools.tool_inputs(table(pools(decode=(8, 2, 4, 4)))).iloc[0]
    assert (actual["prefill_moe_tp"], actual["decode_moe_tp"]) == (1, 4)
    assert (actual["prefill_workers"], actual["decode_workers"]) == (1, 5)
    assert pd.isna(actual["moe_tp"])


def test_only_eligible_served_rows_are_inputs():
    excluded = two_rows().assign(rule=["", "copy"])
    assert other_tools.tool_inputs(excluded)["id"].tolist() == IDS[:1]
    served = other_tools.tool_inputs(validation.published_table())
    assert set(served["mode"]) == {"aggregated"}


# Predictions


def test_predictions_by_id_with_other_columns_of_the_file(tmp_path):
    actual = read(tmp_path, "a,0.5,0.01,,yes\nb,,,no data,", header="id,ttft_s,tpot_s,reason,queues")
    assert actual.loc["a"].to_dict() == {"ttft_s": 0.5, "tpot_s": 0.01, "reason": "", "queues": "yes"}
    assert actual.loc["b", ["ttft_s", "tpot_s"]].isna().all()
    assert actual.loc["b", "reason"] == "no data"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,0.5,0.01,\na,0.5,0.01,", ["'a'", "id", "twice"]),
        ("a,0.5,0,", ["'a'", "tpot_s", "positive"]),
        ("a,-0.5,0.1,", ["'a'", "ttft_s", "positive"]),
        ("a,0.5,soon,", ["'a'", "tpot_s 'soon'", "positive"]),
        ("a,0.5,inf,", ["'a'", "tpot_s", "positive"]),
        ("a,0.5,nan,", ["'a'", "tpot_s", "positive"]),
        ("a,0.5,,", ["'a'", "reason", "both times"]),
        ("a,0.5,,slow", ["'a'", "reason", "both times"]),
        ("a,,,", ["'a'", "reason", "both times"]),
    ],
)
def test_invalid_predictions_are_rejected(tmp_path, text, words):
    rejected(lambda: read(tmp_path, text), "predictions.csv", *words)


def test_a_missing_column_is_named(tmp_path):
    rejected(lambda: read(tmp_path, "a,0.1", header="id,ttft_s"), "predictions.csv", "tpot_s, reason")


# Errors


def test_hand_computed_errors_on_the_rows_all_predict(tmp_path):
    """12.3456 ms predicted as 0.0111104 s is 10 % short; the second row is predicted by one tool only."""
    one = read(tmp_path, f"{IDS[0]},0.1,0.01111104,\n{IDS[1]},0.1,0.03,")
    other = read(tmp_path, f"{IDS[0]},0.1,0.0246912,\n{IDS[1]},,,no data")
    both = other_tools.errors(two_rows(), {"one": one, "other": other})
    assert both.index.tolist() == IDS[:1]
    np.testing.assert_allclose(both.loc[IDS[0], ["one", "other"]].astype(float), [-0.1, 1.0], rtol=1e-12)
    alone = other_tools.errors(two_rows(), {"one": one})
    np.testing.assert_allclose(alone["one"], [-0.1, 0.5], rtol=1e-12)


def test_errors_of_first_tokens(tmp_path):
    actual = other_tools.errors(two_rows(), {"one": read(tmp_path, f"{IDS[1]},0.25,0.1,")}, "ttft_s")
    np.testing.assert_allclose(actual["one"], [0.25], rtol=1e-12)


def test_excluded_and_unmeasured_rows_have_no_error(tmp_path):
    one = read(tmp_path, f"{IDS[0]},0.1,0.01,\n{IDS[1]},0.1,0.03,")
    assert other_tools.errors(two_rows().assign(rule=["", "copy"]), {"one": one}).index.tolist() == IDS[:1]
    assert other_tools.errors(two_rows().assign(tpot_s=[np.nan, 1.0]), {"one": one}).index.tolist() == IDS[1:]


def test_strangers_and_other_times_are_rejected(tmp_path):
    one = read(tmp_path, "nobody,0.1,0.01,")
    rejected(lambda: other_tools.errors(two_rows(), {"one": one}), "one", "'nobody'")
    rejected(lambda: other_tools.errors(two_rows(), {}, "elapsed_s"), "time", "'elapsed_s'", "ttft_s, tpot_s")


def test_summary_hand_computed():
    """Errors -10, 20 and 60 %: mean of the absolute ones 30 %, median 20 %, signed median 20 %."""
    rows = pd.DataFrame({"gpu": ["a", "a", "b"], "one": [-0.1, 0.2, 0.6]})
    whole = other_tools.summary(rows, ["one"]).iloc[0]
    assert whole[("", "rows")] == 3
    np.testing.assert_allclose(whole["one"][["mape", "median", "bias"]], [0.3, 0.2, 0.2], rtol=1e-12)
    by = other_tools.summary(rows, ["one"], ["gpu"])
    np.testing.assert_allclose(by[("one", "mape")], [0.15, 0.6], rtol=1e-12)
    np.testing.assert_allclose(by[("one", "bias")], [0.05, 0.6], rtol=1e-12)


# How aiconfigurator is called


def question(actual):
    """The row as the CSV file has it."""
    text = other_tools.tool_inputs(actual).iloc[:1].astype("object").fillna("")
    return {name: str(value) for name, value in text.iloc[0].items()}


def lists(name):
    return adapter.read(TOOLS / name)


def test_an_instance_is_called_with_its_layout_mean_lengths_and_requests_per_rank():
    actual = table(row(degrees=(4, 2, 1, 8), concurrency=17, model_path="MiniMaxAI/MiniMax-M2.5", precision="fp8"))
    database, label, arguments = next(adapter.ways(question(actual), lists("aiconfigurator_settings.csv")))
    assert database == arguments["database_mode"] == "SILICON"
    assert label == "MiniMaxAI/MiniMax-M2.5 gemm=fp8 moe=fp8 kvcache=bfloat16"
    expected = {
        "mode": "agg",
        "tp_size": 4,
        "attention_dp_size": 2,
        "moe_tp_size": 1,
        "moe_ep_size": 8,
        "batch_size": 9,
    }
    expected |= {"isl": 922, "osl": 922, "backend_name": "vllm", "system_name": "h100_sxm"}
    assert {name: arguments[name] for name in expected} == expected


def test_pools_are_called_with_workers_and_batches_of_their_own():
    actual = table(pools(decode=(8, 2, 4, 4), workers=(3, 5), concurrency=41))
    arguments = adapter.load(question(actual))
    assert arguments["mode"] == "disagg"
    assert (arguments["prefill_batch_size"], arguments["decode_batch_size"]) == (1, 5)
    assert (arguments["prefill_num_workers"], arguments["decode_num_workers"]) == (3, 5)
    assert (arguments["decode_moe_tp_size"], arguments["decode_moe_ep_size"]) == (4, 4)


def test_measured_tables_come_before_formulas_and_the_first_answer_counts():
    called = []

    def estimate(**arguments):
        called.append((arguments["database_mode"], arguments["kvcache_quant_mode"]))
        if arguments["database_mode"] == "SILICON":
            raise RuntimeError("no table\nof this at /somewhere/file.parquet")
        return SimpleNamespace(ttft=500.0, tpot=10.0, kv_cache_warning="too many")

    actual = adapter.predict(question(two_rows()), lists("aiconfigurator_settings.csv"), estimate)
    assert called == [("SILICON", "fp8"), ("SILICON", None), ("HYBRID", "fp8")]
    assert (actual["ttft_s"], actual["tpot_s"], actual["database"], actual["queues"]) == (0.5, 0.01, "HYBRID", "yes")


def test_a_row_without_an_answer_says_why():
    def estimate(**arguments):
        if arguments["database_mode"] == "HYBRID":
            return SimpleNamespace(ttft=float("nan"), tpot=1.0, kv_cache_warning=None)
        raise RuntimeError("no table\nof this at /somewhere/file.parquet")

    actual = adapter.predict(question(two_rows()), lists("aiconfigurator_settings.csv"), estimate)
    assert (actual["tpot_s"], actual["reason"]) == ("", "RuntimeError: no table of this")
    assert adapter.predict(question(two_rows()), [], estimate)["reason"] == "no setting for llama-3.1-70b fp8-kv8"


@pytest.mark.parametrize("name", ["aiconfigurator_settings.csv", "aiconfigurator_labels.csv"])
def test_every_eligible_row_has_a_setting(name):
    pytest.importorskip("aiconfigurator_core", reason="needs the extra validation")
    called = other_tools.tool_inputs(validation.silicon_table())
    for row_ in called.drop_duplicates(["model", "precision", "engine", "mode"]).to_dict("records"):
        assert adapter.settings(row_, lists(name)), row_


@pytest.mark.parametrize("name", ["aiconfigurator_settings.csv", "aiconfigurator_labels.csv"])
def test_every_precision_of_an_eligible_model_has_a_setting(name):
    """Without the package: a precision that gets another name is noticed here."""
    known = lists(name)
    called = {choice["model"] for choice in known}
    for choice in precision_list().to_dict("records"):
        if choice["model"] in called:
            assert adapter.settings({**choice, "engine": "", "mode": ""}, known), choice


def test_lookups_are_read_once_and_stay_the_same():
    calls = []

    def slots(system, backend, paths):
        calls.append((system, backend, tuple(paths)))
        return {"current": system}

    package = SimpleNamespace(
        get_supported_databases=lambda: calls.append("supported") or {},
        get_version_slots=slots,
        get_systems_paths=lambda: ["/data"],
    )
    adapter.remember_lookups(package)
    for _ in range(2):
        assert package.get_version_slots("h100_sxm", "vllm") == {"current": "h100_sxm"}
        assert package.get_version_slots("h100_sxm", "vllm", systems_paths="/data") == {"current": "h100_sxm"}
        assert package.get_supported_databases() == {}
    assert calls == [("h100_sxm", "vllm", ("/data",)), "supported"]


# How other tools are timed


def test_every_round_times_new_points():
    rounds = [timing.points(5000, shift) for shift in range(timing.ROUNDS)]
    assert [len(pairs) for pairs in rounds] == [5000] * timing.ROUNDS
    assert len(set().union(*rounds)) == 5000 * timing.ROUNDS
    assert len(set(timing.points(10, 0))) == 10


def test_another_tool_answers_every_point_at_every_degree_and_building_is_not_timed(monkeypatch):
    """A clock that moves 1 ms per answer and 1 s per build: 1,000 points a second."""
    clock = [0.0]
    calls = []

    def make(tp):
        clock[0] += 1.0

        def step(batch, length):
            clock[0] += 1e-3
            calls.append((tp, batch, length))
            return 0.5

        return step

    monkeypatch.setattr(timing.time, "process_time", lambda: clock[0])
    actual = timing.measure(make, 10)
    assert actual["points_per_second"] == pytest.approx(1000)
    assert (actual["points"], actual["sample_s"]) == (20, 0.5)
    assert calls[0] == timing.SAMPLE
    assert len(set(calls[1:])) == len(calls) - 1 == timing.ROUNDS * 20
