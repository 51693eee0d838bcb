"""Analysis against plain loops: frontiers, regimes, largest batches, time to first token, the accessor."""

import importlib
import itertools
import math

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import cheetah_xr as cx
from cheetah_xr import analysis
from cheetah_xr.analysis import flag_labels, max_batch, mean_ttft, pareto, pareto_mask, regimes, ttft_distribution
from tests.helpers.agreement import evaluated
from tests.helpers.hypothesis_profiles import examples
from tests.helpers.rejection import rejected

frontier_module = importlib.import_module("cheetah_xr.analysis.pareto")

OVER = ["precision", "tp", "dp", "batch"]
METRICS = ("tps_per_user", "throughput_per_gpu")


@pytest.fixture(scope="module")
def grid():
    """Dense and MoE models, several accelerators, precisions, layouts, both phases; some points cannot run."""
    return cx.evaluate(
        ["llama-3.1-8b", "mixtral-8x7b", "deepseek-v3"], ["h100-sxm", "mi300x"], ["bf16", "fp8", "nvfp4"],
        efficiency=["ideal", "default"], phase=["prefill", "decode"], tp=[1, 8], dp=[1, 4],
        batch=[1, 3, 32, 700, 20000], seq_len=[100, 9000],
    )  # fmt: skip


@pytest.fixture(scope="module")
def decode(grid):
    return grid.sel(phase="decode")


# ---- frontiers


def beaten(a, b):
    """Whether point `b` equals or beats point `a`, (x, y), in both and beats it in one."""
    return b[0] >= a[0] and b[1] >= a[1] and b != a


def frontier_by_loops(points):
    """Positions on the frontier: no point beats them; of equal points the first."""
    valid = [i for i, point in enumerate(points) if not any(map(math.isnan, point))]
    kept = [i for i in valid if not any(beaten(points[i], points[j]) for j in valid)]
    return [i for i in kept if not any(points[j] == points[i] for j in kept if j < i)]


few = st.sampled_from([0.0, 1.0, 2.0, 3.0, math.inf, -math.inf, math.nan])
numbers = st.one_of(few, st.floats(-4, 4))


@examples(300)
@given(st.lists(st.tuples(numbers, numbers), max_size=60), st.sampled_from([2, 5, 10_000]))
def test_frontier_is_what_no_point_beats(points, sample):
    x, y = np.array(points, dtype=float).reshape(-1, 2).T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frontier_module, "SAMPLE", sample)
        actual = frontier_module.non_dominated(x, y)
    assert np.flatnonzero(actual).tolist() == frontier_by_loops(points)


@examples(100)
@given(st.data())
def test_every_point_of_the_other_dims_has_its_own_frontier(data):
    sizes = {name: data.draw(st.integers(1, 3), label=name) for name in ("a", "b", "c", "d")}
    x_dims, y_dims = ("a", "b", "c"), ("d", "a", "c")
    values = {
        name: (dims, np.array(data.draw(st.lists(numbers, min_size=n, max_size=n))).reshape(shape))
        for name, dims in (("x", x_dims), ("y", y_dims))
        for shape in [[sizes[d] for d in dims]]
        for n in [math.prod(shape)]
    }
    ds = xr.Dataset(values, coords={dim: np.arange(n) * 10 for dim, n in sizes.items()})
    over = data.draw(st.permutations("abcd"))[: data.draw(st.integers(1, 4))]
    minimize = data.draw(st.sampled_from([(), "x", ["y"], ["x", "y"]]))
    mask = pareto_mask(ds, "x", "y", over, minimize=minimize)
    front = pareto(ds, "x", "y", over, minimize=minimize)
    rest = [dim for dim in mask.dims if dim not in over]
    expected = []
    for labels in itertools.product(*(ds[dim].values.tolist() for dim in rest)):
        here = dict(zip(rest, labels, strict=True))
        places = list(itertools.product(*(ds[dim].values.tolist() for dim in over)))
        at = [here | dict(zip(over, place, strict=True)) for place in places]
        sign = {name: -1 if name in minimize else 1 for name in "xy"}
        points = [tuple(sign[n] * float(ds[n].sel({d: p[d] for d in ds[n].dims})) for n in "xy") for p in at]
        kept = frontier_by_loops(points)
        assert [bool(mask.sel(p)) for p in at] == [i in kept for i in range(len(at))]
        expected += [at[i] for i in sorted(kept, key=lambda i: sign["x"] * points[i][0])]
    assert mask.dims == ("a", "b", "c", "d")
    assert [{dim: int(front[dim][i]) for dim in "abcd"} for i in range(front.sizes["point"])] == [
        {dim: place[dim] for dim in "abcd"} for place in expected
    ]


def test_labels_of_a_frontier_point_select_that_point(decode):
    front = pareto(decode, *METRICS, OVER, keep=["step_time", "bottleneck", "n_gpus"])
    assert front.sizes["point"] > 100
    full = cx.derive(decode, METRICS)
    dims = full.step_time.dims
    assert set(front.coords) == set(full.coords)
    for i in range(0, front.sizes["point"], 3):
        point = front.isel(point=i)
        selected = full.sel({dim: point[dim].item() for dim in dims})
        for name in (*METRICS, "step_time", "bottleneck", *full.coords):
            assert selected[name].item() == point[name].item(), name


def test_frontiers_follow_one_another_each_sorted(decode):
    front = pareto(decode, *METRICS, OVER)
    rest = ["model", "gpu", "efficiency", "seq_len"]
    order = {dim: decode[dim].values.tolist() for dim in rest}
    keys = [
        (*(order[dim].index(point[dim].item()) for dim in rest), float(point.tps_per_user))
        for point in (front.isel(point=i) for i in range(front.sizes["point"]))
    ]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)
    assert front.tps_per_user.notnull().all()


def test_a_frontier_of_a_large_set_is_that_of_its_frontiers():
    x, y = np.random.default_rng(1).normal(size=(2, 60_000)).round(2)
    whole = frontier_module.non_dominated(x, y)
    parts = np.concatenate([k + np.flatnonzero(frontier_module.non_dominated(x[k : k + 3000], y[k : k + 3000]))
                            for k in range(0, 60_000, 3000)])  # fmt: skip
    again = parts[frontier_module.non_dominated(x[parts], y[parts])]
    assert np.flatnonzero(whole).tolist() == again.tolist()


def test_less_is_better_where_asked():
    ds = cx.evaluate("llama-3.1-8b", "h100-sxm", batch=[1, 8, 64], tp=[1, 2, 4], seq_len=2048)
    less = pareto(ds, "tpot", "throughput_per_gpu", ["tp", "batch"], minimize="tpot")
    more = pareto(ds, *METRICS, ["tp", "batch"])
    assert (1 / less.tpot.values[::-1]).tolist() == pytest.approx(more.tps_per_user.values.tolist())


def test_a_frontier_reads_lazy_results(decode):
    lazy = decode.chunk({"batch": 2, "gpu": 1})
    xr.testing.assert_identical(pareto(lazy, *METRICS, OVER).compute(), pareto(decode, *METRICS, OVER))


def test_an_empty_axis_has_an_empty_frontier(decode):
    none = decode.isel(gpu=slice(0, 0))
    assert pareto(none, *METRICS, OVER).sizes["point"] == 0
    assert not pareto_mask(decode.isel(batch=slice(0, 0)), *METRICS, OVER).any()


# ---- regimes

PARTS = {"compute": ["compute"], "memory": ["weights", "kv", "activations"]}
PARTS |= {"communication": ["communication"], "overhead": ["overhead"]}


def bound_by(times):
    """The resource with the largest time, memory by its largest cause; None where two are too close to tell."""
    sums = {resource: sum(times[part] for part in parts) for resource, parts in PARTS.items()}
    resource = max(sums, key=sums.get)
    parts = {part: times[part] for part in PARTS[resource]}
    for values in (sums, parts):
        first, *others = sorted(values.values(), reverse=True)
        if others and first - others[0] <= 1e-5 * sum(sums.values()):
            return None
    return max(parts, key=parts.get)


def test_regimes_are_the_largest_attributed_times(grid):
    words = flag_labels(regimes(grid))
    status = flag_labels(grid.status).broadcast_like(words).transpose(*words.dims)
    times = {part: grid[f"time_{part}"].broadcast_like(words).transpose(*words.dims) for parts in PARTS.values()
             for part in parts}  # fmt: skip
    columns = [words.values.ravel(), status.values.ravel(), *(values.values.ravel() for values in times.values())]
    seen = set()
    for word, why, *seconds in zip(*columns, strict=True):
        if why == "ok":
            clear = bound_by(dict(zip(times, map(float, seconds), strict=True)))
            assert word == clear or clear is None
        else:
            assert word == ("does_not_fit" if why == "infeasible_memory" else "invalid"), why
            assert np.isnan(seconds).all()
        seen.add(word)
    assert seen >= {"compute", "weights", "kv", "communication", "overhead", "does_not_fit", "invalid"}
    assert regimes(grid).dims == grid.bottleneck.dims


def test_clipped_points_have_the_regime_they_run_in():
    asked = {"batch": [1, 9999], "seq_len": 4096, "efficiency": "ideal"}
    ds = evaluated("llama-3.1-8b", "h100-sxm", options={"on_infeasible": "clip"}, **asked)
    assert flag_labels(ds.status).values.tolist() == ["ok", "clipped"]
    assert flag_labels(regimes(ds)).values.tolist() == ["weights", "kv"]


# ---- the largest batch


def test_the_largest_batch_is_the_stored_one(grid):
    xr.testing.assert_identical(max_batch(grid), grid.max_batch)


@pytest.mark.parametrize(
    ("where", "holds"),
    [
        ("tps_per_user >= 30", lambda p: p.tps_per_user >= 30),
        (["tps_per_user > 20", "bytes_kv <= 2e10"], lambda p: p.tps_per_user > 20 and p.bytes_kv <= 2e10),
        ("batch <= 100", lambda p: p.batch <= 100),
        ("hbm_bandwidth > 4e12", lambda p: p.hbm_bandwidth > 4e12),
    ],
)
def test_the_largest_batch_under_conditions(decode, where, holds):
    ds = cx.derive(decode.isel(precision=slice(0, 2), efficiency=1, batch=slice(None, None, -1)), "tps_per_user")
    actual = max_batch(ds, where)
    dims = ["model", "gpu", "precision", "tp", "dp", "seq_len"]
    assert set(actual.dims) == set(dims)
    for place in itertools.product(*(ds[dim].values.tolist() for dim in dims)):
        here = ds.sel(dict(zip(dims, place, strict=True)))
        points = [here.isel(batch=i) for i in range(here.sizes["batch"])]
        fits = [int(p.batch) for p in points if np.isfinite(p.step_time) and holds(p)]
        got = float(actual.sel(dict(zip(dims, place, strict=True))))
        assert got == max(fits) if fits else math.isnan(got)
    assert actual.isnull().any()
    assert actual.notnull().any()


# ---- time to first token


@pytest.mark.parametrize("schedule", ["together", "in_turn"])
@pytest.mark.parametrize("batch", [1, 2, 7, 512])
def test_the_mean_of_the_distribution_is_the_mean(schedule, batch):
    each = ttft_distribution(0.3, batch, schedule)
    assert each.request.values.tolist() == list(range(1, batch + 1))
    assert float(each.mean()) == pytest.approx(mean_ttft(0.3, batch, schedule), rel=1e-12)
    assert float(each[-1]) == pytest.approx(0.3 * batch, rel=1e-12), "the last one waits for all either way"
    assert each.attrs["units"] == "s"


def test_one_after_another_is_sooner_on_average_for_every_batch_above_one():
    batch = np.arange(2, 100)
    assert (mean_ttft(0.3, batch, "in_turn") < mean_ttft(0.3, batch, "together")).all()
    assert mean_ttft(0.3, 1, "in_turn") == mean_ttft(0.3, 1, "together")


# ---- the accessor

CALLS = {
    "derive": ("tpot",),
    "regimes": (),
    "max_batch": ("tps_per_user >= 30",),
    "best": ("throughput_per_gpu", ["tp", "batch"], "tps_per_user >= 30"),
    "pareto": (*METRICS, OVER),
    "pareto_mask": (*METRICS, OVER),
    "histogram": ("bottleneck", ["batch", "tp"]),
}
NAMED = {
    "best": {"keep": ["tpot"], "minimize": True},
    "pareto": {"keep": ["tpot"], "minimize": "throughput_per_gpu"},
    "pareto_mask": {"minimize": ["tps_per_user"]},
}


@pytest.mark.parametrize("name", CALLS)
def test_the_accessor_is_the_functions(decode, name):
    for named in ({}, NAMED.get(name, {})):
        got = getattr(decode.cheetah, name)(*CALLS[name], **named)
        xr.testing.assert_identical(got, getattr(analysis, name)(decode, *CALLS[name], **named))


def test_the_accessor_has_every_function_of_a_result(decode):
    assert {name for name in dir(decode.cheetah) if not name.startswith("_")} == set(CALLS)


# ---- bad arguments

BAD = {
    "unknown metric": (lambda ds: pareto(ds, "speed", "throughput", "batch"), "speed", "tps_per_user"),
    "unknown keep": (lambda ds: pareto(ds, *METRICS, "batch", keep="speed"), "speed"),
    "unknown dim": (lambda ds: pareto(ds, *METRICS, ["batch", "layout"]), "layout", "batch", "tp"),
    "dim of other variables": (lambda ds: pareto(ds, "weight_bytes", "max_batch", "batch"), "batch", "tp"),
    "no dim": (lambda ds: pareto_mask(ds, *METRICS, []), "nothing"),
    "minimize": (lambda ds: pareto_mask(ds, *METRICS, "batch", minimize="tpot"), "tpot", "tps_per_user"),
    "text": (lambda ds: pareto(ds, "gpu", "throughput", "batch"), "gpu", "number"),
    "keep on more dims": (lambda ds: pareto(ds, "weight_bytes", "max_batch", "tp", keep=["tpot"]), "batch"),
    "metric that lacks a variable": (lambda ds: pareto(ds.drop_vars("price_per_hour"), "cost_per_million_tokens",
                                                       "tpot", "batch"), "price_per_hour"),
    "regimes of what": (lambda ds: regimes(ds.drop_vars(["status", "bottleneck"])), "status", "bottleneck"),
    "no capacity": (lambda ds: max_batch(ds.drop_vars("max_batch")), "max_batch"),
    "no batch": (lambda ds: max_batch(ds.isel(batch=0), "tpot < 1"), "batch"),
    "no times": (lambda ds: max_batch(ds.drop_vars("step_time"), "batch > 1"), "step_time"),
    "condition": (lambda ds: max_batch(ds, "tpot = 1"), "tpot = 1", ">="),
    "condition on text": (lambda ds: max_batch(ds, "gpu >= 5"), "gpu", "number"),
    "condition on nothing": (lambda ds: max_batch(ds, "speed > 1"), "speed", "tpot"),
    "best of text": (lambda ds: analysis.best(ds, "gpu", "batch"), "gpu", "number"),
    "no requests": (lambda _: ttft_distribution(0.1, 0, "together"), "0", "at least 1"),
    "half a request": (lambda _: ttft_distribution(0.1, 1.5, "together"), "1.5", "whole"),
    "requests in words": (lambda _: ttft_distribution(0.1, "four", "together"), "'four'"),
    "schedule": (lambda _: ttft_distribution(0.1, 4, "random"), "'random'", "in_turn"),
    "schedule of a mean": (lambda _: mean_ttft(0.1, 4, "random"), "'random'", "in_turn"),
    "mean of none": (lambda _: mean_ttft(0.1, [4, -5], "in_turn"), "-5"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_bad_arguments_are_one_error(decode, case):
    action, *words = case
    rejected(lambda: action(decode), *words)
