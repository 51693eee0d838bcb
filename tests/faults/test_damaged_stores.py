"""Stores that are damaged: found and named by `cheetah-xr info`, and only what is damaged is computed again."""

import json

import numpy as np
import pytest

import cheetah_xr as cx
from cheetah_xr.sweep import runner as run
from cheetah_xr.sweep.store.writer import read_completion
from tests.helpers.fault_injection import BLOCKS, SWEEP, assert_same, contents
from tests.helpers.rejection import rejected

CHUNK, COMPLETION_RECORD = "step_time/c/1/0/1/0/1", "completed/blocks/c/11/0"
BLOCK = 11


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """An undisturbed result, and the file of its sweep."""
    folder = tmp_path_factory.mktemp("original")
    (folder / "sweep.yaml").write_text(json.dumps(SWEEP))
    return cx.run_sweep(folder / "sweep.yaml", folder / "whole.zarr", progress=False), folder / "sweep.yaml"


@pytest.fixture
def store(original, tmp_path):
    """A copy that may be damaged."""
    for name, data in contents(original[0]).items():
        (tmp_path / "a.zarr" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "a.zarr" / name).write_bytes(data)
    return tmp_path / "a.zarr"


def flipped(data):
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 4]) + data[len(data) // 2 + 1 :]


DAMAGE = {
    "lost": None,
    "empty": lambda _: b"",
    "cut off": lambda data: data[:-5],
    "longer": lambda data: data + b"\0",
    "one bit": flipped,
    "zeros": lambda data: bytes(len(data)),
}


def damage(path, how):
    data = path.read_bytes()
    if how is None:
        path.unlink()
    else:
        path.write_bytes(how(data))


@pytest.mark.parametrize("how", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("key", [CHUNK, COMPLETION_RECORD], ids=["chunk", "completion record"])
def test_a_damaged_block(key, how, store, original, cli, computed):
    intact = cli("info", original[0])
    assert (intact.code, f"complete: {BLOCKS} of {BLOCKS} blocks" in intact.out) == (0, True)
    damage(store / key, how)
    ran = cli("info", store)
    assert ran.code == 1
    assert f"incomplete: {BLOCKS - 1} of {BLOCKS} blocks" in ran.out
    lost_record = how is None and key == COMPLETION_RECORD  # a block without a completion record was never finished
    assert (f"damaged: block {BLOCK}: {key}" in ran.out) != lost_record
    again = cli("sweep", original[1], "--store", store)
    assert again.code == 0
    assert ("1 damaged blocks are computed again" in again.err) != lost_record
    assert computed == [BLOCK]
    assert_same(store, original[0])
    assert cli("info", store).code == 0


@pytest.mark.parametrize("how", [name for name in DAMAGE if name != "lost"])
def test_a_damaged_chunk_is_never_read_as_numbers(how, store):
    damage(store / CHUNK, DAMAGE[how])
    with pytest.raises((ValueError, RuntimeError)):
        cx.open_result(store).step_time.load()


def test_a_lost_chunk_is_reported_on_opening(store):
    damage(store / CHUNK, None)
    with pytest.warns(UserWarning, match=f"1 of {BLOCKS} blocks are missing"):
        cx.open_result(store)


def test_a_run_killed_while_it_mends_does_not_look_complete(store, original, monkeypatch):
    damage(store / CHUNK, flipped)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run, "run_block", killed)
        with pytest.raises(KeyboardInterrupt):
            cx.run_sweep(original[1], store, progress=False)
    assert read_completion(store).done == set(range(BLOCKS)) - {BLOCK}


def test_a_variable_without_the_cut_dims_belongs_to_the_first_block(store, original, computed):
    """Weights depend neither on batch nor length: the first block along them wrote the chunk."""
    damage(store / "weight_bytes/c/1/1", flipped)
    actual = read_completion(store, checksums=True)
    assert actual.damaged == {10: ["weight_bytes/c/1/1"]}  # of models, GPUs, tp: the second, the first, the second
    cx.run_sweep(original[1], store, progress=False)
    assert computed == [10]
    assert_same(store, original[0])


@pytest.mark.parametrize("how", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("key", ["seq_len/c/0", "model/c/0", "step_time/zarr.json"])
def test_what_stands_with_blocks_is_mended(key, how, store, original, cli, computed):
    """Coordinates and metadata follow from the sweep: they are written again, and no block is computed."""
    damage(store / key, how)
    readable = "zarr.json" in key and how is not None and _is_json((store / key).read_bytes())
    if not readable and how is not None:
        ran = cli("info", store)
        assert ran.code == 2
        assert str(store) in ran.err
    if readable:
        message = rejected(lambda: cx.run_sweep(original[1], store, progress=False), str(store), key, "--overwrite")
        assert message.count("\n") == 0
        return
    cx.run_sweep(original[1], store, progress=False)
    assert computed == []
    assert_same(store, original[0])


def _is_json(data):
    try:
        return isinstance(json.loads(data), dict)
    except ValueError:
        return False


@pytest.mark.parametrize("how", [name for name in DAMAGE if name not in ("lost", "one bit")])
def test_damaged_root_metadata_is_one_error(how, store, original, cli):
    damage(store / "zarr.json", DAMAGE[how])
    for ran in (cli("info", store), cli("sweep", original[1], "--store", store)):
        assert ran.code == 2
        assert ran.err.splitlines()[-1].startswith(f"error: {store}")
        assert "Traceback" not in ran.err
    assert cli("sweep", original[1], "--store", store, "--overwrite").code == 0
    assert_same(store, original[0])


def test_blocks_of_nan_are_there(write, tmp_path):
    """A block in which no point runs is written too, or it would count as lost."""
    sweep = write(SWEEP | {"tp": [3]}, "none.yaml")
    path = cx.run_sweep(sweep, tmp_path / "none.zarr", progress=False)
    assert read_completion(path, checksums=True).complete
    assert np.isnan(cx.open_result(path).step_time.values).all()
