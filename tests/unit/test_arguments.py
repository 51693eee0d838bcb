"""Arguments of the public functions: shown by help() with defaults, unknown ones rejected, options as mappings."""

import inspect

import pytest
import xarray as xr

import cheetah_xr as cx
from cheetah_xr.cli.estimate import evaluate_point
from cheetah_xr.engine.inputs.arguments import DEFAULTS, Axes, InstanceArguments, hints
from tests.helpers.rejection import rejected

WHERE = {"model": "llama-3.1-8b", "gpu": "h100-sxm"}
POINT = {**WHERE, "batch": 1, "seq_len": 128}
LOAD = {**WHERE, "concurrency": 1, "isl": 128, "osl": 16}
CALLS = {
    cx.evaluate: POINT,
    cx.breakdown: POINT,
    cx.explain_memory: {**WHERE, "seq_len": 128},
    cx.operations: {"model": "llama-3.1-8b"},
    cx.serve: LOAD,
    cx.serve_disaggregated: LOAD,
}
LAYOUT = ["tp", "dp", "ep"]
RECORDS = ["efficiency", "options", "overrides", "scales"]


def shown(function):
    """Parameters and defaults help() shows."""
    return {name: p.default for name, p in inspect.signature(function).parameters.items()}


def test_evaluate_shows_every_argument_in_order():
    names = [
        "model",
        "gpu",
        "precision",
        "batch",
        "seq_len",
        "phase",
        *LAYOUT,
        *RECORDS,
        "outputs",
        "dtype",
        "max_bytes",
    ]
    assert list(shown(cx.evaluate)) == names
    assert {name: shown(cx.evaluate)[name] for name in ("precision", "phase", "dtype", "max_bytes")} == {
        "precision": "bf16",
        "phase": "decode",
        "dtype": "float32",
        "max_bytes": 4e9,
    }
    kinds = {p.kind for name, p in inspect.signature(cx.evaluate).parameters.items() if name in (*LAYOUT, *RECORDS)}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize("function", [cx.evaluate, cx.breakdown, cx.explain_memory, cx.serve])
def test_functions_of_an_instance_share_its_arguments(function):
    assert {name: shown(function)[name] for name in DEFAULTS} == DEFAULTS
    assert "arguments" not in shown(function)


def test_defaults_are_those_of_the_typed_dict():
    assert list(hints(InstanceArguments)) == list(DEFAULTS) == [*LAYOUT, *RECORDS]


def test_pools_take_no_layout_of_one_instance():
    assert not set(shown(cx.serve_disaggregated)) & set(LAYOUT)
    assert set(RECORDS) <= set(shown(cx.serve_disaggregated))
    with pytest.raises(TypeError, match="tp"):
        cx.serve_disaggregated(**LOAD, tp=2)


@pytest.mark.parametrize("function", CALLS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("name", ["ttp", "draws", "coords", "errors"])
def test_unknown_keywords_are_rejected(function, name):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
        function(**CALLS[function], **{name: 2})


def test_an_unknown_keyword_names_the_functions_own():
    with pytest.raises(
        TypeError, match=r"serve\(\) .*'chunk_size'; did you mean chunked_prefill_size\? it takes .*concurrency"
    ):
        cx.serve("llama-3.1-8b", "h100-sxm", concurrency=1, isl=10, osl=10, chunk_size=5)


def test_missing_arguments_are_rejected():
    with pytest.raises(TypeError, match="batch"):
        cx.breakdown(**WHERE, seq_len=1)


def test_layouts_take_options_as_a_mapping():
    wide = cx.layouts(4, "llama-3.1-8b", {"dense_tp": 2})
    xr.testing.assert_identical(wide, cx.layouts(4, "llama-3.1-8b", cx.Options(dense_tp=2)))
    assert wide.tp.values.tolist() == [1, 2]
    rejected(lambda: cx.layouts(4, "llama-3.1-8b", {"dense_pt": 2}), "options", "dense_pt")
    rejected(lambda: cx.layouts(4, "llama-3.1-8b", 2), "options", "2")


def test_operations_take_options_as_a_mapping():
    given = {"small_ops": "memory", "dense_tp": 2}
    xr.testing.assert_identical(
        cx.operations("llama-3.1-8b", tp=2, options=given),
        cx.operations("llama-3.1-8b", tp=2, options=cx.Options(**given)),
    )
    rejected(lambda: cx.operations("llama-3.1-8b", options={"no": 1}), "options", "no")
    rejected(lambda: cx.operations("llama-3.1-8b", options="flops"), "options", "flops")


def test_memory_of_overridden_numbers():
    items = cx.explain_memory(**WHERE, seq_len=128, overrides={"gpu.memory_bytes": 50e9}).set_index("what")
    assert items.loc["memory", "bytes"] == 50e9


@pytest.mark.parametrize("more", [{"overrides": {"gpu.hbm_bandwidth": 1e12}}, {"scales": {"gpu.hbm_bandwidth": 0.25}}])
def test_an_estimate_breaks_down_what_it_evaluates(more):
    ds, parts = evaluate_point(Axes(**POINT, **more))
    assert float(parts["step_time"]) == float(ds["step_time"])
    total = parts["time"].sum() + parts["time_overhead"] - parts["time_overlapped"]
    assert float(total) == pytest.approx(float(ds["step_time"]))


def test_options_say_what_happens_to_points_that_do_not_fit():
    asked = {name: cx.Options(on_infeasible=name) for name in ("mask", "clip", "ignore")}
    assert {name: (o.counts_memory, o.clips) for name, o in asked.items()} == {
        "mask": (True, False),
        "clip": (True, True),
        "ignore": (False, False),
    }
    assert all(options.ignoring_memory() == asked["ignore"] for options in asked.values())
