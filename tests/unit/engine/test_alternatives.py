"""Why a point cannot run, and the nearest that would: the degrees that fit or are valid."""

import cheetah_xr as cx
from cheetah_xr.engine.alternatives import (
    explain_rejection,
    rejected_drafter,
    smallest_tp_that_fits,
    valid_ep,
    valid_tp,
)
from cheetah_xr.engine.evaluator import evaluate_axes
from cheetah_xr.engine.inputs.gather import axes_of


def point(model="llama-3.1-70b", **arguments):
    return axes_of(model, "h100-sxm", **{"precision": "bf16", "batch": 32, "seq_len": 2048} | arguments)


def explained(axes):
    return explain_rejection(axes, evaluate_axes(axes, None, "float64", 1e9))


def test_a_point_that_runs_has_no_rejection():
    assert explained(point(tp=4)) is None


def test_the_smallest_tp_that_fits_is_the_first_that_runs():
    tp = smallest_tp_that_fits(point(tp=1))
    status = cx.evaluate("llama-3.1-70b", "h100-sxm", tp=valid_tp(point()), batch=32, seq_len=2048).status
    assert tp == int(status.tp[status == 0][0]) == 4
    assert explained(point(tp=1)).endswith("; the smallest tp that fits is 4")


def test_where_nothing_fits_no_tp_is_named():
    axes = point(tp=8, batch=10**6)
    assert smallest_tp_that_fits(axes) is None
    assert explained(axes).endswith("; no tp fits it")


def test_valid_degrees_are_those_of_layouts():
    axes = point("mixtral-8x7b", tp=2, dp=2, ep=3)
    layouts = cx.layouts(4, "mixtral-8x7b")
    assert valid_ep(axes, 4) == layouts.ep[layouts.tp == 2].values.tolist()
    assert explained(axes).endswith("valid ep for tp 2, dp 2: 1, 2, 4")
    assert valid_tp(point(options=cx.Options(dense_tp=3))) == []


def test_only_a_draft_model_that_makes_the_point_invalid_is_rejected():
    heads = cx.Options(drafter="opt-125m")
    assert rejected_drafter(point(tp=8, options=heads)).name == "opt-125m"
    assert rejected_drafter(point(tp=3, options=heads)) is None
    assert rejected_drafter(point(tp=8)) is None
