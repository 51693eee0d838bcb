"""The list of mutants fits the package; `make mutants` runs them."""

import pytest

from tests.mutants import MUTANTS, changed


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.file}: {mutant.meaning}")
def test_there_is_something_to_change(mutant):
    compile(changed(mutant), mutant.file, "exec")
