"""Specs: the catalogue is complete and sourced; files, records and names are checked."""

import re
from pathlib import Path

import numpy as np
import pytest

import cheetah_xr as cx
from cheetah_xr.specs import catalogue_root, read_yaml
from tests.helpers import ROOT
from tests.helpers.rejection import rejected

LOADERS = {
    "models": (cx.list_models, cx.load_model),
    "gpus": (cx.list_gpus, cx.load_gpu),
    "precisions": (cx.list_precisions, cx.load_precision),
    "efficiencies": (cx.list_efficiencies, cx.load_efficiency),
}
FILES = [path for folder in LOADERS for path in sorted((catalogue_root() / "specs" / folder).iterdir())]
IDS = [f"{path.parent.name}/{path.stem}" for path in FILES]


# ---- the catalogue


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_every_file_loads_under_its_name(path):
    names, load = LOADERS[path.parent.name]
    record = load(path.stem)
    assert record.name == path.stem == path.stem.lower()
    assert path.stem in names()
    assert load(path) == load(str(path)) == load(record) == load(path.stem.upper()) == record


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_every_number_has_a_source(path):
    data = read_yaml(path)
    numbers = {k for k, v in data.items() if isinstance(v, (int, float, list)) and not isinstance(v, bool)}
    sources = data["sources"]
    assert all(isinstance(text, str) and len(text.strip()) > 3 for text in sources.values())
    assert "*" in sources or not numbers - set(sources)
    assert not set(sources) - set(data) - {"*"}, "a source of a key that is not there"


def test_catalogue_is_what_the_readme_promises():
    assert len(cx.list_gpus()) >= 30
    assert len(cx.list_models()) >= 80
    some = {
        "llama-3.1-8b",
        "llama-3.1-70b",
        "llama-3.1-405b",
        "llama-3.3-70b",
        "qwen3-8b",
        "qwen3-32b",
        "8b",
        "32b",
    }
    some |= {"qwen3-30b-a3b", "qwen3-235b-a22b", "mixtral-8x7b", "deepseek-v3", "deepseek-r1", "70b"}
    assert some <= set(cx.list_models())
    assert {"bf16", "fp16", "fp8", "fp8-kv8", "w8a16", "w4a16", "nvfp4", "mxfp4"} <= set(cx.list_precisions())
    assert {"ideal", "default"} <= set(cx.list_efficiencies())


@pytest.mark.parametrize("name", cx.list_gpus())
def test_gpu_memory_is_the_reported_one_else_the_decimal_label(name):
    data, gpu = read_yaml(catalogue_root() / "specs" / "gpus" / f"{name}.yaml"), cx.load_gpu(name)
    label = round(data["memory_gb"] * 1e9)
    assert gpu.memory_bytes == data.get("memory_reported_bytes", label)
    assert label * 0.9 < gpu.memory_bytes < label * 1.074  # a label in GiB at most
    if gpu.link_pairwise is not None:
        assert gpu.link_pairwise * (gpu.link_domain - 1) == pytest.approx(gpu.link_bandwidth, rel=0.01)


def test_gpu_numbers_users_report_as_wrong():
    h100, h800, l40s, mi300x = (cx.load_gpu(name) for name in ("h100-sxm", "h800-sxm", "l40s", "mi300x"))
    assert (h100.memory_bytes, h100.hbm_bandwidth, h100.peak_bf16) == (85_520_809_984, 3.35e12, 989.4e12)
    assert (h100.peak_fp8, h100.link_bandwidth, h100.nic_bandwidth, h100.link_domain) == (1978.9e12, 450e9, 50e9, 8)
    assert h800.hbm_bandwidth == h100.hbm_bandwidth
    assert l40s.peak_fp8 == pytest.approx(733e12, rel=1e-3)
    assert (mi300x.link_pairwise, mi300x.link_domain) == (64e9, 8)


# ---- files and records

GPU = {"memory_gb": 80, "hbm_bandwidth_gb_s": 3350, "peak_bf16_tflops": 989}
GPU_TEXT = "memory_gb: 80\nhbm_bandwidth_gb_s: 3350\npeak_bf16_tflops: 989\n"


def test_units_of_the_keys():
    gpu = cx.load_gpu({**GPU, "memory_gb": 0.1, "hbm_bandwidth_gb_s": 1.1, "tdp_w": 3, "price_usd_per_hour": 0})
    assert (gpu.memory_bytes, gpu.hbm_bandwidth, gpu.peak_bf16, gpu.tdp) == (1e8, 1.1e9, 9.89e14, 3)
    assert gpu.price_per_hour == 0


@pytest.mark.parametrize("number", [np.int64(80), np.float32(80), np.float64(80)], ids=lambda n: type(n).__name__)
def test_numpy_numbers_get_their_unit(number):
    assert cx.load_gpu({**GPU, "memory_gb": number}).memory_bytes == 80e9


WRONG_NUMBERS = [True, "80", None, float("nan"), float("inf"), 0, -1, [80], 10**400]


@pytest.mark.parametrize("key", ["memory_gb", "memory_bytes"])
@pytest.mark.parametrize("value", WRONG_NUMBERS, ids=lambda v: repr(v)[:8])
def test_wrong_numbers_are_rejected(key, value):
    given = {k: v for k, v in GPU.items() if k != "memory_gb"} | {key: value}
    rejected(lambda: cx.load_gpu(given), "inline gpu", "memory")


def test_keys_are_checked(write):
    rejected(lambda: cx.load_gpu({**GPU, "hbm_gb": 1}), "unknown key 'hbm_gb'", "hbm_bandwidth_gb_s")
    rejected(lambda: cx.load_gpu({**GPU, "memory_label_bytes": 8e10}), "memory_label_bytes", "twice")
    rejected(lambda: cx.load_gpu({"memory_gb": 80}), "'hbm_bandwidth", "'peak_bf16", "missing")
    rejected(lambda: cx.load_gpu({k: v for k, v in GPU.items() if k != "memory_gb"}), "memory_gb", "needed")
    rejected(
        lambda: cx.load_efficiency({"memory_attn_core": 1.5}), "memory_attn_core", "1.5", "less than or equal to 1"
    )
    rejected(lambda: cx.load_precision(write("name: x\n")), "file.yaml", "kv_bytes", "missing")


def test_yaml_is_version_1_2(write):
    gpu = cx.load_gpu(write("memory_gb: 80\nhbm_bandwidth: 1e12\npeak_bf16: 1e15\nvendor: no\n"))
    assert (gpu.hbm_bandwidth, gpu.peak_bf16, gpu.vendor, gpu.name) == (1e12, 1e15, "no", "file")


BAD_FILES = {
    "duplicate key": (GPU_TEXT + "memory_gb: 96\n", "memory_gb"),
    "not UTF-8": (b"memory_gb: 80\nvendor: \xff\n", "UTF-8"),
    "not YAML": ("memory_gb: [80\n", "not valid YAML"),
    "tab": ("memory_gb:\n\t- 80\n", "not valid YAML"),
    "two documents": (GPU_TEXT + "---\n" + GPU_TEXT, "document"),
    "object": (GPU_TEXT + "vendor: !!python/object/apply:os.getcwd []\n", "not valid YAML"),
    "deep": ("[" * 20_000, "not valid YAML"),
    "huge": (b"#" * 5_000_000, "larger than"),
    "empty": ("", "mapping"),
    "list": ("- 80\n", "mapping"),
    "nan": (GPU_TEXT.replace("80", ".nan"), "nan"),
    "long integer": (GPU_TEXT.replace("80", "1" * 4000), "memory"),
}


@pytest.mark.parametrize(("content", "word"), BAD_FILES.values(), ids=BAD_FILES)
def test_bad_yaml_files(content, word, write):
    rejected(lambda: cx.load_gpu(write(content, "bad.yaml")), "bad.yaml", word)


def test_message_of_a_file_of_aliases_is_short(write):
    lines = ["vendor: &a0 [x, x, x, x, x, x, x, x]"]
    lines += [f"k{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 8)}]" for i in range(1, 5)]
    message = rejected(lambda: cx.load_gpu(write("\n".join(lines))), "vendor")
    assert len(message) < 10_000


BAD_NAMES = ["", " ", "../x", "x/../h100-sxm", "h100 sxm", "h100-sxm\n", "/", "..", "a\0b", "*", "h100.yaml"]


@pytest.mark.parametrize("load", [cx.load_gpu, cx.load_model, cx.load_precision, cx.load_efficiency])
def test_bad_names(load, elsewhere):
    for name in (*BAD_NAMES, 5, None, True, b"h100-sxm", ["h100-sxm"]):
        rejected(lambda name=name: load(name))


@pytest.mark.parametrize("name", ["a" * 5000, "a/" * 3000], ids=["long name", "long path"])
def test_too_long_names(name):
    rejected(lambda: cx.load_gpu(name))


def test_unknown_names_are_helped():
    rejected(lambda: cx.load_gpu("h1000-sxm"), "'h1000-sxm'", "h100-sxm")
    rejected(lambda: cx.load_precision("fp9000"), "fp8-kv8", "bf16")


def test_folders_and_unreadable_files(tmp_path):
    rejected(lambda: cx.load_gpu(tmp_path), str(tmp_path))
    rejected(lambda: cx.load_model(tmp_path), str(tmp_path / "config.json"))
    rejected(lambda: cx.load_gpu(tmp_path / "no.yaml"), "no.yaml")


def test_a_record_has_a_name():
    rejected(lambda: cx.load_gpu({**GPU, "name": ""}), "name")
    assert cx.load_gpu(GPU).name == "inline-gpu"


def test_records_are_frozen():
    with pytest.raises(ValueError, match="frozen"):
        cx.load_gpu("h100-sxm").hbm_bandwidth = 1.0
    assert re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+\S*", cx.__version__)
    assert Path(catalogue_root(), "specs").is_dir()


def test_a_checkout_reads_its_live_folders():
    root = ROOT
    assert catalogue_root() == root
    assert {p.stem for p in (root / "specs" / "gpus").glob("*.yaml")} == set(cx.list_gpus())
    assert {p.stem for p in (root / "sweeps").glob("*.yaml")} == set(cx.list_sweeps())


ODD = {"name": "odd", "hidden": 64, "vocab": 9, "n_heads": 16, "head_dim": 4, "intermediate": 8}
GROUP = {"count": 1, "attention": "gqa", "mlp": "dense"}
MISTAKES = {
    "KV heads": ({"n_kv_heads": 3}, {}, "n_kv_heads 3"),
    "typo in a group": ({"n_kv_heads": 2}, {"windw": 8}, "'groups.0.windw'", "window", "indexer"),
    "shared and own": ({"n_kv_heads": 2}, {"kv_shared": True, "indexer": "own"}, "groups.0", "kv_shared"),
    "window of MLA": (
        {},
        {"attention": "mla", "window": 8},
        "groups.0",
        "window belongs to attention: gqa or compressed, not mla",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_layers_that_cannot_be_are_rejected(case):
    fields, group, *words = MISTAKES[case]
    rejected(lambda: cx.load_model({**ODD, **fields, "groups": [{**GROUP, **group}]}), "inline model", *words)
