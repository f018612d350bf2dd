"""The OpenAPI document matches the service: valid, complete, and with exactly its fields."""

import dataclasses
import json
import re
import shlex
import subprocess
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from pydantic import BaseModel

import app.errors
from app.errors import PullbackError
from app.http.first_request import ADDRESS
from app.routes.native import catalogue_models, check_models
from pullback import catalogue, findings, reports
from tests.http.native_client import BINARY, OPERATIONS, post, problem
from tests.patience import PATIENCE_S

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
    "points": False,
    "partial": False,
    "digits": True,
    "sparse": "coo",
    "sparsity": None,
    "parameters": None,
}


@pytest.fixture(scope="module")
def document(service) -> dict[str, Any]:
    with service.client() as client:
        return client.get("/openapi.json").json()


def test_it_begins_with_a_request_that_works(document: dict[str, Any], service) -> None:
    found = re.search(r"^curl .*$", document["info"]["description"], re.MULTILINE)
    assert found
    command = found[0].replace(ADDRESS, service.url)
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    first, second = (order["x"]["data"] for order in json.loads(done.stdout)["gradients"])
    assert [*first, *second] == pytest.approx([0.5, 1.0, 0.25, 0.0])


def validator(document: dict[str, Any], schema: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": document["components"]})


def schema_of(document: dict[str, Any], operation: str, status: str = "200") -> dict[str, Any]:
    response = document["paths"][f"/v1/ops/{{op}}/{operation}"]["post"]["responses"][status]
    return content(resolved(document, response))


def resolved(document: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """Return a response or a parameter, or the component that it refers to."""
    if "$ref" not in part:
        return part
    kind, name = part["$ref"].removeprefix("#/components/").split("/")
    return document["components"][kind][name]


def request_of(document: dict[str, Any], operation: str) -> dict[str, Any]:
    return content(document["paths"][f"/v1/ops/{{op}}/{operation}"]["post"]["requestBody"])


def content(part: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the content that is not binary."""
    [media] = (media for name, media in part["content"].items() if name != BINARY)
    return media["schema"]


def fields_of(document: dict[str, Any], operation: str) -> set[str]:
    name = request_of(document, operation)["$ref"].rpartition("/")[2]
    return set(document["components"]["schemas"][name]["properties"])


def errors() -> set[type[PullbackError]]:
    """Return the errors that a client may see."""
    return {
        error for error in vars(app.errors).values() if isinstance(error, type) and issubclass(error, PullbackError)
    }


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
        prefix, kind, name = reference.rsplit("/", 2)
        assert prefix == "#/components"
        assert name in document["components"][kind]
    routes = [(path, method, one) for path, item in document["paths"].items() for method, one in item.items()]
    assert len({one["operationId"] for _, _, one in routes}) == len(routes)
    for path, method, one in routes:
        assert method in ("get", "post", "put", "patch", "delete")
        assert one["summary"]
        assert one["responses"]
        parameters = [resolved(document, parameter) for parameter in one.get("parameters", ())]
        named = {p["name"] for p in parameters if p["in"] == "path" and p["required"]}
        assert named == set(re.findall(r"{(\w+)}", path))


def test_every_route_is_documented(document: dict[str, Any]):
    posts = {f"/v1/ops/{{op}}/{operation}" for operation in OPERATIONS}
    there = {f"/v1/linearizations/{{id}}/{product}" for product in ("vjp", "jvp", "hvp")}
    posts |= {"/v1/ops/{op}/linearize", "/v1/ops/{op}/sparsity", *there}
    checks = {"/v1/ops/{op}/numeric", "/v1/ops/{op}/check", "/v1/ops/{op}/verify", "/v1/checks"}
    probes = {"/health/live", "/health/ready", "/metrics"}
    gets = {"/v1/ops", "/v1/ops/{op}", "/v1/ops/{op}/source", "/v1/ops/{op}/verdict", "/v1/graphs/{name}", *probes}
    sets = {"/v1/ops/{op}/parameters": {"put"}, "/v1/ops/{op}/parameters/{digest}": {"get"}}
    one = "/v1/linearizations/{id}"
    jobs = {"/v1/jobs": {"get"}, "/v1/jobs/{id}": {"get", "delete"}}
    jobs |= {"/v1/jobs/{id}/result": {"get"}}
    assert {path: set(document["paths"][path]) for path in jobs | sets} == jobs | sets
    assert set(document["paths"]) == {*posts, *checks, *gets, *jobs, *sets, "/v1/graphs", one}
    assert document["paths"][one].keys() == {"get", "patch", "delete"}
    assert all("post" in document["paths"][path] for path in {*posts, *checks, "/v1/graphs"})
    assert document["paths"]["/v1/graphs/{name}"].keys() == {"get", "put"}


@pytest.mark.parametrize("name", ["CheckAnswer", "VerifyAnswer", "NumericAnswer"])
def test_the_example_of_an_answer_is_one(document: dict[str, Any], name: str):
    schema = document["components"]["schemas"][name]
    assert len(schema["examples"]) == 1
    validator(document, schema).validate(schema["examples"][0])


def test_the_op_of_a_path_is_named(document: dict[str, Any], client: httpx.Client):
    for operation in (*OPERATIONS, "numeric", "verify", "check"):
        parameter = document["paths"][f"/v1/ops/{{op}}/{operation}"]["post"]["parameters"][0]
        pattern = parameter["schema"]["pattern"]
        assert bool(re.search(pattern, "square.vjp.jvp.vjp.vjp")) == (operation != "check")
        assert not any(re.search(pattern, name) for name in ("squar", "square.hvp", "square" + ".vjp" * 5))
        assert all(re.search(pattern, op["name"]) for op in client.get("/v1/ops").json()["ops"])


def test_the_examples_work(document: dict[str, Any], client: httpx.Client):
    for path, item in document["paths"].items():
        if "{id}" in path:  # see test_linearizations
            continue
        for example in (
            item.get("post", {})
            .get("requestBody", {})
            .get("content", {})
            .get("application/json", {})
            .get("examples", {})
            .values()
        ):
            response, responses = (
                client.post(path.format(op="square"), json=example["value"]),
                item["post"]["responses"],
            )
            assert response.status_code in (200, 201), response.text
            assert response.headers["content-type"] in responses[str(response.status_code)]["content"]
            validator(document, item["post"]["requestBody"]["content"]["application/json"]["schema"]).validate(
                example["value"]
            )


def test_every_documented_get_answers(document: dict[str, Any], client: httpx.Client):
    posted = document["paths"]["/v1/graphs"]["post"]["requestBody"]["content"]["application/json"]["examples"]
    graph = client.post("/v1/graphs", json=posted["loss"]["value"]).json()["name"]
    for path, item in document["paths"].items():
        if "get" not in item or re.search("{(id|digest)}", path):
            continue
        response = client.get(path.format(op="conv_eig", name=graph))
        if path.endswith("/verdict") and response.status_code == 404:
            continue  # of an op that no test has checked as a whole; tests/http/test_verdict.py has a verdict
        assert response.status_code == 200
        is_text = response.headers["content-type"].startswith("text/plain")
        answer = response.text if is_text else response.json()
        validator(document, content(item["get"]["responses"]["200"])).validate(answer)
    missing = problem(client.get("/v1/ops/nothing"), 404)
    refusal = document["paths"]["/v1/ops/{op}"]["get"]["responses"]["404"]
    validator(document, content(resolved(document, refusal))).validate(missing)


@pytest.mark.parametrize("operation", [*OPERATIONS, "numeric", "verify", "check"])
def test_a_posted_graph_and_what_is_derived_from_it_are_ops_of_the_paths(document: dict[str, Any], operation: str):
    parameters = document["paths"][f"/v1/ops/{{op}}/{operation}"]["post"]["parameters"]
    [pattern] = [each["schema"]["pattern"] for each in parameters if each.get("name") == "op"]
    graph = f"graph.{'0a' * 16}"
    assert re.fullmatch(pattern, graph)
    assert bool(re.fullmatch(pattern, f"{graph}.vjp.jvp")) == (operation != "check")
    assert not re.fullmatch(pattern, f"{graph}0")


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
    described = document["paths"]["/v1/ops/{op}/vjp"]["post"]["responses"]
    responses = {status: resolved(document, response) for status, response in described.items()}
    statuses = {str(error.status) for error in errors()}
    assert all(
        set(one["responses"]) - {"201"} == {"204" if method == "delete" else "200", *statuses}
        for item in document["paths"].values()
        for method, one in item.items()
    )
    for status, response in responses.items():
        if status != "200":
            assert list(response["content"]) == ["application/problem+json"]
    found = {
        "400": client.post("/v1/ops/square/vjp", content=b"{", headers={"content-type": "application/json"}),
        "404": post(client, "squar", "vjp"),
        "405": client.get("/v1/ops/square/vjp"),
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


# Requests to ops with absent derivatives, a cotangent for each, and one with none.
ANSWERS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "forward": [("square", {}), ("square", {"encoding": "base64"})],
    "gradients": [("square", {}), ("square", {"order": 3})],
    "vjp": [("square", {}), ("square", {"outputs": True}), ("square.vjp.vjp", {"inputs": {"x": 1, "dy": 1, "ddx": 1}})],
    "jvp": [("square", RIGHT["jvp"])],
    "jacobian": [("square", {}), ("square", {"sparse": "coo"}), ("square", {"sparse": "csr"})],
    "hvp": [("square", RIGHT["hvp"])],
    "hessian": [("square", {}), ("square", {"diagonal": True})],
    "numeric": [("square", {}), ("square", {"tangents": {"x": [1, 1]}})],
    "verify": [("square", {"gradients": {"x": [2, 4]}})],
    "check": [("square", {"checks": ["contract"], "inputs": {"x": [1, 2]}})],
}


def objects(document: dict[str, Any], schema: dict[str, Any], values: list[Any]) -> Any:
    """Yield the schemas of all objects in values that a schema describes, each with those values."""
    schema = resolved(document, schema)
    for form in schema.get("anyOf", ()):
        fitting = [value for value in values if validator(document, form).is_valid(value)]
        yield from objects(document, form, fitting)
    if "items" in schema:
        yield from objects(document, schema["items"], [item for value in values for item in value])
    if isinstance(more := schema.get("additionalProperties"), dict):
        yield from objects(document, more, [item for value in values for item in value.values()])
    if "properties" in schema and values:
        yield schema, values
        for name, field in schema["properties"].items():
            yield from objects(document, field, [value[name] for value in values if name in value])


@pytest.mark.parametrize("operation", ANSWERS)
def test_a_field_of_an_answer_is_required_where_every_answer_has_it(
    document: dict[str, Any], client: httpx.Client, operation: str
):
    answers = [
        post(client, op, operation, **{"inputs": VALUES["inputs"], **body}).json() for op, body in ANSWERS[operation]
    ]
    for schema, values in objects(document, schema_of(document, operation), answers):
        always = set.intersection(*map(set, values))
        assert set(schema.get("required", ())) == always & set(schema["properties"]), schema.get("title")


@pytest.mark.parametrize("path", ["/v1/ops", "/v1/ops/square", "/health/live", "/health/ready", "/v1/ops/squar"])
def test_a_field_of_a_page_is_required_where_every_answer_has_it(
    document: dict[str, Any], client: httpx.Client, path: str
):
    response = client.get(path)
    described = next(item["get"] for known, item in document["paths"].items() if re.fullmatch(pattern(known), path))
    schema = content(resolved(document, described["responses"][str(response.status_code)]))
    for one, values in objects(document, schema, [response.json()]):
        always = set.intersection(*map(set, values)) & set(one["properties"])
        assert set(one.get("required", ())) == always, one["title"]


def pattern(path: str) -> str:
    return re.sub(r"{\w+}", "[^/]+", path)


def test_no_field_has_a_default(document: dict[str, Any]):
    """Generators of clients take a field with a default for one that is always there."""
    schemas = [schema for schema in subschemas(document) if "properties" in schema]
    assert len(schemas) > 50
    for schema in schemas:
        assert not [name for name, field in schema["properties"].items() if "default" in field]
    request = document["components"]["schemas"]["GradientsRequest"]
    assert request["required"] == ["inputs"]
    assert request["properties"]["encoding"]["description"].endswith('; default: "nested".')


def subschemas(tree: Any) -> Any:
    """Yield every object of a document."""
    if isinstance(tree, dict):
        yield tree
    for value in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from subschemas(value)


def test_an_answer_has_one_schema_in_all_formats(document: dict[str, Any]):
    """The type of an answer in TypeScript is the union over its formats, which would hide the fields."""
    for path, item in document["paths"].items():
        for method, described in item.items():
            if method == "delete":
                continue
            schemas = [media["schema"] for media in described["responses"]["200"]["content"].values()]
            if path != "/v1/checks":
                assert all(schema == schemas[0] for schema in schemas)
                name = schemas[0].get("$ref", "").rpartition("/")[2]
                assert schemas[0] == {"type": "string"} or document["components"]["schemas"][name]["type"] == "object"


def test_the_docs_page_loads_nothing_from_elsewhere(client: httpx.Client):
    page = client.get("/docs")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert not re.search(r"(https?:)?//[\w.-]+\.\w", page.text), page.text
    loaded = re.findall(r"(?:src|href)=[\"']([^\"']+)", page.text)
    assert loaded
    [document] = re.findall(r"url: '([^']+)'", page.text)
    assert document == "/openapi.json"
    for url in [*loaded, document]:
        assert client.get(url).status_code == 200, url


@pytest.mark.parametrize(
    ("documented", "read"),
    [
        *((check_models.CheckEntry, findings.Check), (check_models.WorstElement, findings.Worst)),
        *((check_models.CheckPlace, findings.Place), (check_models.Coverage, findings.Coverage)),
        *((check_models.CheckAnswer, reports.Report), (check_models.Block, reports.Block)),
        *((catalogue_models.OpContract, catalogue.Contract), (catalogue_models.ListedOp, catalogue.ListedOp)),
        *((catalogue_models.InputSlot, catalogue.InputSlot), (catalogue_models.OutputSlot, catalogue.Slot)),
        *((catalogue_models.ParameterSlot, catalogue.ParameterSlot), (catalogue_models.OpExample, catalogue.Example)),
        *((catalogue_models.LastVerdict, catalogue.LastCheck), (catalogue_models.ClaimSummary, catalogue.Claim)),
    ],
)
def test_the_client_reads_what_is_documented(documented: type[BaseModel], read: type):
    """What the service writes of findings is all there is; of the rest, the client may leave something out."""
    fields = {field.name for field in dataclasses.fields(read)} - {"document"}
    assert fields <= documented.model_fields.keys()
    assert read.__module__ != findings.__name__ or fields == documented.model_fields.keys()
