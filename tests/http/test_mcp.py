"""The Model Context Protocol at /mcp: its messages, hostile ones too, and its tools beside the native API."""

import json
import math
import os
import re
import shlex
from typing import Any

import httpx
import numpy as np
import pytest

from pullback.keys import line_for
from tests.conftest import ROOT
from tests.http.conftest import PLUGINS
from tests.http.native_client import MODES, SECRET, array

KEYS = {
    "all": ("pullback_Of-all-0123", []),
    "caller": ("pullback_Of-caller-0123", ["may=call"]),
    "checker": ("pullback_Of-checker-0123", ["may=check"]),
    "seldom": ("pullback_Of-seldom-0123", ["rate=2/h"]),
}
HEADERS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
FIRST, SECOND, THIRD, STATELESS = "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"
MOST = 20_000
DOUBTFUL = '''"""x³, whose gradient is wrong."""

from pullback.ops import Array, Example, Input, Op, Output, Tensor, custom_gradient


def forward(x: Tensor) -> Tensor:
    """y = x³."""
    return x * x * x


def vjp(x: Tensor, dy: Tensor) -> Tensor:
    """dx = 2x² dy, where 3x² dy is right."""
    return 2 * x * x * dy


def reference(x: Array) -> Array:
    """y = x³."""
    return x**3


OP = Op(
    name="doubtful",
    summary="x³, with the gradient 2x²",
    doc=__doc__,
    function=custom_gradient(forward, vjp),
    reference=reference,
    inputs=(Input("x"),),
    outputs=(Output("y"),),
    source="a test",
    examples=(Example("small", {"x": [1.0, 2.0]}),),
)
'''
WHOLE = '''"""Whole numbers, as they are."""

import tensorflow as tf

from pullback.ops import Example, Input, Op, Output

OP = Op(
    name="whole",
    summary="whole numbers",
    doc=__doc__,
    function=tf.identity,
    inputs=(Input("x", ("int64",), ("N",)),),
    outputs=(Output("y", ("int64",), ("N",)),),
    source="a test",
    examples=(Example("small", {"x": [1, 2]}),),
)
'''
META = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.fixture(scope="module")
def guarded(start_for_module, tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text("\n".join(line_for(name, key, terms) for name, (key, terms) in KEYS.items()) + "\n")
    (path.parent / "doubtful.py").write_text(DOUBTFUL)
    (path.parent / "whole.py").write_text(WHOLE)
    return start_for_module(KEYS_FILE=str(path), OPS_PATH=f"{PLUGINS}{os.pathsep}{path.parent}").wait_until_ready()


@pytest.fixture(scope="module")
def agent(guarded):
    with guarded.client() as one:
        one.headers.update(HEADERS | bearer("all"))
        yield one


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[name][0]}"}


def post(client: httpx.Client, message: Any, **headers: str) -> httpx.Response:
    content = message if isinstance(message, bytes) else json.dumps(message).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post("/mcp", content=content, headers=named)


def request(method: str, of: Any = 1, /, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": of, "method": method, "params": params}


def tool(name: str, /, **arguments: Any) -> dict[str, Any]:
    return request("tools/call", name=name, arguments=arguments)


def result_of(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    document = response.json()
    assert set(document) == {"jsonrpc", "id", "result"}, document
    return document["result"]


def call(client: httpx.Client, name: str, /, **arguments: Any) -> dict[str, Any]:
    """Return the structured result of a tool, which is also its text."""
    response = post(client, tool(name, **arguments))
    assert len(response.content) <= MOST
    result = result_of(response)
    assert not result["isError"], result
    [content] = result["content"]
    assert json.loads(content["text"]) == result["structuredContent"]
    return result["structuredContent"]


def failure(client: httpx.Client, name: str, /, **arguments: Any) -> str:
    """Return the text of a tool that fails."""
    response = post(client, tool(name, **arguments))
    assert len(response.content) <= MOST
    result = result_of(response)
    assert result["isError"] is True
    [content] = result["content"]
    assert not SECRET.search(content["text"])
    return content["text"]


def error_of(response: httpx.Response, status: int, code: int, of: Any = None) -> str:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    document = response.json()
    assert set(document) == {"jsonrpc", "id", "error"}
    assert (document["id"], document["error"]["code"]) == (of, code)
    assert not SECRET.search(document["error"]["message"])
    return document["error"]["message"]


@pytest.mark.parametrize(("asked", "got"), [(FIRST, FIRST), (SECOND, SECOND), (THIRD, THIRD), ("1999-01-01", THIRD)])
def test_the_version_is_negotiated(agent, asked, got):
    result = result_of(post(agent, request("initialize", protocolVersion=asked, capabilities={}, clientInfo={})))
    assert result["protocolVersion"] == got
    assert result["capabilities"] == {"tools": {"listChanged": False}}
    assert result["serverInfo"]["name"] == "pullback"
    assert "whole" in result["instructions"]


def test_what_wants_no_answer_gets_none(agent):
    for message in (
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "no_such"}},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
    ):
        answer = post(agent, message)
        assert (answer.status_code, answer.content) == (202, b"")


@pytest.mark.parametrize("of", [0, -1, 1.5, 2**53, 1e30, "", "x" * 128])
def test_the_answer_has_the_id(agent, of):
    answer = post(agent, request("ping", of))
    assert result_of(answer) == {}
    assert answer.json()["id"] == of


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
def test_there_are_no_sessions_and_no_streams_of_the_service(agent, method):
    answer = agent.request(method, "/mcp")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json()["error"]["code"] == -32000


HOSTILE = {
    "empty": (b"", 400, -32700),
    "not json": (b"{", 400, -32700),
    "not utf-8": (b'"\xff"', 400, -32700),
    "nan": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}', 400, -32700),
    "a lone surrogate": (b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}', 400, -32700),
    "a duplicate key": (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', 400, -32700),
    "deep": (b"[" * 60_000, 400, -32700),
    "a number": (b"1", 400, -32600),
    "null": (b"null", 400, -32600),
    "no version": (b'{"id":"a","method":"ping"}', 400, -32600),
    "another version": (b'{"jsonrpc":"1.0","id":"a","method":"ping"}', 400, -32600),
    "no method": (b'{"jsonrpc":"2.0","id":"a"}', 400, -32600),
    "a method of numbers": (b'{"jsonrpc":"2.0","id":"a","method":[1]}', 400, -32600),
    "an unknown method": (b'{"jsonrpc":"2.0","id":"a","method":"resources/list"}', 200, -32601),
    "params of positions": (b'{"jsonrpc":"2.0","id":"a","method":"ping","params":[1]}', 200, -32602),
    "no tool": (b'{"jsonrpc":"2.0","id":"a","method":"tools/call"}', 200, -32602),
    "an unknown tool": (b'{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"rm"}}', 200, -32602),
    "a tool of lists": (b'{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":[]}}', 200, -32602),
    "arguments of positions": (
        b'{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"list","arguments":[1]}}',
        *(200, -32602),
    ),
    "a cursor": (b'{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{"cursor":"x"}}', 200, -32602),
    "no client version": (b'{"jsonrpc":"2.0","id":"a","method":"initialize"}', 200, -32602),
    "an id that is null": (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', 400, -32600),
    "an id that is true": (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', 400, -32600),
    "an id of objects": (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', 400, -32600),
    "a huge id": (b'{"jsonrpc":"2.0","id":"%b","method":"ping"}' % (b"x" * 10_000), 400, -32600),
    "an empty batch": (b"[]", 400, -32600),
    "a long batch": (b"[%b]" % b",".join([b"1"] * 17), 400, -32600),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_message_gets_an_error(agent, name):
    body, status, code = HOSTILE[name]
    message = error_of(post(agent, body), status, code, "a" if b'"id":"a"' in body else None)
    assert 0 < len(message) <= 600


def test_a_body_is_bounded_before_it_is_read(agent):
    message = error_of(post(agent, b" " * (1 << 16) + b"{}"), 413, -32000)
    assert "/v1/ops/{op}/{operation}" in message
    answer = agent.post("/mcp", content=(b" " * 10_000 for _ in range(10)))
    error_of(answer, 413, -32000)


def test_the_media_types_are_those_of_json(agent):
    error_of(post(agent, request("ping"), content_type="text/plain"), 415, -32000)
    error_of(post(agent, request("ping"), accept="text/event-stream"), 406, -32000)


def test_pages_of_other_sites_are_refused(agent):
    error_of(post(agent, request("ping"), origin="https://evil.example"), 403, -32000)
    error_of(post(agent, request("ping"), host="evil.example"), 403, -32000)


def test_only_the_first_version_has_batches(agent):
    batch = [request("ping", 1), {"jsonrpc": "2.0", "method": "notifications/x"}, 5, request("no_such", 2)]
    for headers in ({}, {"mcp_protocol_version": FIRST}):
        answer = post(agent, batch, **headers)
        assert answer.status_code == 200
        first, second, third = answer.json()
        assert first == {"jsonrpc": "2.0", "id": 1, "result": {}}
        assert (second["id"], second["error"]["code"]) == (None, -32600)
        assert (third["id"], third["error"]["code"]) == (2, -32601)
    assert post(agent, batch[1:2]).status_code == 202
    for version in (SECOND, THIRD, STATELESS):
        assert version in error_of(post(agent, batch, mcp_protocol_version=version), 400, -32600)


def test_a_batch_calls_one_tool(agent):
    ping, square = request("ping", 7), tool("evaluate", op="square", inputs={"x": [3]})
    again, wrong = {**square, "id": 2}, {**tool("evaluate", op="no_such", inputs={}), "id": 3}
    answers = {each["id"]: each for each in post(agent, [square, again, ping]).json()}
    assert answers[7]["result"] == {}
    assert "one tools/call" in answers[2]["error"]["message"]
    assert answers[1]["result"]["structuredContent"]["tensors"]["outputs/y"]["data"] == [9.0]
    answers = {each["id"]: each for each in post(agent, [wrong, ping]).json()}
    assert answers[7]["result"] == {}
    assert answers[3]["result"]["isError"]


def test_an_unknown_version_is_refused(agent):
    answer = post(agent, request("ping"), mcp_protocol_version="1999-01-01")
    assert "1999-01-01" in error_of(answer, 400, -32022)
    assert answer.json()["error"]["data"]["supported"] == [FIRST, SECOND, THIRD, STATELESS]


def stateless(client: httpx.Client, method: str, meta: Any = META) -> httpx.Response:
    return post(client, request(method, _meta=meta), mcp_protocol_version=STATELESS, mcp_method=method)


def test_the_newest_version_has_no_handshake(agent):
    found = result_of(stateless(agent, "server/discover"))
    assert found["supportedVersions"] == [FIRST, SECOND, THIRD, STATELESS]
    assert found["resultType"] == "complete"
    assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "pullback"
    listed = result_of(stateless(agent, "tools/list"))
    assert (listed["resultType"], listed["cacheScope"]) == ("complete", "public")
    arguments = {"op": "square", "inputs": {"x": [3]}}
    error_of(stateless(agent, "initialize"), 404, -32601, 1)
    assert "clientCapabilities" in error_of(
        stateless(agent, "ping", meta={k: v for k, v in META.items() if "Version" in k}), 400, -32602, 1
    )
    message = request("tools/call", name="evaluate", arguments=arguments, _meta=META)
    headers = {"mcp_protocol_version": STATELESS, "mcp_method": "tools/call"}
    result = result_of(post(agent, message, **headers, mcp_name="evaluate"))
    assert (result["resultType"], result["isError"]) == ("complete", False)
    assert "mcp-name" in error_of(post(agent, message, **headers, mcp_name="list"), 400, -32020, 1)
    assert "mcp-name" in error_of(post(agent, message, **headers), 400, -32020, 1)
    assert "mcp-method" in error_of(post(agent, message, **{**headers, "mcp_method": "ping"}), 400, -32020, 1)


def test_the_tools_have_schemas(agent):
    tools = {each["name"]: each for each in result_of(post(agent, request("tools/list")))["tools"]}
    assert list(tools) == ["list", "show", "evaluate", "derivative", "check"]
    for each in tools.values():
        assert each["inputSchema"]["type"] == each["outputSchema"]["type"] == "object"
        assert each["inputSchema"]["additionalProperties"] is False
        assert each["annotations"]["readOnlyHint"] is True
        assert each["description"].endswith(".")


def test_the_list_is_filtered_and_has_pages(agent):
    assert "square" in [op["name"] for op in call(agent, "list", contains="SQUARE")["ops"]]
    everything, offset = list[str](), 0
    while offset is not None:
        page = call(agent, "list", offset=offset)
        everything += [op["name"] for op in page["ops"]]
        offset = page["next"]
    assert everything == [op["name"] for op in agent.get("/v1/ops").json()["ops"]]
    assert page["found"] == len(everything)
    assert call(agent, "list", contains="no such words", offset=5) == {"ops": [], "found": 0, "next": None}


def test_what_show_gives_works(agent):
    names = [op["name"] for op in agent.get("/v1/ops").json()["ops"] if op["available"]]
    examples = 0
    for name in names[:: 1 if len(names) < 20 else 5]:
        contract = call(agent, "show", op=name)
        native = agent.get(contract["whole"]).json()
        assert contract["gradient"] == native["claim"]
        assert [x["name"] for x in contract["inputs"]] == [x["name"] for x in native["inputs"]]
        if contract["example"]:
            examples += 1
            assert call(agent, "evaluate", **contract["example"])["op"] == name
    assert examples > len(names) // 10


X = [0.5, -1.0, 2.0]
KINDS: dict[str, tuple[dict[str, Any], str]] = {
    "vjp": ({"cotangents": {"y": [1, 2, 3]}, "wrt": ["x"], "outputs": True}, "gradients/x"),
    "jvp": ({"tangents": {"x": [1, 2, 3]}}, "tangents/y"),
    "hvp": ({"vectors": {"x": [1, 2, 3]}}, "products/x"),
    "jacobian": ({"of": ["y"]}, "jacobian/y/x"),
    "hessian": ({"diagonal": True}, "diagonal/x"),
    "gradients": ({"order": 2}, "gradients/2/x"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_derivative_is_that_of_the_native_route(agent, kind):
    fields, path = KINDS[kind]
    result = call(agent, "derivative", op="square", kind=kind, inputs={"x": X}, dtype="float64", mode="graph", **fields)
    body = {"inputs": {"x": X}, "dtype": "float64", "mode": "graph", **fields}
    found = agent.post(f"/v1/ops/square/{kind}", json=body).json()
    for part in path.split("/"):
        found = found[int(part) - 1] if part.isdigit() else found[part]
    assert result["tensors"][path] == found
    assert (result["operation"], result["left_off"], "whole" in result) == (kind, 0, False)


def test_a_derivative_is_that_of_the_inputs_it_names(agent):
    point = {"x": [1.0], "z": [2.0]}
    result = call(agent, "derivative", op="squares", kind="vjp", inputs=point, wrt=["z"])
    assert list(result["tensors"]) == ["gradients/z"]
    assert result["tensors"]["gradients/z"]["data"] == [4.0]


def test_a_large_array_is_summarised(agent):
    x = np.linspace(-3, 5, 2001)
    result = call(agent, "evaluate", op="square", inputs={"x": x.tolist()}, dtype="float64")
    found, y = result["tensors"]["outputs/y"], x * x
    assert (found["shape"], found["size"], found["nonfinite"], found["dtype"]) == ([2001], 2001, 0, "float64")
    assert "data" not in found
    np.testing.assert_allclose(found["first"], y[:8])
    numbers = [found[name] for name in ("min", "max", "mean", "norm")]
    np.testing.assert_allclose(numbers, [y.min(), y.max(), y.mean(), np.linalg.norm(y)])
    assert result["whole"]["body"].startswith("arguments.json")


def test_the_whole_is_what_the_command_says(agent, guarded):
    result = call(agent, "derivative", op="square", kind="jacobian", inputs={"x": list(range(12))})
    assert result["tensors"]["jacobian/y/x"]["size"] == 144
    words = shlex.split(result["whole"]["curl"])
    assert words[-1] == f"{guarded.url}/v1/ops/square/jacobian"
    assert "Authorization: Bearer $PULLBACK_KEY" in words
    whole = agent.post(words[-1], content=words[words.index("-d") + 1]).json()["jacobian"]["y"]["x"]
    np.testing.assert_array_equal(array(whole), np.diag(2.0 * np.arange(12)))


def test_numbers_that_are_not_finite_are_counted(agent):
    x = ["NaN", "Infinity", *range(1, 99)]
    found = call(agent, "evaluate", op="square", inputs={"x": x}, dtype="float64")["tensors"]["outputs/y"]
    assert (found["nonfinite"], found["max"], found["first"][:2]) == (2, 98.0**2, ["NaN", "Infinity"])
    found = call(agent, "evaluate", op="square", inputs={"x": ["NaN"] * 100})["tensors"]["outputs/y"]
    assert (found["nonfinite"], found["min"], found["norm"]) == (100, None, None)
    large = call(agent, "evaluate", op="square", inputs={"x": [1e154] * 100}, dtype="float64")["tensors"]["outputs/y"]
    assert large["norm"] == "Infinity"
    assert math.isclose(large["mean"], 1e308)


def test_whole_numbers_that_a_float64_cannot_hold_are_strings(agent):
    x = [2**53 - 1, 2**53, -(2**53) - 1, 2**63 - 1, -(2**63)]
    found = call(agent, "evaluate", op="whole", inputs={"x": x})["tensors"]["outputs/y"]
    assert (found["dtype"], found["shape"]) == ("int64", [5])
    assert found["data"] == [2**53 - 1, *map(str, x[1:])]
    for same in (found, found["data"], [*map(str, x)]):
        assert call(agent, "evaluate", op="whole", inputs={"x": same})["tensors"]["outputs/y"] == found
    found = call(agent, "evaluate", op="whole", inputs={"x": x * 30})["tensors"]["outputs/y"]
    assert found["first"] == [2**53 - 1, *map(str, x[1:]), 2**53 - 1, *map(str, x[1:3])]


def test_an_absent_derivative_has_its_reason(agent):
    point = {"inputs": {"x": [1.0, 2.0], "hint": 0.0}}
    result = call(agent, "derivative", op="largest", kind="vjp", **point)
    native = agent.post("/v1/ops/largest/vjp", json=point).json()
    assert result["tensors"] == {"gradients/x": native["gradients"]["x"]}
    assert result["absent"] == {"gradients/hint": native["absent"]["hint"]}


WRONG: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "no op": ("evaluate", {"inputs": {}}, ("op", "got nothing")),
    "an op of numbers": ("evaluate", {"op": 5, "inputs": {}}, ("op", "got 5")),
    "an unknown op": ("evaluate", {"op": "sqare", "inputs": {}}, ("404", "did you mean square")),
    "an op that is a path": ("show", {"op": "../../etc/passwd"}, ("404", "unknown op")),
    "an unknown argument": ("evaluate", {"op": "square", "input": {}}, ("input", "such as inputs")),
    "no inputs": ("evaluate", {"op": "square"}, ("inputs",)),
    "an unknown input": ("evaluate", {"op": "square", "inputs": {"z": [1]}}, ("inputs.z",)),
    "a string": ("evaluate", {"op": "square", "inputs": {"x": ["a"]}}, ("inputs.x.0", 'the string "a"')),
    "ragged": ("evaluate", {"op": "square", "inputs": {"x": [[1], [1, 2]]}}, ("inputs.x",)),
    "a bad mode": ("evaluate", {"op": "square", "inputs": {"x": [1]}, "mode": "fast"}, ("mode", *MODES)),
    "no kind": ("derivative", {"op": "square", "inputs": {"x": [1]}}, ("kind", "vjp, jvp")),
    "forward is no kind": ("derivative", {"op": "square", "kind": "forward", "inputs": {"x": [1]}}, ("kind",)),
    "a kind of lists": ("derivative", {"op": "square", "kind": ["vjp"], "inputs": {"x": [1]}}, ("kind",)),
    "not of this kind": (
        "derivative",
        {"op": "square", "kind": "vjp", "inputs": {"x": [1]}, "tangents": {"x": [1]}},
        ("tangents",),
    ),
    "a bad order": ("derivative", {"op": "square", "kind": "gradients", "inputs": {"x": [1]}, "order": 9}, ("order",)),
    "an encoding": ("evaluate", {"op": "square", "inputs": {"x": [1]}, "encoding": "base64"}, ("encoding",)),
    "a filter of numbers": ("list", {"contains": 5}, ("contains",)),
    "a negative offset": ("list", {"offset": -1}, ("offset",)),
    "a true offset": ("list", {"offset": True}, ("offset",)),
    "an unknown check": ("check", {"op": "square", "checks": ["no_such"]}, ("checks.0",)),
    "a check of nothing": ("check", {}, ("op",)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_says_how_to_correct_it(agent, name):
    which, arguments, words = WRONG[name]
    text = failure(agent, which, **arguments)
    assert len(text) <= 4000
    for word in words:
        assert word in text


def test_many_errors_are_bounded(agent):
    text = failure(agent, "evaluate", op="square", inputs={f"x{i}": [1] for i in range(60)})
    assert "more errors are not shown" in text


def test_deep_arguments_are_an_error(agent):
    deep = b"[" * 400 + b"]" * 400
    head = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"evaluate","arguments":'
    answer = post(agent, head + b'{"op":"square","inputs":{"x":%b}}}}' % deep)
    assert "nested too deep" in result_of(answer)["content"][0]["text"]


def test_the_deadline_ends_a_call(agent):
    answer = post(agent, tool("evaluate", op="sleepy", inputs={"x": 1.0}), pullback_deadline_ms="300")
    result = result_of(answer)
    assert result["isError"]
    assert "(504)" in result["content"][0]["text"]


def test_a_verdict_may_be_required(agent):
    answer = post(agent, tool("evaluate", op="log1pexp", inputs={"x": [1.0]}), require_verdict="pass")
    assert "(412)" in result_of(answer)["content"][0]["text"]


def test_the_check_gives_a_verdict(agent):
    result = call(agent, "check", op="square", checks=["derivative"], modes=["graph"], dtypes=["float64"], orders=[1])
    assert result["verdict"] == "pass"
    assert (result["findings"], result["left_off"], result["unfinished"]) == ([], 0, 0)
    assert result["counts"]["pass"] > 0
    assert "/v1/ops/square/check" in result["whole"]["curl"]


def test_a_wrong_gradient_has_findings(agent):
    result = call(agent, "check", op="doubtful", modes=["graph"], dtypes=["float64"], orders=[1])
    assert result["verdict"] == "fail"
    assert result["findings"][0]["verdict"] == "fail"
    assert "0.6666" in result["findings"][0]["sentence"]
    assert result["findings"][0]["reproduce"].startswith("pullback call doubtful vjp")


def test_a_key_needs_the_scope_of_the_tool(guarded):
    evaluate, check = tool("evaluate", op="square", inputs={"x": [2]}), tool("check", op="square", budget_s=0.001)
    with guarded.client() as one:
        one.headers.update(HEADERS)
        assert error_of(post(one, evaluate), 401, -32000).startswith("expected a key")
        for name, allowed, denied, scope in (
            ("caller", evaluate, check, "check"),
            ("checker", check, evaluate, "call"),
        ):
            one.headers.update(bearer(name))
            assert "tools" in result_of(post(one, request("tools/list")))
            assert not result_of(post(one, allowed))["isError"]
            refused = result_of(post(one, denied))
            assert refused["isError"]
            assert f"expected a key for {scope}" in refused["content"][0]["text"]


def test_the_rate_of_a_key_counts_calls(guarded):
    with guarded.client() as one:
        one.headers.update(HEADERS | bearer("seldom"))
        statuses = [post(one, request("ping")).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]


def test_calls_are_logged_and_counted_as_those_of_the_op(agent, guarded):
    call(agent, "evaluate", op="squares", inputs={"x": [1.0], "z": [2.0]})
    assert "/mcp" in guarded.log_with("POST /mcp")
    text = agent.get("/metrics").text
    assert [line for line in text.splitlines() if 'op="squares"' in line and 'operation="forward"' in line]


def test_the_index_for_models_names_paths_that_exist(agent):
    answer = agent.get("/llms.txt")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert answer.text == (ROOT / "llms.txt").read_text()
    listed = [line.removeprefix("- ").partition(": ")[0] for line in answer.text.splitlines() if line.startswith("- ")]
    linked = [path for each in listed for path in re.findall(r"\]\((/[^)]*)\)", each)]
    assert len(linked) >= 5
    for path in linked:
        assert agent.get(path).status_code == (405 if path == "/mcp" else 200), path
    documented = agent.get("/openapi.json").json()["paths"]
    op = [part for each in listed if each.startswith("/v1") for part in each.split(", ")]
    assert len(op) >= 10
    for path in op:
        assert path in documented or f"/v1/ops/{{op}}{path}" in documented or f"{path}/vjp" in documented, path
