"""Checks of pages without a service: what they find is what a service finds, whatever the pages do."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pullback.cli.reproduction import PointFiles, runnable_without_service
from pullback.errors import ProblemError
from pullback.local_checks import LocalChecks
from pullback.reports import Event, Progress, Report, Start, Summary
from tests.author.conftest import RIGHT, WRONG
from tests.conftest import Serve

pytestmark = pytest.mark.slow

SOME = ("value", "derivative", "second")
CRASHING = """
import os
import tensorflow as tf
from pullback.ops import Example, Input, Op, Output

def crash(x):
    if x.size > 2:
        os.kill(os.getpid(), 11)
    return x

def forward(x):
    return tf.reshape(tf.numpy_function(crash, [x], x.dtype), x.shape)

OP = Op(name="{name}", summary="", doc="", function=forward, inputs=(Input("x", shape=("N",)),),
        outputs=(Output("y", shape=("N",)),), mechanism="custom_gradient", source="", modes=("graph",),
        examples=(Example("one", {{"x": [1.0]}}),))
"""


@pytest.fixture(scope="module")
def checker() -> Iterator[LocalChecks]:
    with LocalChecks() as checker:
        yield checker


def reports(events: Any) -> dict[str, Report]:
    return {event.op: event for event in events if isinstance(event, Report)}


def without_times(document: Any) -> Any:
    if isinstance(document, dict):
        return {key: without_times(value) for key, value in document.items() if key != "seconds"}
    return [without_times(value) for value in document] if isinstance(document, list) else document


@pytest.mark.thorough
def test_a_report_is_that_of_a_service(checker, folder, serve: Serve) -> None:
    pages = sorted((folder / "my_ops").glob("*.py"))
    local = reports(checker.checks(pages, None, {"checks": SOME, "seed": 5}))
    service = serve(OPS_PATH=str(folder / "my_ops"))
    with service.client() as client:
        for name in ("bad", "cube"):
            answer = client.post(f"/v1/ops/{name}/check", json={"checks": SOME, "seed": 5}).json()
            assert without_times(local[name].document) == without_times(answer)
    assert {name: report.verdict for name, report in local.items()} == {"bad": "fail", "cube": "pass"}


def test_each_call_reads_the_page_as_it_is(checker, folder, tmp_path) -> None:
    page = tmp_path / "cube.py"
    for source, verdict in (("cube", "pass"), ("bad", "fail"), ("cube", "pass")):
        page.write_text((folder / "my_ops" / f"{source}.py").read_text())
        [report] = reports(checker.checks([page], None, {"checks": ["derivative"]})).values()
        assert report.verdict == verdict


def test_a_new_call_ends_the_last(checker, folder) -> None:
    first = checker.checks([folder / "my_ops" / "cube.py"], None, {})
    assert isinstance(next(first), Start)
    assert set(reports(checker.checks([folder / "my_ops" / "bad.py"], None, {"checks": ["value"]}))) == {"bad"}
    first.close()


def test_an_op_that_crashes_fails_and_the_others_are_checked(checker, folder, tmp_path) -> None:
    (tmp_path / "crash.py").write_text(CRASHING.format(name="crash"))
    (tmp_path / "again.py").write_text(CRASHING.format(name="again"))
    good = folder / "my_ops" / "cube.py"
    graph = {"inputs": ["x"], "nodes": [{"name": "y", "op": "again", "inputs": ["x"]}], "outputs": {"y": "y"}}
    (tmp_path / "twice.graph.json").write_text(json.dumps(graph))
    pages = [tmp_path / "crash.py", good, tmp_path / "again.py", tmp_path / "twice.graph.json"]
    found = checker.checks(pages, None, {"checks": ["value", "derivative"]})
    events: list[Event] = list(runnable_without_service(found, PointFiles.not_written("page.py"), pages))
    verdicts = {name: report.verdict for name, report in reports(events).items()}
    assert verdicts == {"crash": "fail", "cube": "pass", "again": "fail", "twice": "fail"}
    crashed = reports(events)["crash"].checks[0]
    assert crashed.reproduce is not None
    assert crashed.reproduce.endswith(f" check {tmp_path / 'crash.py'} --check contract --seed 0")
    assert crashed.sentence.startswith(
        "op crash crashed the process of the check with SIGSEGV in mode graph at x float64["
    )
    of_graph = f" check {tmp_path / 'twice.graph.json'} --check contract --seed 0"
    assert (reports(events)["twice"].checks[0].reproduce or "").endswith(of_graph)
    assert len([event for event in events if isinstance(event, Start)]) == 1
    summary = events[-1]
    assert isinstance(summary, Summary)
    assert (summary.verdict, summary.passed, summary.failed) == ("fail", 1, 3)


def test_a_crash_before_any_evaluation_does_not_show_that_of_another_request(checker, folder, tmp_path) -> None:
    page, good = tmp_path / "early.py", folder / "my_ops" / "cube.py"
    sample = "sample=lambda rng, dtype, attrs: {'x': crash(rng.normal(size=3))}, modes"
    page.write_text(CRASHING.format(name="early").replace("modes", sample))
    assert reports(checker.checks([good], None, {"checks": ["value"]}))["cube"].verdict == "pass"
    early = reports(checker.checks([page], None, {"checks": ["value"]}))["early"].checks[0]
    assert early.sentence == "op early crashed the process of the check with SIGSEGV"


def test_a_page_that_cannot_be_loaded_is_unavailable_with_its_line(checker, folder, tmp_path) -> None:
    (tmp_path / "broken.py").write_text("from pullback.ops import costum_gradient\n")
    (tmp_path / "square.py").write_text((folder / "my_ops" / "cube.py").read_text().replace('"cube"', '"square"'))
    (start, *_) = checker.checks([tmp_path / "broken.py", tmp_path / "square.py"], None, {})
    assert isinstance(start, Start)
    assert f"correct {tmp_path.name}/broken.py:1 and start again" in start.unavailable["broken"]
    assert "ops/square.py defines the op 'square' too; rename one" in start.unavailable["square"]


def test_a_page_that_harms_a_process_harms_no_other(checker, folder, tmp_path) -> None:
    text = (folder / "my_ops" / "cube.py").read_text()
    (tmp_path / "leaving.py").write_text("import os\nos._exit(5)\n" + text)
    (tmp_path / "counting.py").write_text("import builtins\nbuiltins.len = max\n" + text)
    killing = CRASHING.format(name="killing").replace("getpid(), 11", "getpid(), 9")
    (tmp_path / "killing.py").write_text(killing)
    (tmp_path / "cube.py").write_text(text)
    (start, *events) = checker.checks(sorted(tmp_path.glob("*.py")), None, {"checks": ["value"]})
    assert isinstance(start, Start)
    assert start.unavailable["leaving"] == "its import ends the process with status 5"
    assert "expected a page to leave builtins.len as it is" in start.unavailable["counting"]
    found = reports(events)
    assert {name: report.verdict for name, report in found.items()} == {"cube": "pass", "killing": "fail"}
    assert "op killing broke the process of the check, which ended with SIGKILL" in found["killing"].checks[0].sentence


def test_names_choose_among_the_pages(checker, folder) -> None:
    pages = [folder / "my_ops" / name for name in ("bad.py", "cube.py")]
    assert set(reports(checker.checks(pages, ["cube"], {"checks": ["value"]}))) == {"cube"}
    with pytest.raises(ProblemError, match=r"unknown op 'cubed'.*cube"):
        list(checker.checks(pages, ["cubed"], {}))
    with pytest.raises(ProblemError, match=r"int7"):
        list(checker.checks(pages, None, {"dtypes": ["int7"]}))


def test_derived_ops_are_checked(checker, folder, tmp_path) -> None:
    """A wrong second order is wrong as the first order of the op's vjp."""
    page = tmp_path / "cube.py"
    right = (folder / "my_ops" / "cube.py").read_text()
    for text, verdict in ((right, "pass"), (right.replace("return 6 * x * dy", "return 6.6 * x * dy"), "fail")):
        page.write_text(text)
        found = reports(
            checker.checks([page], ["cube.vjp"], {"checks": ["value", "derivative"], "dtypes": ["float64"]})
        )
        assert {name: report.verdict for name, report in found.items()} == {"cube.vjp": verdict}
    [wrong] = (check for check in found["cube.vjp"].checks if check.verdict == "fail")
    assert (wrong.check, wrong.output, wrong.input) == ("derivative", "dx", "x")
    assert "are 1.1 times what they should be" in wrong.sentence


def test_progress_and_budget(checker, folder) -> None:
    events = list(checker.checks([folder / "my_ops" / "cube.py"], None, {"budget_s": 0.001}))
    assert isinstance(events[-1], Summary)
    assert events[-1].unfinished == 1
    events = list(checker.checks([folder / "my_ops" / "cube.py"], None, {"checks": ["value"]}))
    assert [event.check for event in events if isinstance(event, Progress)][-1] == "value"


def test_the_command_line(here, folder) -> None:
    failed = here("pullback", "check", "my_ops", "--check", "derivative", "--json", "out.json", "--junit", "out.xml")
    assert failed.code == 1
    assert "are 1.1 times what they should be" in failed.out
    assert "are 1.1 times what they should be" in (folder / "out.xml").read_text()
    documents = json.loads((folder / "out.json").read_text())["reports"]
    assert {document["op"]: document["verdict"] for document in documents} == {"bad": "fail", "cube": "pass"}
    service = here("pullback", "check", "square", "--local", "--check", "value")
    assert (service.code, service.out.split()[0]) == (0, "square:")


@pytest.mark.thorough
def test_an_op_that_fails_everywhere_prints_one_stack_trace(here, folder, tmp_path) -> None:
    page = (folder / "my_ops" / "cube.py").read_text().replace("return x**3", "raise OSError('no table')")
    (tmp_path / "cube.py").write_text(page)
    found = here("pullback", "check", str(tmp_path / "cube.py"), "--check", "value", "--check", "derivative")
    assert found.code == 1
    assert "reference raised OSError: no table" in found.out
    assert found.error.count("Traceback") == 1, found.error


@pytest.mark.parametrize(
    "call",
    [
        "tf.math.lgamma(x)",
        pytest.param("tf.cast(tf.linalg.svd([[x[0]]])[0], x.dtype) + x", marks=pytest.mark.thorough),
    ],
)
def test_what_tensorflow_raises_is_a_finding_alone(here, tmp_path, call: str) -> None:
    """It has kernels of svd in no half precision, and of the second order of lgamma in none."""
    page = CRASHING.format(name="half")
    page = page.replace("tf.reshape(tf.numpy_function(crash, [x], x.dtype), x.shape)", call)
    (tmp_path / "half.py").write_text(page.replace('shape=("N",)', 'shape=("N",), dtypes=("float16",)'))
    found = here("pullback", "check", str(tmp_path / "half.py"))
    assert found.code == 1
    assert "TensorFlow has no kernel for this dtype" in found.out
    assert found.error == ""


@pytest.mark.thorough
def test_what_an_op_prints_before_it_crashes_is_shown(here, tmp_path) -> None:
    prints = "print('first'); os.write(1, b'm' * 3_000_000); os.write(2, b'\\nCheck failed: last\\n'); os.kill("
    (tmp_path / "loud.py").write_text(CRASHING.format(name="loud").replace("os.kill(", prints))
    found = here("pullback", "check", str(tmp_path / "loud.py"), "--check", "value")
    assert found.code == 1
    assert "first\n" in found.error
    assert "\npullback: op loud printed 29" in found.error
    assert found.error.endswith("\nCheck failed: last\n")
    assert len(found.error) < 100_000


def test_a_path_without_a_page_is_refused(here, folder) -> None:
    (folder / "empty").mkdir()
    for path in ("my_ops/none.py", "empty", "./nothing"):
        refused = here("pullback", "check", path)
        assert (refused.code, refused.out) == (2, "")
        assert path.removeprefix("./") in refused.error
    assert Path(folder, "my_ops").is_dir()


@pytest.mark.thorough
def test_a_graph_is_checked_with_the_pages_beside_it(here, graphs) -> None:
    found = here("pullback", "check", str(graphs), "--check", "derivative", "--check", "second")
    assert found.code == 2
    assert f"correct {graphs.name}/lost.graph.json and start again" in found.out.replace("\n", " ")
    assert {line.split(":")[0] for line in found.out.splitlines() if ": pass" in line} == {"cube", "sixth"}
    page = (graphs / "cube.py").read_text()
    (graphs / "cube.py").write_text(page.replace(RIGHT, WRONG))
    found = here("pullback", "check", str(graphs / "sixth.graph.json"), "--check", "derivative")
    assert found.code == 1
    assert "all are 1.1 times what they should be" in found.out
    drawn = here("pullback", "graph", "show", str(graphs / "sixth.graph.json"))
    assert (drawn.code, drawn.out.split()[0]) == (0, "sixth")
    assert ["s", "square(c)", "output", "y"] in [line.split() for line in drawn.out.splitlines()]
