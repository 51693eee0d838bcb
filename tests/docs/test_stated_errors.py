"""Errors that README and the guides state are those of the page of validation."""

import re

from tests.helpers import DOCS, ROOT

VALIDATION = (DOCS / "evidence" / "validation.md").read_text(encoding="utf-8")


def test_the_guide_to_profiles_has_the_errors_of_validation():
    measured = re.findall(
        r"^\| (aggregated|disaggregated) \| (\w+) \| (\d+) \| ([\d.]+ %) \| ([\d.]+ %) \| (\S+ %) \| (\S+ %) ",
        VALIDATION,
        re.M,
    )
    by_engine = {(mode, engine): tuple(numbers) for mode, engine, *numbers in measured}
    guide = (DOCS / "how-to" / "choose-a-profile.md").read_text(encoding="utf-8")
    stated = re.findall(
        r"^\| `([\w-]+)`(?:, (\w+))? \| (\d+) \| ([\d.]+ %) \| ([\d.]+ %) \| (\S+ %) \| (\S+ %) \|", guide, re.M
    )
    assert len(stated) == 6
    for profile, mode, *numbers in stated:
        engine, _, kind = profile.partition("-")
        assert by_engine[mode or kind, engine] == tuple(numbers)


def test_readme_and_index_state_the_errors_of_validation():
    criteria = dict(re.findall(r"^\| (.+?) \| .+? \| ([\d.]+ %) \|", VALIDATION, re.M))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in ("aggregated TPOT, MAPE", "aggregated TPOT, median", "disaggregated TPOT, MAPE"):
        assert criteria[name] in readme
    assert criteria["aggregated TPOT, MAPE"] in (DOCS / "index.md").read_text(encoding="utf-8")
    assert criteria["time of prefill batches, MAPE"] in readme
