"""Toy models and an accelerator of round numbers for tests with hand-computed numbers.

Widths are small. Weights, inputs, activations and cache have one byte, index keys ten and states a hundred, so that the
digits of a sum tell its terms apart.
"""

import cheetah_xr as cx
from cheetah_xr.engine.validity import CODES
from cheetah_xr.specs import COMPUTE_TYPES, GEMM_CLASSES, WEIGHT_CLASSES

BYTES = cx.Precision(
    name="bytes",
    **{f"{c}_weight_bytes": 1.0 for c in WEIGHT_CLASSES},
    **{f"{c}_input_bytes": 1.0 for c in GEMM_CLASSES},
    **{f"{c}_compute": "bf16" for c in (*GEMM_CLASSES, "attn_core", "indexer")},
    kv_bytes=1.0,
    index_bytes=10.0,
    state_bytes=100.0,
    activation_bytes=1.0,
)
GPU = cx.load_gpu(
    {
        "name": "round",
        "memory_bytes": 1e9,
        "hbm_bandwidth": 1e12,
        **{f"peak_{t}": 1e15 for t in COMPUTE_TYPES},
        "link_bandwidth": 1e11,
        "link_domain": 8,
    }
)
INDEX = {"index_heads": 3, "index_dim": 5, "index_top_k": 7}
GQA = {"n_heads": 4, "n_kv_heads": 2, "head_dim": 8}
MLA = {"n_heads": 4, "q_lora_rank": 5, "kv_lora_rank": 6, "v_head_dim": 3} | {
    "qk_nope_head_dim": 3,
    "qk_rope_head_dim": 2,
}
COMPRESSED = {"n_heads": 4, "head_dim": 8, "q_lora_rank": 5, "qk_rope_head_dim": 2, "o_groups": 2, "o_lora_rank": 3}
STATE = {
    "linear_key_heads": 2,
    "linear_value_heads": 4,
    "linear_key_dim": 3,
    "linear_value_dim": 5,
    "linear_conv": 4,
}
# Keys and queries 2*3 = 6 wide, values 4*5 = 20; the convolution has 6 + 6 + 20 = 32 channels: 128 weights, 256 FLOP
# and 64 of activations per token. The state has 4*3*5 = 60 elements of 100 bytes and 32 * 3 inputs: 6096 bytes.
# Per token the core reads 32 and writes 20. Per value head and token in decode 5*15 FLOP, 7*15 with the delta rule; in
# prefill with chunks of C: 4*15 + 2C*(3+5) (Mamba-2: 3/2 for 3), with the delta rule 6*15 + 2C*(9+10).
EXPERTS = {"n_experts": 8, "top_k": 2, "expert_intermediate": 6, "shared_intermediate": 4, "shared_gate": True}


def layers(*groups, **fields):
    """A model of hidden size 10 and 100 tokens; a group is (attention, mlp, what else it has)."""
    kinds = [{"count": 1, "attention": a, "mlp": m, **more} for a, m, more in groups]
    return cx.Model(name="by-hand", hidden=10, vocab=100, groups=kinds, **fields)


def kernels(model, phase, seq_len, batch=1, tp=1, ep=1, **options):
    """(FLOP, bytes of weights, of the cache, of activations) of every kernel that works."""
    options = cx.Options(**{"include": ("layers",), **options})
    ds = cx.breakdown(
        model, GPU, BYTES, phase=phase, batch=batch, seq_len=seq_len, tp=tp, ep=ep, efficiency="ideal", options=options
    )
    assert ds["status"] == CODES["ok"]
    work = {}
    for kernel in ds["kernel"].values.tolist():
        one = ds.sel(kernel=kernel)
        row = [one["flops"].item(), *one["bytes"].sel(cause=["weights", "kv", "activations"]).values.tolist()]
        if any(row):
            work[kernel] = tuple(round(number, 6) for number in row)
    return work


def evaluated(model, phase="decode", seq_len=100, batch=1, tp=1, ep=1, efficiency="ideal", **options):
    """One point of `cx.evaluate`."""
    options = cx.Options(**options)
    where = {"phase": phase, "batch": batch, "seq_len": seq_len, "tp": tp, "ep": ep}
    return cx.evaluate(model, GPU, BYTES, **where, efficiency=efficiency, options=options, dtype="float64")


def cache_bytes(model, seq_len, **where):
    """Cache of one sequence."""
    return evaluated(model, seq_len=seq_len, **where)["kv_bytes_per_sequence"].item()


def resident_weights(model, tp=1, **where):
    """Return the weights of one GPU without its part of embedding and LM head, of 10 * 100 each."""
    return evaluated(model, tp=tp, **where)["weight_bytes"].item() - 2000 / tp
