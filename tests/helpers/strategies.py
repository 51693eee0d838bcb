"""Hypothesis strategies: valid records, layouts, options and small grids of the cost model."""

import numpy as np
from hypothesis import strategies as st

from cheetah_xr.specs.gpu import Gpu
from cheetah_xr.specs.options import Options
from cheetah_xr.specs.precision import Precision
from tests.helpers import points

MODELS = [model for kind in points.KINDS for model in points.MODELS[kind]]
UNCHUNKED = [m for m in MODELS if points.is_parameter_count(m) or not any(g.chunk for g in m.groups)]
CONNECTED = [gpu for gpu in points.GPUS if gpu.link_bandwidth and gpu.link_domain and gpu.nic_bandwidth]
RATES = [f for f in Gpu.numeric_fields() if f.startswith(("peak", "link", "nic", "hbm")) and f != "link_domain"]
BYTES = Precision.numeric_fields()


def compute_peaks(precision):
    """Fields of the peaks a precision needs."""
    return {f"peak_{getattr(precision, f)}" for f in Precision.model_fields if f.endswith("_compute")}


fractions = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1))


@st.composite
def options(draw, on_infeasible="ignore", **fixed):
    """Options that are valid with every layout."""
    drawn = {
        "granularity": draw(st.sampled_from(["kernel", "component"])),
        "activation_traffic": draw(st.sampled_from(["gemm", "none"])),
        "small_ops": draw(st.sampled_from(["none", "flops", "memory"])),
        "causal": draw(st.booleans()),
        "mla": draw(st.sampled_from(["absorbed", "expanded"])),
        "cached_tokens": draw(st.sampled_from([0, 100])),
        "overlap_tp": draw(fractions),
        "overlap_ep": draw(fractions),
        "micro_batches": draw(st.integers(1, 3)),
        "dispatch_copies": draw(st.sampled_from(["auto", "expert", "rank", "node"])),
        "hierarchy": draw(st.sampled_from(["max", "sum"])),
        "imbalance": draw(st.floats(1, 2)),
        "draft_tokens": draw(st.integers(0, 3)),
    }
    return Options(**{**drawn, "on_infeasible": on_infeasible, **fixed})


@st.composite
def layouts(draw, model):
    """tp, dp and ep that the model can be split over."""
    tp = draw(st.sampled_from([t for t in points.tensor_degrees(model) if t <= 16]))
    dp = draw(st.sampled_from([d for d in (1, 2, 4, 8) if points.expert_degrees(model, tp * d)]))
    return {"tp": tp, "dp": dp, "ep": draw(st.sampled_from(points.expert_degrees(model, tp * dp)))}


@st.composite
def records(draw, models=MODELS, efficiencies=("ideal", "random")):
    """A model, a precision, an accelerator that knows every number it needs, an efficiency and a valid layout."""
    model, gpu = draw(st.sampled_from(models)), draw(st.sampled_from(CONNECTED))
    able = [p for p in points.PRECISIONS.values() if all(getattr(gpu, peak) for peak in compute_peaks(p))]
    efficiency = points.IDEAL
    if draw(st.sampled_from(efficiencies)) == "random":
        efficiency = points.draw_efficiency(draw(st.randoms(use_true_random=False)))
    fields = {"model": model, "gpu": gpu, "precision": draw(st.sampled_from(able)), "efficiency": efficiency}
    return fields | draw(layouts(model))


def axis(least, most, size=3):
    """Increasing whole numbers, small ones as likely as large ones."""
    exponents = st.lists(st.floats(np.log2(least), np.log2(most)), min_size=size, max_size=size)
    return exponents.map(lambda drawn: sorted({int(2**x) for x in drawn}))


def workloads():
    """Batches and lengths of a small grid."""
    return st.fixed_dictionaries(
        {"batch": axis(1, 5000), "seq_len": axis(1, 4000), "phase": st.sampled_from(["prefill", "decode"])}
    )


@st.composite
def grids(draw):
    """Arguments with several axes, lists of records and user dims among them."""
    record = draw(records())
    others = [gpu for gpu in CONNECTED if gpu.name != record["gpu"].name]
    record["gpu"] = [record["gpu"], draw(st.sampled_from(others))]
    user = {
        "precision.kv_bytes": [0.5, 2.0],
        "gpu.hbm_bandwidth": [2e12, 8e12, 1e12],
        "options.overlap_tp": [0.0, 0.6],
        "gpu.nic_bandwidth": [1e10, 9e10],
    }
    keys = draw(st.lists(st.sampled_from(sorted(user)), max_size=3, unique=True))
    workload = draw(workloads()) | {"phase": ["prefill", "decode"]}
    option = draw(st.sampled_from(["mask", "clip", "ignore"]).flatmap(lambda what: options(on_infeasible=what)))
    return {**record, **workload, "options": option, "overrides": {key: user[key] for key in keys}}
