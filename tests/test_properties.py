"""The physics of the cost model, as properties of random grids."""

import numpy as np
import points
import pytest
import xarray as xr
from agreement import CAUSE, PARTS, evaluated
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cheetah_xr.specs.gpu import Gpu
from cheetah_xr.specs.options import Options
from cheetah_xr.specs.precision import Precision

physics = settings(
    max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], database=None
)
MODELS = [model for kind in points.KINDS for model in points.MODELS[kind]]
UNCHUNKED = [m for m in MODELS if points.is_lumped(m) or not any(g.chunk for g in m.groups)]
CONNECTED = [gpu for gpu in points.GPUS if gpu.link_bandwidth and gpu.link_domain and gpu.nic_bandwidth]
RATES = [f for f in Gpu.numeric_fields() if f.startswith(("peak", "link", "nic", "hbm")) and f != "link_domain"]
MEMORY = ("time_weights", "time_kv", "time_activations")
RESOURCES = ("time_compute", "time_memory", "time_communication", "time_overhead")

# ---- random situations


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
    found = {"model": model, "gpu": gpu, "precision": draw(st.sampled_from(able)), "efficiency": efficiency}
    return found | draw(layouts(model))


def axis(least, most, size=3):
    """Increasing whole numbers, small ones as likely as large ones."""
    exponents = st.lists(st.floats(np.log2(least), np.log2(most)), min_size=size, max_size=size)
    return exponents.map(lambda found: sorted({int(2**x) for x in found}))


def workloads():
    """Batches and lengths of a small grid."""
    return st.fixed_dictionaries(
        {"batch": axis(1, 5000), "seq_len": axis(1, 4000), "phase": st.sampled_from(["prefill", "decode"])}
    )


def never_below(later, earlier):
    """Whether numbers do not fall, up to rounding; points without times are skipped but must not be all."""
    known = np.isfinite(later) & np.isfinite(earlier)
    assert known.any()
    return bool(np.all(later[known] >= earlier[known] * (1 - 1e-12)))


def rising(ds, dim):
    """Whether step_time never falls along a dim."""
    time = ds.step_time.transpose(dim, ...).values
    return len(time) < 2 or never_below(time[1:], time[:-1])


def alike(a, b):
    """Whether two results have the same values to 1e-6 and the same flags, where the flags are not a near tie."""
    assert set(a.data_vars) == set(b.data_vars)
    for name in set(a.data_vars) - {"bottleneck"}:
        first, second = xr.align(a[name], b[name], join="exact")
        second = second.transpose(*first.dims)
        scale = abs(a.step_time) if name in PARTS else abs(first)
        same = (first == second) | (first.isnull() & second.isnull()) | (abs(first - second) <= 1e-6 * scale)
        assert bool(same.all()), f"{name}: {first.values} and {second.values}"
    assert bool(((a.bottleneck == b.bottleneck) | near_tie(a)).all())


def resources(ds):
    """Parts of step_time by resource, and memory's by cause."""
    whole = ds.assign(time_memory=sum(ds[name] for name in MEMORY))
    return (whole[list(names)].to_dataarray("part").transpose("part", ...) for names in (RESOURCES, MEMORY))


def near_tie(ds):
    """Where the two largest parts are too close to tell them apart."""
    close = False
    for parts in resources(ds):
        ranked = np.sort(parts.values, axis=0)
        close = close | (ranked[-1] - ranked[-2] <= 1e-5 * ds.step_time)
    return close


# ---- the properties


@physics
@given(records(), workloads(), options())
def test_no_step_beats_its_bytes_or_flops(record, workload, option):
    ds = evaluated(**record, **workload, options=option, dtype="float64")
    moved = ds.bytes_weights + ds.bytes_kv + ds.bytes_activations
    bound = np.maximum(moved / record["gpu"].hbm_bandwidth, ds.peak_compute_time)
    assert never_below(ds.step_time.values, bound.broadcast_like(ds.step_time).values)


@physics
@given(records(), workloads(), options(overlap_tp=0.0, overlap_ep=0.0))
def test_without_overlap_communication_comes_on_top(record, workload, option):
    ds, gpu = evaluated(**record, **workload, options=option, dtype="float64"), record["gpu"]
    moved = ds.bytes_weights + ds.bytes_kv + ds.bytes_activations
    wire = np.maximum(ds.bytes_link / gpu.link_bandwidth, ds.bytes_nic / gpu.nic_bandwidth)
    bound = np.maximum(moved / gpu.hbm_bandwidth, ds.peak_compute_time)
    # a difference of times: rounding is that of the whole step
    rounding = 1e-12 * ds.step_time
    assert never_below((ds.step_time - ds.time_communication - ds.time_overhead + rounding).values, bound.values)
    assert never_below(ds.time_communication.values, wire.values)


@physics
@given(records(), workloads(), options())
def test_time_never_falls_with_batch(record, workload, option):
    assert rising(evaluated(**record, **workload, options=option, dtype="float64"), "batch")


@physics
@given(records(models=UNCHUNKED), workloads(), options())
def test_time_never_falls_with_length(record, workload, option):
    """Chunked attention is left out: it restarts when the length crosses a chunk."""
    assert rising(evaluated(**record, **workload, options=option, dtype="float64"), "seq_len")


@physics
@given(
    records(),
    workloads(),
    options(),
    st.sampled_from(Precision.numeric_fields()),
    st.lists(st.floats(0.25, 8), min_size=2, max_size=4, unique=True),
)
def test_time_never_falls_with_bytes_per_element(record, workload, option, field, widths):
    overrides = {f"precision.{field}": sorted(widths)}
    ds = evaluated(**record, **workload, options=option, overrides=overrides, dtype="float64")
    assert rising(ds, field)


@physics
@given(
    records(),
    workloads(),
    options(),
    st.sampled_from(RATES),
    st.lists(st.floats(0.01, 100), min_size=2, max_size=4, unique=True),
)
def test_time_never_falls_when_a_rate_does(record, workload, option, field, factors):
    scales = {f"gpu.{field}": sorted(factors, reverse=True)}
    ds = evaluated(**record, **workload, options=option, scales=scales, dtype="float64")
    assert rising(ds, f"{field}_scale")


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


@physics
@given(grids(), st.randoms(use_true_random=False))
def test_order_of_axes_does_not_matter(grid, rng):
    def shuffled(value):
        return rng.sample(value, len(value)) if isinstance(value, list) else value

    keys = shuffled(list(grid["overrides"]))
    other = {name: shuffled(value) for name, value in grid.items()}
    other["overrides"] = {key: shuffled(grid["overrides"][key]) for key in keys}
    first, second = evaluated(**grid), evaluated(**other)
    alike(first, second.reindex_like(first))


@physics
@given(
    records(efficiencies=("ideal",)),
    workloads(),
    options(),
    st.lists(st.floats(0.001, 1000), min_size=1, max_size=4),
)
def test_times_scale_with_all_rates(record, workload, option, factors):
    speed = xr.DataArray([1.0, *factors], dims="speed")
    scales = {f"gpu.{field}": speed for field in RATES}
    ds = evaluated(**record, **workload, options=option, scales=scales, dtype="float64")
    for name in ("step_time", *PARTS):
        time, once = ds[name] * speed, ds[name].isel(speed=0)
        known = ds.step_time.isel(speed=0).notnull()
        assert bool(known.any())
        error = abs(time - once).where(known, 0.0)
        assert bool((error <= 1e-9 * ds.step_time.isel(speed=0)).where(known, True).all())


@physics
@given(records(), workloads(), options(), st.sampled_from(["float32", "float64"]))
def test_parts_sum_and_the_largest_is_the_bottleneck(record, workload, option, dtype):
    ds = evaluated(**record, **workload, options=option, dtype=dtype)
    total = sum(ds[name].astype(float) for name in PARTS)
    known = ds.step_time.notnull()
    tolerance = 1e-6 if dtype == "float32" else 1e-12
    assert bool(known.any())
    assert bool((abs(total - ds.step_time) <= tolerance * ds.step_time).where(known, True).all())
    by_resource, by_cause = (parts.fillna(-1.0).idxmax("part") for parts in resources(ds))
    largest = xr.where(by_resource == "time_memory", by_cause, by_resource)
    named = xr.apply_ufunc(np.vectorize(lambda code: f"time_{CAUSE.get(code)}"), ds.bottleneck)
    assert bool(((named == largest) | near_tie(ds) | ~known).all())


@physics
@given(grids(), st.randoms(use_true_random=False))
def test_a_point_alone_is_the_point_in_a_grid(grid, rng):
    def one(value):
        return rng.choice(value) if isinstance(value, list) else value

    alone = {name: one(value) for name, value in grid.items()}
    alone["overrides"] = {key: one(values) for key, values in grid["overrides"].items()}
    single, whole = evaluated(**alone), evaluated(**grid)
    at = {dim: single[dim].item() for dim in whole.dims}
    alike(single, whole.sel(at))


if __name__ == "__main__":
    pytest.main([__file__])
