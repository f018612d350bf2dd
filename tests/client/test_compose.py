"""``compose`` in the client: a Python function becomes a graph, and one request for each operation on it."""

import asyncio
import pickle
from typing import Any

import httpx
import numpy as np
import pytest

import pullback
from pullback.compose import traced
from tests.client.fake_servers import problem_response

A, X = np.array([[1.0, 2.0], [0.5, -1.0]]), np.array([0.25, 1.0])


@pytest.fixture(scope="module")
def client(service):
    with pullback.Client(service.url) as one:
        yield one


class FirstGone(httpx.HTTPTransport):
    """A transport whose first vjp is answered as if the graph were gone; ``last`` has the last parts of all paths."""

    def __init__(self) -> None:
        super().__init__()
        self.last: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.last.append(request.url.path.rpartition("/")[2])
        if self.last[-1] == "vjp" and self.last.count("vjp") == 1:
            gone = problem_response(404, "Not found")
            return httpx.Response(gone.status, content=gone.body, headers=gone.headers)
        return super().handle_request(request)


def loss_of(client: Any) -> Any:
    log1pexp, safe_norm, matvec = map(client.op, ("log1pexp", "safe_norm", "matvec"))
    return lambda a, x: log1pexp(safe_norm(matvec(a, x)))


def slope() -> np.ndarray:
    r = np.linalg.norm(A @ X)
    return A.T @ (A @ X) / r / (1 + np.exp(-r))


def test_a_function_of_ops_is_an_op(client) -> None:
    loss = client.compose(loss_of(client), summary="log(1 + exp |a x|)")
    assert loss.name.startswith("graph.")
    assert loss.contract().summary == "log(1 + exp |a x|)"
    assert np.allclose(loss.vjp({"a": A, "x": X}, wrt=["x"]).gradients["x"], slope(), rtol=1e-12)
    copy = pickle.loads(pickle.dumps(loss))
    assert copy.document == loss.document
    assert client.op(f"{loss.name}.vjp").forward({"a": A, "x": X, "dy": 1.0}).outputs["dx"].shape == (2,)


def test_it_is_the_same_for_asyncio(service) -> None:
    async def run() -> np.ndarray:
        async with pullback.AsyncClient(service.url) as client:
            loss = await client.compose(loss_of(client))
            return (await loss.vjp({"a": A, "x": X}, wrt=["x"])).gradients["x"]

    assert np.allclose(asyncio.run(run()), slope(), rtol=1e-12)


def test_operators_constants_attributes_and_outputs(client) -> None:
    eig, scale = client.op("self_adjoint_eig"), client.op("scale_gradient")

    def function(a: Any) -> Any:
        values = eig(a, broadening=0.5)
        w = scale(x=values["w"], scale=pullback.Attribute("strength"))
        return {"w": (2 * w - 1) / 4 + w * w, "v": values["v"] @ a.T, "minus": -a}

    graph = client.compose(function, attrs={"strength": 3.0})
    a = np.array([[2.0, 0.0], [0.0, 1.0]])
    found = graph.forward(a).outputs
    w = np.array([1.0, 2.0])
    assert np.allclose(found["w"], (2 * w - 1) / 4 + w * w)
    assert np.allclose(found["minus"], -a)
    assert graph.contract().attrs["properties"]["strength"]["default"] == 3.0


def test_a_graph_that_is_gone_is_posted_again(client) -> None:
    square = client.op("square")
    loss = client.compose(lambda x: square(x) + square(x))
    loss.name = loss.name[:-4] + "0000"
    # The path of the document has the name, which must be that of the document.
    with pytest.raises(pullback.Unprocessable, match="graph"):
        loss.vjp(X)
    assert loss.document["nodes"][0]["op"] == "square"
    with FirstGone() as transport, pullback.Client(client.url, transport=transport) as other:
        square = other.op("square")
        gone = other.compose(lambda x: square(square(x)))
        assert np.allclose(gone.vjp({"x": X}).gradients["x"], 4 * X**3)
    assert transport.last[-3:] == ["vjp", gone.name, "vjp"]


def test_mistakes_have_a_cure(client) -> None:
    square = client.op("square")
    with pytest.raises(pullback.BadArgument, match="outside of compose, call forward"):
        square(X)
    with pytest.raises(pullback.BadArgument, match="by position and x by name"):
        traced(lambda x: square(x, x=x), "", None)
    with pytest.raises(pullback.BadArgument, match="expected it to return"):
        traced(lambda x: X, "", None)
    with pytest.raises(pullback.BadArgument, match="named arguments"):
        traced(lambda *xs: xs[0], "", None)
    with pytest.raises(pullback.BadArgument, match="cannot be a condition"):
        traced(lambda x: x if x else -x, "", None)
    with pytest.raises(pullback.BadArgument, match=r"value\[\"NAME\"\]"):
        traced(lambda x: next(iter(square(x))), "", None)
    with pytest.raises(pullback.Unprocessable, match="unknown op"):
        client.compose(lambda x: client.op("squar")(-x))
