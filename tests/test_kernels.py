"""Kernel tables on rows made up here: conversions by hand, rules, files, fits that find what made the rows."""

import numpy as np
import pandas as pd
import pytest

from cheetah_xr import SpecError
from cheetah_xr.validation import kernels
from cheetah_xr.validation.kernels import files, fits, forms, report, tables, wire, work
from cheetah_xr.validation.split import side

MS = 1e-3


def raw(engine="trtllm", gpu="h100-sxm", kernel_source="k", latency=0.5, **columns):
    """One row as the package holds it, its accelerator and engine in front."""
    return pd.DataFrame([{"gpu": gpu, "engine": engine, "kernel_source": kernel_source, "latency": latency, **columns}])


def only(frame):
    assert len(frame) == 1
    return frame.iloc[0]


def gemm_row(m=16, k=4096, n=6144, gemm_dtype="bfloat16", **rest):
    return raw(m=m, k=k, n=n, gemm_dtype=gemm_dtype, **rest)


def attention_row(**rest):
    given = {"batch_size": 2, "isl": 1, "step": 1023, "num_heads": 8, "num_key_value_heads": 2, "head_dim": 128}
    labels = {"window_size": 0, "attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16"}
    return raw(**(given | labels | rest))


def mla_row(**rest):
    given = {"batch_size": 3, "isl": 1, "step": 999, "num_heads": 16, "mla_dtype": "bfloat16"}
    return raw(**(given | {"kv_cache_dtype": "bfloat16"} | rest))


def experts_row(**rest):
    given = {"num_tokens": 64, "hidden_size": 4096, "inter_size": 1536, "topk": 8, "num_experts": 128}
    layout = {"moe_tp_size": 1, "moe_ep_size": 4, "moe_dtype": "fp8", "distribution": "balanced"}
    return raw(**(given | layout | rest))


# Conversions, computed by hand


def test_gemm():
    found = only(work.gemm(gemm_row()))
    assert found["flops"] == 2 * 16 * 4096 * 6144 == 805_306_368
    assert found["bytes"] == 50_331_648 + 16 * (2 * 4096 + 2 * 6144)
    assert (found["side_bytes"], found["precision"], found["compute"]) == (0, "bf16", "bf16")
    assert found["time_s"] == pytest.approx(0.5 * MS)


@pytest.mark.parametrize(
    ("label", "weight", "given", "compute"),
    [
        ("fp8", 1, 1, "fp8"),
        ("fp8_block", 1 + 4 / 16384, 1 + 4 / 128, "fp8"),
        ("nvfp4", 0.5625, 0.5625, "fp4"),
    ],
)
def test_gemm_in_narrow_formats_quantises_its_input(label, weight, given, compute):
    found = only(work.gemm(gemm_row(m=3, k=256, n=512, gemm_dtype=label)))
    assert found["bytes"] == pytest.approx(256 * 512 * weight + 3 * (256 * given + 512 * 2))
    assert found["side_bytes"] == pytest.approx(3 * 256 * (2 + given))
    assert found["compute"] == compute


def test_quantize():
    found = only(work.quantize(raw(m=10, k=100, quant_dtype="fp8")))
    assert (found["bytes"], found["flops"], found["precision"]) == (3000, 0, "fp8")


def test_attention_decode():
    """1024 keys: the cache read and the new token written, 2 KV heads of 128, keys and values in bf16."""
    found = only(work.attention_decode(attention_row()))
    cache = (1024 + 1) * 2 * 2 * 128 * 2
    query_and_output = 2 * 8 * 128 * 2
    assert found["bytes"] == 2 * (cache + query_and_output)
    assert found["flops"] == 2 * 8 * 1024 * 4 * 128
    assert (found["new"], found["seq_len"], found["precision"]) == (1, 1024, "bf16")


def test_attention_decode_in_a_window_and_an_fp8_cache():
    found = only(work.attention_decode(attention_row(window_size=128, kv_cache_dtype="fp8")))
    assert found["bytes"] == 2 * ((128 + 1) * 2 * 2 * 128 + 2 * 8 * 128 * 2)
    assert found["flops"] == 2 * 8 * 128 * 4 * 128
    assert found["precision"] == "bf16-kv8"


def test_attention_prefill():
    """Four tokens see 1 + 2 + 3 + 4 keys; queries, keys, values and outputs move, and the cache is written."""
    row = attention_row(isl=4, step=0, attn_dtype="fp8", kv_cache_dtype="fp8")
    found = only(work.attention_prefill(row))
    assert found["flops"] == 2 * 8 * 10 * 4 * 128
    assert found["bytes"] == 2 * (4 * 2 * 2 * 128 + 4 * (8 + 8 + 2 + 2) * 128 * 2)
    assert (found["precision"], found["compute"]) == ("fp8-kv8", "fp8")


def test_attention_prefill_in_a_window():
    found = only(work.attention_prefill(attention_row(isl=4, step=0, window_size=2)))
    assert found["flops"] == 2 * 8 * (1 + 2 + 2 + 2) * 4 * 128


def test_mla_decode():
    """Every head reads the same latent of 512 and 64; 1000 keys."""
    found = only(work.mla_decode(mla_row()))
    assert found["flops"] == 3 * 16 * 1000 * 2 * (576 + 512)
    assert found["bytes"] == 3 * ((1000 + 1) * 576 * 2 + 16 * (576 + 512) * 2)


@pytest.mark.parametrize(
    ("gpu", "source", "precision", "compute"),
    [
        ("h100-sxm", "default", "bf16-kv8", "bf16"),
        ("b200-sxm", "default", "fp8-kv8", "fp8"),
        ("b200-sxm", "trtllm_mla", "fp8-kv8", "fp8"),
        ("b200-sxm", "triton", "bf16-kv8", "bf16"),
    ],
)
def test_an_fp8_cache_is_multiplied_in_fp8_by_kernels_for_blackwell(gpu, source, precision, compute):
    found = only(work.mla_decode(mla_row(gpu=gpu, kv_cache_dtype="fp8", kernel_source=source)))
    assert (found["precision"], found["compute"]) == (precision, compute)
    assert found["bytes"] == 3 * ((1000 + 1) * 576 + 16 * (576 + 512) * 2)
    row = attention_row(gpu=gpu, kv_cache_dtype="fp8", kernel_source=source)
    assert only(work.attention_decode(row))["compute"] == compute


def test_mla_prefill():
    found = only(work.mla_prefill(mla_row(isl=4, step=0)))
    assert found["flops"] == 3 * 16 * 10 * 2 * (192 + 128)
    assert found["bytes"] == 3 * (4 * 576 * 2 + 16 * (4 + 4) * (192 + 128) * 2)


def test_mla_prefill_of_sglang_on_hopper_is_absorbed():
    found = only(work.mla_prefill(mla_row(isl=4, step=0, kernel_source="flash_attention")))
    assert found["flops"] == 3 * 16 * 10 * 2 * (576 + 512)
    assert found["bytes"] == 3 * (4 * 576 * 2 + 16 * 4 * (576 + 512) * 2)


def test_experts():
    """64 tokens to 8 of 128 experts over 4 ranks: 128 rows for 32 experts, 4 each."""
    found = only(work.experts(experts_row()))
    assert found["flops"] == 3 * 2 * 128 * 4096 * 1536
    inputs = 128 * (4096 + 1536)
    outputs = 128 * (2 * 1536 + 4096) * 2
    assert found["bytes"] == 32 * 3 * 4096 * 1536 + inputs + outputs
    assert found["side_bytes"] == 128 * (4096 * (2 + 1 + 2) + 1536 * (2 * 2 + 1)) + 64 * 4096 * 2
    assert (found["distinct"], found["routing"], found["ep"]) == (32, "balanced", 4)
    assert found["distinct_uniform"] == pytest.approx(32 * (1 - (1 - 8 / 128) ** 64))


def test_sglang_and_vllm_walk_over_the_rows_of_all_ranks():
    ours, theirs = (only(work.experts(experts_row(engine=engine))) for engine in ("trtllm", "vllm"))
    assert theirs["side_bytes"] - ours["side_bytes"] == (512 - 128) * (4096 * 5 + 1536 * 5)
    assert theirs["bytes"] == ours["bytes"]


def test_few_tokens_reach_the_first_rank_with_at_least_one_row():
    found = only(work.experts(experts_row(num_tokens=1, moe_ep_size=128)))
    assert (found["distinct"], found["flops"]) == (1, 3 * 2 * 4096 * 1536)


def test_experts_are_split_over_tensor_parallel_ranks():
    found = only(work.experts(experts_row(moe_tp_size=4)))
    assert found["flops"] == 3 * 2 * 128 * 4096 * 384
    assert found["intermediate"] == 1536


@pytest.mark.parametrize(
    "shape",
    [
        {"kernel_source": "moe_torch_flow_nongated"},
        {"topk": 22, "num_experts": 512},
        {"topk": 6, "inter_size": 1856},
    ],
)
def test_experts_without_a_gate_have_two_matrices(shape):
    assert work.gates(experts_row(**shape)).tolist() == [0]
    assert only(work.experts(experts_row(kernel_source="nongated")))["flops"] == 2 * 2 * 128 * 4096 * 1536


def test_deepseek_v4_flash_has_gates():
    assert work.gates(experts_row(topk=6, num_experts=256, inter_size=2048)).tolist() == [1]


def grouped_row(**rest):
    given = {"num_tokens": 512, "hidden_size": 4096, "inter_size": 1536, "topk": 8, "num_experts": 256}
    layout = {"moe_tp_size": 1, "moe_ep_size": 4, "moe_dtype": "fp8", "distribution": "uniform"}
    return raw(engine="sglang", **(given | layout | rest))


def test_grouped_experts():
    """512 tokens to 8 of 256 experts: 16 rows for each of the rank's 64; prefill sorts them and sums the results."""
    masked, contiguous = (
        only(work.experts_grouped(grouped_row(op_name=name))) for name in ("moe_generation", "moe_context")
    )
    assert (masked["kernel"], contiguous["kernel"]) == ("experts_masked", "experts_contiguous")
    for found in (masked, contiguous):
        assert found["flops"] == 3 * 2 * 1024 * 4096 * 1536
        inputs, outputs = 1024 * (4096 + 1536), 1024 * (2 * 1536 + 4096) * 2
        assert found["bytes"] == 64 * 3 * 4096 * 1536 + inputs + outputs
        assert (found["distinct"], found["routing"]) == (64, "balanced")
    assert masked["side_bytes"] == 1024 * 1536 * 5
    assert contiguous["side_bytes"] - masked["side_bytes"] == (512 + 1024) * 4096 * (1 + 2)


def test_grouped_experts_of_few_tokens():
    """16 tokens have 128 of 256 experts: the collector gives a row each to half of them, as far as the rank has any."""
    some = only(work.experts_grouped(grouped_row(op_name="moe_generation", num_tokens=16, moe_ep_size=2)))
    assert (some["distinct"], some["flops"]) == (64, 3 * 2 * 64 * 4096 * 1536)
    every = only(work.experts_grouped(grouped_row(op_name="moe_generation", num_tokens=16, moe_ep_size=8)))
    assert every["distinct"] == 32


def test_few_rows_in_prefill_are_bound_by_the_host():
    made = [work.experts_grouped(grouped_row(op_name=o, num_tokens=n)).assign(gpu="h100-sxm", engine="sglang")
            for o in ("moe_context", "moe_generation") for n in (8191, 8192)]  # fmt: skip
    assert tables.tidy(pd.concat(made))["rule"].tolist() == ["host_bound", "", "", ""]


def test_message_size_counts_elements():
    found = only(wire.engine_all_reduce(raw(allreduce_dtype="bfloat16", num_gpus=4, message_size=1000)))
    assert (found["message_bytes"], found["link_bytes"], found["nic_bytes"]) == (2000, 2 * 3 / 4 * 2000, 0)


@pytest.mark.parametrize(
    ("name", "ours", "link"),
    [
        ("all_reduce", "all_reduce", 2 * 7 / 8),
        ("all_gather", "all_gather", 7 / 8),
        ("reduce_scatter", "reduce_scatter", 7 / 8),
        ("alltoall", "all_to_all", 7 / 8),
    ],
)
def test_nccl(name, ours, link):
    found = only(wire.nccl(raw(op_name=name, nccl_dtype="int8", num_gpus=8, message_size=8000)))
    assert (found["kernel"], found["link_bytes"], found["nic_bytes"]) == (ours, link * 8000, 0)


def low_latency_row(**rest):
    given = {"node_num": 1, "hidden_size": 7168, "num_token": 128, "num_topk": 8, "num_experts": 256}
    return raw(**(given | {"dispatch_avg_t_us": 40.0, "combine_avg_t_us": 70.0} | rest))


def test_deepep_low_latency_sends_a_copy_per_expert():
    """fp8 with a scale of 4 bytes per 128 there, bf16 back; 7 of 8 copies leave the GPU on average."""
    found = wire.deepep_low_latency(low_latency_row()).set_index("kernel")
    there, back = found.loc["dispatch"], found.loc["combine"]
    assert there["message_bytes"] == 128 * 8 * 7168 * (1 + 4 / 128)
    assert (back["message_bytes"], back["link_bytes"]) == (128 * 8 * 7168 * 2, 128 * 7 * 7168 * 2)
    assert (there["time_s"], back["time_s"]) == pytest.approx((40e-6, 70e-6))


def test_deepep_on_a_node_of_four_and_across_nodes():
    ranks = wire.deepep_low_latency(low_latency_row(gpu="gb200-nvl72"))["ranks"]
    assert ranks.tolist() == [4, 4]
    found = wire.deepep_low_latency(low_latency_row(node_num=2)).iloc[1]
    assert (found["ranks"], found["nic_bytes"]) == (16, 8 / 16 * 128 * 8 * 7168 * 2)


def test_deepep_normal_sends_a_copy_per_rank():
    given = {"node_num": 1, "hidden_size": 1000, "num_token": 10, "num_topk": 2, "num_experts": 64, "dispatch_sms": 20}
    row = raw(**given, dispatch_transmit_us=30.0, combine_transmit_us=50.0)
    found = wire.deepep_normal(row).iloc[1]
    assert found["message_bytes"] == pytest.approx(10 * 1000 * 2 * 8 * (1 - (7 / 8) ** 2))
    assert (found["backend"], found["time_s"]) == ("deepep-normal-20sm", pytest.approx(50e-6))


def exchange_row(op_name):
    given = {"num_tokens": 10, "hidden_size": 1000, "topk": 2, "num_experts": 64, "moe_ep_size": 4}
    return raw(gpu="gb200-nvl72", op_name=op_name, moe_dtype="nvfp4", kernel_source="NVLink", **given)


@pytest.mark.parametrize(
    ("name", "kernel", "backend", "width"),
    [
        ("alltoall_dispatch", "dispatch", "NVLink", 0.5625),
        ("alltoall_combine", "combine", "NVLink", 2),
        ("alltoall_combine_low_precision", "combine", "NVLink_low_precision", 0.5625),
    ],
)
def test_nvlink_exchange(name, kernel, backend, width):
    found = only(wire.nvlink_exchange(exchange_row(name)))
    assert (found["kernel"], found["backend"]) == (kernel, backend)
    assert found["message_bytes"] == pytest.approx(10 * 1000 * 4 * (1 - (3 / 4) ** 2) * width)


def test_the_exchange_of_indices_is_left_out():
    rows = [exchange_row(name) for name in ("alltoall_prepare", "alltoall_dispatch")]
    assert wire.nvlink_exchange(pd.concat(rows, ignore_index=True))["kernel"].tolist() == ["dispatch"]


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


def test_other_numbers_of_sms_stay_out_of_fits():
    given = {"node_num": 1, "hidden_size": 7168, "num_token": 10, "num_topk": 8, "num_experts": 256}
    times = {"dispatch_transmit_us": 30.0, "combine_transmit_us": 50.0}
    found = [
        tidied(lambda row: wire.deepep_normal(row)[:1], raw(**given, **times, dispatch_sms=sms))["rule"]
        for sms in (20, 24)
    ]
    assert found == ["", "other_sms"]


def test_columns_and_generation():
    found = tidied(work.gemm, gemm_row(gpu="gb200-nvl72"))
    assert list(found.index) == list(kernels.COLUMNS)
    assert (found["generation"], found["tokens"], found["link_bytes"]) == ("blackwell", 16, 0)
    assert pd.isna(found["heads"])


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
    found = kernels.fit(rows, forms.FORMS["launch"])
    assert found["eta_first"] == pytest.approx(0.8, rel=0.02)
    assert found["launch_s"] == pytest.approx(4e-6, rel=0.02)


def test_work_at_catalogue_rates():
    rows = rows_of(work.gemm, gemms(("h100-sxm", "gb200-nvl72"), "fp8"))
    found = forms.work(rows)
    hopper = (rows["gpu"] == "h100-sxm").to_numpy()
    assert set(found.first_rate[hopper]) == {3350e9}
    assert set(found.second_rate[hopper]) == {1978.9e12}
    assert set(found.second_rate[~hopper]) == {5000e12}


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
    found = kernels.efficiencies(rows).set_index("form").loc["launch"]
    assert pd.isna(found["eta_second"])
    assert (found["eta_first"], found["launch_s"]) == pytest.approx((0.6, 2e-6), rel=1e-4)


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
