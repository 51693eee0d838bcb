"""Files, modules and public names that the documentation mentions exist."""

import importlib
import re

import pytest

import cheetah_xr as cx
from cheetah_xr.engine.validity import CODES, RUNS
from tests.helpers import DOCS, ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
FILES = {
    path.name for folder in ("benchmarks", "cheetah_xr", "docs", "tests") for path in (ROOT / folder).rglob("*.py")
}
ELSEWHERE = ("--", "my", "outputs/", "specs/gpus/my-gpu.yaml", "models/my-model/")
"""What a user writes, and options."""


def resolves(name):
    """Whether a dotted name is a module or an attribute of one."""
    module, _, attribute = name.rpartition(".")
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        return bool(module) and hasattr(importlib.import_module(module), attribute)
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_mentioned_files_and_names_exist(page):
    text = page.read_text(encoding="utf-8")
    paths = re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", text)
    paths = [path for path in paths if not path.startswith(ELSEWHERE)]
    missing = [path for path in paths if not any((root / path).exists() for root in (ROOT, ROOT / "cheetah_xr"))]
    missing += [name for name in re.findall(r"`(\w+\.py)`", text) if name not in FILES]
    missing += [name for name in set(re.findall(r"\bcx\.([a-z_]\w*)\(", text)) if not hasattr(cx, name)]
    modules = set(re.findall(r"\bcheetah_xr(?:\.[a-zA-Z_]\w*)+", text))
    missing += [name for name in modules if not name.endswith((".egg", ".git")) and not resolves(name)]
    assert not missing


def test_every_reason_has_its_advice():
    text = (DOCS / "how-to" / "why-nan.md").read_text(encoding="utf-8")
    assert [label for label, code in CODES.items() if code not in RUNS and f"`{label}`" not in text] == []
