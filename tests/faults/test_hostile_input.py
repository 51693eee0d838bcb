"""Hostile input: the outcome is a record or one SpecError; nothing runs, nothing escapes, nothing hangs.

Cases that once ended otherwise are kept by name alongside the fuzzing that found them.
"""

import copy
import json
import shutil
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cheetah_xr as cx
from cheetah_xr.analysis.conditions import Condition, parse
from cheetah_xr.figures.render import FOLDER, folder_for
from cheetah_xr.specs.record import MAX_YAML_BYTES, parse_yaml
from cheetah_xr.sweep.runner import make_job
from cheetah_xr.sweep.store.writer import read_completion
from tests.helpers.configs import CONFIGS
from tests.helpers.fault_injection import SWEEP
from tests.helpers.hypothesis_profiles import examples
from tests.helpers.rejection import rejected

SMALL = {"title": "t", "question": "q?", "model": "llama-3.1-8b", "gpu": "h100-sxm", "batch": [1, 2], "seq_len": 1024}

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 1, 2**31, 2**53, 2**63, 10**30, 10**400, 1e-320, 1e300, float("nan"), float("inf")]),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["../../x", "/etc/passwd", "hf:", "all", "bf16", "__class__", "a" * 300, "{}", "\0", "%s", "[red]"]
    ),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def outcome(action):
    """The result, or the one message of a rejection; anything else fails the test."""
    try:
        return action()
    except cx.SpecError as error:
        message = str(error)
    assert 0 < len(message) < 20_000
    return message


def fields(data, prefix=()):
    """Paths of everything inside nested mappings and lists."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield (*prefix, key)
        yield from fields(value, (*prefix, key))


def replaced(data, path, value):
    changed = copy.deepcopy(data)
    inside = changed
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    return changed


@st.composite
def disturbed(draw, whole):
    """A valid mapping with one or two of its values replaced."""
    data = draw(st.sampled_from(whole)) if isinstance(whole, list) else whole
    for _ in range(draw(st.integers(1, 2))):
        paths = list(fields(data))
        data = replaced(data, draw(st.sampled_from(paths)), draw(values))
    return data


# ---- readers


@examples(150)
@given(st.text(max_size=60))
def test_any_text_as_yaml(text):
    outcome(lambda: parse_yaml(text, "file.yaml"))


@examples(150)
@given(st.lists(st.sampled_from([*"-:?[]{},&*!|>%@`'\"# \n\t", "a", "1", "!!", "<<", "---", "..."]), max_size=25))
def test_any_punctuation_as_yaml(parts):
    outcome(lambda: parse_yaml("".join(parts), "file.yaml"))


@examples(150)
@given(disturbed([CONFIGS[name] for name in sorted(CONFIGS)]))
def test_configs(config):
    actual = outcome(lambda: cx.load_model(config))
    assert isinstance(actual, (str, cx.Model))
    if not isinstance(actual, str):
        assert actual.n_parameters >= actual.n_parameters_active > 0


RECORDS = {
    "gpu": (cx.load_gpu, cx.load_gpu("gb200-nvl72").model_dump(mode="json")),
    "precision": (cx.load_precision, cx.load_precision("fp8").model_dump(mode="json")),
    "efficiency": (cx.load_efficiency, cx.load_efficiency("default").model_dump(mode="json")),
    "model": (cx.load_model, cx.load_model("deepseek-v3").model_dump(mode="json")),
}


@pytest.mark.parametrize("kind", RECORDS)
@examples(150)
@given(data=st.data())
def test_records(kind, data):
    load, whole = RECORDS[kind]
    outcome(lambda: load(data.draw(disturbed(whole))))


SWEEPS = [
    SMALL,
    SMALL | {"layout": {"tp": [1, 2], "dp": [1, 1], "ep": [1, 1]}, "outputs": ["step_time"], "where": ["batch >= 1"]},
    SMALL | {"overrides": {"gpu.hbm_bandwidth": [1e12]}, "scales": {"gpu.peak_bf16": [2]}, "options": {"causal": True}},
    SMALL | {"seq_len": {"min": 1, "max": 9, "num": 3, "spacing": "log", "include": [2]}, "layout": {"n_gpus": 2}},
    SMALL | {"best": {"maximize": "throughput", "over": ["batch"], "where": "tps_per_user >= 1", "keep": ["status"],
                      "targets": {"tps_per_user": [1, 2]}}},
]  # fmt: skip


@examples(60)
@given(disturbed(SWEEPS))
def test_sweep_files(tmp_path, data):
    path = tmp_path / "fuzz.yaml"
    path.write_text(json.dumps(data), encoding="utf-8")
    job = outcome(lambda: make_job(path))
    if not isinstance(job, str):
        assert job.location.folder.resolve().parent.name == "outputs"


@examples(150)
@given(
    st.text(max_size=40) | st.lists(st.sampled_from([">=", "<", "==", "a", "1", "e", "-", " ", "__", "("])).map("".join)
)
def test_conditions(text):
    assert isinstance(outcome(lambda: parse(text)), (str, Condition))


# ---- files that are small and cost much

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 20)
)
COSTLY = {
    "aliases of aliases": (LAUGHS + "batch: *a19\n", "more than"),
    "an alias inside itself": ("batch: &a [1, *a]\n", "contains itself"),
    "long": ("batch: [" + "1, " * MAX_YAML_BYTES + "]\n", "larger than"),
    "deep": ("batch: " + "[" * 2000 + "]" * 2000, "valid YAML"),
    "long number": ("batch: " + "9" * 100_000, "valid YAML"),
    "objects": ("batch: !!python/object/apply:os.system ['touch escaped']\n", "valid YAML"),
    "modules": ("batch: !!python/name:os.system\n", "valid YAML"),
    "lists as keys": ("? [1, 2]\n: 3\n", "missing"),
}


@pytest.mark.parametrize("case", COSTLY)
def test_costly_files(case, write, elsewhere):
    content, word = COSTLY[case]
    started = time.perf_counter()
    path = write(content, "bad.yaml")
    assert len(rejected(lambda: cx.load_sweep(path), "bad.yaml", word)) < 2000
    assert len(rejected(lambda: cx.load_gpu(path), "bad.yaml")) < 2000
    assert time.perf_counter() - started < 60
    assert [p.name for p in elsewhere.iterdir()] == ["bad.yaml"]


MUCH = {
    "no layout": ({"layout": {"n_gpus": []}}, "layout", "n_gpus"),
    "a target": (
        {"best": {"maximize": "throughput", "over": ["batch"], "targets": {"tps_per_user": [10**400]}}}, "targets"
    ),
    "layouts": ({"layout": {"n_gpus": 10**12}}, "n_gpus", "at most"),
    "a range": ({"batch": {"min": 1, "max": 2**52, "num": 10**12}}, "batch", "num"),
    "blocks": (
        {name: {"min": 1, "max": 20_000, "num": 20_000} for name in ("batch", "seq_len")}
        | {"overrides": {"gpu.hbm_bandwidth": {"min": 1e12, "max": 2e12, "num": 20_000}}}, "blocks", "at most"
    ),
    "a name": ({"model": "x" * 100_000}, "model", "characters"),
}  # fmt: skip


@pytest.mark.parametrize("case", MUCH)
def test_sweeps_that_ask_for_much(case, write, elsewhere):
    change, *words = MUCH[case]
    started = time.perf_counter()
    rejected(lambda: cx.run_sweep(write(SMALL | change, "bad.yaml"), progress=False), "bad.yaml", *words)
    assert time.perf_counter() - started < 60
    assert [p.name for p in elsewhere.iterdir()] == ["bad.yaml"]


@pytest.mark.parametrize("name", ["..", ".", "../..", "/tmp/x", "a/../../b", "...", "a\0b", "~root"])
def test_names_of_models_are_no_paths(name, write):
    """A model may be called anything; the folder of its figures stays inside outputs."""
    config = CONFIGS["llama-3.1-8b"] if "llama-3.1-8b" in CONFIGS else next(iter(CONFIGS.values()))
    path = write(json.dumps(config | {"_name_or_path": name}), "config.json")
    folder = folder_for(None, str(path), None)
    assert folder.parent == FOLDER
    assert folder.name not in (".", "..")
    assert FOLDER.resolve() in folder.resolve().parents
    rejected(lambda: cx.load_sweep(write(SMALL | {"name": name}, "bad.yaml")), "bad.yaml", "name")


# ---- stores


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    (folder / "sweep.yaml").write_text(json.dumps(SWEEP | {"model": "llama-3.1-8b", "gpu": "h100-sxm"}))
    return cx.run_sweep(folder / "sweep.yaml", folder / "a.zarr", progress=False)


METADATA = ["zarr.json", "step_time/zarr.json", "status/zarr.json", "completed/blocks/zarr.json", "seq_len/zarr.json",
            "gpu/zarr.json"]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@examples(80)
@given(data=st.data())
def test_metadata_of_stores(tmp_path, store, data):
    """Opening, checking and resuming a store somebody changed: a result, or one error; never a run over it."""
    copied = tmp_path / "a.zarr"
    shutil.rmtree(copied, ignore_errors=True)
    shutil.copytree(store, copied)
    name = data.draw(st.sampled_from(METADATA))
    path = copied / name
    changed = data.draw(disturbed(json.loads(path.read_text())))
    path.write_text(json.dumps(changed))
    outcome(lambda: cx.open_result(copied).sizes)
    outcome(lambda: read_completion(copied, checksums=True))
    outcome(lambda: cx.run_sweep(store.parent / "sweep.yaml", copied, progress=False))


VAST = {
    "axis": ("seq_len/zarr.json", ("shape",), [10**13]),
    "one chunk": ("seq_len/zarr.json", ("shape",), [10**8]),
    "array": ("step_time/zarr.json", ("shape",), [10**9, 10**9, 10**9]),
    "completion records": ("completed/blocks/zarr.json", ("shape",), [10**14, 5]),
    "blocks": ("completed/blocks/zarr.json", ("attributes", "blocks"), [["tp", 10**9]]),
}


@pytest.mark.parametrize("case", VAST)
def test_stores_that_claim_to_be_vast(case, store, tmp_path):
    """Sizes that only stand in metadata are rejected before memory is asked for."""
    copied = tmp_path / "a.zarr"
    shutil.copytree(store, copied)
    name, path, value = VAST[case]
    changed = replaced(json.loads((copied / name).read_text()), path, value)
    (copied / name).write_text(json.dumps(changed))
    started = time.perf_counter()
    rejected(lambda: cx.open_result(copied), str(copied))
    rejected(lambda: cx.run_sweep(store.parent / "sweep.yaml", copied, progress=False), str(copied))
    assert time.perf_counter() - started < 60


def test_stores_run_no_code(store, tmp_path):
    """A Zarr 2 array whose filter is pickle, which runs code when it is read: arrays of version 3 only are opened."""
    copied = tmp_path / "a.zarr"
    shutil.copytree(store, copied)
    shutil.rmtree(copied / "gpu")
    (copied / "gpu").mkdir()
    (copied / "gpu" / ".zarray").write_text(json.dumps({
        "zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "|O", "order": "C", "fill_value": None,
        "compressor": None, "filters": [{"id": "pickle"}],
    }))  # fmt: skip
    (copied / "gpu" / ".zattrs").write_text('{"_ARRAY_DIMENSIONS": ["gpu"]}')
    (copied / "gpu" / "0").write_bytes(b"cos\nsystem\n(S'touch escaped'\ntR.")
    ds = outcome(lambda: cx.open_result(copied))
    assert isinstance(ds, str) or "gpu" not in ds.variables
    assert not (tmp_path / "escaped").exists()
