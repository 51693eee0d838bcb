"""Drafting and what layouts can split, against hand-computed numbers from docs/explanation/cost-model.md."""

import pytest

import cheetah_xr as cx
from cheetah_xr.engine.validity import CODES
from tests.helpers.hand_computed import (
    BYTES,
    COMPRESSED,
    EXPERTS,
    GPU,
    GQA,
    STATE,
    cache_bytes,
    evaluated,
    kernels,
    layers,
    resident_weights,
)

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


def total(actual, column):
    return sum(row[column] for row in actual.values())


def test_mtp_module():
    # Layer: 960 + 360 weights, cache 32 per token; the module has one of its own and 2*10 -> 10: 200.
    actual = kernels(TARGET, "decode", 100, draft_tokens=2, drafter="mtp", include=ALL)
    # 3 tokens are verified; two passes draft one each, over the same 100 tokens
    assert actual["attn_proj"] == (2 * (3 + 2) * 960, 3 * 960, 0, (3 + 2) * (74 + 42))
    assert actual["attn_core"] == (2 * 16 * 4 * (303 + 2 * 100), 0, 103 * 32 + 2 * 101 * 32, (3 + 2) * 64)
    projected = (20 + 10) * 2
    assert actual["dense_mlp"] == (2 * 5 * 360 + 2 * 2 * 200, 3 * 360 + 2 * 200, 0, 5 * 56 + projected)
    assert actual["embedding"] == (0, 3 * 10 + 2 * 10, 0, 0)
    assert actual["lm_head"] == (2 * 5 * 1000, 3 * 1000, 0, 5 * 110)
    # prefill: one pass of layers and projection, neither embedding nor LM head
    actual = kernels(TARGET, "prefill", 4, draft_tokens=2, drafter="mtp", include=ALL)
    assert actual["attn_proj"] == (2 * 8 * 960, 2 * 960, 0, 8 * 116)
    assert actual["attn_core"] == (2 * 16 * 4 * 20, 0, 2 * 4 * 32, 8 * (64 + 32))
    assert actual["dense_mlp"] == (2 * 8 * 360 + 2 * 4 * 200, 2 * 360 + 200, 0, 8 * 56 + 4 * 30)
    assert actual["embedding"] == (0, 40, 0, 0)
    assert actual["lm_head"] == (2 * 1000, 1000, 0, 110)
    assert resident_weights(TARGET, drafter="mtp") == 2 * 1320 + 200
    assert resident_weights(TARGET, draft_tokens=2) == 1320
    assert cache_bytes(TARGET, 100, drafter="mtp") == 2 * 3200
    # layer, projection, norms: two of the layer, three of the module
    assert TARGET.n_parameters_mtp == 1320 + 200 + 5 * 10


def test_drafter_without_drafts_takes_memory_only():
    idle, free = (kernels(TARGET, "decode", 100, drafter=d, include=ALL) for d in ("mtp", "free"))
    assert idle == free
    assert resident_weights(TARGET, drafter=DRAFT) == 1320 + 834


def test_draft_model():
    # Its layer: 6 -> 18: 108, 6 -> 6: 36, MLP 3*6*5 = 90; cache 2*2*3 = 12 per token; embedding and LM head 300 each.
    actual = kernels(TARGET, "decode", 100, batch=2, draft_tokens=2, drafter=DRAFT, include=ALL)
    assert actual["attn_proj"] == (2 * 6 * 960 + 2 * 4 * 144, 960 + 2 * 144, 0, 6 * 116 + 4 * (24 + 12))
    assert actual["attn_core"] == (
        2 * (128 * 303 + 2 * 6 * 2 * 2 * 100),
        0,
        2 * (103 * 32 + 2 * 101 * 12),
        6 * 64 + 4 * 12,
    )
    assert actual["dense_mlp"] == (2 * 6 * 360 + 2 * 4 * 90, 360 + 2 * 90, 0, 6 * 56 + 4 * (16 + 11))
    assert actual["embedding"] == (0, 6 * 10 + 4 * 6, 0, 0)
    assert actual["lm_head"] == (2 * 6 * 1000 + 2 * 4 * 300, 1000 + 2 * 300, 0, 6 * 110 + 4 * 56)
    # prefill: one whole pass
    actual = kernels(TARGET, "prefill", 4, draft_tokens=2, drafter=DRAFT, include=ALL)
    assert total(actual, 0) == (8 * 1320 + 128 * 10 + 2 * 1000) + (8 * 234 + 24 * 10 + 2 * 300)
    assert total(actual, 1) == (1320 + 40 + 1000) + (234 + 24 + 300)
    assert total(actual, 2) == 4 * 32 + 4 * 12
    assert resident_weights(TARGET, drafter=DRAFT) == 1320 + 234 + 600
    assert cache_bytes(TARGET, 100, drafter=DRAFT) == 3200 + 1200


def test_parameter_count_draft_model():
    count_model = cx.ParameterCountModel(name="count", n_parameters=500, n_layers=3, n_kv_heads=1, head_dim=2)
    # 500 weights, 1000 FLOP per token, a cache of 3 * 2*2 = 12 per token
    actual = kernels(TARGET, "decode", 100, draft_tokens=2, drafter=count_model)
    assert actual["dense_mlp"] == (2 * 3 * 360 + 2 * 2 * 500, 360 + 2 * 500, 2 * 101 * 12, 3 * 56)
    actual = kernels(TARGET, "prefill", 4, drafter=count_model, draft_tokens=2)
    assert actual["dense_mlp"] == (2 * 4 * 360 + 2 * 4 * 500, 360 + 500, 4 * 12, 4 * 56)
    assert resident_weights(TARGET, drafter=count_model) == 1320 + 500
    assert cache_bytes(TARGET, 100, drafter=count_model) == 3200 + 1200


def test_overheads_of_drafting():
    slow = cx.Efficiency(name="slow", tau_layer=1.0, tau_global=10.0, tau_batch=100.0)

    def overhead(**options):
        return evaluated(TARGET, batch=2, efficiency=slow, draft_tokens=3, **options)["time_overhead"].item()

    count_model = cx.ParameterCountModel(name="count", n_parameters=500, n_layers=7)
    assert overhead() == 1 + 10 + 200
    assert overhead(drafter="mtp") == 1 + 10 + 200 + 3 * (1 + 10)
    assert overhead(drafter=DRAFT) == 1 + 10 + 200 + 3 * (1 + 10)
    assert overhead(drafter=count_model) == 1 + 10 + 200 + 3 * (7 + 10)
    assert overhead(drafter=count_model, phase="prefill") == 1 + 10 + 200 + (7 + 10)


def test_layers_that_work_on_prompts_cost_the_host_more():
    host = cx.Efficiency(name="host", tau_layer=1.0, tau_layer_prefill=20.0)
    count_model = cx.ParameterCountModel(name="count", n_parameters=500, n_layers=7)

    def overhead(phase, **options):
        return evaluated(TARGET, phase=phase, batch=2, efficiency=host, **options)["time_overhead"].item()

    long = {"seq_len": 300}  # 600 tokens are more than the 512 that captured graphs hold
    assert overhead("prefill", **long) == 1 + 20
    assert overhead("prefill", seq_len=256) == 1
    assert overhead("prefill", **long, micro_batches=2) == 1
    assert overhead("decode", **long) == 1
    assert overhead("prefill", **long, draft_tokens=3, drafter=count_model) == (1 + 7) * (1 + 20)
    assert overhead("decode", **long, draft_tokens=3, drafter=count_model) == 1 + 3 * 7
    few = cx.evaluate(
        TARGET, GPU, BYTES, batch=[1, 2], seq_len=[256, 257], phase="prefill", efficiency=host, dtype="float64"
    )
    assert few["time_overhead"].values.tolist() == [[1, 1], [1, 21]]


def test_draft_passes_are_cut_into_micro_batches():
    actual = kernels(TARGET, "decode", 100, batch=4, draft_tokens=2, drafter="mtp", micro_batches=2)
    # weights are read once for each of 2 micro-batches, of all 3 passes; tokens are as many as before
    assert actual["attn_proj"] == (2 * 4 * 5 * 960, 2 * 3 * 960, 0, 4 * 5 * 116)
    assert actual["dense_mlp"][:2] == (2 * 4 * (5 * 360 + 2 * 200), 2 * (3 * 360 + 2 * 200))


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
    ds = evaluated(target, ep=2, tp=2, drafter=cx.ParameterCountModel(name="count", n_parameters=500), draft_tokens=1)
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
