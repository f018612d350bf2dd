"""Linearizations of the client: products at a point whose forward pass the service keeps, or has forgotten."""

import asyncio
import gc
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import pullback
from pullback.remotes import Derivative, Remote, evaluate
from pullback.remotes.forward_passes import MOST
from tests.client.fake_servers import json_response, problem_response
from tests.conftest import Service
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

PLUGINS = Path(__file__).parents[1] / "http" / "plugins"
X = np.array([0.5, -1.0, 2.0])
CT, V = np.array([1.0, 2.0, -1.0]), np.array([1.0, 0.5, -1.0])
MANY = np.stack([CT, V])
CONNECTIONS = 40


@pytest.fixture(scope="module")
def slow(start_for_session) -> Service:
    """A service with an op whose forward pass is worth keeping."""
    return start_for_session(OPS_PATH=str(PLUGINS)).wait_until_ready()


class Sent:
    """A hook of httpx that records the requests."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def __call__(self, request: httpx.Request) -> None:
        self.paths.append(f"{request.method} {request.url.path.rpartition('/')[2]}")


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
def op(slow, sent) -> Iterator[pullback.Op]:
    """The op of a client that records its requests."""
    with (
        httpx.Client(event_hooks={"request": [sent]}, timeout=PATIENCE_S) as http,
        pullback.Client(slow.url, http_client=http) as client,
    ):
        yield client.op("patient")


def products(at: pullback.Linearization) -> list[Any]:
    return [
        at.vjp({"y": CT}).gradients["x"],
        at.vjp().gradients["x"],
        at.vjp({"y": MANY}, batched=True).gradients["x"],
        at.jvp({"x": V}).tangents["y"],
        at.hvp({"y": CT}, {"x": V}).products["x"],
    ]


def expected(op: pullback.Op, x: Any = X, **common: Any) -> list[Any]:
    given, common = {"x": x}, {"mode": "graph", **common}
    return [
        op.vjp(given, cotangents={"y": CT}, **common).gradients["x"],
        op.vjp(given, **common).gradients["x"],
        op.vjp(given, cotangents={"y": MANY}, batched=True, **common).gradients["x"],
        op.jvp(given, tangents={"x": V}, **common).tangents["y"],
        op.hvp(given, cotangents={"y": CT}, vectors={"x": V}, **common).products["x"],
    ]


def assert_equal(found: list[Any], wanted: list[Any]) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


def is_kept(service: Service, name: str) -> bool:
    return httpx.get(f"{service.url}/v1/linearizations/{name}").status_code == 200


def test_products_are_those_of_the_op_and_the_end_frees(op, slow, sent) -> None:
    with op.linearize({"x": X}, attrs={"c": 0.25}) as at:
        np.testing.assert_array_equal(at.outputs["y"], op.forward({"x": X}, attrs={"c": 0.25})["y"])
        name = at.id
        assert (at.reason, is_kept(slow, name)) == ("", True)
        sent.paths.clear()
        found = products(at)
        assert sent.paths == ["POST vjp"] * 3 + ["POST jvp", "POST hvp"]
    assert not is_kept(slow, name)
    assert sent.paths[-1] == f"DELETE {name}"
    assert_equal(found, expected(op, attrs={"c": 0.25}))


def test_what_the_service_forgot_is_computed_from_the_inputs(op, slow, sent) -> None:
    x = X.copy()
    with op.linearize(x) as at:
        name = at.id
        httpx.delete(f"{slow.url}/v1/linearizations/{name}")
        x += 1  # as an optimiser does
        sent.paths.clear()
        assert_equal(products(at), expected(op))
        # Of the products at the point, the first alone asks in vain.
        assert sent.paths[:4] == ["POST vjp", "POST linearize", "POST vjp", "POST vjp"]
        assert at.id not in (None, name)
        assert 1000 < at.renew(3600) <= 3600
        with pytest.raises(pullback.Unprocessable, match="at most 21600"):
            at.renew(1e6)
        httpx.delete(f"{slow.url}/v1/linearizations/{at.id}")
        assert 1000 < at.renew(3600) <= 3600
        name = at.id
    assert not is_kept(slow, name)


def test_nothing_is_left_of_many_handles(op, slow) -> None:
    def gauges() -> tuple[float, float]:
        text = httpx.get(f"{slow.url}/metrics").text
        found = [
            re.findall(rf"^pullback_linearization{name} (.*)$", text, re.MULTILINE) for name in ("s_kept", "_bytes")
        ]
        return float(found[0][0]), float(found[1][0])

    before = gauges()
    for i in range(30):
        with op.linearize(X[:2] + i) as at:
            at.vjp(CT[:2])
    assert gauges() == before


def test_the_dtype_is_that_of_the_point(op) -> None:
    with op.linearize([0.5, 1.0]) as at:
        direction = np.ones(2, np.float32)
        with pytest.raises(pullback.Unprocessable, match='expected "float64"'):
            at.vjp(direction)
        at.id = None
        with pytest.raises(pullback.Unprocessable, match='expected "float64"'):
            at.vjp(direction)
        assert at.vjp([1, 1]).gradients["x"].dtype == np.float64


def test_cheap_ops_have_the_same_code(api) -> None:
    with api.op("matvec").linearize(np.eye(2), [1.0, 2.0], wrt=["x"]) as at:
        assert at.outputs["y"].tolist() == [1.0, 2.0]
        assert list(at.vjp([1.0, 0.0]).gradients) == ["x"]
        assert at.hvp(None, {"a": np.eye(2)}).products["x"].tolist() == [1.0, 1.0]
    with api.op("square").linearize(3.0) as at:
        for _ in range(3):  # its first call takes longer
            assert at.vjp().gradients["x"] == 6.0
    with api.op("square").linearize([3.0], mode="eager") as at:
        assert (at.id, "mode eager" in at.reason) == (None, True)
        assert at.jvp([2.0]).tangents["y"].tolist() == [12.0]


def test_copies_and_graphs_use_the_forward_pass_too(slow) -> None:
    with pullback.Client(slow.url, timeout=PATIENCE_S) as client:
        patient, square = client.op("patient"), client.op("square")
        loss = client.compose(lambda x: square(patient(x)))
        with loss.linearize(X) as at:
            assert at.id is not None
            assert_equal(
                [pickle.loads(pickle.dumps(at)).vjp().gradients["x"], at.vjp().gradients["x"]],
                [loss.vjp(X, mode="graph").gradients["x"]] * 2,
            )
            # No end of a block would free what a copy keeps.
            copy = pickle.loads(pickle.dumps(at))
            httpx.delete(f"{slow.url}/v1/linearizations/{at.id}")
            np.testing.assert_array_equal(copy.vjp().gradients["x"], at.vjp().gradients["x"])
            assert copy.id is None


def test_it_is_the_same_for_asyncio(slow, op) -> None:
    async def run() -> tuple[list[Any], str]:
        async with pullback.AsyncClient(slow.url, timeout=PATIENCE_S) as client:
            async with client.op("patient").linearize(X) as at:
                name = at.id
                first, *_ = await asyncio.gather(*(at.vjp({"y": CT}) for _ in range(5)))
                forward = (await at.jvp(V)).tangents["y"]
                httpx.delete(f"{slow.url}/v1/linearizations/{name}")
                again = (await at.hvp(CT, V)).products["x"]
            return [first.gradients["x"], forward, again], name

    found, name = asyncio.run(run())
    wanted = expected(op)
    assert_equal(found, [wanted[0], wanted[3], wanted[4]])
    assert not is_kept(slow, name)


ANSWER = {
    "outputs": {"y": {"dtype": "float64", "shape": [], "base64": "AAAAAAAACEA="}},
    "linearization": {"id": "12", "bytes": 1, "expires_s": 600},
}
CHEAP = {**ANSWER, "linearization": None, "reason": "there is no room"}
GRADIENT = {"gradients": {"x": ANSWER["outputs"]["y"]}}


@pytest.mark.parametrize("status", [404, 410])
def test_lost_ones_are_asked_for_once(fake_server, status: int) -> None:
    server = fake_server(
        json_response(ANSWER), problem_response(status, "Gone"), json_response(CHEAP), json_response(GRADIENT)
    )
    with pullback.Client(server.url) as client, client.op("op").linearize({"x": 1.0}, mode="v1") as at:
        assert at.vjp().gradients["x"] == at.vjp().gradients["x"] == 3.0
    first, product, again, *others = server.requests
    assert (first[1], product[1], again[1]) == ("/v1/ops/op/linearize", "/v1/linearizations/12/vjp", first[1])
    body = {"inputs": {"x": 1.0}, "batched": False, "mode": "graph", "encoding": "base64"}
    assert others == [("POST", "/v1/ops/op/vjp", body)] * 2


def test_an_id_breaks_no_request(fake_server) -> None:
    hostile = {**ANSWER, "linearization": {"id": "a HTTP/1.1\r\nX: y"}}
    server = fake_server(json_response(hostile), json_response(GRADIENT))
    with pullback.Client(server.url) as client, client.op("op").linearize({"x": 1.0}) as at:
        at.vjp()
    assert server.requests[1][1] == "/v1/linearizations/a%20HTTP%2F1.1%0D%0AX%3A%20y/vjp"


@pytest.mark.parametrize("response", [problem_response(503, "Overloaded"), problem_response(500, "Internal")])
def test_other_errors_are_raised_and_freeing_raises_none(fake_server, response) -> None:
    server = fake_server(json_response(ANSWER), response)
    with pullback.Client(server.url) as client, client.op("op").linearize({"x": 1.0}) as at:
        with pytest.raises(pullback.ProblemError):
            at.vjp()
        assert at.id == "12"
    server = fake_server(json_response(ANSWER))
    with pullback.Client(server.url) as client, client.op("op").linearize({"x": 1.0}):
        server.stop()
    with pullback.Client(fake_server(json_response(ANSWER)).url) as client, client.op("op").linearize({"x": 1.0}):
        client.close()


def test_it_is_used_in_its_block(api) -> None:
    at = api.op("square").linearize(1.0)
    for use in (lambda: at.outputs, at.vjp, lambda: at.reason):
        with pytest.raises(pullback.BadArgument, match="in its block"):
            use()
    with pytest.raises(pullback.NotFound), api.op("squar").linearize({"x": 1.0}):
        pass


def test_of_several_workers_one_has_the_forward_pass(start) -> None:
    service = start(OPS_PATH=str(PLUGINS), WORKERS="2").wait_until_ready()
    with pullback.Client(service.url, timeout=PATIENCE_S) as client, client.op("patient").linearize(X) as at:
        found = products(at)
        # The connection is that of its worker.
        assert at.id is not None
        for _ in range(CONNECTIONS):
            copy = pickle.loads(pickle.dumps(at))
            assert_equal(products(copy), found)
            if copy.id is None:
                break
        else:
            pytest.fail("expected a connection to the other worker")


class TestFunctions:
    """Functions of frameworks, whose derivatives at a point follow its forward pass."""

    @pytest.fixture
    def p(self, slow, sent) -> Iterator[Derivative]:
        """The op, with a client that records its requests."""
        remote = Remote("patient", slow.url)
        with httpx.Client(event_hooks={"request": [sent]}, timeout=PATIENCE_S) as http:
            remote.client = pullback.Client(slow.url, http_client=http)
            yield Derivative(remote)

    def test_backward_passes_use_the_forward_pass(self, p, op, sent) -> None:
        points = [X + i for i in range(3)]
        for x in points:
            evaluate(p, [x], ahead=True)
        found = [evaluate(p.vjp, [x, CT])[0] for x in reversed(points) for _ in range(2)]
        assert_equal([evaluate(p.vjp, [X, MANY], batched=True)[0], evaluate(p.jvp, [X, V])[0]], expected(op)[2:4])
        assert sent.paths[1:] == ["POST linearize"] * 3 + ["POST vjp"] * 7 + ["POST jvp"] + sent.paths[12:]
        gradient = op.vjp(points[2], cotangents=CT, mode="graph").gradients["x"]
        assert_equal(found[:2], [gradient, gradient])
        # The next step frees those of this one.
        del sent.paths[:]
        evaluate(p, [X + 7], ahead=True)
        methods = [path.split()[0] for path in sent.paths]
        assert methods == ["POST", "DELETE", "DELETE", "DELETE"]

    def test_none_is_left_of_a_function_that_is_gone(self, slow, plain_gauge) -> None:
        gc.collect()
        before = plain_gauge()
        remote = Remote("patient", slow.url)
        p = Derivative(remote)
        for i in range(40):
            evaluate(p, [X[:2] + i], ahead=True)
        assert plain_gauge() - before == MOST
        evaluate(p.vjp, [X[:2] + 39, CT[:2]])
        del p, remote
        gc.collect()
        assert plain_gauge() == before

    @pytest.fixture
    def plain_gauge(self, slow) -> Callable[[], float]:
        """Return the number of forward passes that the service keeps."""

        def read() -> float:
            text = httpx.get(f"{slow.url}/metrics").text
            return float(re.findall(r"^pullback_linearizations_kept (.*)$", text, re.MULTILINE)[0])

        return read

    def test_cheap_ops_are_rarely_asked(self, slow, fake_server) -> None:
        server = fake_server(json_response(httpx.get(f"{slow.url}/v1/ops/patient").json()), json_response(CHEAP))
        p = Derivative(Remote("patient", server.url))
        for i in range(40):
            evaluate(p, [X + i], ahead=True)
        sent = [path.rpartition("/")[2] for method, path, _ in server.requests if method == "POST"]
        asked = [i for i, name in enumerate(sent) if name == "linearize"]
        assert (len(sent), asked) == (40, [0, 2, 5, 10, 19, 36])

    def test_other_modes_are_not_asked(self, slow, transport) -> None:
        one = Remote("patient", slow.url, mode="eager")
        one.client = pullback.Client(slow.url, transport=transport)
        evaluate(Derivative(one), [X], ahead=True)
        assert transport.new() == ["patient/forward"]

    def test_a_forgotten_one_is_computed_from_the_inputs(self, p, op, slow) -> None:
        evaluate(p, [X], ahead=True)
        httpx.delete(f"{slow.url}/v1/linearizations/{p.remote.forward_passes.find([X]).id}")
        assert_equal(evaluate(p.vjp, [X, CT]), expected(op)[:1])
