"""The application is FastAPI's: its routes, its test client, its state, its dependencies and its middlewares."""

import sys
from types import ModuleType
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends, FastAPI, HTTPException
from fastapi.routing import APIRoute, iter_route_contexts
from fastapi.testclient import TestClient
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import settings as settings_module
from app.errors import PullbackError
from app.http.problems import RenderedError
from app.http.request import Request
from app.http.route import RawRoute, RestRoute, Route, add_routes, always
from app.main import create_app
from app.requests.models import VjpRequest
from app.requests.operations import OPERATIONS
from app.routes.protocol import per_op
from app.settings import Settings
from tests.threaded_service import settings_of

VJP, BODY = "/v1/ops/square/vjp", {"inputs": {"x": [1.0, 2.0]}}
# A path of each API that needs POST, and the field of its errors.
DIALECTS = [
    (VJP, "detail"),
    ("/v1/ops/square/no_such", "detail"),
    ("/Evaluate", "error"),
    ("/tesseract/square/apply", "detail"),
    ("/tesseract/square/no_such", "detail"),
    ("/v2/models/square/infer", "error"),
    ("/v2/no_such", "error"),
    ("/mcp", "error"),
]


@pytest.fixture(scope="module")
def app() -> FastAPI:
    return create_app(settings_of(WARM_UP="0"))


@pytest.fixture(scope="module")
def client(app: FastAPI):
    with TestClient(app, base_url="http://localhost") as client:
        yield client


def test_every_endpoint_is_a_route_of_fastapi(app: FastAPI):
    routes = [context for context in iter_route_contexts(app.routes) if isinstance(context.original_route, APIRoute)]
    paths = {context.path for context in routes}
    assert {
        f"/v1/ops/{{op}}/{operation}"
        for operation in (*OPERATIONS, "linearize", "sparsity", "numeric", "check", "verify")
    } <= paths
    assert {"/v1/checks", "/v1/ops", "/v1/ops/{op}", "/health/live", "/metrics", "/docs", "/openapi.json"} <= paths
    assert {"/Info", "/Evaluate", "/tesseract/{op}/apply", "/v2/models/{model}/infer", "/mcp"} <= paths
    assert all(isinstance(context.original_route, Route) for context in routes)
    [vjp] = (context.original_route for context in routes if context.path == "/v1/ops/{op}/vjp")
    assert isinstance(vjp, APIRoute)
    assert vjp.methods == {"POST"}
    assert vjp.response_model is OPERATIONS["vjp"].answer
    assert vjp.body_field is not None
    assert vjp.body_field.field_info.annotation is VjpRequest
    assert app.url_path_for("/v1/ops/{op}/vjp", op="square") == VJP


def test_the_test_client_of_fastapi_works(client: TestClient):
    assert client.post(VJP, json=BODY).json()["gradients"]["x"]["data"] == [2.0, 4.0]
    assert client.get("/v1/ops/square").json()["name"] == "square"
    assert client.head("/v1/ops/square").content == b""
    # Python's client of the protocol.
    assert client.post("/ModelInfo", json={"name": "square"}).json()["support"]["Gradient"]


def test_the_openapi_document_is_that_of_the_application(app: FastAPI, client: TestClient):
    assert client.get("/openapi.json").json() == app.openapi()


def test_the_application_can_be_extended():
    app = create_app(settings_of())
    routes, seen = APIRouter(), list[str]()

    def name() -> str:
        return "real"

    @routes.get("/mine/{number}")
    async def mine(number: int, name: Annotated[str, Depends(name)]) -> dict[str, Any]:
        return {"number": number, "name": name, "ops": len(app.state.engine.registry.ops)}

    @routes.post("/teapot")
    async def teapot(body: dict[str, int]) -> None:
        raise HTTPException(418, f"a teapot, not {body}", headers={"x-pot": "tea"})

    class Seen:
        def __init__(self, app: ASGIApp) -> None:
            self.app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            async def named(message: Message) -> None:
                if message["type"] == "http.response.start":
                    message["headers"] = [*message["headers"], (b"x-seen", b"yes")]
                await send(message)

            seen.append(scope["type"])
            await self.app(scope, receive, named)

    app.include_router(routes, prefix="/more")
    app.dependency_overrides[name] = lambda: "planted"
    app.add_middleware(Seen)
    with TestClient(app, base_url="http://localhost") as client:
        found = client.get("/more/mine/3").json()
        assert (found["number"], found["name"]) == (3, "planted")
        assert found["ops"] > 10
        refused = client.post("/more/teapot", json={"a": 1})
        assert (refused.status_code, refused.json()) == (418, {"detail": "a teapot, not {'a': 1}"})
        assert refused.headers["x-pot"] == "tea"
        assert client.get("/more/mine/x").json()["errors"][0]["loc"] == ["path", "number"]
        assert client.get("/more/teapot").status_code == 405
        # Bodies of other routes have the limits of ours.
        large = client.post("/more/teapot", content=b" " * (33 << 20), headers={"content-type": "application/json"})
        assert large.status_code == 413
        answer = client.post(VJP, json=BODY)
        assert (answer.status_code, answer.headers["x-seen"]) == (200, "yes")
    assert {"lifespan", "http"} == set(seen)


@pytest.mark.parametrize(("path", "field"), DIALECTS)
def test_a_request_that_a_middleware_refuses_gets_an_error_of_its_api(client: TestClient, path: str, field: str):
    unknown = client.post(path, json={})
    answers = [
        client.post(path, json={}, headers={"host": "evil.example"}),
        client.post(path, json={}, headers={"origin": "https://evil.example"}),
        client.post(path, json={}, headers={"pullback-deadline-ms": "soon"}),
    ]
    assert [answer.status_code for answer in answers[:2]] == [403, 403]
    assert answers[2].status_code in (400, 422)
    for answer in (unknown, *answers):
        assert answer.headers["content-type"] == unknown.headers["content-type"]
        assert field in answer.json()
        assert ("title" in answer.json()) == path.startswith("/v1")


def test_a_refused_request_is_counted_for_its_op(client: TestClient):
    def count(op: str, operation: str) -> float:
        labels = [f'op="{op}"', f'operation="{operation}"', 'status="403"']
        lines = [line for line in client.get("/metrics").text.splitlines() if all(label in line for label in labels)]
        return sum(float(line.split()[-1]) for line in lines if line.startswith("pullback_requests_total{"))

    cases = {
        "/v1/ops/square/vjp": ("square", "vjp"),
        "/v1/ops/square.vjp/vjp": ("square", "vjp"),
        "/v2/models/square.hvp/infer": ("square", "hvp"),
        "/tesseract/square/apply": ("square", "forward"),
        "/v1/ops/nothing/vjp": ("", "other"),
        "/v1/ops/square": ("", "catalogue"),
        "/nothing": ("", "other"),
    }
    for path, labels in cases.items():
        before = count(*labels)
        assert client.post(path, json={}, headers={"host": "evil.example"}).status_code == 403
        assert count(*labels) == before + 1, path


def test_names_from_outside_have_no_counters(app: FastAPI):
    async def nothing(request: Request) -> None:
        pass

    find, counters = per_op(app.state.engine, "vjp", lambda op, counters: nothing), app.state.engine.counters
    assert {find.counters(op=f"nothing{number}.vjp") for number in range(50)} == {counters("", "other")}
    assert find.counters(op="square.vjp.jvp") is counters("square", "vjp")
    assert find.counters(op=f"graph.{'0' * 32}.vjp") is counters("graph", "vjp")


def test_a_protocol_is_a_package_and_one_line(monkeypatch: pytest.MonkeyPatch):
    """A planted protocol has its own paths, its dialect for all of them, and no part of it elsewhere."""

    def dialect(error: PullbackError, instance: str) -> RenderedError:
        return RenderedError(error.status, "text/planted", [instance, error.detail])

    async def shout(request: Request) -> None:
        body = bytes(await request.read()).upper()
        await request.respond(200, [(b"content-length", b"%d" % len(body))], body)

    def routes(engine: Any, plans: Any) -> APIRouter:
        del plans
        router, counters = APIRouter(), engine.counters("", "other")
        router.routes += [
            RawRoute("/shout/{name}", always(shout, counters), methods=["POST"], dialect=dialect),
            RestRoute("/shout/{rest:path}", always(shout, counters), dialect=dialect),
        ]
        return router

    module = ModuleType("planted_protocol")
    setattr(module, "routes", routes)  # noqa: B010 - a module has no such attribute in its type
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(settings_module.PROTOCOLS, "planted", module.__name__)
    with TestClient(create_app(settings_of(PROTOCOLS="planted")), base_url="http://localhost") as client:
        assert client.post("/shout/a", content=b"hello").content == b"HELLO"
        assert client.get("/shout/a").headers["allow"] == "POST"
        refused = client.post("/shout/a", headers={"origin": "https://evil.example"})
        assert (refused.status_code, refused.headers["content-type"]) == (403, "text/planted")
        assert refused.json()[0] == "/shout/a"
        assert client.get("/Info").status_code == 404


@pytest.mark.parametrize("names", ["planted", "umbridge,planted"])
def test_an_unknown_protocol_is_refused(names: str):
    with pytest.raises(ValueError, match="some of umbridge, tesseract, openinference, mcp"):
        Settings(protocols=names)  # pyright: ignore[reportArgumentType] - as the environment has it


def test_a_raw_route_refuses_dependencies(app: FastAPI):
    async def nothing(request: Request) -> None:
        del request

    with pytest.raises(TypeError, match="without dependencies"):
        RawRoute("/", always(nothing, app.state.engine.counters("", "other")), dependencies=[Depends(str)])


def test_an_application_with_dependencies_gets_no_raw_routes():
    """They would never be solved: a check of credentials, say, would be skipped without a word."""
    with pytest.raises(TypeError, match="expected an application without dependencies"):
        add_routes(FastAPI(dependencies=[Depends(dict)]), APIRouter())
