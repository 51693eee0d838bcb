"""The search for the best point against a plain one: ties, NaN, infinity, any order of axes, any tiles, targets."""

import math

import numpy as np
import pytest
import xarray as xr

from cheetah_xr.analysis import best, search
from cheetah_xr.analysis.choice import NamedArrays
from cheetah_xr.analysis.conditions import OPERATORS, Condition
from cheetah_xr.analysis.thresholds import thresholds_of

SIZES = {"a": 5, "b": 7, "c": 3, "d": 4}


def drawn(rng, dims):
    """A variable of few values, so that there are ties, among them NaN and both infinities."""
    shape = [SIZES[dim] for dim in dims]
    values = rng.choice([1.0, 2.0, 3.0, 4.0, np.nan], shape).astype(rng.choice([np.float32, np.float64]))
    special = rng.random(shape)
    values[special > 0.98], values[special < 0.02] = np.inf, -np.inf
    return dims, values


def plain(score, holds, over):
    """Value and labels of the first of the best points, None where none qualifies or the best is infinite."""
    rest = [dim for dim in score.dims if dim not in over]
    score = score.where(holds).transpose(*rest, *over)
    answers = {}
    for index in np.ndindex(*(score.sizes[dim] for dim in rest)):
        part = np.asarray(score.values[index]).reshape(-1)
        top = np.fmax.reduce(part, initial=-np.inf)
        actual = np.isfinite(top)
        at = np.unravel_index(np.flatnonzero(part == top)[0], [SIZES[dim] for dim in over]) if actual else None
        answers[index] = (top, *map(int, at)) if actual else None
    return answers


@pytest.mark.parametrize("seed", range(60))
def test_as_a_plain_search(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(search, "TILE_POINTS", int(rng.choice([40, 64, 5000])))
    monkeypatch.setattr(search, "ROW_POINTS", int(rng.choice([2, 5, 1000])))
    dims = tuple(rng.permutation(list(SIZES)))
    over = list(rng.permutation(list(SIZES))[: rng.integers(1, 5)])
    ds = xr.Dataset({name: drawn(rng, dims) for name in ("metric", "other", "step_time")})
    ds = ds.assign_coords({dim: np.arange(n) for dim, n in SIZES.items()})
    ops = [str(op) for op in rng.choice(list(OPERATORS), 2)]
    conditions = [Condition("other", ops[0], 2.0), Condition("step_time", ops[1], 3.0)][: rng.integers(0, 3)]
    holds = xr.ones_like(ds.metric, dtype=bool)
    for c in conditions:
        holds = holds & c.holds(ds)
    targets = [3.0, 0.5, 1.0, 9.0]
    aimed = str(rng.choice(["other", "step_time"]))
    for one in ([None], targets):
        asked, more = ds, []
        if one != [None]:
            asked, more = ds.assign_coords(least=("least", one)), [Condition(aimed, ">=", "least")]
        minimize = bool(rng.random() < 0.3)
        actual = best(asked, "metric", over, [*conditions, *more], minimize=minimize)
        for number, target in enumerate(one):
            here = actual if target is None else actual.isel(least=number)
            allowed = holds if target is None else holds & (ds[aimed] >= target)
            expected = plain(-ds.metric if minimize else ds.metric, allowed, over)
            rest = [dim for dim in dims if dim not in over]
            for index, answer in expected.items():
                point = here.isel(dict(zip(rest, index, strict=True)))
                labels = [float(point[f"best_{dim}"]) for dim in over]
                if answer is None:
                    assert np.isnan([float(point.metric), *labels]).all()
                else:
                    assert (-float(point.metric) if minimize else float(point.metric), *labels) == answer


@pytest.mark.parametrize("name", ["tps_per_user", "tpot", "step_time"])
@pytest.mark.parametrize("op", [">=", ">", "<=", "<"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_thresholds_are_exact(name, op, dtype):
    """The times next to a limit, and some far from it, fall on the side the division puts them on."""
    accepted, rng = 2.7, np.random.default_rng(0)
    targets = np.array([20.0, 1 / 3, 0.1, 1e-30, 1e30, 0.0, -1.0, np.inf, *rng.lognormal(size=50)])

    def metric(times):
        times = times.astype(np.float64)
        return {"tps_per_user": accepted / times, "tpot": times / accepted, "step_time": times}[name]

    with np.errstate(all="ignore"):
        near = targets if name == "step_time" else np.concatenate([targets * accepted, accepted / targets])
        times = np.abs(np.concatenate([near, rng.lognormal(size=50), [np.nan, np.inf, 0.0]]).astype(dtype))
        for _ in range(3):
            times = np.unique([times, np.nextafter(times, dtype(0)), np.nextafter(times, dtype(np.inf))])
        arrays = {"step_time": (("x",), times), "accepted": ((), accepted), "phase": ((), "decode")}
        inputs = NamedArrays(("x",), ("x",), {"x": times.size}, arrays | {"least": (("least",), targets)})
        thresholds = thresholds_of(inputs, Condition(name, op, "least"))
        for threshold, number in zip(thresholds.values, targets, strict=True):
            np.testing.assert_array_equal(thresholds.compare(times, threshold), OPERATORS[op](metric(times), number))


def test_what_is_not_the_time_alone_has_no_thresholds():
    arrays = {"step_time": (("x",), np.ones(2)), "accepted": (("x",), np.ones(2)), "phase": ((), "decode")}
    inputs = NamedArrays(("x",), ("x",), {"x": 2}, arrays | {"batch": (("x",), np.ones(2))})
    assert thresholds_of(inputs, Condition("tps_per_user", ">=", 1.0)) is None
    assert thresholds_of(inputs, Condition("ttft", ">=", 1.0)) is None
    assert thresholds_of(inputs, Condition("batch", ">=", 1.0)) is None
    assert thresholds_of(inputs, Condition("step_time", "==", 1.0)) is None
    assert thresholds_of(inputs, Condition("step_time", ">=", 1.0)) is not None


@pytest.mark.parametrize("lengths", [(1,), (7, 3000), (3000, 7), (2, 5, 40_000), (40_000, 2), (3, 1, 9, 11)])
@pytest.mark.parametrize("along", [(0,), (-1,)])
def test_tiles_cover_everything_once(lengths, along):
    strides = [1 if i in {a % len(lengths) for a in along} else 0 for i in range(len(lengths))]
    seen = np.zeros(lengths, int)
    for place in search._Search(lengths, strides, 1).tiles():
        seen[place] += 1
        assert math.prod(s.stop - s.start for s in place) <= search.TILE_POINTS
    assert (seen == 1).all()
