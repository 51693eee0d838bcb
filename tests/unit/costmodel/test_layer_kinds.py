"""Every kind of layer against hand-computed numbers, in the comments, from docs/explanation/cost-model.md."""

from tests.helpers.hand_computed import (
    COMPRESSED,
    EXPERTS,
    GQA,
    INDEX,
    MLA,
    STATE,
    cache_bytes,
    evaluated,
    kernels,
    layers,
    resident_weights,
)

# ---- grouped-query attention


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
    assert cache_bytes(model, 100) == 2800
    assert resident_weights(model) == 1080
    # over 4 GPUs: one query head each and a whole KV head: 8 + 8 + 6 + 6 = 28, 280 + 60 weights, 14 per cached token
    assert resident_weights(model, tp=4) == 340
    assert cache_bytes(model, 100, tp=4) == 1400


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
    assert cache_bytes(model, 100) == 3200


def test_layers_that_share_a_cache():
    model = layers(("gqa", "none", {}), ("gqa", "none", {"kv_shared": True, "sinks": True}), **GQA)
    # First layer: N = 32 + 16 + 16 = 64: 640 + 320 weights. Second: queries only: 320 + 320. Cache: 2*16 per token,
    # which the first layer reads and writes and the second reads.
    assert kernels(model, "decode", 100) == {
        "attn_proj": (2 * 1600, 1600, 0, (10 + 64 + 32 + 10) + (10 + 32 + 32 + 10)),
        "attn_core": (2 * (2 * 16 * 4 * 100), 0, 101 * 32 + 100 * 32, 2 * 64),
    }
    assert kernels(model, "prefill", 4)["attn_core"] == (2 * (2 * 16 * 4 * 10), 0, 4 * 32, 2 * 4 * (64 + 32))
    assert cache_bytes(model, 100) == 3200


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
    assert cache_bytes(model, 100) == 100 * (32 + 50)
    assert resident_weights(model) == 1160


def test_shared_choice_of_an_indexer():
    model = layers(("gqa", "none", {"indexer": "shared"}), **GQA, **INDEX)
    assert kernels(model, "decode", 100) == {
        "attn_proj": (2 * 960, 960, 0, 74 + 42),
        "attn_core": (2 * 16 * 4 * 7, 0, (7 + 1) * 32, 64),
    }
    assert kernels(model, "prefill", 10)["attn_core"] == (2 * 16 * 4 * 49, 0, 10 * 32, 10 * (64 + 32))
    assert cache_bytes(model, 100) == 3200


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
    assert cache_bytes(model, 100) == 100 * (8 + 50)
    # split over 2: the first steps and the indexer are replicated, 50 + 80 + 75 + 50 + 30, the rest is halved
    assert resident_weights(model, tp=2) == 285 + (100 + 144 + 120) / 2


def test_output_gate_of_latent_attention():
    model = layers(("mla", "none", {}), **MLA, output_gate=True)
    # 50 + 100 + 80; keys and values 6 -> 4*(3+3): 144; output 120; gate 10 -> 12: 120. In all 614.
    # Activations per token 15 + 25 + 18 + 30 + 22 + 22 = 132. Core: 2*(5+3) per pair; Q, K of 5 and V, O of 3 a head.
    assert kernels(model, "prefill", 10) == {
        "attn_proj": (20 * 614, 614, 0, 10 * 132),
        "attn_core": (16 * 4 * 55, 0, 10 * 8, 10 * 4 * 16),
    }
    assert kernels(model, "decode", 100)["attn_proj"] == (2 * 614, 614, 0, 15 + 25 + 18 + 72 + 22 + 22)
    assert cache_bytes(model, 100) == 800


# ---- compressed attention


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
    assert cache_bytes(model, 100) == 48
    assert cache_bytes(model, 4) == 32


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
    assert cache_bytes(model, 100) == (6 + 10) * 8


def test_entries_that_an_indexer_chooses():
    model = layers(("compressed", "none", {"window": 6, "compress": 4, "indexer": "own"}), **COMPRESSED, **INDEX)
    # Index queries 5 -> 15: 75 on top of 446, activations 124 + 20. With the router's bytes: two series 10 -> 32: 320,
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
    assert cache_bytes(model, 100) == (6 + 25) * 8 + 25 * 50
    # on two ranks: 50 + 80 + 75 + 550 replicated, 160 + 96 + 60 halved
    assert resident_weights(model, tp=2) == 755 + 316 / 2


def test_residual_streams_are_mixed_before_every_block():
    both = layers(("gqa", "dense", {}), **GQA, intermediate=12, residual_streams=2)
    # a GEMM of 2*10 -> (2+2)*2 before each block: 160 weights, 28 of activations
    assert kernels(both, "decode", 100, batch=3)["router"] == (2 * 3 * 320, 320, 0, 3 * 56)
    assert kernels(both, "prefill", 4)["router"] == (2 * 4 * 320, 320, 0, 4 * 56)
    one = layers(("gqa", "none", {}), **GQA, residual_streams=2)
    assert kernels(one, "decode", 100)["router"] == (2 * 160, 160, 0, 28)
    assert resident_weights(both) == 960 + 360 + 320
    assert resident_weights(both, tp=2) == (960 + 360) / 2 + 320
    # matrix, 8 offsets and 3 scales per block; 2*2*10 + 2 + 1 that join the streams at the end; 4 norms of 10
    plain = layers(("gqa", "dense", {}), ("gqa", "none", {}), **GQA, intermediate=12)
    mixed = layers(("gqa", "dense", {}), ("gqa", "none", {}), **GQA, intermediate=12, residual_streams=2)
    assert plain.n_parameters == 2000 + 960 + 360 + 960 + 4 * 10
    assert mixed.n_parameters - plain.n_parameters == 3 * (160 + 8 + 3) + 43


# ---- recurrent mixers


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
    assert cache_bytes(model, 100) == cache_bytes(model, 9) == 6096
    assert resident_weights(model) == 928
    assert cache_bytes(model, 100, tp=2) == 3048


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
    assert cache_bytes(model, 100) == 6096
    # 4 ranks: a group of its own copy each (3 wide), one head (5): 10 -> 6 + 5 + 5 + 1: 170; output 50; 11 channels
    assert resident_weights(model, tp=4) == 170 + 50 + 44
    assert cache_bytes(model, 100, tp=4) == 1500 + 33


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
    assert cache_bytes(model, 100) == 6096
    # two ranks: 10 -> 2 and 10 -> 3 are replicated
    assert resident_weights(model, tp=2) == 50 + (360 + 40 + 18 + 200 + 128) / 2
    # a full gate is in the one GEMM: 10 -> 56
    assert resident_weights(layers(("kda", "none", {}), **STATE)) == 560 + 48 + 200 + 128


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
    assert cache_bytes(model, 100) == 6000


# ---- MLPs


def test_latent_experts_with_a_dense_mlp():
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
    assert resident_weights(model) == 360 + 90 + 220 + 8 * 90
    assert cache_bytes(model, 100) == 0
    # two ranks, an expert on one of them: router 90 and latent projections 100 are replicated
    assert resident_weights(model, tp=2, ep=2) == 90 + 100 + (360 + 120 + 8 * 90) / 2


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
        actual = kernels(model, phase, seq_len, small_ops=kind, activation_traffic="none")["small_ops"]
        return actual[0 if kind == "flops" else 3]

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
    assert cache_bytes(model, 100) == 6096 + 50 * 32 + 100 * 32
    assert cache_bytes(model, 20) == 6096 + 20 * 32 + 20 * 32
    assert cache_bytes(model, 100, phase="prefill", cached_tokens=30) == 6096 + 50 * 32 + 130 * 32
    # what is left of 0.9 GB after 2000 + 928 + 2*960 + 3*360 of weights holds this many sequences
    assert evaluated(model)["max_batch"] == (900_000_000 - 5928) // (6096 + 150 * 32)


def test_vision_tower_takes_memory_only():
    plain, seeing = (layers(("gqa", "none", {}), **GQA, vision_parameters=n) for n in (0, 600))
    assert resident_weights(seeing) == resident_weights(plain) + 600
    assert resident_weights(seeing, tp=2) == resident_weights(plain, tp=2) + 300
    assert kernels(seeing, "decode", 100) == kernels(plain, "decode", 100)
    assert seeing.n_parameters == plain.n_parameters
