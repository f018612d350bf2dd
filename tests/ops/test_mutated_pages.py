"""Every field of a good page with every kind of wrong value: the op is unavailable, or is served by all documents."""

import random
from collections.abc import Iterator

import httpx
import pytest

from tests.conftest import Serve
from tests.ops.pages import GOOD

pytestmark = pytest.mark.slow

# Expressions of Python. Some are right for some fields.
VALUES = (
    *("None", "True", "0", "-1", "1.5", "float('nan')", "float('inf')", "10**400", "'x'", "''", "'float32'", "'N'"),
    *("b'x'", "()", "[]", "{}", "('float32',)", "('float31',)", "('N',)", "(1,)", "(None,)", "('graph',)", "('bool',)"),
    *("(1.0, 0.0)", "{'x': [1.0]}", "{'x': 1e300}", "{'x': object()}", "{1: 2}", "{'k': 'x'}", "{'x': np.ones(2)}"),
    *("object()", "object", "int", "len", "print", "np", "np.float32(1)", "np.ones(2)", "Op", "Input('x')", "Input"),
    *("(Input('x'),)", "(Output('y'), Output('z'))", "(Example('one', {'x': [1.0]}),)", "Attrs", "Attrs()", "Scale()"),
    *("lambda: 0", "lambda *a, **k: None", "lambda *a, **k: 1 / 0", "lambda *a, **k: exit()", "lambda *a, **k: Claim"),
    *("Claim()", "Claim", "Derivative", "custom_gradient(print, print)", "'\\ud800'", "'a' * 10**6", "Exception"),
    *("type('Odd', (), {'__repr__': lambda self: 1 / 0})()", "type('Odd', (), {'__eq__': lambda *a: 1 / 0})()"),
)
OP_FIELDS = (
    *("name", "summary", "doc", "function", "inputs", "outputs", "mechanism", "source", "examples", "reference"),
    *("attrs", "claim", "modes", "batching", "shared", "cost", "validate", "sample", "singular", "null_gradients"),
    "sparsity",
)
PARTS = {
    "inputs": (
        "Input",
        "OP.inputs[0]",
        ("name", "dtypes", "shape", "differentiable", "doc", "domain", "kinks", "poles"),
    ),
    "outputs": ("Output", "OP.outputs[0]", ("name", "dtypes", "shape", "differentiable", "doc")),
    "examples": ("Example", "OP.examples[0]", ("name", "inputs", "attrs")),
}
CLAIMS = ("Claim({})", "Claim(second={})", "Claim(linear={})", "Claim(Surrogate({}))", "Claim(second=Formula({}))")
COUNT, SEED = 400, 5


def changes() -> Iterator[str]:
    """Yield changes of the op of a good page, as the source of an expression."""
    for value in VALUES:
        yield from (f"replace(OP, {field}={value})" for field in OP_FIELDS)
        for field, (_, part, names) in PARTS.items():
            yield from (f"replace(OP, {field}=(replace({part}, {name}={value}),))" for name in names)
        yield from (f"replace(OP, claim=lambda attrs: {claim.format(value)})" for claim in CLAIMS)
        yield f"replace(OP, attrs=type('Other', (Attrs,), {{'k': {value}, '__annotations__': {{'k': float}}}}))"
        yield f"replace(OP, attrs=type('Other', (Attrs,), {{'k': 1.0, '__annotations__': {{'k': {value}}}}}))"
        yield value


def chosen() -> dict[str, str]:
    every = sorted(set(changes()))
    return {f"mutated_{i}": change for i, change in enumerate(random.Random(SEED).sample(every, COUNT))}


@pytest.fixture(scope="module")
def mutated(serve_for_module: Serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("mutated")
    made = f"from dataclasses import replace\n{GOOD.replace('OP = Op(', 'OP = (Op)(')}"
    for name, change in chosen().items():
        # Assigned in a loop, because a page assigns OP once.
        page = f"{made}\nfor OP in [{change}]:\n    pass\n".replace("NAME", name)
        (folder / f"{name}.py").write_text(page, encoding="utf-8", errors="surrogatepass")
    with serve_for_module(OPS_PATH=str(folder)).client() as client:
        yield client


@pytest.mark.filterwarnings("ignore")
def test_every_document_has_all_ops_that_are_served(mutated: httpx.Client) -> None:
    listed = {op["name"]: op for op in mutated.get("/v1/ops").json()["ops"]}
    served = [name for name, op in listed.items() if op["available"]]
    assert len(listed) >= COUNT
    assert all(op["available"] or "start again" in op["reason"] for op in listed.values())
    assert len(served) > 20
    for path in ("/openapi.json", "/docs", "/Info", "/v2", "/metrics", "/health/ready"):
        assert mutated.get(path).status_code == 200, path
    assert mutated.post("/v2/repository/index", json={}).status_code == 200
    for name in served:
        for path in (f"/v1/ops/{name}", f"/tesseract/{name}/openapi.json"):
            answer = mutated.get(path)
            assert answer.status_code == 200, (path, answer.text, chosen().get(name))


@pytest.mark.filterwarnings("ignore")
def test_every_request_has_an_answer(mutated: httpx.Client) -> None:
    served = [op["name"] for op in mutated.get("/v1/ops").json()["ops"] if op["available"]]
    for name in served:
        contract = mutated.get(f"/v1/ops/{name}").json()
        example = contract["examples"][0]
        body = {"inputs": example["inputs"], "attrs": example["attrs"]}
        answer = mutated.post(f"/v1/ops/{name}/forward", json=body)
        # An op whose function is wrong reports that itself.
        assert answer.status_code == 200 or (answer.status_code in (422, 500) and name in answer.json()["detail"]), (
            name,
            chosen().get(name),
            answer.text,
        )
    assert mutated.post("/v1/ops/square/forward", json={"inputs": {"x": 3}}).json()["outputs"]["y"]["data"] == 9
