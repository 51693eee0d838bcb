"""The memory the model predicts is what serving engines logged; where it is not, by how much and why."""

import math
from collections import Counter

import pytest

import cheetah_xr as cx
from tests.helpers import engine_memory as logs

COMPARED = [(row.row, quantity) for row in logs.rows() for quantity in row.quantities]
LIMITS = [row.row for row in logs.rows() if row.compared == "limit"]


@pytest.mark.parametrize(("name", "quantity"), COMPARED)
def test_prediction(name, quantity):
    by = logs.error(logs.ROWS[name], quantity)
    if (name, quantity) in logs.EXCEPTIONS:
        assert by == pytest.approx(logs.EXCEPTIONS[name, quantity], abs=1e-3)
        assert abs(by) > logs.TOLERANCE[quantity]
    else:
        assert abs(by) <= logs.TOLERANCE[quantity]


@pytest.mark.parametrize("name", LIMITS)
def test_a_log_without_activations_stays_below_the_model(name):
    row = logs.ROWS[name]
    assert logs.error(row, logs.limited(row)) > 0


def test_every_row_is_there_and_says_why_it_is_not_compared():
    rows = logs.rows()
    assert len(rows) == len(logs.ROWS) == 30
    assert Counter("compared" if row.quantities else row.compared for row in rows) == {
        "compared": 12,
        "limit": 4,
        "none": 14,
    }
    assert set(logs.EXCEPTIONS) <= set(COMPARED)
    for row in rows:
        assert row.source.startswith("https://")
        assert row.reason


def test_every_quantity_a_row_can_be_held_to_is_compared():
    """Weights where model and layout are known; the pool where activations are stated too."""
    for row in logs.rows():
        known = bool(row.used and row.tp) and row.row != "h20-3e-r1-pp2"
        if known and row.weights_gib is not None:
            assert "weights" in row.quantities
            assert ("pool" in row.quantities) == (row.pool_gib is not None and row.activation_gib is not None)


def test_the_page_shows_the_table():
    assert logs.table() in logs.DOC.read_text(encoding="utf-8")


# ---- by hand: embedding and head, then per layer Q, K, V, O and the MLP

BY_HAND = {
    "3090-llama-8b-20k": 2 * (2 * 128256 * 4096 + 32 * (4096 * (4096 + 2 * 1024 + 4096) + 3 * 4096 * 14336)),
    "h100-qwen3-32b-tp2": 151936 * 5120 * 2 + 64 * (5120 * (8192 + 2 * 1024 + 8192) + 3 * 5120 * 25600),
    "h100-qwen3-32b-32k": 2 * (2 * 151936 * 5120 + 64 * (5120 * (8192 + 2 * 1024 + 8192) + 3 * 5120 * 25600)),
    "h100-qwen3-0.6b": 2 * (151936 * 1024 + 28 * (1024 * (2048 + 2 * 1024 + 2048) + 3 * 1024 * 3072)),
    "h100-mistral-small": 2
    * (2 * 131072 * 5120 + 40 * (5120 * (4096 + 2 * 1024 + 4096) + 3 * 5120 * 32768) + 438_958_080),
    "llama-70b-w8a8": 4 * 128256 * 8192 + 80 * (8192 * (8192 + 2 * 1024 + 8192) + 3 * 8192 * 28672),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_weights_hand_computed(name):
    assert logs.predicted(logs.ROWS[name])["weights"] * logs.GIB == BY_HAND[name]


@pytest.mark.parametrize(
    ("name", "bytes_per_token"),
    [
        ("3090-llama-8b-29k", 2 * 32 * 8 * 128 * 2),
        ("3090-llama-8b-20k", 2 * 32 * 8 * 128 * 2),
        ("h100-mistral-small", 2 * 40 * 8 * 128 * 2),
    ],
)
def test_bytes_per_token_of_uniform_models(name, bytes_per_token):
    row = logs.ROWS[name]
    assert logs.gib_per_gpu(row, seq_len=1)["sequence"] * logs.GIB == bytes_per_token
    assert row.pool_gib * logs.GIB / row.tokens == pytest.approx(bytes_per_token, rel=2e-3)


def test_qwen3_32b_has_no_room_for_32000_tokens():
    """What did not start: 10.24 GiB on top of the weights, less 6.18 of the log on two cards, for 7.81."""
    row, other = logs.ROWS["h100-qwen3-32b-32k"], logs.ROWS["h100-qwen3-32b-tp2"]
    size = logs.gib_per_gpu(row, memory_fraction=0.9, reserve_bytes=(other.activation_gib + other.other_gib) * logs.GIB)
    assert size["sequence"] == pytest.approx(7.8125)
    assert size["budget"] - size["weights"] == pytest.approx(4.0591, abs=1e-3)


def test_numbers_in_the_reasons():
    half = logs.gib_per_gpu(logs.ROWS["h20-3e-r1-pp2"])["weights"] / 2
    assert half == pytest.approx(39.64, abs=0.005)
    gemma = logs.ROWS["a100-gemma-4-31b-old"]
    assert logs.gib_per_gpu(gemma, seq_len=1)["sequence"] * logs.GIB == 901_120
    assert int(50 * logs.GIB / 901_120) == 59_578
    longest = logs.gib_per_gpu(gemma, seq_len=262_144)["sequence"]
    assert int(50 / longest * 262_144) == 630_722
    a100 = logs.ROWS["a100-llama-8b-tp4"]
    size = logs.gib_per_gpu(a100)
    assert size["weights"] + a100.tokens / a100.max_model_len * size["sequence"] > 0.9 * 80e9 / logs.GIB
    assert a100.tokens == a100.concurrency * a100.max_model_len
    budget = logs.ROWS["unnamed-24gb-card"]
    assert budget.fraction * budget.memory_gib - 21.21 - 0.37 - 0.20 == pytest.approx(1.56, abs=0.005)
    assert 2 * cx_bytes("qwen3-8b", "fp8-kv8") == cx_bytes("qwen3-8b", "fp8")


def cx_bytes(model, precision, **more):
    kept = cx.explain_memory(model, "h100-sxm", precision, seq_len=1, **more)
    return float(kept.set_index("what").bytes["one sequence"])


# ---- what engines keep on top of the content


def state_of(model, precision):
    """Bytes of one recurrent state, and per token of one attention layer."""
    kept = cx.explain_memory(model, "h100-sxm", precision, seq_len=1).set_index("what")
    per_layer = kept.bytes / kept.layers
    return per_layer["recurrent state"], per_layer["KV cache"]


def test_blocks_of_recurrent_models():
    """A state is a block, and a block of attention layers holds as many tokens as fit, in steps of 16."""
    row = logs.ROWS["5090-qwen3.6-35b"]
    state, per_token = state_of(row.used, row.precision)
    tokens = 16 * math.ceil(state / per_token / 16)
    assert (state, tokens) == (2_146_304, 2_096)
    blocks = int(row.pool_gib * logs.GIB / (10 * tokens * per_token))
    request = math.ceil(row.max_model_len / tokens) + 3 * 2
    assert (blocks, request) == (300, 69)
    assert int(blocks / request * row.max_model_len) == row.tokens
    state, per_token = state_of("qwen3.5-27b", "nvfp4-kv8")
    assert (state, per_token, 16 * math.ceil(state / per_token / 16)) == (3_207_168, 2_048, 1_568)


def test_blocks_of_deepseek_v4():
    assert sum(576 * math.ceil(size / 576) for size in (64 * 584, 64 * 132, 2 * 584)) * 22 == logs.V4_BLOCK
    row = logs.ROWS["gh200-v4-flash-tp2"]
    assert (logs.v4_blocks(30_000, 16_384), logs.v4_blocks(13_528, 16_384)) == (118 + 6_682, 53 + 5_501)
    assert logs.v4_blocks(30_000, 16_384) * logs.V4_BLOCK / logs.GIB == pytest.approx(row.needed_gib, abs=0.005)
    assert logs.v4_blocks(13_528, 16_384) * logs.V4_BLOCK / logs.GIB == pytest.approx(row.pool_gib, abs=0.005)


def test_tokens_of_deepseek_v4_on_b200():
    row = logs.ROWS["b200-v4-flash-dp8"]
    values = logs.predicted(row)
    assert values["sequence"] == pytest.approx(3.763, abs=1e-3)
    assert values["sequence"] * logs.GIB / row.max_model_len == pytest.approx(3850, abs=4)
    reserved = logs.v4_blocks(int(row.max_model_len), 8_192)
    assert reserved == 4_096 + 3_354
    request = reserved * logs.V4_BLOCK / logs.GIB
    assert request == pytest.approx(7.30, abs=0.005)
    assert values["pool"] / request * row.max_model_len == pytest.approx(1.013 * row.tokens, rel=2e-3)


def test_weights_of_deepseek_v4_pro_tensor_by_tensor():
    row = logs.ROWS["h200-v4-pro-tp8"]
    extra = logs.v4_pro_extra()
    twice = logs.gib_per_gpu(row, precision=logs.PRECISIONS["v4-scales-twice"])["weights"]
    counted = logs.predicted(row)["weights"]
    assert twice - counted == pytest.approx(extra["scales of the experts, again in float32"], abs=1e-9)
    assert counted + sum(extra.values()) == pytest.approx(row.weights_gib, rel=2e-3)
    output = extra["first half of the output projection in 16 bits"]
    assert round(output, 2) == 0.48
    assert sum(extra.values()) - (twice - counted) - output == pytest.approx(0.67, abs=0.005)
    assert counted + sum(extra.values()) - (twice - counted) == pytest.approx(102.9, abs=0.05)


def test_deepseek_v4_pro_does_not_fit_at_the_fraction_it_was_started_with():
    """SGLang's rule: the fraction of the memory free at start that holds the weights; 0.9113 in the log."""
    row = logs.ROWS["h200-v4-pro-tp8"]
    extra = logs.v4_pro_extra()
    rest = sum(extra.values()) - extra["scales of the experts, again in float32"]

    def room(fraction, precision):
        options = logs.options_of(row) | {"memory_fraction": fraction, "reserve_bytes": rest * logs.GIB}
        size = logs.gib_per_gpu(row, precision=logs.PRECISIONS.get(precision, precision), **options)
        return size["budget"] - size["weights"]

    assert room(0.88, "v4-scales-twice") < 0
    assert room(0.9094, "v4-scales-twice") < 0 < room(0.9096, "v4-scales-twice")
    assert abs(0.9095 / 0.9113 - 1) < 3e-3
    assert row.weights_gib / row.free_gib == pytest.approx(1 - 12.25 / 137.90)
    assert room(0.88, "fp8-fp4-experts") > 0
