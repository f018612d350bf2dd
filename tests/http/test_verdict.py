"""Verdicts that travel: they lapse with what was checked, and requests may require them, in every protocol."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import pullback
from tests.patience import PATIENCE_S, PAUSE_S

pytestmark = pytest.mark.slow

REQUIRED = {"Require-Verdict": "pass"}
X = {"inputs": {"x": [1.0, 2.0]}}
VJP = "/v1/ops/cubed/vjp"
PAGE = """
import runpy
from pathlib import Path

from pullback.ops import Example, Input, Op, Output, Parameter

THIRD = runpy.run_path(str(Path(__file__).with_name("_third.py")))["THIRD"]


def forward(x, c):
    return c * x * x * x


OP = Op(
    name="cubed", summary="c x^3", doc="c x^3", function=forward, inputs=(Input("x", ("float64",), ("N",)),),
    outputs=(Output("y", ("float64",), ("N",)),), parameters=(Parameter("c", THIRD),), modes=("graph",),
    batching="leading_axis", source="a test", examples=(Example("one", {"x": [1.0, 2.0]}),),
)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ops")
    (path / "cubed.py").write_text(PAGE)
    (path / "_third.py").write_text("import numpy as np\n\nTHIRD = np.array(2.0)\n")
    return path


@pytest.fixture(scope="module")
def settings(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Those of services that share their verdicts, after a check of the op by another one."""
    return {"OPS_PATH": str(folder), "DATA": str(tmp_path_factory.mktemp("data"))}


@pytest.fixture(scope="module")
def client(serve_for_module: Any, settings: dict[str, str]) -> Iterator[httpx.Client]:
    # The services of a folder answer the jobs of all.
    with serve_for_module(**settings, JOBS="0").client() as one:
        yield one


@pytest.fixture(scope="module")
def graph(client: httpx.Client) -> str:
    document = {"inputs": ["x"], "nodes": [{"name": "a", "op": "cubed", "inputs": ["x"]}], "outputs": {"y": "a"}}
    return client.post("/v1/graphs", json=document).json()["name"]


def until(is_so: Callable[[], bool]) -> None:
    """Wait for what becomes so by itself."""
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(PAUSE_S)


def status(client: httpx.Client, path: str = VJP, body: Any = X, **headers: str) -> int:
    return client.post(path, json=body, headers={**REQUIRED, **headers}).status_code


def test_an_op_without_a_verdict_is_refused_in_every_protocol_and_still_checked(client: httpx.Client, graph: str):
    assert client.get("/v1/ops/cubed/verdict").status_code == 404
    refused = client.post(VJP, json=X, headers=REQUIRED)
    assert refused.status_code == 412
    assert "no check of the whole op has ended; POST /v1/ops/cubed/check" in refused.json()["detail"]
    wrong = client.post(VJP, json=X, headers={"Require-Verdict": "fail"})
    assert (wrong.status_code, wrong.json()["detail"]) == (400, "Require-Verdict: expected pass, got 'fail'")
    for operation in ("forward", "jacobian", "linearize", "sparsity"):
        assert status(client, f"/v1/ops/cubed/{operation}") == 412
    assert status(client, VJP, {"inputs": {"x": [[1.0], [2.0]]}, "points": True}) == 412
    assert status(client, "/v1/ops/cubed.vjp/forward", {"inputs": {"x": [1.0], "dy": [1.0]}}) == 412
    assert status(client, f"/v1/ops/{graph}/vjp") == 412
    large = {"inputs": {"x": [0.5] * 20_000}}
    assert status(client, VJP, large) == 412
    assert status(client, "/Evaluate", {"name": "cubed", "input": [[1.0, 2.0]], "config": {"shape": [2]}}) == 412
    assert status(client, "/tesseract/cubed/apply", X) == 412
    tensor = {"name": "x", "shape": [2], "datatype": "FP64", "data": [1.0, 2.0]}
    assert status(client, "/v2/models/cubed/infer", {"inputs": [tensor]}) == 412
    assert status(client, "/v1/ops/cubed/numeric") == 200
    assert status(client, "/v1/ops/cubed/verify", {**X, "gradients": {"x": [6.0, 24.0]}}) == 200
    assert client.post(VJP, json=X).status_code == 200


def test_a_verdict_counts_until_what_was_checked_changes(client: httpx.Client, folder: Path, graph: str):
    # A check of a part is no verdict on the whole.
    assert client.post("/v1/ops/cubed/check", json={"checks": ["contract"]}).json()["verdict"] == "pass"
    assert client.get("/v1/ops/cubed/verdict").status_code == 404
    assert client.post("/v1/ops/cubed/check", json={"seed": 3}, headers=REQUIRED).json()["verdict"] == "pass"
    found = client.get("/v1/ops/cubed/verdict").json()
    assert (found["verdict"], found["is_current"], found["changed"], found["seed"]) == ("pass", True, [], 3)
    assert found["origin"].keys() == {"version", "tensorflow", "page", "modules", "parameters"}
    assert client.get("/v1/ops/cubed.vjp/verdict").json()["op"] == "cubed"
    until(lambda: status(client) == 200)
    # Often enough for the fast path to have a template, if it made one.
    assert [status(client) for _ in range(4)] == [200] * 4
    assert status(client, "/v1/ops/cubed.vjp/forward", {"inputs": {"x": [1.0], "dy": [1.0]}}) == 200
    assert status(client, f"/v1/ops/{graph}/vjp") == 412
    assert client.post(f"/v1/ops/{graph}/check", json={}).json()["verdict"] == "pass"
    until(lambda: status(client, f"/v1/ops/{graph}/vjp") == 200)
    for name in ("cubed.py", "_third.py"):
        text = (folder / name).read_text()
        (folder / name).write_text(f"{text}# saved\n")
        until(lambda: status(client) == 412)
        changed = {"cubed.py": "page", "_third.py": "modules"}[name]
        assert client.get("/v1/ops/cubed/verdict").json()["changed"] == [changed]
        assert client.get(f"/v1/ops/{graph}/verdict").json()["changed"] == ["nodes"]
        [listed] = [op for op in client.get("/v1/ops").json()["ops"] if op["name"] == "cubed"]
        assert listed["last_check"]["changed"] == [changed]
        (folder / name).write_text(text)
        until(lambda: status(client) == 200)
    [listed] = [op for op in client.get("/v1/ops").json()["ops"] if op["name"] == "cubed"]
    assert listed["last_check"].keys() == {"verdict", "age_s"}


def test_an_operator_requires_verdicts_which_a_restart_keeps(
    serve: Any, start: Any, settings: dict[str, str], folder: Path
):
    service = serve(**settings, REQUIRE_VERDICT="pass")
    with pullback.Client(service.url) as unaware, service.client() as plain:
        assert unaware.op("cubed").vjp([1.0]).gradients["x"].tolist() == [6.0]
        assert unaware.op("cubed").verdict().verdict == "pass"
        with pytest.raises(pullback.Unverified, match="op square has no current verdict pass"):
            unaware.op("square").forward([1.0])
        assert [plain.post("/v1/ops/square/forward", json=X).status_code for _ in range(4)] == [412] * 4
        job = plain.post("/v1/ops/cubed/vjp", json=X, headers={"Prefer": "respond-async"}).headers["location"]
        assert plain.get(f"{job}?wait=60").json()["state"] == "done"
        job = plain.post("/v1/ops/square/vjp", json=X, headers={"Prefer": "respond-async"}).headers["location"]
        assert plain.get(f"{job}?wait=60").json()["error"].startswith("412: op square has no current verdict")
    # Another value of a parameter is another op.
    (folder / "_third.py").write_text("import numpy as np\n\nTHIRD = np.array(3.0)\n")
    with pullback.Client(start(**settings).wait_until_ready().url, require_verdict=True) as aware:
        with pytest.raises(pullback.Unverified, match="modules, parameters changed after the last check"):
            aware.op("cubed").vjp([1.0])
        assert aware.op("cubed").verdict().changed == ["modules", "parameters"]
        with pytest.raises(pullback.NotFound, match="has no verdict"):
            aware.op("square").verdict()
