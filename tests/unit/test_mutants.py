"""The list of mutants fits the package; `make mutants` runs them."""

from tests.mutants import MUTANTS, changed


def test_every_mutant_has_something_to_change():
    outdated = []
    for mutant in MUTANTS:
        try:
            compile(changed(mutant), mutant.file, "exec")
        except (OSError, ValueError, SyntaxError) as error:
            outdated.append(str(error))
    assert not outdated, "\n".join(outdated)
    assert len(set(MUTANTS)) == len(MUTANTS)
