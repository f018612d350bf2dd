"""What is left of posted graphs that are no longer kept: nothing, whatever they were used for."""

import gc
from typing import Any

import httpx
import pytest

from app.graphs.graph_op import GraphOp
from app.kept.graphs import KEPT
from ops import MODES
from tests.conftest import Serve

GONE = 8
GRAPHS = KEPT + GONE
# The graphs of the last requests may still be in use: by the requests, and by templates that are dropped with the next.
IN_USE = 2


def post(client: httpx.Client, number: int) -> str:
    """Return the name of a new graph."""
    nodes = [{"name": "n", "op": "safe_norm", "inputs": {"x": "x"}}]
    document = {"doc": str(number), "inputs": ["x"], "nodes": nodes, "outputs": {"y": "n"}}
    return client.post("/v1/graphs", json=document).raise_for_status().json()["name"]


def requests(name: str, modes: tuple[str, ...]) -> list[tuple[str, dict[str, Any]]]:
    """Return requests for a graph in each protocol, in these modes where the protocol has any."""
    x, array = [1.0, 2.0], {"buffer": [1.0, 2.0], "encoding": "json"}
    tensor = {"name": "x", "datatype": "FP64", "shape": [2], "data": x}
    native = [
        (f"/v1/ops/{name}/{operation}", {"inputs": {"x": x}, "mode": mode})
        for mode in modes
        for operation in ("forward", "forward", "forward", "gradients", "hessian")
    ]
    return [
        *native,
        (f"/v1/ops/{name}.vjp/forward", {"inputs": {"x": x, "dy": 1.0}, "mode": "eager"}),
        (f"/v1/ops/{name}/verify", {"inputs": {"x": x}, "gradients": {"x": x}, "mode": "eager"}),
        (f"/tesseract/{name}/apply", {"inputs": {"x": {"shape": [2], "dtype": "float64", "data": array}}}),
        ("/ModelInfo", {"name": name}),
        *[("/Evaluate", {"name": name, "input": [x], "config": {"shape": [2]}})] * 3,
        (f"/v2/models/{name}/infer", {"inputs": [tensor]}),
    ]


def alive(names: set[str]) -> int:
    gc.collect()
    return len({each.name for each in gc.get_objects() if isinstance(each, GraphOp) and each.name in names})


@pytest.mark.thorough
def test_nothing_keeps_a_graph_that_is_gone(serve: Serve) -> None:
    names = set[str]()
    with serve().client() as client:
        for number in range(GRAPHS):
            names.add(name := post(client, number))
            if number >= GONE:
                continue
            # Every protocol traces, and verify does; each trace takes as long as ten requests.
            is_traced = number == 0
            for path, body in requests(name, MODES if is_traced else ("eager",)):
                if is_traced or path == "/ModelInfo" or (body.get("mode") == "eager" and "gradients" not in body):
                    client.post(path, json=body).raise_for_status()
            for path in (f"/v1/ops/{name}", f"/tesseract/{name}/openapi.json", f"/v2/models/{name}.hessian"):
                client.get(path).raise_for_status()
        assert alive(names) <= KEPT + IN_USE
