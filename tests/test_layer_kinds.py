"""Every kind of layer against numbers worked out by hand, in the comments, from docs/cost-model.md.

Widths are small. Weights, inputs, activations and cache have one byte, index keys ten and states a hundred, so that the
digits of a sum tell its terms apart.
"""

import pytest

import cheetah_xr as cx
from cheetah_xr.specs import COMPUTE_TYPES, GEMM_CLASSES, WEIGHT_CLASSES
from cheetah_xr.status import CODES

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
    found = {}
    for kernel in ds["kernel"].values.tolist():
        one = ds.sel(kernel=kernel)
        row = [one["flops"].item(), *one["bytes"].sel(cause=["weights", "kv", "activations"]).values.tolist()]
        if any(row):
            found[kernel] = tuple(round(number, 6) for number in row)
    return found


def evaluated(model, phase="decode", seq_len=100, batch=1, tp=1, ep=1, efficiency="ideal", **options):
    """One point of `cx.evaluate`."""
    options = cx.Options(**options)
    where = {"phase": phase, "batch": batch, "seq_len": seq_len, "tp": tp, "ep": ep}
    return cx.evaluate(model, GPU, BYTES, **where, efficiency=efficiency, options=options, dtype="float64")


def held(model, seq_len, **where):
    """Cache of one sequence."""
    return evaluated(model, seq_len=seq_len, **where)["kv_bytes_per_sequence"].item()


def resident(model, tp=1, **where):
    """Weights of one GPU beside its share of embedding and LM head, of 10 * 100 each."""
    return evaluated(model, tp=tp, **where)["weight_bytes"].item() - 2000 / tp


# ---- grouped-query attention

GQA = {"n_heads": 4, "n_kv_heads": 2, "head_dim": 8}


def test_narrow_values_and_an_output_gate():
    model = layers(("gqa", "none", {}), **GQA, v_head_dim=6, output_gate=True)
    # One GEMM of queries 4*8, keys 2*8, values 2*6 and gate 4*6: N = 84, 840 weights; output 24 -> 10, 240.
    # Activations per token (10 + 84) + (24 + 10) = 128. The core works on 8 + 6 per head, the cache has 2*14 per token.
    assert kernels(model, "decode", 100, batch=3) == {
        "attn_proj": (2 * 3 * 1080, 1080, 0, 3 * 128),
        "attn_core": (2 * 14 * 4 * 100 * 3, 0, 101 * 28 * 3, 3 * (4 * 8 + 4 * 6)),
    }
    # 4 new tokens: 1 + 2 + 3 + 4 = 10 pairs; the new keys and values are read as activations too
    assert kernels(model, "prefill", 4, batch=3) == {
        "attn_proj": (2 * 12 * 1080, 1080, 0, 12 * 128),
        "attn_core": (2 * 14 * 4 * 10 * 3, 0, 4 * 28 * 3, 12 * (56 + 28)),
    }
    assert held(model, 100) == 2800
    assert resident(model) == 1080
    # over 4 GPUs: one query head each and a whole KV head: 8 + 8 + 6 + 6 = 28, 280 + 60 weights, 14 per cached token
    assert resident(model, tp=4) == 340
    assert held(model, 100, tp=4) == 1400


def test_values_that_are_keys_have_no_weights():
    model = layers(("gqa", "none", {"k_eq_v": True, "n_kv_heads": 1, "head_dim": 16}), **GQA)
    # The group's own widths: queries 4*16 and keys 16, N = 80: 800 weights; output 64 -> 10: 640. Both are cached: 32.
    assert kernels(model, "decode", 100) == {
        "attn_proj": (2 * 1440, 1440, 0, 10 + 80 + 64 + 10),
        "attn_core": (2 * 32 * 4 * 100, 0, 101 * 32, 4 * 32),
    }
    assert kernels(model, "prefill", 4) == {
        "attn_proj": (8 * 1440, 1440, 0, 4 * 164),
        "attn_core": (2 * 32 * 4 * 10, 0, 4 * 32, 4 * (128 + 32)),
    }
    assert held(model, 100) == 3200


def test_layers_that_share_a_cache():
    model = layers(("gqa", "none", {}), ("gqa", "none", {"kv_shared": True, "sinks": True}), **GQA)
    # First layer: N = 32 + 16 + 16 = 64: 640 + 320 weights. Second: queries only: 320 + 320. Cache: 2*16 per token,
    # which the first layer reads and writes and the second reads.
    assert kernels(model, "decode", 100) == {
        "attn_proj": (2 * 1600, 1600, 0, (10 + 64 + 32 + 10) + (10 + 32 + 32 + 10)),
        "attn_core": (2 * (2 * 16 * 4 * 100), 0, 101 * 32 + 100 * 32, 2 * 64),
    }
    assert kernels(model, "prefill", 4)["attn_core"] == (2 * (2 * 16 * 4 * 10), 0, 4 * 32, 2 * 4 * (64 + 32))
    assert held(model, 100) == 3200


# ---- sparse attention


def test_indexer_of_grouped_queries():
    model = layers(("gqa", "none", {"indexer": "own"}), **GQA, **INDEX)
    # N = 64: 640 weights, output 320; index queries 10 -> 3*5: 150; index keys 10 -> 5: 50: 1160 in all.
    # Activations per token: (10 + 64) + (32 + 10) + (10 + 15) + (10 + 5) = 156.
    # Every query scores all keys, 2*3*5 each, and then sees 7. An index key has 5 elements of 10 bytes.
    assert kernels(model, "decode", 100, batch=2) == {
        "attn_proj": (2 * 2 * 1160, 1160, 0, 2 * 156),
        "indexer": (30 * 100 * 2, 0, 101 * 50 * 2, 2 * 15),
        "attn_core": (2 * 16 * 4 * 7 * 2, 0, (7 + 1) * 32 * 2, 2 * 64),
    }
    # 10 new tokens: 55 pairs are scored, and 1 + 2 + ... + 7 + 7 + 7 + 7 = 49 used
    assert kernels(model, "prefill", 10) == {
        "attn_proj": (2 * 10 * 1160, 1160, 0, 10 * 156),
        "indexer": (30 * 55, 0, 10 * 50, 10 * 15 + 10 * 5),
        "attn_core": (2 * 16 * 4 * 49, 0, 10 * 32, 10 * (64 + 32)),
    }
    # 3 queries: 100 + 101 + 102 pairs are scored; each chooses 7, 21 of the 100 cached tokens are read
    drafted = kernels(model, "decode", 100, draft_tokens=2)
    assert drafted["indexer"] == (30 * 303, 0, 103 * 50, 3 * 15)
    assert drafted["attn_core"] == (2 * 16 * 4 * 21, 0, (21 + 3) * 32, 3 * 64)
    assert held(model, 100) == 100 * (32 + 50)
    assert resident(model) == 1160


def test_shared_choice_of_an_indexer():
    model = layers(("gqa", "none", {"indexer": "shared"}), **GQA, **INDEX)
    assert kernels(model, "decode", 100) == {
        "attn_proj": (2 * 960, 960, 0, 74 + 42),
        "attn_core": (2 * 16 * 4 * 7, 0, (7 + 1) * 32, 64),
    }
    assert kernels(model, "prefill", 10)["attn_core"] == (2 * 16 * 4 * 49, 0, 10 * 32, 10 * (64 + 32))
    assert held(model, 100) == 3200


MLA = {"n_heads": 4, "q_lora_rank": 5, "kv_lora_rank": 6, "v_head_dim": 3} | {
    "qk_nope_head_dim": 3,
    "qk_rope_head_dim": 2,
}


def test_indexer_of_latent_attention():
    model = layers(("mla", "none", {"indexer": "own"}), **MLA, **INDEX)
    # 10 -> 5: 50; 5 -> 4*(3+2): 100; 10 -> 6+2: 80; absorbed 4*3*6 and 4*6*3: 144; output 12 -> 10: 120;
    # index queries 5 -> 15: 75; index keys 10 -> 5: 50. In all 619; head weights 10 -> 3: 30 with the router's bytes.
    # Activations per token 15 + 25 + 18 + 22 + 20 + 15 = 115, and 4 heads * (3+6 + 6+3) = 72 of the absorbed ones.
    # Core: 2*(6+2 + 6) per pair and head; queries of 8, outputs of 6; 8 per cached token.
    assert kernels(model, "decode", 100) == {
        "attn_proj": (2 * 619, 619, 0, 115 + 72),
        "router": (2 * 30, 30, 0, 13),
        "indexer": (30 * 100, 0, 101 * 50, 15),
        "attn_core": (28 * 4 * 7, 0, (7 + 1) * 8, 4 * 14),
    }
    # absorbed in prefill too; the new latents are read
    assert kernels(model, "prefill", 10) == {
        "attn_proj": (20 * 619, 619, 0, 10 * (115 + 72)),
        "router": (20 * 30, 30, 0, 10 * 13),
        "indexer": (30 * 55, 0, 10 * 50, 10 * 15 + 10 * 5),
        "attn_core": (28 * 4 * 49, 0, 10 * 8, 10 * (4 * 14 + 8)),
    }
    assert held(model, 100) == 100 * (8 + 50)
    # split over 2: the first steps and the indexer are replicated, 50 + 80 + 75 + 50 + 30, the rest is halved
    assert resident(model, tp=2) == 285 + (100 + 144 + 120) / 2


def test_output_gate_of_latent_attention():
    model = layers(("mla", "none", {}), **MLA, output_gate=True)
    # 50 + 100 + 80; keys and values 6 -> 4*(3+3): 144; output 120; gate 10 -> 12: 120. In all 614.
    # Activations per token 15 + 25 + 18 + 30 + 22 + 22 = 132. Core: 2*(5+3) per pair; Q, K of 5 and V, O of 3 a head.
    assert kernels(model, "prefill", 10) == {
        "attn_proj": (20 * 614, 614, 0, 10 * 132),
        "attn_core": (16 * 4 * 55, 0, 10 * 8, 10 * 4 * 16),
    }
    assert kernels(model, "decode", 100)["attn_proj"] == (2 * 614, 614, 0, 15 + 25 + 18 + 72 + 22 + 22)
    assert held(model, 100) == 800


# ---- compressed attention

COMPRESSED = {"n_heads": 4, "head_dim": 8, "q_lora_rank": 5, "qk_rope_head_dim": 2, "o_groups": 2, "o_lora_rank": 3}


def test_window_of_raw_tokens():
    model = layers(("compressed", "none", {"window": 6}), **COMPRESSED)
    # 10 -> 5: 50; 5 -> 32: 160; 10 -> 8: 80; two groups of 16 -> 3: 96; 6 -> 10: 60. In all 446.
    # Activations per token 15 + 37 + 18 + 2*19 + 16 = 124. Core: 4*8 per pair and head; one vector of 8 per token.
    assert kernels(model, "decode", 100) == {
        "attn_proj": (2 * 446, 446, 0, 124),
        "attn_core": (32 * 4 * 6, 0, (6 + 1) * 8, 2 * 32),
    }
    # 20 tokens: 1 + ... + 6 and 14 times 6: 105 pairs
    assert kernels(model, "prefill", 20) == {
        "attn_proj": (40 * 446, 446, 0, 20 * 124),
        "attn_core": (32 * 4 * 105, 0, 20 * 8, 20 * (64 + 8)),
    }
    # 3 queries look back over 8 tokens together; a prefill after 9 cached tokens over 5
    assert kernels(model, "decode", 100, draft_tokens=2)["attn_core"] == (32 * 4 * 18, 0, (8 + 3) * 8, 3 * 64)
    assert kernels(model, "prefill", 2, cached_tokens=9)["attn_core"] == (32 * 4 * 12, 0, (5 + 2) * 8, 2 * (64 + 8))
    assert held(model, 100) == 48
    assert held(model, 4) == 32


def test_entries_that_all_queries_see():
    model = layers(("compressed", "none", {"window": 6, "compress": 10}), **COMPRESSED)
    # The compressor 10 -> 2*8 has 160 weights, with the router's bytes. 100 tokens make 10 entries, a new one 1/10.
    assert kernels(model, "decode", 100) == {
        "attn_proj": (2 * 446, 446, 0, 124),
        "router": (2 * 160, 160, 0, 26),
        "attn_core": (32 * 4 * (6 + 10), 0, (6 + 10 + 1 + 0.1) * 8, 64),
    }
    # 25 tokens: 21 + 19*6 = 135 pairs with raw tokens; 10 queries see one entry and 6 see two: 22 with entries
    assert kernels(model, "prefill", 25) == {
        "attn_proj": (50 * 446, 446, 0, 25 * 124),
        "router": (50 * 160, 160, 0, 25 * 26),
        "attn_core": (32 * 4 * (135 + 22), 0, (25 + 2) * 8, 25 * 64 + (25 + 2) * 8),
    }
    # after 9 cached tokens two more complete an entry; the query at 10 and that at 11 see it
    late = kernels(model, "prefill", 2, cached_tokens=9)["attn_core"]
    assert late == (32 * 4 * (12 + 2), 0, (5 + 0 + 2 + 1) * 8, 2 * 64 + 3 * 8)
    assert held(model, 100) == (6 + 10) * 8


def test_entries_that_an_indexer_chooses():
    model = layers(("compressed", "none", {"window": 6, "compress": 4, "indexer": "own"}), **COMPRESSED, **INDEX)
    # Index queries 5 -> 15: 75 beside the 446, activations 124 + 20. With the router's bytes: two series 10 -> 32: 320,
    # head weights 10 -> 3: 30, the index compressor 10 -> 20: 200: 550, activations 42 + 13 + 30.
    # 100 tokens make 25 entries, all are scored.
    assert kernels(model, "decode", 100) == {
        "attn_proj": (2 * 521, 521, 0, 144),
        "router": (2 * 550, 550, 0, 85),
        "indexer": (30 * 25, 0, (25 + 0.25) * 50, 15),
        "attn_core": (32 * 4 * (6 + 7), 0, (6 + 7 + 1 + 0.25) * 8, 64),
    }
    # 12 tokens: 21 + 6*6 = 57 pairs with raw tokens; entries 4*1 + 4*2 + 3 = 15, never more than 7; 3 new entries
    assert kernels(model, "prefill", 12) == {
        "attn_proj": (24 * 521, 521, 0, 12 * 144),
        "router": (24 * 550, 550, 0, 12 * 85),
        "indexer": (30 * 15, 0, 3 * 50, 12 * 15 + 3 * 5),
        "attn_core": (32 * 4 * (57 + 15), 0, (12 + 3) * 8, 12 * 64 + (12 + 3) * 8),
    }
    assert held(model, 100) == (6 + 25) * 8 + 25 * 50
    # on two ranks: 50 + 80 + 75 + 550 replicated, 160 + 96 + 60 halved
    assert resident(model, tp=2) == 755 + 316 / 2


def test_residual_streams_are_mixed_before_every_block():
    both = layers(("gqa", "dense", {}), **GQA, intermediate=12, residual_streams=2)
    # a GEMM of 2*10 -> (2+2)*2 before each block: 160 weights, 28 of activations
    assert kernels(both, "decode", 100, batch=3)["router"] == (2 * 3 * 320, 320, 0, 3 * 56)
    assert kernels(both, "prefill", 4)["router"] == (2 * 4 * 320, 320, 0, 4 * 56)
    one = layers(("gqa", "none", {}), **GQA, residual_streams=2)
    assert kernels(one, "decode", 100)["router"] == (2 * 160, 160, 0, 28)
    assert resident(both) == 960 + 360 + 320
    assert resident(both, tp=2) == (960 + 360) / 2 + 320
    # matrix, 8 offsets and 3 scales per block; 2*2*10 + 2 + 1 that join the streams at the end; 4 norms of 10
    plain = layers(("gqa", "dense", {}), ("gqa", "none", {}), **GQA, intermediate=12)
    mixed = layers(("gqa", "dense", {}), ("gqa", "none", {}), **GQA, intermediate=12, residual_streams=2)
    assert plain.n_parameters == 2000 + 960 + 360 + 960 + 4 * 10
    assert mixed.n_parameters - plain.n_parameters == 3 * (160 + 8 + 3) + 43


# ---- recurrent mixers

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


def test_deltanet():
    model = layers(("deltanet", "none", {}), **STATE)
    # 10 -> 12 + 20 + 20 + 2*4 = 60: 600; output 20 -> 10: 200. Activations (10 + 60) + (20 + 10) + 64 = 164.
    assert kernels(model, "decode", 100, batch=2) == {
        "attn_proj": (2 * (2 * 800 + 256), 928, 0, 2 * 164),
        "attn_core": (2 * 4 * 105, 0, 2 * 2 * 6096, 2 * 52),
    }
    # 8 tokens are one chunk: 90 + 16*19 = 394; nothing is read but after cached tokens
    assert kernels(model, "prefill", 8) == {
        "attn_proj": (8 * (2 * 800 + 256), 928, 0, 8 * 164),
        "attn_core": (8 * 4 * 394, 0, 6096, 8 * 52),
    }
    assert kernels(model, "prefill", 8, cached_tokens=1)["attn_core"] == (8 * 4 * 394, 0, 2 * 6096, 8 * 52)
    # 100 tokens, chunks of 64: 90 + 128*19 = 2522
    assert kernels(model, "prefill", 100)["attn_core"] == (100 * 4 * 2522, 0, 6096, 100 * 52)
    # three tokens of a draft: the state is read and written once
    assert kernels(model, "decode", 100, draft_tokens=2)["attn_core"] == (3 * 4 * 105, 0, 2 * 6096, 3 * 52)
    assert held(model, 100) == held(model, 9) == 6096
    assert resident(model) == 928
    assert held(model, 100, tp=2) == 3048


def test_mamba2():
    model = layers(("mamba2", "none", {}), **STATE)
    # 10 -> 12 + 20 + 20 + 4 = 56: 560; output 200. Activations (10 + 56) + (20 + 10) + 64 = 160.
    assert kernels(model, "decode", 100) == {
        "attn_proj": (2 * 760 + 256, 888, 0, 160),
        "attn_core": (4 * 75, 0, 2 * 6096, 52),
    }
    # one chunk of 8, scores of the 2 groups shared by 4 heads: 60 + 16*(3/2 + 5) = 164
    assert kernels(model, "prefill", 8) == {
        "attn_proj": (8 * (2 * 760 + 256), 888, 0, 8 * 160),
        "attn_core": (8 * 4 * 164, 0, 6096, 8 * 52),
    }
    assert held(model, 100) == 6096
    # 4 ranks: a group of its own copy each (3 wide), one head (5): 10 -> 6 + 5 + 5 + 1: 170; output 50; 11 channels
    assert resident(model, tp=4) == 170 + 50 + 44
    assert held(model, 100, tp=4) == 1500 + 33


def test_kda():
    model = layers(("kda", "none", {}), **STATE, linear_gate_rank=2)
    # 10 -> 12 + 20 + 4: 360; gate 10 -> 2 -> 20: 60; decay 10 -> 3 -> 6: 48; output 200: 668.
    # Activations 46 + (12 + 22) + (13 + 9) + 30 + 64 = 196.
    assert kernels(model, "decode", 100) == {
        "attn_proj": (2 * 668 + 256, 796, 0, 196),
        "attn_core": (4 * 105, 0, 2 * 6096, 52),
    }
    assert kernels(model, "prefill", 8) == {
        "attn_proj": (8 * (2 * 668 + 256), 796, 0, 8 * 196),
        "attn_core": (8 * 4 * 394, 0, 6096, 8 * 52),
    }
    assert held(model, 100) == 6096
    # two ranks: 10 -> 2 and 10 -> 3 are replicated
    assert resident(model, tp=2) == 50 + (360 + 40 + 18 + 200 + 128) / 2
    # a full gate is in the one GEMM: 10 -> 56
    assert resident(layers(("kda", "none", {}), **STATE)) == 560 + 48 + 200 + 128


def test_lightning():
    model = layers(("lightning", "none", {}), **{**STATE, "linear_conv": 0})
    # 10 -> 12 + 20 + 20: 520; output 200; no convolution, neither weights nor inputs to keep
    assert kernels(model, "decode", 100) == {
        "attn_proj": (2 * 720, 720, 0, 62 + 30),
        "attn_core": (4 * 75, 0, 2 * 6000, 52),
    }
    assert kernels(model, "prefill", 8) == {
        "attn_proj": (16 * 720, 720, 0, 8 * 92),
        "attn_core": (8 * 4 * 188, 0, 6000, 8 * 52),
    }
    assert held(model, 100) == 6000


# ---- MLPs

EXPERTS = {"n_experts": 8, "top_k": 2, "expert_intermediate": 6, "shared_intermediate": 4, "shared_gate": True}


def test_latent_experts_beside_a_dense_mlp():
    model = layers(("none", "moe+dense", {"intermediate": 12}), **EXPERTS, expert_hidden=5)
    # Dense 3*10*12 = 360, activations (10 + 24) + (12 + 10). Router and gate 10 -> 8 + 1. Shared experts 3*10*4 = 120
    # and 10 -> 5 -> 10: 220, activations (10 + 8) + (4 + 10) + 15 + 15 = 62. An expert reads 5: 3*5*6 = 90,
    # activations (5 + 12) + (6 + 5) = 28. One token meets 2 experts.
    assert kernels(model, "decode", 100) == {
        "dense_mlp": (2 * 360, 360, 0, 56),
        "router": (2 * 90, 90, 0, 10 + 9),
        "shared_experts": (2 * 220, 220, 0, 62),
        "routed_experts": (2 * 2 * 90, 2 * 90, 0, 2 * 28),
    }
    # 4 tokens meet 8 * (1 - (3/4)^4) = 5.46875 experts
    assert kernels(model, "prefill", 4) == {
        "dense_mlp": (8 * 360, 360, 0, 4 * 56),
        "router": (8 * 90, 90, 0, 4 * 19),
        "shared_experts": (8 * 220, 220, 0, 4 * 62),
        "routed_experts": (2 * 8 * 90, 5.46875 * 90, 0, 8 * 28),
    }
    assert resident(model) == 360 + 90 + 220 + 8 * 90
    assert held(model, 100) == 0
    # two ranks, an expert on one of them: router 90 and latent projections 100 are replicated
    assert resident(model, tp=2, ep=2) == 90 + 100 + (360 + 120 + 8 * 90) / 2


def test_collectives_of_layers():
    def sent(model, **where):
        return evaluated(model, tp=2, include=("layers",), **where)["bytes_link"].item()

    # an all-reduce of one token of 10 bytes over 2: 10 bytes sent
    dense = {**GQA, "intermediate": 12}
    assert sent(layers(("gqa", "dense", {}), **dense)) == 20
    assert sent(layers(("gqa", "dense", {}), **dense, parallel_blocks=True)) == 10
    assert sent(layers(("gqa", "none", {}), ("none", "dense", {}), **dense)) == 20
    assert sent(layers(("deltanet", "dense", {}), **dense, **STATE)) == 20
    # dispatch and combine: half a token (tp 2) to 2 experts of width 5, half of it to the other rank: 2.5 each; then
    # what shared experts and the dense MLP give is summed at once
    latent = layers(("none", "moe+dense", {"intermediate": 12}), **EXPERTS, expert_hidden=5)
    assert sent(latent, ep=2) == 2 * 2.5 + 10
    # without shared experts the dense MLP needs it all the same, and routed experts alone do not
    bare = {"n_experts": 8, "top_k": 2, "expert_intermediate": 6, "intermediate": 12}
    assert sent(layers(("none", "moe+dense", {}), **bare), ep=2) == 2 * 5 + 10
    assert sent(layers(("none", "moe", {}), **bare), ep=2) == 2 * 5
    assert sent(layers(("none", "moe+dense", {}), **bare)) == 10


def test_small_operations():
    def small(model, kind, phase="decode", seq_len=100):
        found = kernels(model, phase, seq_len, small_ops=kind, activation_traffic="none")["small_ops"]
        return found[0 if kind == "flops" else 3]

    # norm and residual of 10; half of (4 + 2) heads of 8 is rotated: 24; a gate of 4*6 = 24; 4*100 scores
    gated = layers(("gqa", "none", {"rotary": 0.5}), **GQA, v_head_dim=6, output_gate=True)
    assert small(gated, "flops") == 40 + 10 + 3 * 24 + 6 * 24 + 5 * 400
    assert small(gated, "memory") == 20 + 20 + 2 * 24 + 3 * 24
    # 4 tokens: 10 pairs
    assert small(gated, "flops", "prefill", 4) == 4 * (40 + 10 + 72 + 144) + 5 * 4 * 10
    # layers without keys of their own rotate queries only: 32
    shared = layers(("gqa", "none", {"kv_shared": True}), **GQA)
    assert small(shared, "memory") == 20 + 20 + 2 * 32
    # scores of sparse layers are those of the core; 2 of 4 heads and of the one key are rotated
    compressed = layers(("compressed", "none", {"window": 6, "compress": 10}), **COMPRESSED)
    assert small(compressed, "flops") == 40 + 10 + 3 * 2 * 5 + 5 * 4 * 16
    sparse = layers(("mla", "none", {"indexer": "own"}), **MLA, **INDEX, rotary=0.5)
    assert small(sparse, "flops") == 40 + 10 + 3 * 5 + 5 * 4 * 7
    # recurrent mixers gate their 20 values, and have neither RoPE nor scores
    assert small(layers(("mamba2", "none", {}), **STATE), "flops") == 40 + 10 + 6 * 20
    assert small(layers(("mamba2", "none", {}), **STATE), "memory") == 20 + 20 + 3 * 20
    # a dense MLP of 12 adds its norm, residual and gating; side by side with attention it shares norm and residual;
    # residual streams are added on 2*10 elements
    both = {**GQA, "intermediate": 12, "rotary": 0.0}
    assert small(layers(("gqa", "dense", {}), **both), "memory") == 2 * (20 + 20) + 36
    assert small(layers(("gqa", "dense", {}), **both, parallel_blocks=True), "memory") == 20 + 20 + 36
    assert small(layers(("gqa", "dense", {}), **both, residual_streams=2), "memory") == 2 * (20 + 40) + 36


# ---- hybrids, vision towers


def test_cache_of_a_hybrid_has_fixed_capped_and_growing_parts():
    model = layers(
        ("deltanet", "dense", {}),
        ("gqa", "dense", {"window": 50}),
        ("gqa", "dense", {}),
        **GQA,
        **STATE,
        intermediate=12,
    )
    assert held(model, 100) == 6096 + 50 * 32 + 100 * 32
    assert held(model, 20) == 6096 + 20 * 32 + 20 * 32
    assert held(model, 100, phase="prefill", cached_tokens=30) == 6096 + 50 * 32 + 130 * 32
    # what is left of 0.9 GB after 2000 + 928 + 2*960 + 3*360 of weights holds this many sequences
    assert evaluated(model)["max_batch"] == (900_000_000 - 5928) // (6096 + 150 * 32)


def test_vision_tower_takes_memory_only():
    plain, seeing = (layers(("gqa", "none", {}), **GQA, vision_parameters=n) for n in (0, 600))
    assert resident(seeing) == resident(plain) + 600
    assert resident(seeing, tp=2) == resident(plain, tp=2) + 300
    assert kernels(seeing, "decode", 100) == kernels(plain, "decode", 100)
    assert seeing.n_parameters == plain.n_parameters


# ---- drafting

TARGET = layers(("gqa", "dense", {}), **GQA, intermediate=12, mtp=[{"count": 1, "attention": "gqa", "mlp": "dense"}])
DRAFT = cx.Model(
    name="draft",
    hidden=6,
    vocab=50,
    n_heads=2,
    n_kv_heads=2,
    head_dim=3,
    intermediate=5,
    groups=[{"count": 1, "attention": "gqa", "mlp": "dense"}],
)
ALL = ("layers", "embedding", "lm_head")


def total(found, column):
    return sum(row[column] for row in found.values())


def test_prediction_module():
    # Layer: 960 + 360 weights, cache 32 per token; the module has one of its own and 2*10 -> 10: 200.
    found = kernels(TARGET, "decode", 100, draft_tokens=2, drafter="mtp", include=ALL)
    # 3 tokens are verified; two passes draft one each, over the same 100 tokens
    assert found["attn_proj"] == (2 * (3 + 2) * 960, 3 * 960, 0, (3 + 2) * (74 + 42))
    assert found["attn_core"] == (2 * 16 * 4 * (303 + 2 * 100), 0, 103 * 32 + 2 * 101 * 32, (3 + 2) * 64)
    projected = (20 + 10) * 2
    assert found["dense_mlp"] == (2 * 5 * 360 + 2 * 2 * 200, 3 * 360 + 2 * 200, 0, 5 * 56 + projected)
    assert found["embedding"] == (0, 3 * 10 + 2 * 10, 0, 0)
    assert found["lm_head"] == (2 * 5 * 1000, 3 * 1000, 0, 5 * 110)
    # prefill: one pass of layers and projection, neither embedding nor LM head
    found = kernels(TARGET, "prefill", 4, draft_tokens=2, drafter="mtp", include=ALL)
    assert found["attn_proj"] == (2 * 8 * 960, 2 * 960, 0, 8 * 116)
    assert found["attn_core"] == (2 * 16 * 4 * 20, 0, 2 * 4 * 32, 8 * (64 + 32))
    assert found["dense_mlp"] == (2 * 8 * 360 + 2 * 4 * 200, 2 * 360 + 200, 0, 8 * 56 + 4 * 30)
    assert found["embedding"] == (0, 40, 0, 0)
    assert found["lm_head"] == (2 * 1000, 1000, 0, 110)
    assert resident(TARGET, drafter="mtp") == 2 * 1320 + 200
    assert resident(TARGET, draft_tokens=2) == 1320
    assert held(TARGET, 100, drafter="mtp") == 2 * 3200
    # layer, projection, norms: two of the layer, three of the module
    assert TARGET.n_parameters_mtp == 1320 + 200 + 5 * 10


def test_drafter_without_drafts_takes_memory_only():
    idle, free = (kernels(TARGET, "decode", 100, drafter=d, include=ALL) for d in ("mtp", "free"))
    assert idle == free
    assert resident(TARGET, drafter=DRAFT) == 1320 + 834


def test_draft_model():
    # Its layer: 6 -> 18: 108, 6 -> 6: 36, MLP 3*6*5 = 90; cache 2*2*3 = 12 per token; embedding and LM head 300 each.
    found = kernels(TARGET, "decode", 100, batch=2, draft_tokens=2, drafter=DRAFT, include=ALL)
    assert found["attn_proj"] == (2 * 6 * 960 + 2 * 4 * 144, 960 + 2 * 144, 0, 6 * 116 + 4 * (24 + 12))
    assert found["attn_core"] == (
        2 * (128 * 303 + 2 * 6 * 2 * 2 * 100),
        0,
        2 * (103 * 32 + 2 * 101 * 12),
        6 * 64 + 4 * 12,
    )
    assert found["dense_mlp"] == (2 * 6 * 360 + 2 * 4 * 90, 360 + 2 * 90, 0, 6 * 56 + 4 * (16 + 11))
    assert found["embedding"] == (0, 6 * 10 + 4 * 6, 0, 0)
    assert found["lm_head"] == (2 * 6 * 1000 + 2 * 4 * 300, 1000 + 2 * 300, 0, 6 * 110 + 4 * 56)
    # prefill: one whole pass
    found = kernels(TARGET, "prefill", 4, draft_tokens=2, drafter=DRAFT, include=ALL)
    assert total(found, 0) == (8 * 1320 + 128 * 10 + 2 * 1000) + (8 * 234 + 24 * 10 + 2 * 300)
    assert total(found, 1) == (1320 + 40 + 1000) + (234 + 24 + 300)
    assert total(found, 2) == 4 * 32 + 4 * 12
    assert resident(TARGET, drafter=DRAFT) == 1320 + 234 + 600
    assert held(TARGET, 100, drafter=DRAFT) == 3200 + 1200


def test_lumped_draft_model():
    lumped = cx.LumpedModel(name="lump", n_parameters=500, n_layers=3, n_kv_heads=1, head_dim=2)
    # 500 weights, 1000 FLOP per token, a cache of 3 * 2*2 = 12 per token
    found = kernels(TARGET, "decode", 100, draft_tokens=2, drafter=lumped)
    assert found["dense_mlp"] == (2 * 3 * 360 + 2 * 2 * 500, 360 + 2 * 500, 2 * 101 * 12, 3 * 56)
    found = kernels(TARGET, "prefill", 4, drafter=lumped, draft_tokens=2)
    assert found["dense_mlp"] == (2 * 4 * 360 + 2 * 4 * 500, 360 + 500, 4 * 12, 4 * 56)
    assert resident(TARGET, drafter=lumped) == 1320 + 500
    assert held(TARGET, 100, drafter=lumped) == 3200 + 1200


def test_overheads_of_drafting():
    slow = cx.Efficiency(name="slow", tau_layer=1.0, tau_global=10.0, tau_batch=100.0)

    def overhead(**options):
        return evaluated(TARGET, batch=2, efficiency=slow, draft_tokens=3, **options)["time_overhead"].item()

    lumped = cx.LumpedModel(name="lump", n_parameters=500, n_layers=7)
    assert overhead() == 1 + 10 + 200
    assert overhead(drafter="mtp") == 1 + 10 + 200 + 3 * (1 + 10)
    assert overhead(drafter=DRAFT) == 1 + 10 + 200 + 3 * (1 + 10)
    assert overhead(drafter=lumped) == 1 + 10 + 200 + 3 * (7 + 10)
    assert overhead(drafter=lumped, phase="prefill") == 1 + 10 + 200 + (7 + 10)


def test_layers_that_work_on_prompts_cost_the_host_more():
    host = cx.Efficiency(name="host", tau_layer=1.0, tau_layer_prefill=20.0)
    lumped = cx.LumpedModel(name="lump", n_parameters=500, n_layers=7)

    def overhead(phase, **options):
        return evaluated(TARGET, phase=phase, batch=2, efficiency=host, **options)["time_overhead"].item()

    long = {"seq_len": 300}  # 600 tokens are more than the 512 that captured graphs hold
    assert overhead("prefill", **long) == 1 + 20
    assert overhead("prefill", seq_len=256) == 1
    assert overhead("prefill", **long, micro_batches=2) == 1
    assert overhead("decode", **long) == 1
    assert overhead("prefill", **long, draft_tokens=3, drafter=lumped) == (1 + 7) * (1 + 20)
    assert overhead("decode", **long, draft_tokens=3, drafter=lumped) == 1 + 3 * 7
    few = cx.evaluate(
        TARGET, GPU, BYTES, batch=[1, 2], seq_len=[256, 257], phase="prefill", efficiency=host, dtype="float64"
    )
    assert few["time_overhead"].values.tolist() == [[1, 1], [1, 21]]


def test_draft_passes_are_cut_into_micro_batches():
    found = kernels(TARGET, "decode", 100, batch=4, draft_tokens=2, drafter="mtp", micro_batches=2)
    # weights are read once for each of 2 micro-batches, of all 3 passes; tokens are as many as before
    assert found["attn_proj"] == (2 * 4 * 5 * 960, 2 * 3 * 960, 0, 4 * 5 * 116)
    assert found["dense_mlp"][:2] == (2 * 4 * (5 * 360 + 2 * 200), 2 * (3 * 360 + 2 * 200))


# ---- what a layout can split

STATUSES = {
    "query heads of attention": (layers(("gqa", "none", {}), **GQA), 8, {}, "tp_heads"),
    "value heads": (layers(("mamba2", "none", {}), **STATE), 8, {}, "tp_heads"),
    "key heads of deltanet": (layers(("deltanet", "none", {}), **STATE), 4, {}, "tp_heads"),
    "groups of mamba2 are copied": (layers(("mamba2", "none", {}), **STATE), 4, {}, "ok"),
    "groups of mamba2": (
        layers(("mamba2", "none", {}), **{**STATE, "linear_key_heads": 3, "linear_value_heads": 6}),
        2,
        {},
        "tp_kv_heads",
    ),
    "KV heads of one group": (
        layers(("gqa", "none", {}), ("gqa", "none", {"n_kv_heads": 3}), **{**GQA, "n_heads": 12}),
        2,
        {},
        "tp_kv_heads",
    ),
    "width of one group": (
        layers(("gqa", "dense", {}), ("gqa", "dense", {"intermediate": 9}), **GQA, intermediate=12),
        2,
        {},
        "tp_width",
    ),
    "groups of outputs": (layers(("compressed", "none", {"window": 6}), **COMPRESSED), 4, {}, "tp_width"),
    "no module": (layers(("gqa", "none", {}), **GQA), 1, {"drafter": "mtp"}, "no_mtp"),
    "heads of a draft model": (TARGET, 4, {"drafter": DRAFT, "draft_tokens": 1}, "tp_heads"),
    "width of a draft model": (TARGET, 2, {"drafter": DRAFT, "draft_tokens": 1}, "tp_width"),
    "length of a draft model": (
        TARGET,
        1,
        {"drafter": DRAFT.model_copy(update={"max_seq_len": 99}), "draft_tokens": 1},
        "seq_beyond_max",
    ),
}


@pytest.mark.parametrize("name", STATUSES)
def test_status(name):
    model, tp, options, status = STATUSES[name]
    assert evaluated(model, tp=tp, **options)["status"] == CODES[status]


def test_dense_draft_model_serves_an_expert_parallel_target():
    target = layers(("gqa", "moe", {}), **GQA, **EXPERTS)
    ds = evaluated(target, ep=2, tp=2, drafter=cx.LumpedModel(name="lump", n_parameters=500), draft_tokens=1)
    assert ds["status"] == CODES["ok"]
    assert evaluated(TARGET, ep=2, tp=2, drafter="mtp")["status"] == CODES["ep_dense"]


def test_a_sparse_prefill_that_leaves_nothing_out_is_dense():
    """DeepSeek-V3.2 keeps 2,048 tokens; its main attention is that of V3: 2*(128 + 64 + 128)*128 FLOP per pair."""
    at = {"gpu": "h200-sxm", "batch": 1, "phase": "prefill", "seq_len": [2048, 2049]}
    options = {"on_infeasible": "ignore"}
    sparse, dense = (
        cx.breakdown(m, **at, options=options).flops.sel(kernel="attn_core") for m in ("deepseek-v3.2", "deepseek-v3")
    )
    assert float(sparse[0]) == float(dense[0]) == 61 * 2 * 320 * 128 * 2048 * 2049 / 2
    # one token more: every query reads latents, 2*(2*512 + 64)*128 FLOP per pair, the last one 2,048 of 2,049
    assert float(sparse[1]) == 61 * 2 * 1088 * 128 * (2048 * 2049 / 2 + 2048)
