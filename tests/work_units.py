"""Which tests share a process, and in what order the processes take them.

``pytest -n`` gives each process one unit after the other. The tests of the session services are three units: in each,
the services start once and trace each op once, and one for all would take as long as everything else. The two services
that are compared are a unit too. In files that go through all ops, the tests of one op are a unit: they share its
traces. Any other file is a unit. Long units come first, so that all processes end at about the same time.
"""

import re

import pytest
from xdist.scheduler import LoadScopeScheduling

BOTH_SERVICES = "both services"
FOLDER_OF_BOTH_SERVICES = "tests/fast_path/"
FILES_OF_THE_SERVICE = ("tests/test_tiny.py", "tests/runtime/test_traces.py")
FOLDERS_OF_CLIENTS = ("tests/client/", "tests/docs/", "tests/benchmarks/", "tests/compatibility/")
# The units of the session services, by the beginnings of their files; the first that fits counts.
OF_THE_SERVICE = {
    "the service, a to l": re.compile("tests/http/test_[a-l]"),
    "the service, m to z": re.compile("tests/http/"),
    "its clients and docs": re.compile(
        "|".join(("tests/(client|docs|benchmarks|compatibility)/", *FILES_OF_THE_SERVICE))
    ),
}
# Their tests start other services, or need none.
APART = (
    "tests/http/test_workers.py",
    "tests/http/test_standard_files.py",
    "tests/http/test_launcher.py",
    "tests/http/test_stopping.py",
    "tests/http/test_connection.py",
    "tests/http/test_keys.py",
    "tests/http/test_tls.py",
    "tests/http/test_metrics.py",
    "tests/http/test_watchdog.py",
    "tests/docs/test_native_page.py",
    "tests/http/test_warmup.py",
    "tests/http/test_chain.py",
    "tests/http/test_zero_copy.py",
    "tests/http/test_limits.py",
    "tests/http/test_garbage.py",
    "tests/http/test_schemathesis.py",
    "tests/http/test_shared_graphs.py",
    "tests/client/test_client_faults.py",
    "tests/client/test_deadlines.py",
    "tests/client/test_addresses.py",
    "tests/client/test_repeats.py",
    "tests/fast_path/test_services.py",
    "tests/fast_path/test_cache.py",
    "tests/fast_path/test_candidates.py",
)
THROUGH_ALL_OPS = (
    "tests/ops/test_table.py",
    "tests/gradcheck/test_no_false_alarms.py",
    "tests/autodiff/test_derived.py",
    "tests/autodiff/test_vjp_jvp.py",
)
# Decompositions take seconds to trace. The ops that are glue in graphs are alike: some of them stand for the others.
DECOMPOSITIONS = ("conv_eig", "self_adjoint_eig")
GLUE = ("cast_float64", "divide", "flatten", "matvec", "mean", "reshape", "subtract", "transpose")
SLOW_OPS = (*DECOMPOSITIONS, *GLUE)
OP = re.compile(r"\[(\w+?)[-\]]")


class UnitScheduling(LoadScopeScheduling):
    """The scheduling of xdist with our units in place of its scopes."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def unit_of(nodeid: str) -> str:
    """Return the name of the unit that a test belongs to."""
    file, _, test = nodeid.partition("::")
    if file in THROUGH_ALL_OPS and (found := OP.search(test)):
        return f"the op {found[1]}"
    if file in APART:
        return file
    if file.startswith(FOLDER_OF_BOTH_SERVICES):
        return BOTH_SERVICES
    return next((unit for unit, files in OF_THE_SERVICE.items() if files.match(file)), file)


def is_of_slow_op(nodeid: str) -> bool:
    """Return whether a test is one of an op that `make test` leaves out, in the files that go through all ops."""
    return unit_of(nodeid) in {f"the op {name}" for name in SLOW_OPS}


def place_of(unit: str) -> int:
    """Return the place of a unit among the others: the services, files that start processes, ops, the rest."""
    order = (*OF_THE_SERVICE, BOTH_SERVICES, *APART)
    return order.index(unit) if unit in order else len(order) + (not unit.startswith("the op "))


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests unit by unit, in the order of the units."""
    first: dict[str, int] = {}
    for item in items:
        first.setdefault(unit_of(item.nodeid), len(first))
    return sorted(items, key=lambda item: (place_of(unit := unit_of(item.nodeid)), first[unit]))
