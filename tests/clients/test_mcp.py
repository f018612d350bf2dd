"""The MCP SDK for Python: its client negotiates each version, validates results by their schemas, and reads errors."""

import asyncio
import json

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

TOOLS = ["list", "show", "evaluate", "derivative", "check"]


def run(url, *calls, **options):
    """Call tools, each given by its name and its arguments; return their results, and the client."""

    async def session():
        async with Client(f"{url}/mcp", **options) as client:
            # The client keeps the schemas of results, and validates each result.
            assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS
            return [await client.call_tool(name, arguments) for name, arguments in calls], client.protocol_version

    return asyncio.run(session())


def refused(text):
    """Expect the error of the client, which its tasks may wrap."""
    return pytest.RaisesGroup(pytest.RaisesExc(MCPError, match=text), flatten_subgroups=True, allow_unwrapped=True)


@pytest.mark.parametrize(("mode", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
def test_the_client_uses_every_tool(url, native, mode, version):
    point = {"op": "square", "inputs": {"x": [1.0, 2.0, 3.0]}}
    results, negotiated = run(
        url,
        ("list", {"contains": "square"}),
        ("show", {"op": "square"}),
        ("evaluate", point),
        ("derivative", {**point, "kind": "vjp"}),
        ("check", {"op": "square", "checks": ["derivative"], "modes": ["graph"], "orders": [1]}),
        mode=mode,
    )
    assert negotiated == version
    assert not any(result.is_error for result in results)
    listed, shown, value, derivative, checked = (result.structured_content for result in results)
    assert "square" in [op["name"] for op in listed["ops"]]
    assert shown["gradient"]["first"] == "derivative"
    assert (
        value["tensors"]["outputs/y"]["data"]
        == native("square", "forward", inputs=point["inputs"])["outputs"]["y"].tolist()
    )
    assert derivative["tensors"]["gradients/x"]["data"] == [2.0, 4.0, 6.0]
    assert checked["verdict"] == "pass"
    assert json.loads(results[2].content[0].text) == value


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_model_reads_what_is_wrong(url, mode):
    [unknown, wrong], _ = run(
        url,
        ("evaluate", {"op": "sqare", "inputs": {"x": [1.0]}}),
        ("derivative", {"op": "square", "kind": "jvp", "inputs": {"x": [1.0]}, "tangents": {"z": [1.0]}}),
        mode=mode,
    )
    assert unknown.is_error
    assert "did you mean square" in unknown.content[0].text
    assert wrong.is_error
    assert "tangents.z" in wrong.content[0].text


def test_an_unknown_tool_is_an_error_of_the_protocol(url):
    with refused("one of list, show"):
        run(url, ("no_such", {}))


def test_a_large_result_is_a_summary(url):
    [result], _ = run(url, ("evaluate", {"op": "square", "inputs": {"x": list(range(1000))}}))
    found = result.structured_content["tensors"]["outputs/y"]
    assert (found["size"], found["max"]) == (1000, 999.0**2)
    assert "curl" in result.structured_content["whole"]


def test_a_key_lets_in(guarded_url, key):
    async def session(headers):
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(f"{guarded_url}/mcp", http_client=http)) as client,
        ):
            return (await client.call_tool("show", {"op": "square"})).structured_content["op"]

    assert asyncio.run(session({"authorization": f"Bearer {key}"})) == "square"
    with refused("expected a key"):
        asyncio.run(session({}))
