"""The physics of the cost model, as properties of random grids."""

import numpy as np
import xarray as xr
from hypothesis import assume, given
from hypothesis import strategies as st

from cheetah_xr.engine.validity import BOTTLENECKS
from tests.helpers.agreement import PARTS, evaluated
from tests.helpers.strategies import BYTES, RATES, UNCHUNKED, grids, options, records, workloads

MEMORY = ("time_weights", "time_kv", "time_activations")
RESOURCES = (["time_compute"], MEMORY, ["time_communication"], ["time_overhead"])


# ---- comparisons


def never_below(later, earlier):
    """Whether numbers do not fall, up to rounding; points without times are skipped, and so is a grid without any."""
    known = np.isfinite(later) & np.isfinite(earlier)
    assume(known.any())  # a prompt may be longer than the model takes
    return bool(np.all(later[known] >= earlier[known] * (1 - 1e-12)))


def rising(ds, dim):
    """Whether step_time never falls along a dim."""
    time = ds.step_time.transpose(dim, ...).values
    return len(time) < 2 or never_below(time[1:], time[:-1])


def roofline(ds, gpu):
    """The least seconds in which the bytes move and the FLOPs are done."""
    moved = ds.bytes_weights + ds.bytes_kv + ds.bytes_activations
    return np.maximum(moved / gpu.hbm_bandwidth, ds.peak_compute_time).broadcast_like(ds.step_time).values


def largest(names, ds):
    """Index of the largest of some variables, and whether the second is too close to tell."""
    parts = np.stack([sum(ds[name].values for name in group) for group in names])
    ranked = np.sort(parts, axis=0)
    return parts.argmax(axis=0), ~(ranked[-1] - ranked[-2] > 1e-5 * ds.step_time.values)


def named_bottleneck(ds):
    """Bottleneck as the parts give it, and where it is a near tie."""
    resource, close = largest(RESOURCES, ds)
    cause, close_cause = largest([[name] for name in MEMORY], ds)
    is_memory = resource == 1
    codes = np.array([BOTTLENECKS["compute"], -1, BOTTLENECKS["communication"], BOTTLENECKS["overhead"]])
    return np.where(is_memory, cause + BOTTLENECKS["weights"], codes[resource]), close | (is_memory & close_cause)


def assert_alike(a, b):
    """Two results have the same values to 1e-6 and the same flags, where the bottleneck is not a near tie."""
    assert set(a.data_vars) == set(b.data_vars)
    assert all(np.array_equal(a[dim].values, b[dim].values) for dim in a.dims)
    step = a.step_time.values
    for name in set(a.data_vars) - {"bottleneck"}:
        first, second = a[name].values, b[name].transpose(*a[name].dims).values
        rounding = 1e-6 * np.nan_to_num(step) if name in PARTS else 0.0
        same = np.isclose(first, second, rtol=1e-6, atol=rounding, equal_nan=True)
        assert same.all(), f"{name}: {first} and {second}"
    same = a.bottleneck.values == b.bottleneck.transpose(*a.bottleneck.dims).values
    assert (same | named_bottleneck(a)[1]).all()


# ---- the properties


@given(records(), workloads(), options())
def test_no_step_beats_its_bytes_or_flops(record, workload, option):
    ds = evaluated(**record, **workload, options=option, dtype="float64")
    assert never_below(ds.step_time.values, roofline(ds, record["gpu"]))


@given(records(), workloads(), options(overlap_tp=0.0, overlap_ep=0.0))
def test_without_overlap_communication_comes_on_top(record, workload, option):
    ds, gpu = evaluated(**record, **workload, options=option, dtype="float64"), record["gpu"]
    wire = np.maximum(ds.bytes_link / gpu.link_bandwidth, ds.bytes_nic / gpu.nic_bandwidth)
    rest = ds.step_time * (1 + 1e-12) - ds.time_communication - ds.time_overhead  # rounding is that of the whole
    assert never_below(rest.values, roofline(ds, gpu))
    assert never_below(ds.time_communication.values, wire.values)


@given(records(), workloads(), options())
def test_time_never_falls_with_batch(record, workload, option):
    assert rising(evaluated(**record, **workload, options=option, dtype="float64"), "batch")


@given(records(models=UNCHUNKED), workloads(), options())
def test_time_never_falls_with_length(record, workload, option):
    """Chunked attention is left out: it restarts when the length crosses a chunk."""
    assert rising(evaluated(**record, **workload, options=option, dtype="float64"), "seq_len")


@given(
    records(),
    workloads(),
    options(),
    st.sampled_from(BYTES),
    st.lists(st.floats(0.25, 8), min_size=2, max_size=4, unique=True),
)
def test_time_never_falls_with_bytes_per_element(record, workload, option, field, widths):
    overrides = {f"precision.{field}": sorted(widths)}
    ds = evaluated(**record, **workload, options=option, overrides=overrides, dtype="float64")
    assert rising(ds, field)


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


@given(grids(), st.randoms(use_true_random=False))
def test_order_of_axes_does_not_matter(grid, rng):
    def shuffled(value):
        return rng.sample(value, len(value)) if isinstance(value, list) else value

    keys = shuffled(list(grid["overrides"]))
    other = {name: shuffled(value) for name, value in grid.items()}
    other["overrides"] = {key: shuffled(grid["overrides"][key]) for key in keys}
    first, second = evaluated(**grid), evaluated(**other)
    assert_alike(first, second.reindex_like(first))


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
    step = ds.step_time.transpose("speed", ...).values
    known = np.isfinite(step[0])
    assert known.any()
    for name in ("step_time", *PARTS):
        time = ds[name].transpose("speed", ...).values
        error = abs(time[1:] * np.reshape(factors, (-1, *[1] * (time.ndim - 1))) - time[0])
        assert (error <= 1e-9 * step[0])[:, known].all()


@given(records(), workloads(), options(), st.sampled_from(["float32", "float64"]))
def test_parts_sum_and_the_largest_is_the_bottleneck(record, workload, option, dtype):
    ds = evaluated(**record, **workload, options=option, dtype=dtype)
    step = ds.step_time.values
    known = np.isfinite(step)
    assert known.any()
    total = sum(ds[name].values.astype(float) for name in PARTS)
    tolerance = 1e-6 if dtype == "float32" else 1e-12
    assert (abs(total - step) <= tolerance * step)[known].all()
    named, close = named_bottleneck(ds)
    assert (named == ds.bottleneck.values)[known & ~close].all()


@given(grids(), st.randoms(use_true_random=False))
def test_a_point_alone_is_the_point_in_a_grid(grid, rng):
    def one(value):
        return rng.choice(value) if isinstance(value, list) else value

    alone = {name: one(value) for name, value in grid.items()}
    alone["overrides"] = {key: one(values) for key, values in grid["overrides"].items()}
    single, whole = evaluated(**alone), evaluated(**grid)
    at = {dim: single[dim].item() for dim in whole.dims}
    assert_alike(single, whole.sel(at))
