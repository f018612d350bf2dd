"""The mutants of the checker, which ``make mutants`` runs, break the code as it is."""

from collections.abc import Iterator

from ops import discover
from tests.gradcheck.hard import HARD
from tests.gradcheck.mutants import MUTANTS, ROOT
from tests.gradcheck.wrong import WRONG


def test_every_mutant_changes_one_place_and_has_something_that_shows_it() -> None:
    assert list(faults()) == []


def faults() -> Iterator[str]:
    known = {*WRONG, *HARD, *discover().ops}
    for mutant in MUTANTS:
        try:
            mutant.broken(mutant.path(ROOT).read_text())
        except (OSError, ValueError) as error:
            yield str(error)
        if unknown := set(mutant.names) - known:
            yield f"{mutant.module}, {mutant.after!r}: no ops are called {unknown}"
        if not mutant.names and not any((ROOT / test).is_file() for test in mutant.tests):
            yield f"{mutant.module}, {mutant.after!r}: nothing shows it"
