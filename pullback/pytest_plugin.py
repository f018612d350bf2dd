"""The plugin of pytest: ``pytest --pullback my_ops/`` runs a test for each op and check, without a service.

The tests of a page are collected without its import. The first of them that runs checks the op, in a process beside
pytest, with all checks that this run of pytest has selected; the others report what that has found. So any worker of
pytest-xdist can run any of them.
"""

import os
import re
import warnings
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pullback.calls import CheckOptions
    from pullback.local_checks import LocalChecks
    from pullback.reports import Report

CHECKS = (
    *("contract", "declarations", "mutation", "determinism", "retrace", "batching", "value", "derivative", "second"),
    *("sizes", "attributes", "linearity", "adjoint", "symmetry", "subset", "sparsity", "directions", "modes", "dtypes"),
    *("finite", "cost"),
)
"""The checks of ``pullback check`` with its default orders."""
# A page takes the vocabulary of ops, or defines one: this finds it without running it.
PAGE = re.compile(rb"^(from (pullback\.)?ops import|import pullback\.ops|OP\b.*=)", re.MULTILINE)
GRAPH = ".graph.json"
CHECKER, REPORTS = pytest.StashKey["LocalChecks"](), pytest.StashKey[dict[Path, "Report | str"]]()


class CheckFailed(Exception):
    """A check of an op has failed, or has come to no verdict."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plugin."""
    group = parser.getgroup("pullback", "checks of TensorFlow ops with custom gradients")
    group.addoption("--pullback", action="store_true", help="collect the pages of ops, with a test for each check")
    group.addoption("--pullback-seed", type=int, default=0, help="seed of the random draws of the checks")
    group.addoption(
        "--pullback-inconclusive", choices=["pass", "fail"], default="fail", help="as what inconclusive checks count"
    )
    group.addoption("--pullback-strict-claims", action="store_true", help="fail for doubtful declarations of ops")


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> Generator[None, Any, Any]:
    """Collect a page of an op with ``--pullback``, in place of a module of tests."""
    collectors = yield
    if parent.config.getoption("pullback") and (is_graph(file_path) or is_page(file_path)):
        page: Any = Page
        return [page.from_parent(parent, path=file_path)]
    return collectors


def is_page(path: Path) -> bool:
    """Return whether a file is the page of an op: Python that no name excludes, with the vocabulary of ops."""
    is_other = path.suffix != ".py" or path.name[0] in "_." or path.name == "conftest.py"
    return not (is_other or path.name.startswith("test_")) and PAGE.search(path.read_bytes()) is not None


def is_graph(path: Path) -> bool:
    """Return whether a file is the document of a graph, which no name excludes."""
    return path.name.endswith(GRAPH) and path.name[0] not in "_."


class Page(pytest.File):
    """The page of an op, or the document of a graph."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield a test for each check."""
        item: Any = CheckItem
        for name in CHECKS:
            yield item.from_parent(self, name=name)


class CheckItem(pytest.Item):
    """One check of an op."""

    def runtest(self) -> None:
        """Run the check; raise ``CheckFailed`` with what it finds."""
        found = self._report()
        if isinstance(found, str):
            raise CheckFailed(f"{self.path.name} cannot be checked: {found}")
        self.user_properties.append(("pullback", found.provenance))
        # pytest loads this module in runs without a page.
        from pullback.findings import is_accepted, text_of  # noqa: PLC0415

        entries = [entry for entry in found.checks if entry.check == self.name]
        verdicts = {entry.verdict for entry in entries}
        if not entries:
            ending = next((entry for entry in found.checks if entry.verdict == "fail"), None)
            if ending is not None and len({entry.check for entry in found.checks}) == 1:
                raise CheckFailed(f"not run: {ending.sentence}")
            pytest.skip(found.sentence)
        counting = self.config.getoption("pullback_inconclusive") or "fail"
        if wrong := [entry for entry in entries if not is_accepted(entry.verdict, counting)]:
            raise CheckFailed("\n".join([*text_of(found.op, wrong), found.provenance]))
        for entry in entries:
            if entry.note:
                warnings.warn(pytest.PytestWarning(f"{found.op}: {entry.sentence}"), stacklevel=1)
        if verdicts == {"skipped"}:
            pytest.skip(entries[0].sentence)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the finding alone, without the lines of this plugin."""
        return str(excinfo.value) if isinstance(excinfo.value, CheckFailed) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        """Return the file, and the op's name with the check's."""
        return self.path, None, f"{self.path.name.partition('.')[0]}: {self.name}"

    def _report(self) -> "Report | str":
        """Return the report on the page's op, or why there is none."""
        reports = self.session.stash.setdefault(REPORTS, {})
        if self.path not in reports:
            items = (item for item in self.session.items if isinstance(item, CheckItem) and item.path == self.path)
            options: CheckOptions = {
                "checks": [item.name for item in items],
                "seed": int(self.config.getoption("pullback_seed") or 0),
                "strict_claims": bool(self.config.getoption("pullback_strict_claims")),
            }
            reports[self.path] = check_page(_checker(self.session), self.path, options)
        return reports[self.path]


def check_page(checker: "LocalChecks", page: Path, options: "CheckOptions") -> "Report | str":
    """Return the report on the op of a page with these options, or why there is none."""
    from pullback.cli.reproduction import PointFiles, runnable_without_service  # noqa: PLC0415 - as below
    from pullback.reports import Report, Start  # noqa: PLC0415 - pytest loads this module in runs without a page

    reason = "the checks ended without a report"
    events = checker.checks([page], None, options)
    for event in runnable_without_service(events, PointFiles.not_written(str(page)), [page]):
        if isinstance(event, Report):
            return event
        if isinstance(event, Start):
            reason = next(iter(event.unavailable.values()), reason)
    return reason


@pytest.fixture(scope="session")
def pullback_op(request: pytest.FixtureRequest) -> Callable[[str | os.PathLike[str]], Any]:
    """Return a function that loads a page in this process and returns its op: see docs/ci.md.

    A path is relative to pytest's root folder. The op is a TensorFlow function with the gradients of its page.
    """
    from pullback.ops import load_page  # noqa: PLC0415 - it imports TensorFlow

    return lambda path: load_page(request.config.rootpath / path)


@pytest.fixture(scope="session")
def gradients(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return ``pullback.gradcheck.check``, with the seed of this run and as what it counts inconclusive checks."""
    from pullback.gradcheck import check  # noqa: PLC0415 - pytest loads this module in runs without a page

    options = request.config.option
    return partial(check, seed=options.pullback_seed, inconclusive=options.pullback_inconclusive)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the process of the checks."""
    if (checker := session.stash.get(CHECKER, None)) is not None:
        checker.close()


def _checker(session: pytest.Session) -> "LocalChecks":
    from pullback.local_checks import LocalChecks  # noqa: PLC0415 - pytest loads this module in runs without a page

    if CHECKER not in session.stash:
        session.stash[CHECKER] = LocalChecks()
    return session.stash[CHECKER]
