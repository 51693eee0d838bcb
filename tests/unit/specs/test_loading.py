"""Spec files: parsed once, and again after they have changed."""

import os
import time

import pytest

import cheetah_xr as cx
from cheetah_xr.specs import loading

GPU = "memory_gb: {memory}\nhbm_bandwidth_gb_s: 3350\npeak_bf16_tflops: 989\n"


def write(path, memory, seconds_ago=60):
    """A file of an accelerator, last changed some seconds ago."""
    path.write_text(GPU.format(memory=memory), encoding="utf-8")
    then = time.time_ns() - int(seconds_ago * 1e9)
    os.utime(path, ns=(then, then))
    return path


@pytest.fixture
def parsed(monkeypatch):
    """Paths of the files that are parsed."""
    paths = []
    read = loading.read_yaml
    monkeypatch.setattr(loading, "read_yaml", lambda path: (paths.append(path), read(path))[1])
    return paths


def test_a_file_is_parsed_once(tmp_path, parsed):
    path = write(tmp_path / "mine.yaml", 80)
    first = cx.load_gpu(path)
    assert cx.load_gpu(path) is cx.load_gpu(path) is first
    assert cx.load_gpu(str(path)) is first
    assert parsed == [path]


def test_names_of_the_catalogue_are_parsed_once(parsed):
    loading._unchanged.cache_clear()
    for _ in range(3):
        cx.evaluate("llama-3.1-8b", "h100-sxm", batch=1, seq_len=128)
    assert sorted(path.stem for path in parsed) == ["bf16", "default", "h100-sxm", "llama-3.1-8b"]


def test_a_changed_file_is_parsed_again(tmp_path):
    path = write(tmp_path / "mine.yaml", 80)
    assert cx.load_gpu(path).memory_bytes == 80e9
    write(path, 96, seconds_ago=30)  # as long as before
    assert cx.load_gpu(path).memory_bytes == 96e9
    write(path, 100, seconds_ago=30)
    assert cx.load_gpu(path).memory_bytes == 100e9


def test_a_replaced_file_is_parsed_again(tmp_path):
    path = write(tmp_path / "mine.yaml", 80)
    assert cx.load_gpu(path).memory_bytes == 80e9
    other = write(tmp_path / "other.yaml", 96)
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.replace(path)
    assert cx.load_gpu(path).memory_bytes == 96e9


def test_a_file_that_has_just_changed_is_parsed_every_time(tmp_path):
    path = tmp_path / "mine.yaml"
    for memory in (80, 96, 64, 80):  # faster than the clock of some file systems
        path.write_text(GPU.format(memory=memory), encoding="utf-8")
        assert cx.load_gpu(path).memory_bytes == memory * 1e9


def test_a_removed_file_is_missed(tmp_path):
    path = write(tmp_path / "mine.yaml", 80)
    cx.load_gpu(path)
    path.unlink()
    with pytest.raises(cx.SpecError, match="cannot be read"):
        cx.load_gpu(path)


def test_kinds_of_one_file_do_not_mix(tmp_path):
    path = write(tmp_path / "mine.yaml", 80)
    cx.load_gpu(path)
    with pytest.raises(cx.SpecError, match="memory_gb"):
        cx.load_precision(path)
