"""Gradient checks over HTTP: reports, event streams, and supplied gradients."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from jsonschema import Draft202012Validator

from app.processes import pool
from pullback import __version__
from pullback.service_process import SERVICE
from tests.conftest import Serve, Service
from tests.http.native_client import JSON, fault, post, problem
from tests.patience import PATIENCE_S

CHECKS = [
    "contract",
    "declarations",
    "mutation",
    "determinism",
    "retrace",
    "batching",
    "value",
    "derivative",
    "second",
    "sizes",
    "attributes",
    "linearity",
    "adjoint",
    "symmetry",
    "subset",
    "sparsity",
    "directions",
    "modes",
    "dtypes",
    "finite",
    "cost",
]
# Reports name a file of an op only by its folder.
SECRET_PATH = re.compile(r"/(?:home|usr|tmp|secret|site-packages)/|\w+/\w+/\w+\.py")
OPS = SERVICE / "ops"
GRAPH: dict[str, Any] = {
    "inputs": [{"name": "x"}],
    "nodes": [{"name": "squared", "op": "square", "inputs": {"x": "x"}}],
    "outputs": {"y": "squared"},
    "examples": [{"name": "one", "inputs": {"x": [1.0]}}],
}
LINES = {**JSON, "accept": "application/x-ndjson"}


def report(client: httpx.Client, op: str, /, **body: Any) -> dict[str, Any]:
    response = post(client, op, "check", **body)
    assert response.status_code == 200, response.text
    return json.loads(response.content, parse_constant=lambda word: 1 / 0)


def stream(client: httpx.Client, **body: Any) -> Iterator[dict[str, Any]]:
    with client.stream("POST", "/v1/checks", content=json.dumps(body), headers=LINES) as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            yield json.loads(line, parse_constant=lambda word: 1 / 0)


def untimed(found: dict[str, Any]) -> dict[str, Any]:
    return {**found, "seconds": 0, "checks": [{**entry, "seconds": 0} for entry in found["checks"]]}


@pytest.fixture(scope="module")
def schemas(client: httpx.Client) -> dict[str, Any]:
    return client.get("/openapi.json").json()


def validate(schemas: dict[str, Any], name: str, document: Any) -> None:
    """Raise ``ValidationError`` if a document does not have a schema of the OpenAPI document."""
    reference = {"$ref": f"#/components/schemas/{name}"}
    validator: Any = Draft202012Validator({**reference, "components": schemas["components"]})
    validator.validate(document)


def test_a_correct_op_passes_every_check(client: httpx.Client, schemas: dict[str, Any]) -> None:
    found = report(client, "square")
    assert found["verdict"] == "pass"
    assert list(dict.fromkeys(entry["check"] for entry in found["checks"])) == CHECKS
    others = {entry["check"]: entry["verdict"] for entry in found["checks"] if entry["verdict"] != "pass"}
    # It declares no kinks and no sparsity, has no attributes and one input, and a time is no proof.
    assert others == dict.fromkeys(("declarations", "attributes", "subset", "sparsity", "cost"), "skipped")
    assert {entry["dtype"] for entry in found["checks"]} == {"float32", "float64", "float16", "bfloat16"}
    assert {entry["mode"] for entry in found["checks"]} == {"graph", "eager", "xla", "v1"}
    assert sum(entry["evaluations"] for entry in found["checks"]) == found["evaluations"] > 0
    validate(schemas, "CheckAnswer", found)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_report(client: httpx.Client) -> None:
    body = {"seed": 7, "checks": ["derivative", "second", "symmetry"]}
    one, again = (untimed(report(client, "log1pexp", **body)) for _ in range(2))
    assert one == again
    assert untimed(report(client, "log1pexp", **{**body, "seed": 8})) != one


def test_the_report_of_a_wrong_op_locates_the_error(plugged: httpx.Client, schemas: dict[str, Any]) -> None:
    found = report(plugged, "steep")
    assert found["verdict"] == "fail"
    assert "derivative" in found["sentence"]
    # Another entry, of no output, is about special places.
    (entry,) = (one for one in found["checks"] if one["check"] == "derivative" and one["output"] == "y")
    worst = entry["worst"]
    assert abs(worst["analytic"] - worst["numeric"]) == pytest.approx(worst["absolute"])
    assert worst["absolute"] > 1e6 * worst["error_bar"]
    assert worst["ulps"] > 1e6
    assert worst["relative"] == pytest.approx(0.09)
    assert entry["sentence"].startswith(f"dx{worst['index']} at x = ")
    assert entry["sentence"].endswith("all are 1.09 times what they should be")
    answer = post(plugged, "steep", "vjp", **entry["point"], dtype=entry["dtype"], mode=entry["mode"]).json()
    assert answer["gradients"]["x"]["data"] == worst["analytic"]
    validate(schemas, "CheckAnswer", found)


@pytest.mark.parametrize(
    "name", ["bare_dtype", "bare_many", "helper_zero", "forward_dtype", "raises", "not_registered"]
)
def test_an_op_with_a_broken_function_gets_a_report(plugged: httpx.Client, name: str) -> None:
    found = report(plugged, name)
    assert found["verdict"] == "fail"
    assert next(one["check"] for one in found["checks"] if one["verdict"] == "fail") == "contract"
    assert "Traceback" not in json.dumps(found)
    assert not SECRET_PATH.search(json.dumps(found))


def test_a_point_may_be_given(client: httpx.Client) -> None:
    found = report(client, "relu", inputs={"x": [[0.0, -1.0], [2.0, 3.0]]}, checks=["derivative"], dtypes=["float64"])
    (entry,) = found["checks"]
    assert entry["verdict"] == "pass"
    assert entry["points"] == 4
    assert entry["inconclusive"] == {"kink": 1}
    found = report(client, "relu", inputs={"x": 0}, checks=["derivative"])
    assert found["verdict"] == found["checks"][0]["verdict"] == "inconclusive"


def test_a_typed_point_is_widened(client: httpx.Client) -> None:
    x = {"dtype": "float16", "shape": [2], "data": [0.1, 3]}
    (entry,) = report(client, "square", inputs={"x": x}, checks=["derivative"])["checks"]
    assert entry["dtype"] == "float64"
    assert entry["worst"]["x"] in (float(np.float16(0.1)), 3.0)


def test_attributes_choose_the_claim(client: httpx.Client) -> None:
    checks = ["derivative", "linearity", "adjoint"]
    found = report(client, "clip_gradient", attrs={"by": "norm", "limit": 0.5}, checks=checks)
    assert found["verdict"] == "pass"
    assert {entry["attrs"]["by"] for entry in found["checks"]} == {"norm"}
    skipped = {entry["check"] for entry in found["checks"] if entry["verdict"] == "skipped"}
    assert skipped == {"linearity", "adjoint"}


def test_checks_orders_dtypes_and_modes_can_be_selected(client: httpx.Client) -> None:
    body = {"orders": [1], "dtypes": ["float32"], "modes": ["v1"]}
    found = report(client, "log1pexp", **body)
    assert {entry["check"] for entry in found["checks"]} == set(CHECKS) - {"second", "symmetry"}
    assert {entry["order"] for entry in found["checks"]} <= {None, 0, 1}
    assert {entry["mode"] for entry in found["checks"] if entry["check"] == "modes"} == {"v1"}
    assert {entry["dtype"] for entry in found["checks"] if entry["check"] == "dtypes"} == {"float32"}


def test_higher_orders_can_be_requested(client: httpx.Client, schemas: dict[str, Any]) -> None:
    found = report(client, "square", orders=[1, 2, 3, 4], checks=["higher"])
    assert found["verdict"] == "pass"
    assert {(entry["check"], entry["order"]) for entry in found["checks"]} == {("higher", 3), ("higher", 4)}
    validate(schemas, "CheckAnswer", found)


def test_tolerances_widen_the_bars(plugged: httpx.Client) -> None:
    body = {"checks": ["derivative"], "inputs": {"x": [-1.5, 2.0]}}
    strict = report(plugged, "steep", **body)
    loose = report(plugged, "steep", **body, tolerances={"absolute": 100.0})
    assert (strict["verdict"], loose["verdict"]) == ("fail", "pass")


@pytest.mark.parametrize(
    ("body", "loc"),
    [
        ({"checks": ["slopes"]}, ["checks", 0]),
        ({"checks": []}, ["checks"]),
        ({"dtypes": ["int32"]}, ["dtypes", 0]),
        ({"modes": ["fast"]}, ["modes", 0]),
        ({"orders": [5]}, ["orders", 0]),
        ({"seed": -1}, ["seed"]),
        ({"seed": 1 << 40}, ["seed"]),
        ({"tolerances": {"relative": -1}}, ["tolerances", "relative"]),
        ({"device": "tpu"}, ["device"]),
        ({"inputs": {"z": 1}}, ["inputs", "z"]),
        ({"inputs": {"x": [None]}}, ["inputs", "x", 0]),
        ({"attrs": {"by": 1}}, ["attrs", "by"]),
        ({"steps": 3}, ["steps"]),
        ({"budget_s": 0}, ["budget_s"]),
    ],
)
def test_an_invalid_request_is_refused(client: httpx.Client, body: dict[str, Any], loc: list[Any]) -> None:
    assert fault(post(client, "square", "check", **body))["loc"] == loc


def test_every_report_says_what_was_checked(client: httpx.Client, schemas: dict[str, Any]) -> None:
    options = {"checks": ["value"], "modes": ["eager"], "dtypes": ["float32"], "seed": 5}
    posted = client.post("/v1/graphs", json=GRAPH).json()["name"]
    streamed = [event["report"] for event in stream(client, ops=["square"], **options) if event["event"] == "report"]
    page = hashlib.sha256((OPS / "square.py").read_bytes()).hexdigest()
    for name in ("square", "square.vjp", posted):
        found = report(client, name, **options)
        validate(schemas, "CheckAnswer", found)
        assert (found["op"], found["modes"], found["devices"], found["seed"]) == (name, ["eager"], ["cpu"], 5)
        assert found["origin"]["version"] == __version__
        assert found["origin"]["tensorflow"] == client.get("/health/ready").json()["tensorflow"]
        assert found["origin"].get("page") == (None if name == posted else page)
        assert ("nodes" in found["origin"]) == (name == posted)
    assert [entry["origin"] for entry in streamed] == [report(client, "square", **options)["origin"]]


def test_all_errors_are_problem_documents(client: httpx.Client) -> None:
    problem(post(client, "squar", "check"), 404)
    problem(client.get("/v1/ops/square/check"), 405)
    problem(client.get("/v1/checks"), 405)
    problem(client.post("/v1/checks", content=b"{}"), 415)
    problem(client.post("/v1/checks", content=b"{}", headers={**JSON, "accept": "text/html"}), 406)
    problem(client.post("/v1/checks", content=b'{"ops": ["squar"]}', headers=JSON), 404)
    problem(client.post("/v1/checks", content=b"{", headers=JSON), 400)


def test_the_stream_reports_progress(client: httpx.Client, schemas: dict[str, Any]) -> None:
    events = list(stream(client, ops=["square", "sign"], checks=["contract", "derivative"]))
    assert [one["event"] for one in events[:2]] == ["start", "progress"]
    assert events[0]["ops"] == ["square", "sign"]
    done = [one["done"] for one in events if one["event"] == "progress"]
    # sign has three mechanisms, each with its own examples; mutation and the batching claim are always checked.
    assert events[0]["steps"] == 4 + 3 * 4
    # The stream repeats a step that takes long, and leaves one out if two processes end two steps at once.
    assert done == sorted(done)
    assert (done[0], done[-1] < events[0]["steps"]) == (0, True)
    assert len({*done}) > events[0]["steps"] // 2
    reports = [one["report"] for one in events if one["event"] == "report"]
    assert sorted(one["op"] for one in reports) == ["sign", "square"]
    assert events[-1]["event"] == "summary"
    assert {name: events[-1][name] for name in ("verdict", "pass", "fail", "error", "inconclusive", "unfinished")} == {
        "verdict": "pass",
        "pass": 2,
        "fail": 0,
        "error": 0,
        "inconclusive": 0,
        "unfinished": 0,
    }
    for event in events:
        validate(schemas, "ChecksAnswer", event)


def test_the_stream_has_each_finding_if_the_request_asks_for_them(client: httpx.Client, schemas: Any) -> None:
    options = {"ops": ["square"], "checks": ["derivative", "value", "dtypes"]}
    events = list(stream(client, **options, findings=True))
    kinds = [event["event"] for event in events]
    assert kinds.index("finding") < len(kinds) - 1 - kinds[::-1].index("progress")
    found = [event["finding"] for event in events if event["event"] == "finding"]
    [report] = [event["report"] for event in events if event["event"] == "report"]

    def place(entry: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(str(entry[name]) for name in ("check", "order", "input", "output", "dtype", "mode", "sentence"))

    assert sorted(map(place, found)) == sorted(map(place, report["checks"]))
    assert not [event for event in stream(client, **options) if event["event"] == "finding"]


def test_the_stream_can_be_server_sent_events(client: httpx.Client) -> None:
    response = client.post("/v1/checks", content=b'{"ops": ["square"], "checks": ["derivative"]}', headers=JSON)
    assert response.headers["content-type"] == "text/event-stream"
    blocks = [block.split("\n") for block in response.text.strip().split("\n\n")]
    assert [block[0] for block in blocks] == [
        "event: start",
        *["event: progress"] * 4,
        "event: report",
        "event: summary",
    ]
    for name, data in blocks:
        assert json.loads(data.removeprefix("data: "))["event"] == name.removeprefix("event: ")


def test_a_stream_names_unavailable_ops(plugged: httpx.Client) -> None:
    first = next(stream(plugged, checks=["linearity"]))
    assert [one["op"] for one in first["unavailable"]] == ["broken"]


def test_a_stream_of_named_ops_names_those_that_are_unavailable(plugged: httpx.Client) -> None:
    found = list(stream(plugged, ops=["square", "broken", "square", "broken"], checks=["linearity"]))
    assert found[0]["ops"] == ["square"]
    [broken] = found[0]["unavailable"]
    assert broken["op"] == "broken"
    assert "nothing_of_this_name" in broken["reason"]
    assert found[-1]["pass"] == 1
    assert next(stream(plugged, ops=["square"], checks=["linearity"]))["unavailable"] == []
    [first, last] = stream(plugged, ops=["broken"])
    assert (first["steps"], last["event"], last["verdict"]) == (0, "summary", "inconclusive")
    response = plugged.post("/v1/checks", content=json.dumps({"ops": ["broken", "brokeen"]}), headers=LINES)
    assert "unknown op 'brokeen'" in problem(response, 404)["detail"]


CHECKED_LATE = """
from pydantic import field_validator
from ops import Attrs, Claim, Example, Input, Op, Output


class Steps(Attrs):
    k: float = 2.0

    @field_validator("k")
    @classmethod
    def two(cls, k):
        {0}
        return k


def twice(x, *, k):
    return x * k


def claim(attrs):
    {1}
    return Claim()


def reference(x, *, k):
    {2}
    return x * k


def sample(rng, dtype, attrs):
    {3}
    return {{"x": rng.uniform(size=3)}}


def singular(inputs, attrs):
    {4}
    return False


OP = Op(
    name="{name}", summary="", doc=None, function=twice, reference=reference, attrs=Steps, claim=claim, sample=sample,
    singular=singular, inputs=(Input("x"),), outputs=(Output("y"),), mechanism="stop_gradient", source="",
    examples=(Example("one", {{"x": [1.0]}}),),
)
"""
RAISE = {"exits": "raise SystemExit(7)", "divides": "1 / 0"}
LATE = {
    f"{name}_{how}": ["pass"] * i
    + [f"if k != 2: {line}" if name == "attrs" else f"if attrs.k != 2: {line}" if name == "claim" else line]
    + ["pass"] * (4 - i)
    for i, name in enumerate(("attrs", "claim", "reference", "sample", "singular"))
    for how, line in [*RAISE.items()][i % 2 :][:1]
}
GARBAGE = {
    "reference_none": ["pass", "pass", "return None", "pass", "pass"],
    "reference_words": ["pass", "pass", "return 'y'", "pass", "pass"],
    "reference_many": ["pass", "pass", "return x, x", "pass", "pass"],
    "sample_none": ["pass", "pass", "pass", "return None", "pass"],
    "sample_other": ["pass", "pass", "pass", "return {'z': 1}", "pass"],
    "sample_words": ["pass", "pass", "pass", "return {'x': 'one'}", "pass"],
    "claim_none": ["pass", "if attrs.k != 2: return None", "pass", "pass", "pass"],
    "singular_words": ["pass", "pass", "pass", "pass", "return inputs['x'] > 0"],
}


@pytest.mark.thorough
def test_what_an_author_does_wrong_at_a_check_fails_this_op_alone(serve: Serve, tmp_path: Path) -> None:
    wrong = LATE | GARBAGE
    for name, lines in wrong.items():
        (tmp_path / f"{name}.py").write_text(CHECKED_LATE.format(*lines, name=name))
    with serve(OPS_PATH=str(tmp_path)).client() as client:
        body = {"ops": ["square", *wrong, "round_ste"], "checks": ["value", "derivative"], "modes": ["graph"]}
        first, *_, last = found = list(stream(client, **body))
        assert client.get("/health/ready").json()["unavailable"] == []
        assert client.get("/v1/ops/attrs_exits").status_code == 200
    assert (first["event"], last["event"]) == ("start", "summary")
    reports = {event["report"]["op"]: event["report"] for event in found if event["event"] == "report"}
    assert {name: one["verdict"] for name, one in reports.items()} == {
        "square": "pass",
        **dict.fromkeys(wrong, "fail"),
        "round_ste": "pass",
    }


def test_a_stream_ends_at_its_deadline_with_all_reports(client: httpx.Client, schemas: dict[str, Any]) -> None:
    headers = {**LINES, "pullback-deadline-ms": "400"}
    response = client.post("/v1/checks", content=b"{}", headers=headers)
    events = [json.loads(line) for line in response.text.splitlines()]
    assert events[0]["event"] == "start"
    reports = [event["report"] for event in events if event["event"] == "report"]
    # In the order in which they are complete, which is another one where two processes check.
    assert sorted(one["op"] for one in reports) == sorted(events[0]["ops"])
    last = reports[-1]
    assert (last["verdict"], last["unfinished"]) == ("inconclusive", len(last["checks"]))
    assert last["checks"][0]["sentence"].startswith("not run: out of time; raise Pullback-Deadline-Ms")
    assert events[-1]["event"] == "summary"
    assert events[-1]["unfinished"] > 0
    for event in events:
        validate(schemas, "ChecksAnswer", event)


def test_a_stream_ends_within_the_time_of_the_service(serve: Serve) -> None:
    service = serve(CHECKS_S="0.01")
    with service.client() as client:
        *_, last, summary = stream(client, ops=["square", "sign"])
    assert summary["event"] == "summary"
    assert "raise PULLBACK_CHECKS_S" in last["report"]["checks"][-1]["sentence"]


def test_the_budget_of_a_stream_ends_it(client: httpx.Client) -> None:
    *_, last, summary = stream(client, ops=["square", "sign"], budget_s=0.001)
    assert (summary["event"], summary["unfinished"]) == ("summary", 2)
    assert "raise budget_s" in last["report"]["checks"][-1]["sentence"]


def test_the_budget_of_a_check_ends_it(client: httpx.Client, schemas: dict[str, Any]) -> None:
    found = report(client, "softmax_cross_entropy", budget_s=0.001, checks=["value", "modes"])
    assert found["unfinished"] == sum(len(entry["places"]) for entry in found["checks"]) > 0
    assert found["checks"][-1]["sentence"].startswith("not run: out of time; raise budget_s (--seconds)")
    validate(schemas, "CheckAnswer", found)
    assert report(client, "square", budget_s=600, checks=["value"])["unfinished"] == 0


def test_what_is_left_is_estimated(client: httpx.Client) -> None:
    events = list(stream(client, ops=["square"], checks=["derivative", "modes"]))
    first, *others = (event for event in events if event["event"] == "progress")
    assert first["left_s"] is None
    assert all(event["left_s"] >= 0 for event in others)
    assert [event["check"] for event in (first, *others)] == ["contract", "mutation", "batching", "derivative", "modes"]


def test_a_step_beyond_its_deadline_is_skipped(serve: Serve) -> None:
    service = serve(DEADLINE_S="0.03")
    with service.client() as client:
        *_, found, summary = stream(client, ops=["softmax_cross_entropy"], checks=["contract", "modes"])
    assert found["report"]["unfinished"] > 0
    assert "raise PULLBACK_DEADLINE_S" in found["report"]["checks"][-1]["sentence"]
    assert (summary["event"], summary["unfinished"]) == ("summary", 1)


def test_a_check_beyond_its_deadline_reports_what_is_done(client: httpx.Client, schemas: dict[str, Any]) -> None:
    """Without its traces, the whole check takes ten times as long as its process needs to begin."""
    assert client.post("/v1/ops/square/check", json={"checks": ["contract"]}).status_code == 200  # it can fork now
    for deadline_ms in (1500, 6000, 24000):  # on a busy machine, the first may pass before the process begins
        headers = {**JSON, "pullback-deadline-ms": str(deadline_ms)}
        response = client.post("/v1/ops/self_adjoint_eig/check", content=b'{"seed": 12}', headers=headers)
        if response.status_code != 504:
            break
    assert response.status_code == 200, response.text
    found = response.json()
    assert found["unfinished"] > 0
    assert "out of time" in found["sentence"]
    skipped = [entry for entry in found["checks"] if entry["verdict"] == "skipped"]
    assert {entry["sentence"].partition(";")[0] for entry in skipped} == {"not run: out of time"}
    validate(schemas, "CheckAnswer", found)


def test_checks_wait_for_a_place_and_short_work_does_not(serve: Serve) -> None:
    service = serve(CHECKS="1")
    with service.client() as busy, service.client() as client, busy.stream("POST", "/v1/checks", json={}) as events:
        lines = events.iter_lines()
        assert next(lines) == "event: start"
        soon = {**JSON, "pullback-deadline-ms": "300"}
        problem(client.post("/v1/ops/square/check", content=b"{}", headers=soon), 504)
        assert post(client, "square", "vjp", inputs={"x": [1, 2]}).status_code == 200
        assert post(client, "square", "jacobian", inputs={"x": [1, 2]}).status_code == 200
    with service.client() as client:
        assert post(client, "square", "check", checks=["contract"]).json()["verdict"] == "pass"


def test_checks_past_the_queue_get_503(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "WAITING", 0)
    service = serve(CHECKS="1")
    with service.client() as client:
        assert "0 gradient checks wait for 1 places" in problem(post(client, "square", "check"), 503)["detail"]
        problem(client.post("/v1/checks", json={}), 503)


def test_checks_can_be_disabled(serve: Serve) -> None:
    with serve(CHECKS="0").client() as client:
        assert "PULLBACK_CHECKS=0" in problem(post(client, "square", "check"), 403)["detail"]
        assert "PULLBACK_CHECKS=0" in problem(client.post("/v1/checks", json={}), 403)["detail"]
        body = {"inputs": {"x": [1.0]}, "gradients": {"x": [2.0]}}
        assert post(client, "square", "verify", **body).json()["verdict"] == "pass"


def test_a_stream_yields_to_other_work_and_stops_on_disconnect(service: Service) -> None:
    """A stream over all ops takes a minute; a Jacobian, which is long work, is answered meanwhile."""
    events: list[str] = []

    def follow() -> None:
        with service.client() as one:
            for event in stream(one):
                events.append(event["event"])
                if leave.is_set():
                    return

    leave = threading.Event()
    reader = threading.Thread(target=follow)
    reader.start()
    with service.client() as other:
        for _ in range(3):
            assert post(other, "square", "jacobian", inputs={"x": [1, 2]}).status_code == 200
        assert "summary" not in events
        leave.set()
        reader.join(PATIENCE_S)
        assert not reader.is_alive()
        service.log_with("POST /v1/checks 200")
        assert post(other, "square", "jacobian", inputs={"x": [1, 2]}).status_code == 200
    assert "summary" not in events


X = [[3.0, 4.0], [5.0, 12.0], [8.0, 15.0]]
NORM = [[3 / 5, 4 / 5], [5 / 13, 12 / 13], [8 / 17, 15 / 17]]


def test_a_supplied_gradient_is_verified(client: httpx.Client, schemas: dict[str, Any]) -> None:
    found = post(client, "safe_norm", "verify", inputs={"x": X}, gradients={"x": NORM}).json()
    assert found["verdict"] == "pass"
    assert found["gradients"]["x"]["worst"]["ulps"] <= 1
    assert (found["dtype"], found["against"]) == ("float32", "float64")
    validate(schemas, "VerifyAnswer", found)


def test_a_wrong_block_of_a_supplied_gradient_is_found(client: httpx.Client, schemas: dict[str, Any]) -> None:
    mine = np.array(NORM)
    mine[1, 0] *= 1.0001
    found = post(client, "safe_norm", "verify", inputs={"x": X}, gradients={"x": mine.tolist()}).json()
    x = found["gradients"]["x"]
    assert found["verdict"] == x["verdict"] == "fail"
    assert (x["elements"], x["wrong"]) == (6, 1)
    assert x["worst"]["index"] == [1, 0]
    assert x["worst"]["expected"] == 5 / 13
    assert x["worst"]["relative"] == pytest.approx(1e-4, rel=1e-3)
    assert [block["verdict"] for block in x["blocks"]] == ["pass", "fail", "pass"]
    assert [(block["start"], block["stop"]) for block in x["blocks"]] == [(0, 1), (1, 2), (2, 3)]
    validate(schemas, "VerifyAnswer", found)
    body = {"inputs": {"x": X}, "gradients": {"x": mine.tolist()}, "tolerances": {"relative": 1e-3}}
    assert post(client, "safe_norm", "verify", **body).json()["verdict"] == "pass"


def test_cotangents_weight_the_verified_gradient(client: httpx.Client) -> None:
    body = {"inputs": {"x": [1, 2]}, "cotangents": {"y": [0.5, 3]}, "gradients": {"x": [1, 12]}, "dtype": "float16"}
    assert post(client, "square", "verify", **body).json()["verdict"] == "pass"
    assert post(client, "square", "verify", **{**body, "gradients": {"x": [2, 4]}}).json()["verdict"] == "fail"


def test_nan_in_a_supplied_gradient_is_wrong(client: httpx.Client) -> None:
    found = post(client, "square", "verify", inputs={"x": [1, 2]}, gradients={"x": [2, "NaN"]}).json()
    assert found["gradients"]["x"]["worst"]["yours"] == "NaN"
    assert found["gradients"]["x"]["worst"]["absolute"] == "NaN"
    assert found["verdict"] == "fail"


@pytest.mark.parametrize(
    ("body", "loc"),
    [
        ({"gradients": {"x": [1, 2, 3]}}, ["gradients", "x"]),
        ({"gradients": {}}, ["gradients"]),
        ({}, ["gradients"]),
        ({"gradients": {"z": [1, 2]}}, ["gradients", "z"]),
        ({"gradients": {"x": [2, 4]}, "cotangents": {"y": [1]}}, ["cotangents", "y"]),
        ({"gradients": {"x": [2, 4]}, "dtype": "int32"}, ["gradients", "x"]),
    ],
)
def test_an_invalid_gradient_to_verify_is_refused(client: httpx.Client, body: dict[str, Any], loc: list[Any]) -> None:
    assert fault(post(client, "square", "verify", inputs={"x": [1, 2]}, **body))["loc"] == loc


@pytest.mark.slow
def test_a_large_elementwise_op_is_sampled_and_covered(client: httpx.Client) -> None:
    x = np.linspace(-3, 3, 50_000).tolist()
    found = report(client, "log1pexp", inputs={"x": x}, modes=["graph"], dtypes=["float64"])
    assert found["verdict"] == "pass"
    (entry,) = (one for one in found["checks"] if one["check"] == "derivative")
    assert entry["points"] == 4096  # a sample: a look at all other numbers finds none that looks wrong
