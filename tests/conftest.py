"""Fixtures of several test files: write a file, run the command line, count blocks."""

import json
import logging
import sys
from dataclasses import dataclass

import pytest
from hypothesis import settings

from cheetah_xr import cli as command_line
from cheetah_xr.cli import console
from cheetah_xr.sweep import runner as engine_run
from tests.helpers.hypothesis_profiles import DEFAULT

settings.load_profile(DEFAULT)


@pytest.fixture
def write(tmp_path):
    """Write text, bytes or a mapping (as JSON, which is YAML too) under `tmp_path`; returns the path."""

    def to_file(content, name="file.yaml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, dict):
            content = json.dumps(content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return to_file


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Work in an empty folder: whatever a test writes by a relative path lands there."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def cli(elsewhere, monkeypatch, capsys):
    """Run ``cheetah-xr ARGS`` in this process, in an empty folder, on a wide terminal."""
    monkeypatch.setattr(console.out, "width", 250)
    monkeypatch.setattr(console.errors, "width", 250)
    logger = logging.getLogger("cheetah_xr")
    before, level = list(logger.handlers), logger.level

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["cheetah-xr", *map(str, args)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            command_line.main()
        shown = capsys.readouterr()
        return Ran(ended.value.code or 0, shown.out, shown.err)

    yield run
    logger.handlers[:] = before
    logger.setLevel(level)


@pytest.fixture
def computed(monkeypatch):
    """Numbers of the blocks that are computed from now on."""
    numbers = []
    original = engine_run.run_block

    def run_block(job, block):
        numbers.append(block.number)
        return original(job, block)

    monkeypatch.setattr(engine_run, "run_block", run_block)
    return numbers
