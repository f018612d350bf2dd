"""The OpenAPI document matches the service: valid, complete, and with exactly its fields."""

import re
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from tests.http.native_client import BINARY, OPERATIONS, post, problem

RIGHT = {
    "forward": {},
    "gradients": {},
    "vjp": {},
    "jvp": {"tangents": {"x": [1, 2]}},
    "jacobian": {},
    "hvp": {"vectors": {"x": [1, 2]}},
    "hessian": {},
}
# A valid value of every field, for the op square at x = [1, 2].
VALUES: dict[str, Any] = {
    "inputs": {"x": [1, 2]},
    "attrs": {},
    "dtype": "float64",
    "mode": "eager",
    "device": "cpu",
    "encoding": "flat",
    "order": 3,
    "cotangents": {"y": [1, 2]},
    "tangents": {"x": [1, 2]},
    "vectors": {"x": [1, 2]},
    "wrt": ["x"],
    "of": ["y"],
    "batched": False,
    "outputs": True,
    "diagonal": True,
}


@pytest.fixture(scope="module")
def document(service) -> dict[str, Any]:
    with service.client() as client:
        return client.get("/openapi.json").json()


def validator(document: dict[str, Any], schema: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": document["components"]})


def schema_of(document: dict[str, Any], operation: str, status: str = "200") -> dict[str, Any]:
    return content(document["paths"][f"/v1/ops/{{op}}/{operation}"]["post"]["responses"][status])


def request_of(document: dict[str, Any], operation: str) -> dict[str, Any]:
    return content(document["paths"][f"/v1/ops/{{op}}/{operation}"]["post"]["requestBody"])


def content(part: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the content that is not binary."""
    [media] = (media for name, media in part["content"].items() if name != BINARY)
    return media["schema"]


def fields_of(document: dict[str, Any], operation: str) -> set[str]:
    name = request_of(document, operation)["$ref"].rpartition("/")[2]
    return set(document["components"]["schemas"][name]["properties"])


def references(tree: Any) -> Any:
    if isinstance(tree, dict):
        if isinstance(tree.get("$ref"), str):
            yield tree["$ref"]
        for value in tree.values():
            yield from references(value)
    if isinstance(tree, list):
        for value in tree:
            yield from references(value)


def test_the_document_is_valid(document: dict[str, Any]):
    assert document["openapi"].startswith("3.1.")
    assert set(document["info"]) >= {"title", "version"}
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    for reference in references(document):
        prefix, _, name = reference.rpartition("/")
        assert prefix == "#/components/schemas"
        assert name in document["components"]["schemas"]
    routes = [(path, method, one) for path, item in document["paths"].items() for method, one in item.items()]
    assert len({one["operationId"] for _, _, one in routes}) == len(routes)
    for path, method, one in routes:
        assert method in ("get", "post")
        assert one["summary"]
        assert one["responses"]
        named = {p["name"] for p in one.get("parameters", ()) if p["in"] == "path" and p["required"]}
        assert named == set(re.findall(r"{(\w+)}", path))


def test_every_route_is_documented(document: dict[str, Any]):
    posts = {f"/v1/ops/{{op}}/{operation}" for operation in OPERATIONS}
    checks = {"/v1/ops/{op}/check", "/v1/ops/{op}/verify", "/v1/checks"}
    gets = {"/v1/ops", "/v1/ops/{op}", "/health/live", "/health/ready", "/metrics"}
    assert set(document["paths"]) == {*posts, *checks, *gets}
    assert all("post" in document["paths"][path] for path in {*posts, *checks})


def test_the_examples_of_the_checks_work(document: dict[str, Any], client: httpx.Client):
    for path in ("/v1/ops/{op}/check", "/v1/ops/{op}/verify", "/v1/checks"):
        [media] = document["paths"][path]["post"]["requestBody"]["content"].values()
        for name, example in media["examples"].items():
            validator(document, media["schema"]).validate(example["value"])
            response = client.post(path.format(op=name), json=example["value"])
            assert response.status_code == 200
            assert response.headers["content-type"] in document["paths"][path]["post"]["responses"]["200"]["content"]


def test_every_documented_get_answers(document: dict[str, Any], client: httpx.Client):
    for path, item in document["paths"].items():
        if "get" not in item:
            continue
        response = client.get(path.format(op="conv_eig"))
        assert response.status_code == 200
        is_text = response.headers["content-type"].startswith("text/plain")
        answer = response.text if is_text else response.json()
        validator(document, content(item["get"]["responses"]["200"])).validate(answer)
    missing = problem(client.get("/v1/ops/nothing"), 404)
    validator(document, content(document["paths"]["/v1/ops/{op}"]["get"]["responses"]["default"])).validate(missing)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_examples_work_as_documented(document: dict[str, Any], client: httpx.Client, operation: str):
    media = document["paths"][f"/v1/ops/{{op}}/{operation}"]["post"]["requestBody"]["content"]["application/json"]
    ops = document["paths"][f"/v1/ops/{{op}}/{operation}"]["post"]["parameters"][0]["schema"]
    ops, pattern = ops["anyOf"][0]["enum"], ops["anyOf"][1]["pattern"]
    assert re.search(pattern, "square.vjp.jvp.vjp.vjp")
    assert not any(re.search(pattern, name) for name in ("square", "square.hvp", "square" + ".vjp" * 5))
    requests, answers = (validator(document, s) for s in (media["schema"], schema_of(document, operation)))
    assert {name.partition("/")[0] for name in media["examples"]} == set(ops)
    assert ops == [op["name"] for op in client.get("/v1/ops").json()["ops"]]
    for name, example in media["examples"].items():
        requests.validate(example["value"])
        response = post(client, name.partition("/")[0], operation, **example["value"])
        assert response.status_code == 200, f"{name}: {response.text}"
        answers.validate(response.json())


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_form_of_response_is_documented(document: dict[str, Any], client: httpx.Client, operation: str):
    answers = validator(document, schema_of(document, operation))
    right = {**RIGHT[operation], "inputs": VALUES["inputs"]}
    for more in ({"encoding": "base64"}, {"encoding": "flat"}, {"inputs": {"x": ["NaN", "Infinity"]}}):
        answers.validate(post(client, "square", operation, **right | more).json())
    if operation not in ("jvp", "hvp"):
        answers.validate(post(client, "square", operation, **right, dtype="int32").json())
    with pytest.raises(ValidationError):
        answers.validate({"something": 1})


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_documented_fields_are_the_accepted_ones(document: dict[str, Any], client: httpx.Client, operation: str):
    fields = fields_of(document, operation)
    assert fields <= set(VALUES), "a new field needs a value here"
    requests = validator(document, request_of(document, operation))
    for name, value in VALUES.items():
        body = {"inputs": VALUES["inputs"], **RIGHT[operation], name: value}
        response = post(client, "square", operation, **body)
        if name in fields:
            assert response.status_code == 200, response.text
            requests.validate(body)
        else:
            assert problem(response, 422)["errors"][0]["loc"] == [name]
            assert not requests.is_valid(body)


def test_every_status_of_an_operation_has_the_problem_schema(document: dict[str, Any], client: httpx.Client):
    responses = document["paths"]["/v1/ops/{op}/vjp"]["post"]["responses"]
    assert set(responses) >= {"200", "400", "404", "406", "408", "413", "415", "422", "500", "503", "504"}
    for status, response in responses.items():
        if status != "200":
            assert list(response["content"]) == ["application/problem+json"]
    found = {
        "400": client.post("/v1/ops/square/vjp", content=b"{", headers={"content-type": "application/json"}),
        "404": post(client, "squar", "vjp"),
        "415": client.post("/v1/ops/square/vjp", content=b"{}"),
        "422": post(client, "square", "vjp", inputs={"x": [1, None]}),
    }
    for status, response in found.items():
        validator(document, content(responses[status])).validate(problem(response, int(status)))


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"inputs": [1]},
        {"inputs": {"x": "3"}},
        {"inputs": {"x": None}},
        {"inputs": {"x": {"dtype": "float31", "shape": [1], "data": [1]}}},
        {"inputs": {"x": {"dtype": "float32", "data": [1]}}},
        {"inputs": {"x": 1}, "mode": "fast"},
        {"inputs": {"x": 1}, "order": 5},
        {"inputs": {"x": 1}, "more": 5},
    ],
)
def test_the_schemas_refuse_what_the_service_refuses(document: dict[str, Any], client: httpx.Client, body: dict):
    assert not validator(document, request_of(document, "gradients")).is_valid(body)
    problem(post(client, "square", "gradients", **body), 422)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_both_formats_are_documented_for_requests_and_responses(document: dict[str, Any], operation: str):
    described = document["paths"][f"/v1/ops/{{op}}/{operation}"]["post"]
    for part in (described["requestBody"], described["responses"]["200"]):
        assert list(part["content"]) == ["application/json", BINARY]


def test_the_docs_page_loads_nothing_from_elsewhere(client: httpx.Client):
    page = client.get("/docs")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert not re.search(r"(https?:)?//[\w.-]+\.\w", page.text), page.text
    loaded = re.findall(r"(?:src|href)=[\"']([^\"']+)", page.text)
    assert loaded
    for url in [*loaded, "/openapi.json"]:
        assert client.get(url).status_code == 200, url
    assert "/openapi.json" in page.text
