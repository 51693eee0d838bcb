"""Mixed batches against forward passes of the engine itself: where the answer is known from them."""

import numpy as np
import pytest
import xarray as xr

import cheetah_xr as cx
from cheetah_xr.engine.inputs.gather import axes_of
from cheetah_xr.engine.mixed_batch import evaluate_mixed
from cheetah_xr.specs import load_gpu

IGNORE = {"on_infeasible": "ignore", "overlap_ep": 0.0}
DENSE = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "efficiency": "kernels", "tp": 2}
EXPERTS = {"model": "mixtral-8x7b", "gpu": "h100-sxm", "efficiency": "kernels", "tp": 2, "dp": 2, "ep": 4}


def mixed(setup, prompts, isl, running, context, **options):
    """Time of one mixed batch."""
    axes = axes_of(**setup, phase="prefill", batch=prompts, seq_len=isl, options=IGNORE | options)
    values = [xr.DataArray(v) for v in (running, context)]
    return float(evaluate_mixed(axes, *values, 1e9).step_time)


def times(setup, phase, batch, seq_len, **options):
    """Times of the kernels of a forward pass, and of the whole."""
    return cx.breakdown(**setup, phase=phase, batch=batch, seq_len=seq_len, options=IGNORE | options)


@pytest.mark.parametrize("setup", [DENSE, EXPERTS])
def test_a_pass_is_that_of_longer_prompts_with_the_cores_of_both(setup):
    # 4 prompts of 1000 tokens alongside 32 requests: linear kernels see 4 prompts of 1008 tokens.
    longer, prompts = times(setup, "prefill", 4, 1008), times(setup, "prefill", 4, 1000)
    decode = times(setup, "decode", 32, 3000)
    linear = longer.time.drop_sel(kernel=["attn_core", "lm_head", "collectives"]).sum()
    cores = prompts.time.sel(kernel="attn_core") + decode.time.sel(kernel="attn_core")
    layers = times(setup, "prefill", 4, 1008, include=("layers",)).time.sel(kernel="collectives")
    # The LM head sees the last token of each prompt and that of every request: 36 rows.
    head = times(setup, "decode", 36, 1, include=("lm_head",))
    outside = head.step_time - head.time_overhead
    expected = float(linear + cores + layers + outside + longer.time_overhead)
    assert mixed(setup, 4, 1000, 32, 3000) == pytest.approx(expected, rel=1e-12)


def test_a_parameter_count_model_reads_the_cache_of_those_that_decode():
    count_model = {"name": "parameter-count", "n_parameters": 8e9, "n_layers": 32, "n_kv_heads": 8, "head_dim": 128}
    setup = {"model": count_model, "gpu": "h100-sxm", "efficiency": "ideal"}
    gpu = load_gpu("h100-sxm")
    # Compute of 4 * 1000 + 32 tokens, then 32 caches of 3001 tokens of 2 * 8 * 128 * 32 elements of 2 bytes.
    compute = 2 * 8e9 * 4032 / gpu.peak_bf16
    read = 32 * 3001 * 2 * 8 * 128 * 32 * 2 / gpu.hbm_bandwidth
    assert mixed(setup, 4, 1000, 32, 3000) == pytest.approx(compute + read, rel=1e-12)


def test_drafts_are_passes_of_their_own():
    # Draft passes of a decode step, and the prompt pass of the drafter, come on top of what target models do.
    drafted = {"draft_tokens": 3, "drafter": "qwen3-0.6b"}
    setup = {**DENSE, "tp": 1}
    free = mixed(setup, 4, 1000, 32, 3000, draft_tokens=3)
    drafter = {**setup, "model": "qwen3-0.6b"}
    alone = cx.evaluate(**drafter, phase="decode", batch=32, seq_len=3000, options=IGNORE, dtype="float64").step_time
    prompt = cx.evaluate(**drafter, phase="prefill", batch=4, seq_len=1000, options=IGNORE, dtype="float64").step_time
    whole = mixed(setup, 4, 1000, 32, 3000, **drafted)
    assert whole == pytest.approx(free + 3 * float(alone) + float(prompt), rel=1e-12)


def test_verified_drafts_are_tokens_of_the_pass():
    # 32 requests with 3 drafts bring as many tokens to linear kernels as 128 without, and to the LM head.
    core = {q: float(times(DENSE, "decode", 32, 3000, draft_tokens=q).time.sel(kernel="attn_core")) for q in (0, 3)}
    many = float(times(DENSE, "decode", 128, 3000).time.sel(kernel="attn_core"))
    four = mixed(DENSE, 4, 1000, 32, 3000, draft_tokens=3) - core[3]
    assert four == pytest.approx(mixed(DENSE, 4, 1000, 128, 3000) - many, rel=1e-12)


def test_axes_have_the_values_of_points():
    setup = {**DENSE, "model": ["llama-3.1-8b", "qwen3-8b"], "tp": [1, 2]}
    prompts = xr.DataArray([1, 4], dims="load")
    running = xr.DataArray([8, 64], dims="load")
    axes = axes_of(**setup, phase="prefill", batch=prompts, seq_len=1000, options=IGNORE)
    actual = evaluate_mixed(axes, running, xr.DataArray(3000), 1e9).step_time
    assert set(actual.dims) == {"model", "tp", "load"}
    for model in setup["model"]:
        for tp in setup["tp"]:
            for i in range(2):
                one = mixed({**DENSE, "model": model, "tp": tp}, int(prompts[i]), 1000, int(running[i]), 3000)
                assert float(actual.sel(model=model, tp=tp).isel(load=i)) == one


def test_more_requests_take_longer():
    steps = [mixed(EXPERTS, 4, 1000, n, 3000) for n in (1, 8, 64, 512)]
    assert np.all(np.diff(steps) > 0)
    assert steps[0] > float(cx.evaluate(**EXPERTS, phase="prefill", batch=4, seq_len=1000, options=IGNORE).step_time)
