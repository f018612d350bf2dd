"""``share(n)``: one case of every n runs by default, and the thorough tests run the others."""

import pytest

pytest_plugins = ["pytester"]

CASES = """
import pytest

@pytest.mark.share(3)
@pytest.mark.parametrize("case", range(7))
def test_shared(case): ...

@pytest.mark.parametrize("case", range(2))
def test_whole(case): ...
"""


def test_one_case_of_every_n_runs_and_the_others_are_thorough(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("from tests.conftest import pytest_collection_modifyitems")
    pytester.makeini("[pytest]\nmarkers =\n  share\n  thorough\n  slow")
    path = pytester.makepyfile(CASES)
    for marks, shared, whole in (("not thorough", [0, 3, 6], [0, 1]), ("thorough", [1, 2, 4, 5], [])):
        passed, _, _ = pytester.inline_run(path, "-m", marks).listoutcomes()
        names = [f"test_shared[{i}]" for i in shared] + [f"test_whole[{i}]" for i in whole]
        assert [report.nodeid.partition("::")[2] for report in passed] == names
