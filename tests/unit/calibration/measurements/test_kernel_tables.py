"""Kernel tables on synthetic rows: rules, files, fits that find what made the rows."""

import numpy as np
import pandas as pd
import pytest

from cheetah_xr import SpecError
from cheetah_xr.calibration.measurements import kernels
from cheetah_xr.calibration.measurements.kernels import files, fits, forms, report, tables, wire, work
from cheetah_xr.calibration.measurements.split import side
from tests.helpers.kernel_rows import (
    attention_row,
    experts_row,
    gemm_row,
    grouped_row,
    low_latency_row,
    mla_row,
    only,
    raw,
)

MS = 1e-3

# The table and its rules


def tidied(convert, row, **rest):
    return only(tables.tidy(convert(row).assign(gpu=row["gpu"], engine=row["engine"], engine_version="1", **rest)))


@pytest.mark.parametrize(
    ("rule", "convert", "row"),
    [
        ("", work.gemm, gemm_row()),
        ("eager", work.gemm, gemm_row(gemm_dtype="fp8_block", engine="vllm")),
        ("", work.gemm, gemm_row(gemm_dtype="fp8", engine="vllm")),
        ("narrow", work.gemm, gemm_row(n=256)),
        ("unfused", work.quantize, raw("sglang", m=1, k=512, quant_dtype="fp8")),
        ("", work.attention_decode, attention_row()),
        ("short", work.attention_decode, attention_row(step=127)),
        ("short", work.attention_decode, attention_row(batch_size=1024)),
        ("many_queries", work.attention_decode, attention_row(num_heads=64)),
        ("", work.mla_decode, mla_row()),
        ("", work.experts, experts_row()),
        ("skewed", work.experts, experts_row(distribution="power_law_1.2")),
        ("group_limited", work.experts, experts_row(kernel_source="moe_torch_flow_min_latency")),
        ("group_limited", work.experts, experts_row(engine="vllm", hidden_size=7168, inter_size=2048, num_experts=256)),
        ("", work.experts, experts_row(hidden_size=7168, inter_size=2048, num_experts=256)),
        ("across_nodes", lambda row: wire.deepep_low_latency(row)[:1], low_latency_row(node_num=2)),
    ],
)
def test_rules(rule, convert, row):
    assert tidied(convert, row)["rule"] == rule


def reduce_row(engine, gpu, ranks, mode="graph"):
    return raw(engine, gpu, mode, allreduce_dtype="bfloat16", num_gpus=ranks, message_size=128)


@pytest.mark.parametrize(
    ("rule", "row"),
    [
        ("", reduce_row("vllm", "h100-sxm", 8)),
        ("eager", reduce_row("vllm", "h100-sxm", 8, "vLLM_custom_eager")),
        ("across_hosts", reduce_row("sglang", "gb300-nvl72", 8)),
        ("", reduce_row("trtllm", "gb300-nvl72", 8)),
    ],
)
def test_rules_of_all_reduces(rule, row):
    assert tidied(wire.engine_all_reduce, row)["rule"] == rule


def test_few_rows_in_prefill_are_bound_by_the_host():
    made = [work.experts_grouped(grouped_row(op_name=o, num_tokens=n)).assign(gpu="h100-sxm", engine="sglang")
            for o in ("moe_context", "moe_generation") for n in (8191, 8192)]  # fmt: skip
    assert tables.tidy(pd.concat(made))["rule"].tolist() == ["host_bound", "", "", ""]


def test_other_numbers_of_sms_stay_out_of_fits():
    given = {"node_num": 1, "hidden_size": 7168, "num_token": 10, "num_topk": 8, "num_experts": 256}
    times = {"dispatch_transmit_us": 30.0, "combine_transmit_us": 50.0}
    actual = [
        tidied(lambda row: wire.deepep_normal(row)[:1], raw(**given, **times, dispatch_sms=sms))["rule"]
        for sms in (20, 24)
    ]
    assert actual == ["", "other_sms"]


def test_columns_and_generation():
    actual = tidied(work.gemm, gemm_row(gpu="gb200-nvl72"))
    assert list(actual.index) == list(kernels.COLUMNS)
    assert (actual["generation"], actual["tokens"], actual["link_bytes"]) == ("blackwell", 16, 0)
    assert pd.isna(actual["heads"])


# Files


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A folder like the package's, with GEMM tables of three versions."""
    for system in files.GPUS:
        (tmp_path / system).mkdir()
    rows = pd.concat([gemm_row(m=m).drop(columns=["gpu", "engine"]) for m in range(1, 21)])
    for version, count in {"1.3.0rc9": 20, "1.3.0rc20": 15, "1.3.0rc23": 1}.items():
        folder = tmp_path / "h100_sxm" / "gemm" / "trtllm" / version
        folder.mkdir(parents=True)
        rows[:count].to_parquet(folder / "gemm_perf.parquet")
    monkeypatch.setattr(files, "_data", lambda: tmp_path)


@pytest.mark.usefixtures("package")
def test_the_newest_table_that_is_no_supplement_is_read():
    assert {file.version for file in files.find("gemm_perf")} == {"1.3.0rc9", "1.3.0rc20", "1.3.0rc23"}
    table = kernels.kernel_table(["gemm"], engines=["trtllm"])
    assert len(table) == 15
    assert set(table["engine_version"]) == {"1.3.0rc20"}
    assert kernels.counts(table).loc["gemm"].to_dict() == {"in fits": 15}


@pytest.mark.usefixtures("package")
def test_nothing_is_there_for_an_engine_without_tables():
    with pytest.raises(SpecError, match=r"kernel_table: no table of gemm for vllm on b200-sxm"):
        kernels.kernel_table(["gemm"], ["b200-sxm"], ["vllm"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kernels": ["gem"]}, "kernel_table: kernels: 'gem' is not one of gemm, quantize"),
        ({"gpus": ["h100"]}, "kernel_table: gpus: 'h100' is not one of h100-sxm"),
        ({"engines": ["tgi"]}, "kernel_table: engines: 'tgi' is not one of trtllm"),
    ],
)
def test_unknown_names(given, message):
    with pytest.raises(SpecError, match=message):
        kernels.kernel_table(**given)


def test_without_the_package(monkeypatch):
    monkeypatch.setattr(files, "PACKAGE", "no_such_package")
    with pytest.raises(SpecError, match=r"aiconfigurator-core: pip install 'cheetah_xr\[validation\]'"):
        kernels.kernel_table(["gemm"])


# Forms and fits


def ones(**amounts):
    """Work of one row at rates of 1, everything else 0."""
    rates = {"first_rate": np.ones(1), "second_rate": np.ones(1)}
    given = {name: np.array([amounts.get(name, 0.0)]) for name in ("first", "second", "side", "ranks", "message")}
    return forms.Work(**given, **rates)


FULL = {"eta_first": 0.5, "eta_second": 0.25, "eta_side": 0.1, "launch_s": 3.0, "step_s": 2.0, "round_s": 5.0}
HALVES = {"half_first": 4.0, "half_second": 1.0}


@pytest.mark.parametrize(
    ("form", "seconds"),
    [
        ("constant", max(10 / 0.5, 6 / 0.25)),
        ("launch", 3 + 24),
        ("saturating", max((10 + 4) / 0.5, (6 + 1) / 0.25)),
        ("in_series", 3 + 20 + 24),
        ("passes", 3 + 24 + 2 / 0.1),
        ("passes_in_series", 3 + 20 + 24 + 2 / 0.1),
        ("steps", 3 + 2 * (4 - 1) + 24),
    ],
)
def test_forms(form, seconds):
    given = ones(first=10.0, second=6.0, side=2.0, ranks=4.0)
    assert forms.FORMS[form].time(FULL | HALVES, given) == pytest.approx(seconds)


@pytest.mark.parametrize(("message", "seconds"), [(1.0, 3 + 3 / 0.5), (100.0, 3 + 5 + 150 / 0.5)])
def test_an_all_reduce_sends_small_messages_at_once(message, seconds):
    """Four ranks: 3 messages to the others, or 6/4 of one in two rounds."""
    given = ones(first=1.5 * message, ranks=4.0, message=message)
    assert forms.one_shot(FULL, given) == pytest.approx(seconds)


def test_a_launch_is_a_saturation():
    given = ones(first=10.0, second=6.0)
    halves = {"half_first": 0.5 * 3.0, "half_second": 0.25 * 3.0}
    assert forms.launch(FULL, given) == pytest.approx(forms.saturating(FULL | halves, given))


def rows_of(convert, rows):
    return tables.tidy(convert(rows).assign(gpu=rows["gpu"], engine=rows["engine"], engine_version="1"))


def gemms(gpus=("h100-sxm",), dtype="bfloat16"):
    """GEMMs of 48 shapes and six sizes on some accelerators, times still to come."""
    return pd.concat(
        [
            gemm_row(m=m, k=k, n=n, gpu=gpu, gemm_dtype=dtype)
            for gpu in gpus
            for m in (1, 16, 128, 512, 2048, 8192)
            for k in (1024, 2048, 4096, 8192)
            for n in range(1024, 13000, 1024)
        ],
        ignore_index=True,
    )


TRUE = {"eta_first": 0.8, "eta_second": 0.7, "eta_side": 0.4, "launch_s": 4e-6, "half_first": 2e7, "half_second": 3e10}


@pytest.mark.parametrize("name", ["constant", "launch", "saturating", "in_series", "passes", "passes_in_series"])
def test_a_fit_finds_what_made_the_times(name):
    form = forms.FORMS[name]
    rows = rows_of(work.gemm, gemms(dtype="fp8"))
    rows["time_s"] = form.time(TRUE, forms.work(rows))
    assert kernels.fit(rows, form) == pytest.approx({key: TRUE[key] for key in form.parameters}, rel=1e-4)


def test_a_fit_is_not_pulled_by_outliers():
    rows = rows_of(work.gemm, gemms())
    rows["time_s"] = forms.launch(TRUE, forms.work(rows))
    rows.loc[::20, "time_s"] *= 30
    actual = kernels.fit(rows, forms.FORMS["launch"])
    assert actual["eta_first"] == pytest.approx(0.8, rel=0.02)
    assert actual["launch_s"] == pytest.approx(4e-6, rel=0.02)


def test_work_at_catalogue_rates():
    rows = rows_of(work.gemm, gemms(("h100-sxm", "gb200-nvl72"), "fp8"))
    actual = forms.work(rows)
    hopper = (rows["gpu"] == "h100-sxm").to_numpy()
    assert set(actual.first_rate[hopper]) == {3350e9}
    assert set(actual.second_rate[hopper]) == {1978.9e12}
    assert set(actual.second_rate[~hopper]) == {5000e12}


def test_a_rate_that_is_not_known():
    rows = rows_of(work.gemm, gemm_row(gemm_dtype="nvfp4"))
    with pytest.raises(SpecError, match="does not know peak_fp4 of h100-sxm, which rows of gemm need"):
        forms.work(rows)


def test_one_kernel_at_a_time():
    rows = pd.concat([rows_of(work.gemm, gemm_row()), rows_of(work.mla_decode, mla_row())])
    with pytest.raises(SpecError, match="rows of one kernel are needed, not of 2: gemm, mla_decode"):
        forms.work(rows)


def test_whole_curves_are_on_one_side():
    rows = rows_of(work.gemm, gemms(("h100-sxm", "b200-sxm", "h200-sxm")))
    label = kernels.curves(rows)
    by = dict(fits.splits(rows))
    assert label.nunique() == 48
    assert label.groupby([rows["k"], rows["n"]]).nunique().max() == 1
    assert by["shapes"].groupby(label).nunique().max() == 1
    assert by["shapes"].tolist() == [side(name) == "fit" for name in label]
    assert 0.15 < by["shapes"].mean() < 0.45
    assert set(rows["gpu"][by["gpus"]]) == {"h100-sxm", "b200-sxm"}


def test_curves_of_collectives_are_ranks_of_an_accelerator():
    sizes = [reduce_row("vllm", "h100-sxm", ranks).assign(message_size=s) for ranks in (2, 8) for s in (128, 256)]
    label = kernels.curves(rows_of(wire.engine_all_reduce, pd.concat(sizes, ignore_index=True)))
    assert label.tolist() == ["all_reduce|h100-sxm|2|||"] * 2 + ["all_reduce|h100-sxm|8|||"] * 2


@pytest.fixture(scope="module")
def fitted():
    rows = rows_of(work.gemm, gemms(("h100-sxm", "h200-sxm")))
    rows["time_s"] = forms.launch(TRUE, forms.work(rows)) * np.where(rows["gpu"] == "h200-sxm", 1.1, 1.0)
    spoiled = rows.iloc[:1].assign(rule="eager", time_s=1.0)
    return kernels.efficiencies(pd.concat([rows, spoiled], ignore_index=True))


def test_efficiencies(fitted):
    assert set(fitted["split"]) == {"shapes", "gpus"}
    assert fitted["form"].unique().tolist() == ["constant", "launch", "saturating", "in_series"]
    elsewhere = fitted[(fitted["split"] == "gpus") & (fitted["form"] == "launch")].iloc[0]
    assert (elsewhere["rows_fitted"], elsewhere["rows_tested"]) == (288, 288)
    assert elsewhere["eta_first"] == pytest.approx(0.8, rel=1e-4)
    assert elsewhere["rms_fitted"] < 1e-6
    assert (elsewhere["rms_tested"], elsewhere["median_tested"]) == pytest.approx((np.log(1.1),) * 2, rel=1e-4)


def test_a_constant_efficiency_shows_its_error(fitted):
    within = fitted[fitted["split"] == "shapes"].set_index("form")["rms_tested"]
    assert within["launch"] < 0.06 < within["constant"]


def test_a_resource_that_is_not_used_has_no_efficiency():
    rows = pd.concat([raw(m=m, k=k, quant_dtype="fp8") for m in (1, 100, 10000) for k in range(512, 9000, 512)])
    rows = rows_of(work.quantize, rows.reset_index(drop=True))
    rows["time_s"] = 2e-6 + rows["bytes"] / 3.35e12 / 0.6
    actual = kernels.efficiencies(rows).set_index("form").loc["launch"]
    assert pd.isna(actual["eta_second"])
    assert (actual["eta_first"], actual["launch_s"]) == pytest.approx((0.6, 2e-6), rel=1e-4)


def test_efficiencies_of_nothing():
    rows = rows_of(work.gemm, gemm_row())
    with pytest.raises(SpecError, match="by: 'kernel' must be one of the columns, given engine"):
        kernels.efficiencies(rows, by=["engine"])
    with pytest.raises(SpecError, match="no row is left"):
        kernels.efficiencies(rows.assign(rule="eager"))


# The document


def test_the_generated_part(fitted, tmp_path, monkeypatch):
    counted = pd.DataFrame({"in fits": [1234], "eager": [1]}, index=["gemm"])
    monkeypatch.setattr(report, "measure", lambda: (fitted, counted))
    document = tmp_path / "doc.md"
    document.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n", encoding="utf-8")
    for _ in range(2):
        report.main(document)
        text = document.read_text(encoding="utf-8")
        assert text.startswith("before\n")
        assert text.endswith("\nafter\n")
        assert "old" not in text
    line = next(line for line in text.splitlines() if line.startswith("| gemm, trtllm"))
    assert line.count("|") == len(report.HEADER) + 1
    assert " | bf16 | hopper | launch | 0.77 | 0.67 |  | 4.3 |" in line
    assert line.endswith(" | 0.10 |")
    assert "| gemm | 1,234 | 1 |" in text


def test_the_simplest_of_equal_forms_is_shown():
    rows = pd.DataFrame({"form": ["in_series", "saturating", "launch"], "rms_tested": [0.101, 0.102, 0.104]})
    assert report.best(rows)["form"] == "launch"


def test_only_the_most_measured_backend_is_shown():
    keys = {"kernel": "gemm", "engine": "vllm", "precision": "bf16", "generation": "hopper", "rows_tested": 1}
    rows = pd.DataFrame([keys | {"backend": "a", "rows_fitted": 1}, keys | {"backend": "b", "rows_fitted": 2}])
    assert report.main_backends(rows)["backend"].tolist() == ["b"]
    assert report.main_backends(rows.assign(kernel="dispatch"))["backend"].tolist() == ["a", "b"]
