"""Knowledge of one kind stands in one place: what else spells it is derived from there.

The numbers of files are those of dry runs: a change of each kind, made and shown to work, counted outside tests and
docs.
"""

import ast
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

import cheetah_xr as cx
from cheetah_xr import costmodel, specs
from cheetah_xr.costmodel import attention_kinds as functions
from cheetah_xr.costmodel.operations import ForwardPass
from cheetah_xr.engine.dims import PARALLEL
from cheetah_xr.engine.inputs.arguments import DEFAULTS, Axes, InstanceArguments
from cheetah_xr.engine.validity import Condition
from cheetah_xr.specs import attention_kinds as records
from cheetah_xr.specs.efficiency import COLLECTIVES, Efficiency
from cheetah_xr.sweep.config import Sweep

PACKAGE = Path(costmodel.__file__).parent.parent

FILES = {
    # What is added -> files to edit; an attention kind also brings the module that counts its work.
    "attention kind": ("specs/attention_kinds.py", "costmodel/attention_kinds.py", "costmodel/<its module>"),
    "collective": ("specs/efficiency.py", "costmodel/formulas/collectives.py"),
    "parallel degree": ("specs/parallelism.py", "engine/inputs/arguments.py", "sweep/config.py"),
    "numeric axis": (),
}
MOST = {"attention kind": 3, "collective": 2, "parallel degree": 3, "numeric axis": 0}

KIND_WORDS = {"deltanet", "kda", "mamba2", "lightning", "compressed"}
"""Names of attention kinds that mean nothing else in the package."""
KNOWS_KINDS = {
    "specs/attention_kinds.py",
    "costmodel/attention_kinds.py",
    "costmodel/linear_attention.py",
    "costmodel/formulas/linear_attention.py",
}


def strings(path):
    """Strings of a module that are no docstrings."""
    tree = ast.parse(path.read_text())
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
    }


def modules_with(words):
    """Modules outside the readers of Hugging Face's configs that spell one of some words."""
    actual = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if strings(path) & words}
    return {name for name in actual if "huggingface/" not in name}


def test_the_files_of_a_change_exist_and_are_few():
    """Every file of the table is there, and there are no more than the bound."""
    for kind, names in FILES.items():
        assert len(names) <= MOST[kind]
        assert all((PACKAGE / name).exists() for name in names if "<" not in name)


def test_attention_kinds_are_registered_on_both_sides():
    """The type, the records and the functions name the same kinds, in the same order."""
    assert get_args(records.Attention) == tuple(records.ATTENTION_KINDS) == tuple(functions.ATTENTION_KINDS)


def test_no_other_module_names_an_attention_kind():
    """The engine and everything above work for any kind."""
    assert modules_with(KIND_WORDS) <= KNOWS_KINDS


def test_every_collective_has_its_fields():
    """A collective without a fraction of peak of its own would run at the peak."""
    for start in ("link", "nic", "latency"):
        named = {name for name in Efficiency.model_fields if name.startswith(f"{start}_")} - {"latency_message"}
        assert named == {f"{start}_{name}" for name in COLLECTIVES}


def test_profiles_know_all_collectives_or_none():
    """A fitted profile never takes the default of a collective it does not know."""
    for name in cx.list_efficiencies():
        cx.load_efficiency(name)
    with pytest.raises(cx.SpecError, match="link_all_to_all missing"):
        cx.load_efficiency(
            {"name": "partial", "link_all_reduce": 0.6, "link_all_gather": 0.6, "link_reduce_scatter": 0.6}
        )


def test_parallel_degrees_follow_one_record():
    """Axes, arguments, passes and sweeps have the degrees of the record."""
    degrees = tuple(specs.DEGREES)
    assert degrees == PARALLEL
    assert set(degrees) <= InstanceArguments.__optional_keys__ | InstanceArguments.__required_keys__
    assert set(degrees) <= set(DEFAULTS)
    for record in (Axes, ForwardPass):
        assert set(degrees) <= {item.name for item in fields(record)}
    assert set(degrees) <= set(Sweep.model_fields)


def test_every_number_of_a_record_is_an_axis():
    """A new numeric field needs no file to become an axis."""
    for record, name, values in (
        ("gpu", "nic_bandwidth", [1e10, 1e11]),
        ("efficiency", "tau_layer", [0.0, 1e-6]),
        ("options", "micro_batches", [1, 2]),
        ("model", "vocab", [1000, 2000]),
    ):
        ds = cx.evaluate("llama-3.1-8b", "h100-sxm", batch=1, seq_len=8, overrides={f"{record}.{name}": values})
        assert ds.sizes == {name: 2}


def test_conditions_depend_on_inputs_there_are():
    """A misspelt input would silently mean that the condition never masks anything."""
    with pytest.raises(ValueError, match="tq"):
        Condition(1, frozenset({"tq"}), True)
