"""Rows of kernel timings as the package aiconfigurator-core holds them, but synthetic."""

import pandas as pd


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


def grouped_row(**rest):
    given = {"num_tokens": 512, "hidden_size": 4096, "inter_size": 1536, "topk": 8, "num_experts": 256}
    layout = {"moe_tp_size": 1, "moe_ep_size": 4, "moe_dtype": "fp8", "distribution": "uniform"}
    return raw(engine="sglang", **(given | layout | rest))


def low_latency_row(**rest):
    given = {"node_num": 1, "hidden_size": 7168, "num_token": 128, "num_topk": 8, "num_experts": 256}
    return raw(**(given | {"dispatch_avg_t_us": 40.0, "combine_avg_t_us": 70.0} | rest))


def all_to_all_row(op_name):
    given = {"num_tokens": 10, "hidden_size": 1000, "topk": 2, "num_experts": 64, "moe_ep_size": 4}
    return raw(gpu="gb200-nvl72", op_name=op_name, moe_dtype="nvfp4", kernel_source="NVLink", **given)
