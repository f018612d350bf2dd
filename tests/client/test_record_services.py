"""``pullback record`` before servers of three protocols, all of which a service speaks."""

import asyncio
import base64
import sys
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest

from pullback.recorder.evaluations import recorded_target
from pullback.recorder.recording import Recording, RecordOptions
from pullback.reports import Report, Start
from tests.conftest import Service

X = [[1.5, -2.0], [0.25, 3.0]]
PROGRAM = """
import os, sys, urllib.request
url, path, kind, *bodies = os.environ["PULLBACK_RECORDED_URL"], *sys.argv[1:]
for body in bodies:
    request = urllib.request.Request(url + path, body.encode(), {"content-type": "application/json", "accept": kind})
    assert urllib.request.urlopen(request, timeout=60).status == 200
"""


def recorded(target: str, path: str, *bodies: str, accept: str = "*/*") -> tuple[dict[str, str], list[Report]]:
    """Return the models without a report, and the reports on what an application sent."""
    found = recorded_target(target)
    assert found is not None
    command = [sys.executable, "-c", PROGRAM, path, accept, *bodies]
    recording = Recording(found, RecordOptions(sample=2, calls=260), command, lambda url: None)
    asyncio.run(recording.run())
    assert recording.status == 0
    events = list(recording.events())
    unavailable = next(event.unavailable for event in events if isinstance(event, Start))
    return unavailable, [event for event in events if isinstance(event, Report)]


def assert_checked(report: Report, name: str) -> None:
    assert report.op.endswith(name)
    assert report.verdict == "pass", report.checks
    checks = {check.check for check in report.checks}
    assert {"repeat", "contract", "derivative"} <= checks
    assert report.document["recorded"]["inputs"] == 2
    assert next(check for check in report.checks if check.check == "repeat").points


def json_of(value: Any) -> str:
    return httpx.Request("POST", "http://a", json=value).content.decode()


def test_an_umbridge_server_with_several_models(service: Service) -> None:
    config = {"shape": [2], "dtype": "float64"}
    bodies = [json_of({"name": name, "input": [x], "config": config}) for name in ("square", "log1pexp") for x in X]
    unavailable, reports = recorded(f"umbridge+{service.url}", "/Evaluate", *bodies)
    assert not unavailable
    for report, name in zip(reports, ("/square", "/log1pexp"), strict=True):
        assert report.document["recorded"]["requests"] == 2
        assert report.op.endswith(name)
        assert report.verdict == "pass", report.checks


def test_the_ops_of_a_service(service: Service) -> None:
    bodies = [json_of({"inputs": {"x": x}, "cotangents": {"y": [1.0, 2.0]}, "dtype": "float64"}) for x in X]
    unavailable, reports = recorded(f"pullback+{service.url}/square", "/v1/ops/square/vjp", *bodies)
    assert not unavailable
    (report,) = reports
    assert report.op == f"pullback+{service.url}/square"
    assert report.verdict == "pass", report.checks
    assert {check.check for check in report.checks} == {"contract", "value", "derivative"}
    assert {place.dtype for check in report.checks for place in check.places if place.dtype} == {"float64"}
    assert report.document["recorded"]["inputs"] == 2
    many = json_of({"inputs": {"x": X}, "cotangents": {"y": X}, "points": True})
    unavailable, _ = recorded(f"pullback+{service.url}/square", "/v1/ops/square/vjp", many)
    assert "expected a request with inputs of one point" in next(iter(unavailable.values()))


def lists(x: list[float]) -> dict[str, Any]:
    return {"shape": [2], "dtype": "float64", "data": {"buffer": x, "encoding": "json"}}


def in_base64(x: list[float]) -> dict[str, Any]:
    data = {"buffer": base64.b64encode(np.array(x).tobytes()).decode(), "encoding": "base64"}
    return {"object_type": "array", "shape": [2], "dtype": "float64", "data": data}


@pytest.mark.parametrize("encoded", [lists, in_base64])
def test_a_tesseract(service: Service, encoded: Callable[[list[float]], dict[str, Any]]) -> None:
    bodies = [
        json_of(
            {
                "inputs": {"x": encoded(x)},
                "vjp_inputs": ["x"],
                "vjp_outputs": ["y"],
                "cotangent_vector": {"y": encoded([1.0, 2.0])},
            }
        )
        for x in X
    ]
    target = f"tesseract+{service.url}/tesseract/square"
    unavailable, reports = recorded(target, "/vector_jacobian_product", *bodies, accept="application/json+base64")
    assert not unavailable
    assert_checked(reports[0], "/tesseract/square")


@pytest.mark.parametrize("model", ["square", "square.vjp"])
def test_a_pair_of_models(service: Service, model: str) -> None:
    def tensor(name: str, x: list[float]) -> dict[str, Any]:
        return {"name": name, "shape": [2], "datatype": "FP64", "data": x}

    cotangents = [tensor("dy", [1.0, 1.0])] if model != "square" else []
    bodies = [json_of({"inputs": [tensor("x", x), *cotangents]}) for x in X]
    unavailable, reports = recorded(f"oip+{service.url}/square", f"/v2/models/{model}/infer", *bodies)
    assert not unavailable
    assert_checked(reports[0], "/square")
