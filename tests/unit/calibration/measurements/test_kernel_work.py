"""Work of measured kernels: hand-computed conversions of synthetic rows."""

import pandas as pd
import pytest

from cheetah_xr.calibration.measurements.kernels import wire, work
from tests.helpers.kernel_rows import (
    all_to_all_row,
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


def test_gemm():
    actual = only(work.gemm(gemm_row()))
    assert actual["flops"] == 2 * 16 * 4096 * 6144 == 805_306_368
    assert actual["bytes"] == 50_331_648 + 16 * (2 * 4096 + 2 * 6144)
    assert (actual["side_bytes"], actual["precision"], actual["compute"]) == (0, "bf16", "bf16")
    assert actual["time_s"] == pytest.approx(0.5 * MS)


@pytest.mark.parametrize(
    ("label", "weight", "given", "compute"),
    [
        ("fp8", 1, 1, "fp8"),
        ("fp8_block", 1 + 4 / 16384, 1 + 4 / 128, "fp8"),
        ("nvfp4", 0.5625, 0.5625, "fp4"),
    ],
)
def test_gemm_in_narrow_formats_quantises_its_input(label, weight, given, compute):
    actual = only(work.gemm(gemm_row(m=3, k=256, n=512, gemm_dtype=label)))
    assert actual["bytes"] == pytest.approx(256 * 512 * weight + 3 * (256 * given + 512 * 2))
    assert actual["side_bytes"] == pytest.approx(3 * 256 * (2 + given))
    assert actual["compute"] == compute


def test_quantize():
    actual = only(work.quantize(raw(m=10, k=100, quant_dtype="fp8")))
    assert (actual["bytes"], actual["flops"], actual["precision"]) == (3000, 0, "fp8")


def test_attention_decode():
    """1024 keys: the cache read and the new token written, 2 KV heads of 128, keys and values in bf16."""
    actual = only(work.attention_decode(attention_row()))
    cache = (1024 + 1) * 2 * 2 * 128 * 2
    query_and_output = 2 * 8 * 128 * 2
    assert actual["bytes"] == 2 * (cache + query_and_output)
    assert actual["flops"] == 2 * 8 * 1024 * 4 * 128
    assert (actual["new"], actual["seq_len"], actual["precision"]) == (1, 1024, "bf16")


def test_attention_decode_in_a_window_and_an_fp8_cache():
    actual = only(work.attention_decode(attention_row(window_size=128, kv_cache_dtype="fp8")))
    assert actual["bytes"] == 2 * ((128 + 1) * 2 * 2 * 128 + 2 * 8 * 128 * 2)
    assert actual["flops"] == 2 * 8 * 128 * 4 * 128
    assert actual["precision"] == "bf16-kv8"


def test_attention_prefill():
    """Four tokens see 1 + 2 + 3 + 4 keys; queries, keys, values and outputs move, and the cache is written."""
    row = attention_row(isl=4, step=0, attn_dtype="fp8", kv_cache_dtype="fp8")
    actual = only(work.attention_prefill(row))
    assert actual["flops"] == 2 * 8 * 10 * 4 * 128
    assert actual["bytes"] == 2 * (4 * 2 * 2 * 128 + 4 * (8 + 8 + 2 + 2) * 128 * 2)
    assert (actual["precision"], actual["compute"]) == ("fp8-kv8", "fp8")


def test_attention_prefill_in_a_window():
    actual = only(work.attention_prefill(attention_row(isl=4, step=0, window_size=2)))
    assert actual["flops"] == 2 * 8 * (1 + 2 + 2 + 2) * 4 * 128


def test_mla_decode():
    """Every head reads the same latent of 512 and 64; 1000 keys."""
    actual = only(work.mla_decode(mla_row()))
    assert actual["flops"] == 3 * 16 * 1000 * 2 * (576 + 512)
    assert actual["bytes"] == 3 * ((1000 + 1) * 576 * 2 + 16 * (576 + 512) * 2)


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
    actual = only(work.mla_decode(mla_row(gpu=gpu, kv_cache_dtype="fp8", kernel_source=source)))
    assert (actual["precision"], actual["compute"]) == (precision, compute)
    assert actual["bytes"] == 3 * ((1000 + 1) * 576 + 16 * (576 + 512) * 2)
    row = attention_row(gpu=gpu, kv_cache_dtype="fp8", kernel_source=source)
    assert only(work.attention_decode(row))["compute"] == compute


def test_mla_prefill():
    actual = only(work.mla_prefill(mla_row(isl=4, step=0)))
    assert actual["flops"] == 3 * 16 * 10 * 2 * (192 + 128)
    assert actual["bytes"] == 3 * (4 * 576 * 2 + 16 * (4 + 4) * (192 + 128) * 2)


def test_mla_prefill_of_sglang_on_hopper_is_absorbed():
    actual = only(work.mla_prefill(mla_row(isl=4, step=0, kernel_source="flash_attention")))
    assert actual["flops"] == 3 * 16 * 10 * 2 * (576 + 512)
    assert actual["bytes"] == 3 * (4 * 576 * 2 + 16 * 4 * (576 + 512) * 2)


def test_experts():
    """64 tokens to 8 of 128 experts over 4 ranks: 128 rows for 32 experts, 4 each."""
    actual = only(work.experts(experts_row()))
    assert actual["flops"] == 3 * 2 * 128 * 4096 * 1536
    inputs = 128 * (4096 + 1536)
    outputs = 128 * (2 * 1536 + 4096) * 2
    assert actual["bytes"] == 32 * 3 * 4096 * 1536 + inputs + outputs
    assert actual["side_bytes"] == 128 * (4096 * (2 + 1 + 2) + 1536 * (2 * 2 + 1)) + 64 * 4096 * 2
    assert (actual["distinct"], actual["routing"], actual["ep"]) == (32, "balanced", 4)
    assert actual["distinct_uniform"] == pytest.approx(32 * (1 - (1 - 8 / 128) ** 64))


def test_sglang_and_vllm_walk_over_the_rows_of_all_ranks():
    ours, theirs = (only(work.experts(experts_row(engine=engine))) for engine in ("trtllm", "vllm"))
    assert theirs["side_bytes"] - ours["side_bytes"] == (512 - 128) * (4096 * 5 + 1536 * 5)
    assert theirs["bytes"] == ours["bytes"]


def test_few_tokens_reach_the_first_rank_with_at_least_one_row():
    actual = only(work.experts(experts_row(num_tokens=1, moe_ep_size=128)))
    assert (actual["distinct"], actual["flops"]) == (1, 3 * 2 * 4096 * 1536)


def test_experts_are_split_over_tensor_parallel_ranks():
    actual = only(work.experts(experts_row(moe_tp_size=4)))
    assert actual["flops"] == 3 * 2 * 128 * 4096 * 384
    assert actual["intermediate"] == 1536


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


def test_grouped_experts():
    """512 tokens to 8 of 256 experts: 16 rows for each of the rank's 64; prefill sorts them and sums the results."""
    masked, contiguous = (
        only(work.experts_grouped(grouped_row(op_name=name))) for name in ("moe_generation", "moe_context")
    )
    assert (masked["kernel"], contiguous["kernel"]) == ("experts_masked", "experts_contiguous")
    for actual in (masked, contiguous):
        assert actual["flops"] == 3 * 2 * 1024 * 4096 * 1536
        inputs, outputs = 1024 * (4096 + 1536), 1024 * (2 * 1536 + 4096) * 2
        assert actual["bytes"] == 64 * 3 * 4096 * 1536 + inputs + outputs
        assert (actual["distinct"], actual["routing"]) == (64, "balanced")
    assert masked["side_bytes"] == 1024 * 1536 * 5
    assert contiguous["side_bytes"] - masked["side_bytes"] == (512 + 1024) * 4096 * (1 + 2)


def test_grouped_experts_of_few_tokens():
    """16 tokens have 128 of 256 experts: the collector gives a row each to half of them, as far as the rank has any."""
    some = only(work.experts_grouped(grouped_row(op_name="moe_generation", num_tokens=16, moe_ep_size=2)))
    assert (some["distinct"], some["flops"]) == (64, 3 * 2 * 64 * 4096 * 1536)
    every = only(work.experts_grouped(grouped_row(op_name="moe_generation", num_tokens=16, moe_ep_size=8)))
    assert every["distinct"] == 32


def test_message_size_counts_elements():
    actual = only(wire.engine_all_reduce(raw(allreduce_dtype="bfloat16", num_gpus=4, message_size=1000)))
    assert (actual["message_bytes"], actual["link_bytes"], actual["nic_bytes"]) == (2000, 2 * 3 / 4 * 2000, 0)


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
    actual = only(wire.nccl(raw(op_name=name, nccl_dtype="int8", num_gpus=8, message_size=8000)))
    assert (actual["kernel"], actual["link_bytes"], actual["nic_bytes"]) == (ours, link * 8000, 0)


def test_deepep_low_latency_sends_a_copy_per_expert():
    """fp8 with a scale of 4 bytes per 128 there, bf16 back; 7 of 8 copies leave the GPU on average."""
    actual = wire.deepep_low_latency(low_latency_row()).set_index("kernel")
    there, back = actual.loc["dispatch"], actual.loc["combine"]
    assert there["message_bytes"] == 128 * 8 * 7168 * (1 + 4 / 128)
    assert (back["message_bytes"], back["link_bytes"]) == (128 * 8 * 7168 * 2, 128 * 7 * 7168 * 2)
    assert (there["time_s"], back["time_s"]) == pytest.approx((40e-6, 70e-6))


def test_deepep_on_a_node_of_four_and_across_nodes():
    ranks = wire.deepep_low_latency(low_latency_row(gpu="gb200-nvl72"))["ranks"]
    assert ranks.tolist() == [4, 4]
    actual = wire.deepep_low_latency(low_latency_row(node_num=2)).iloc[1]
    assert (actual["ranks"], actual["nic_bytes"]) == (16, 8 / 16 * 128 * 8 * 7168 * 2)


def test_deepep_normal_sends_a_copy_per_rank():
    given = {"node_num": 1, "hidden_size": 1000, "num_token": 10, "num_topk": 2, "num_experts": 64, "dispatch_sms": 20}
    row = raw(**given, dispatch_transmit_us=30.0, combine_transmit_us=50.0)
    actual = wire.deepep_normal(row).iloc[1]
    assert actual["message_bytes"] == pytest.approx(10 * 1000 * 2 * 8 * (1 - (7 / 8) ** 2))
    assert (actual["backend"], actual["time_s"]) == ("deepep-normal-20sm", pytest.approx(50e-6))


@pytest.mark.parametrize(
    ("name", "kernel", "backend", "width"),
    [
        ("alltoall_dispatch", "dispatch", "NVLink", 0.5625),
        ("alltoall_combine", "combine", "NVLink", 2),
        ("alltoall_combine_low_precision", "combine", "NVLink_low_precision", 0.5625),
    ],
)
def test_nvlink_all_to_all(name, kernel, backend, width):
    actual = only(wire.nvlink_all_to_all(all_to_all_row(name)))
    assert (actual["kernel"], actual["backend"]) == (kernel, backend)
    assert actual["message_bytes"] == pytest.approx(10 * 1000 * 4 * (1 - (3 / 4) ** 2) * width)


def test_the_all_to_all_of_indices_is_left_out():
    rows = [all_to_all_row(name) for name in ("alltoall_prepare", "alltoall_dispatch")]
    assert wire.nvlink_all_to_all(pd.concat(rows, ignore_index=True))["kernel"].tolist() == ["dispatch"]
