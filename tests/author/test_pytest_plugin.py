"""``pytest --pullback``: a test for each op and check, with the finding as its failure."""

import pytest

from pullback import pytest_plugin
from tests.author.conftest import Ran
from tests.conftest import ROOT

pytestmark = pytest.mark.slow

QUIET = ("-q", "-p", "no:cacheprovider", "-p", "no:schemathesis")
TESTS = """
def test_the_op(pullback_op):
    import tensorflow as tf

    cube = pullback_op("my_ops/cube.py")
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = cube(x)
    assert y.numpy().tolist() == [1.0, 8.0]
    assert tape.gradient(y, x).numpy().tolist() == [3.0, 12.0]
    assert cube([2], dtype="float64").numpy().tolist() == [8.0]
"""


@pytest.fixture(scope="module", autouse=True)
def other_files(folder) -> None:
    (folder / "my_ops" / "_helper.py").write_text("from pullback.ops import Op\n")
    (folder / "my_ops" / "conftest.py").write_text("from pullback.ops import Op\n")
    (folder / "my_ops" / "test_cube.py").write_text(TESTS)
    (folder / "my_ops" / "broken.py").write_text("from pullback.ops import costum_gradient\n")
    (folder / "pytest.ini").write_text("[pytest]\n")


def lines(ran: Ran) -> list[str]:
    return ran.out.splitlines()


def test_the_checks_are_those_of_the_service() -> None:
    from app.gradcheck.checks import CHECKS, HIGHER_ORDER  # noqa: PLC0415

    assert list(pytest_plugin.CHECKS) == [name for name in CHECKS if name not in HIGHER_ORDER]


NOISY = '''"""A hash of x, whose derivative nothing measures."""

import tensorflow as tf

from pullback.ops import Claim, Example, Input, Op, Output, custom_gradient

OP = Op(
    name="noisy",
    summary="x and a hash",
    doc=__doc__,
    function=custom_gradient(lambda x: x + tf.math.floormod(tf.sin(x * 1e9) * 1e5, 1.0), lambda x, dy: dy),
    inputs=(Input("x", dtypes=("float64",)),),
    outputs=(Output("y", dtypes=("float64",)),),
    source="none",
    claim=lambda attrs: Claim(second=None),
    examples=(Example("one", {"x": [0.5, 1.5]}),),
)
'''


@pytest.mark.parametrize(("counting", "status", "of_pytest"), [("fail", 2, 1), ("pass", 0, 0)])
def test_the_command_and_the_plugin_count_inconclusive_checks_alike(
    here, folder, counting: str, status: int, of_pytest: int
) -> None:
    (folder / "noisy.py").write_text(NOISY)
    ran = here("pullback", "check", "noisy.py", "--check", "derivative", "--inconclusive", counting)
    assert ran.code == status, ran.out + ran.error
    assert "1 inconclusive" in ran.out
    plugin = ("--pullback-inconclusive", counting, "-k", "derivative", *QUIET)
    ran = here("pytest", "--pullback", "noisy.py", *plugin)
    assert ran.code == of_pytest, ran.out
    assert (counting == "pass") == ("INCONCLUSIVE noisy derivative" not in ran.out)


def test_the_options_of_this_project_need_no_plugin(here) -> None:
    project = ("-c", str(ROOT / "pyproject.toml"), "-p", "no:xdist", "-p", "no:cacheprovider")
    ran = here("pytest", *project, "--pullback", "my_ops/cube.py", "--collect-only")
    assert ran.code == 0, ran.error
    assert f"{len(pytest_plugin.CHECKS)} tests collected" in ran.out


@pytest.mark.thorough
def test_a_test_for_each_op_and_check_in_a_worker(here) -> None:
    ran = here("pytest", "--pullback", "my_ops/", *QUIET, "-k", "derivative or value or test_the_op", "-n", "1", "-rfp")
    assert ran.code == 1, ran.out
    assert "FAILED my_ops/bad.py::derivative" in ran.out
    assert "all are 1.1 times what they should be" in ran.out
    assert "pullback call bad vjp" in ran.out
    for passed in ("my_ops/bad.py::value", "my_ops/cube.py::derivative", "my_ops/cube.py::value", "::test_the_op"):
        assert any(line.startswith("PASSED") and line.endswith(passed) for line in lines(ran)), ran.out
    assert "broken.py cannot be checked: ImportError: cannot import name 'costum_gradient'" in ran.out
    assert "correct my_ops/broken.py:1 and start again" in ran.out
    assert "3 failed, 4 passed" in ran.out
    assert "_helper" not in ran.out


@pytest.mark.thorough
def test_pages_are_collected_only_with_the_option_and_without_their_import(here) -> None:
    ran = here("pytest", "my_ops", *QUIET, "--collect-only")
    assert lines(ran)[0] == "my_ops/test_cube.py::test_the_op"
    ran = here("pytest", "--pullback", "my_ops/bad.py", *QUIET, "--collect-only")
    assert [line for line in lines(ran) if "::" in line] == [f"my_ops/bad.py::{name}" for name in pytest_plugin.CHECKS]


@pytest.mark.thorough
def test_graphs_are_checked_too(here, graphs) -> None:
    ran = here("pytest", "--pullback", str(graphs), *QUIET, "-k", "value", "-rfp")
    assert "2 passed" in ran.out, ran.out
    assert "sixth.graph.json::value" in ran.out
    assert "1 failed" in ran.out
    assert "lost.graph.json cannot be checked: " in ran.out
