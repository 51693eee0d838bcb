"""What no model of the catalogue may break: memory that grows, rows that add up, times above the roofline."""

from functools import cache
from itertools import groupby

import numpy as np
import pytest
import xarray as xr

import cheetah_xr as cx
from cheetah_xr.engine.validity import CODES

EIGHT = {"name": "eight", "memory_gb": 150, "hbm_bandwidth_gb_s": 4800, "peak_bf16_tflops": 989.4, "nic_gb_s": 50}
EIGHT |= {"peak_fp16_tflops": 989.4, "peak_fp8_tflops": 1978.9, "link_gb_s": 450, "link_domain": 8}
RACK = {"name": "rack", "memory_gb": 198, "hbm_bandwidth_gb_s": 8000, "peak_bf16_tflops": 2500, "link_gb_s": 900}
RACK |= {"peak_fp16_tflops": 2500, "peak_fp8_tflops": 5000, "link_domain": 72}
IGNORE = cx.Options(on_infeasible="ignore")
ANY_LENGTH = {"max_seq_len": None}
MODELS = {name: cx.load_model(name).model_copy(update=ANY_LENGTH) for name in cx.list_models()}
LAYERED = {name: model for name, model in MODELS.items() if isinstance(model, cx.Model)}
ANY_MODEL = pytest.mark.parametrize("name", MODELS)


def evaluate(model, gpu=RACK, precision="bf16", batch=1, seq_len=1, options=IGNORE, **more):
    records = (
        [MODELS[name] for name in model]
        if isinstance(model, list)
        else MODELS[model]
        if isinstance(model, str)
        else model
    )
    at = {"batch": batch, "seq_len": seq_len, "options": options, **more}
    return cx.evaluate(records, gpu, precision, efficiency="ideal", dtype="float64", **at)


def own_precision(name):
    return MODELS[name].default_precision if name in LAYERED else "bf16"


# ---- memory

GROWING = [1, 2, 3, 4, 5, 127, 128, 129, 511, 513, 1024, 1025, 4096, 4097, 8192, 8193, 30_000, 131_072, 1_000_000]


@cache
def memory():
    """Every model on one and two GPUs, in one grid."""
    outputs = ["kv_bytes_per_sequence", "memory_shortfall", "max_batch", "weight_bytes", "status"]
    outputs += ["bytes_kv", "bytes_weights"]
    at = {"batch": [1, 2, 7, 64], "seq_len": GROWING, "tp": [1, 2]}
    ds = evaluate(list(MODELS), EIGHT, outputs=outputs, options=cx.Options(), **at)
    return ds.where(ds.status.isin([CODES["ok"], CODES["infeasible_memory"]]))


@ANY_MODEL
def test_memory_never_falls_with_length_or_batch(name):
    ds = memory().sel(model=name)
    for number, dim in (
        (ds.kv_bytes_per_sequence, "seq_len"),
        (ds.memory_shortfall, "seq_len"),
        (ds.memory_shortfall, "batch"),
        (-ds.max_batch.where(ds.max_batch < np.inf), "seq_len"),
    ):
        steps = number.diff(dim)
        assert (steps.fillna(0) >= 0).all(), (number.name, dim)
    one, two = (ds.kv_bytes_per_sequence.sel(tp=tp, batch=1) for tp in (1, 2))
    if two.notnull().all():
        assert ((two <= one) & (two >= one / 2)).all(), "divided or copied, nothing else"


@ANY_MODEL
def test_max_batch_is_the_last_that_fits(name):
    at = {"seq_len": 4096, "dp": 4, "gpu": EIGHT, "options": cx.Options()}
    most = float(evaluate(name, batch=4, outputs=["max_batch"], **at).max_batch)
    if not np.isfinite(most):
        assert MODELS[name].n_kv_heads is None, "only a parameter-count model without a cache"
        return
    assert most % 4 == 0
    missing = evaluate(name, batch=[max(int(most), 1), int(most) + 4], outputs=["memory_shortfall"], **at)
    assert (missing.memory_shortfall.values[0] == 0) == (most > 0)
    assert missing.memory_shortfall.values[1] > 0


@ANY_MODEL
@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_rows_of_explain_memory_add_up(name, phase):
    options = cx.Options(on_infeasible="ignore", cached_tokens=100)
    at = {"seq_len": 900, "phase": phase, "options": options}
    rows = cx.explain_memory(MODELS[name], RACK, own_precision(name), **at)
    outputs = ["weight_bytes", "kv_bytes_per_sequence"]
    ds = evaluate(name, precision=own_precision(name), outputs=outputs, **at)
    for kind, whole, total in (
        ("weights", "all weights", float(ds.weight_bytes)),
        ("sequence", "one sequence", float(ds.kv_bytes_per_sequence)),
    ):
        of_kind = rows[rows.kind == kind]
        parts = of_kind[of_kind.what != whole].bytes
        assert parts.sum() == pytest.approx(total, rel=1e-12), kind
        assert (parts > 0).all()
        assert of_kind[of_kind.what == whole].bytes.item() == total


def everything_seen(model):
    """The model without windows and chunks."""
    groups = [group.model_dump() | {"window": None, "chunk": None} for group in model.groups]
    return {**model.model_dump(), "name": "full", "groups": groups, "mtp": []}


WINDOWED = [
    name
    for name, model in LAYERED.items()
    if any(g.attention == "gqa" and (g.window is not None or g.chunk is not None) for g in model.groups)
]


@pytest.mark.parametrize("name", WINDOWED)
def test_a_window_never_costs_more_than_full_attention(name):
    at = {"seq_len": [1, 100, 1000, 4096, 8192, 20_000], "batch": 4, "phase": ["decode", "prefill"]}
    window, full = (evaluate(m, **at) for m in (MODELS[name], everything_seen(MODELS[name])))
    for number in ("kv_bytes_per_sequence", "bytes_kv", "flops"):
        assert (window[number] <= full[number]).all(), number
        assert (window[number].sel(seq_len=1) == full[number].sel(seq_len=1)).all(), number
    # Times are float32 and summed per kind of layer: one kind more rounds once more.
    assert (window.step_time <= full.step_time * (1 + 1e-6)).all()
    np.testing.assert_allclose(window.step_time.sel(seq_len=1), full.step_time.sel(seq_len=1), rtol=1e-6)
    assert (window.kv_bytes_per_sequence.sel(seq_len=20_000) < full.kv_bytes_per_sequence.sel(seq_len=20_000)).all()


def test_windows_are_where_they_should_be():
    sliding = {"gemma-2-27b", "gemma-3-1b", "gemma-3-27b", "gemma-4-26b-a4b", "gemma-4-31b", "gpt-oss-20b"}
    sliding |= {"gpt-oss-120b", "mimo-v2-flash", "mistral-7b-v0.1", "llama-4-scout", "llama-4-maverick"}
    assert sliding <= set(WINDOWED)
    assert not {"mistral-7b-v0.3", "mixtral-8x7b", "qwen2.5-7b", "llama-3.1-8b"} & set(WINDOWED)


@ANY_MODEL
def test_a_decode_step_reads_no_more_than_is_resident(name):
    """Everything is read once and a state written once; so is a new token, which is little alongside the held ones."""
    ds = memory().sel(model=name, tp=1).sel(seq_len=slice(511, None))
    assert (ds.bytes_kv <= ds.batch * 2 * ds.kv_bytes_per_sequence).all()
    rows = ds.batch * 2 * (MODELS[name].hidden or 0)  # of the embedding, which a tied head reads again
    assert (ds.bytes_weights <= ds.weight_bytes + rows).all()


@ANY_MODEL
def test_a_prefill_without_cached_tokens_holds_as_much_as_a_decode(name):
    fresh = evaluate(name, seq_len=GROWING, phase=["decode", "prefill"], outputs=["kv_bytes_per_sequence"])
    decode, prefill = fresh.kv_bytes_per_sequence.transpose("phase", ...).values
    np.testing.assert_array_equal(prefill, decode)


@ANY_MODEL
def test_active_parameters_are_a_part_of_all(name):
    model = MODELS[name]
    assert 0 < model.n_parameters_active <= model.n_parameters
    assert (model.n_parameters_active < model.n_parameters) == model.is_moe
    read = memory().bytes_weights.sel(model=name, tp=1, batch=1, seq_len=1)
    assert read <= 2 * (model.n_parameters_active + (model.hidden or 0)), "one row more of a tied embedding at most"


# ---- times

LAYOUTS = {
    "8": (EIGHT, [(8, 1, 1), (8, 1, 8), (4, 2, 1), (1, 8, 8)]),
    "64": (RACK, [(8, 8, 64), (4, 16, 16), (16, 4, 2), (1, 64, 64)]),
}


@cache
def runs(gpus, is_moe, precision):
    """All models of a kind and precision on 8 or 64 accelerators, every layout on one dim."""
    names = [name for name, model in MODELS.items() if (model.is_moe, own_precision(name)) == (is_moe, precision)]
    gpu, layouts = LAYOUTS[gpus]
    degrees = [(tp, dp, ep if is_moe else 1) for tp, dp, ep in layouts]
    chosen = [next(same) for _, same in groupby(sorted(degrees))]
    tp, dp, ep = (xr.DataArray(list(values), dims="layout") for values in zip(*chosen, strict=True))
    at = {"batch": [64, 250], "seq_len": [128, 4096], "phase": ["decode", "prefill"], "tp": tp, "dp": dp, "ep": ep}
    return evaluate(names, gpu, precision, options=cx.Options(), **at)


def invalid(model, tp, etp, ep):
    """Reasons a layout has, from the numbers of the model."""
    if not isinstance(model, cx.Model):
        return set()
    mixers = {group.attention for group in model.groups}
    actual = set()
    if mixers & {"gqa", "mla", "compressed"} and model.n_heads % tp:
        actual.add("tp_heads")
    if mixers & {"deltanet", "kda", "mamba2", "lightning"} and model.linear_value_heads % tp:
        actual.add("tp_heads")
    if mixers & {"deltanet", "kda", "lightning"} and model.linear_key_heads % tp:
        actual.add("tp_heads")
    kv_heads = {group.n_kv_heads or model.n_kv_heads for group in model.groups if group.attention == "gqa"}
    kv_heads |= {model.linear_key_heads} if "mamba2" in mixers else set()
    if any(heads % tp and tp % heads for heads in kv_heads):
        actual.add("tp_kv_heads")
    widths = {g.intermediate or model.intermediate for g in model.groups if g.mlp in ("dense", "moe+dense")}
    widths |= {model.shared_intermediate} if model.is_moe else set()
    if any(width % tp for width in widths):
        actual.add("tp_width")
    if "compressed" in mixers and model.o_groups % tp:
        actual.add("tp_width")
    if model.is_moe and model.n_experts % ep:
        actual.add("ep_layout")
    if model.is_moe and model.expert_intermediate % etp:
        actual.add("etp_width")
    return actual


@pytest.mark.parametrize("gpus", LAYOUTS)
@ANY_MODEL
def test_every_model_runs_or_says_why(name, gpus):
    model = MODELS[name]
    ds = runs(gpus, model.is_moe, own_precision(name)).sel(model=name)
    per_rank = np.ceil(ds.batch / ds.dp)
    fits = ds.weight_bytes + per_rank * ds.kv_bytes_per_sequence <= 0.9 * ds.memory_bytes
    for at in range(ds.sizes["layout"]):
        one, fit = ds.isel(layout=at), fits.isel(layout=at)
        tp, dp, ep = (int(one[degree]) for degree in ("tp", "dp", "ep"))
        reasons = {CODES[reason] for reason in invalid(model, tp, tp * dp // ep, ep)}
        if reasons:
            assert set(np.unique(one.status)) <= reasons, (tp, dp, ep)
        else:
            assert (one.status == xr.where(fit, CODES["ok"], CODES["infeasible_memory"])).all(), (tp, dp, ep)
    ok = ds.status == CODES["ok"]
    assert ok.any() or gpus == "8", "64 accelerators hold every model"
    assert (np.isfinite(ds.step_time) == ok).all()
    assert (ds.step_time.where(ok, 1) > 0).all()


@pytest.mark.parametrize("gpus", LAYOUTS)
@ANY_MODEL
def test_no_model_beats_its_bytes_or_flops(name, gpus):
    ds = runs(gpus, MODELS[name].is_moe, own_precision(name)).sel(model=name)
    time = ds.step_time * (1 + 1e-12)
    moved = (ds.bytes_weights + ds.bytes_kv + ds.bytes_activations) / ds.hbm_bandwidth
    assert ((time >= moved) | np.isnan(time)).all()
    assert ((time >= ds.peak_compute_time) | np.isnan(time)).all()
