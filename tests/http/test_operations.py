"""Every operation of every op over HTTP: the form of all responses, and exact values where they are known."""

import base64
import math
import re
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.http.native_client import JSON, OPERATIONS, array, ask, data, fault, post

OPS = sorted(path.stem for path in (Path(__file__).parents[2] / "ops").glob("[!_]*.py"))
# XLA compiles for seconds: test a few ops, and only the operations with no and with two nested pullbacks.
XLA_OPS, XLA_OPERATIONS = ("log1pexp2", "sign", "softmax_cross_entropy"), ("forward", "vjp", "hvp")
# Sessions are the most expensive traces: test the operations with no, one and two nested pullbacks. (A test below
# covers the Hessian in a session.)
SESSION_OPERATIONS = ("forward", "gradients", "jvp", "hvp")
KEYS = {
    "forward": {"outputs"},
    "gradients": {"outputs", "gradients"},
    "vjp": {"gradients"},
    "jvp": {"tangents"},
    "jacobian": {"jacobian"},
    "hvp": {"products"},
    "hessian": {"hessian"},
}
REASONS = {"not_differentiable", "disconnected"}
INTEGERS = ["int32", "int64", "int8", "int16", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float32", "float64", "float16", "bfloat16"]


def body_of(operation: str, contract: dict[str, Any], example: dict[str, Any]) -> dict[str, Any]:
    """Return a request at an example; directions are the inputs themselves."""
    live = {slot["name"]: example["inputs"][slot["name"]] for slot in contract["inputs"] if slot["differentiable"]}
    more = {"jvp": {"tangents": live}, "hvp": {"vectors": live}, "gradients": {"order": 2}}.get(operation, {})
    return {"inputs": example["inputs"], "attrs": example["attrs"], **more}


def shapes_of(tree: Any) -> Any:
    """Return the response with every tensor replaced by its shape, after checking each tensor against it."""
    if isinstance(tree, dict) and "dtype" in tree:
        return array(tree).shape
    if isinstance(tree, dict):
        return {name: shapes_of(value) for name, value in tree.items()}
    return [shapes_of(value) for value in tree] if isinstance(tree, list) else tree


def expected_shapes(operation: str, contract: dict[str, Any], inputs: dict, outputs: dict) -> Any:
    """Return the expected ``shapes_of`` the response, ``None`` where there is no derivative."""
    xs = {slot["name"]: inputs[slot["name"]] if slot["differentiable"] else None for slot in contract["inputs"]}
    ys = {slot["name"]: outputs[slot["name"]] if slot["differentiable"] else None for slot in contract["outputs"]}

    def block(row: Any, column: Any) -> Any:
        return None if row is None or column is None else (*row, *column)

    return {
        "forward": {"outputs": outputs},
        "gradients": {"outputs": outputs, "gradients": [xs, xs]},
        "vjp": {"gradients": xs},
        "jvp": {"tangents": ys},
        "jacobian": {"jacobian": {y: {x: block(ys[y], xs[x]) for x in xs} for y in ys}},
        "hvp": {"products": xs},
        "hessian": {"hessian": {a: {b: block(xs[a], xs[b]) for b in xs} for a in xs}},
    }[operation]


def nulls(tree: Any) -> Any:
    """Return the branches of a tree of shapes that end in null; in a list, all items or none are null."""
    if isinstance(tree, dict):
        found = {name: nulls(value) for name, value in tree.items()}
        return {name: value for name, value in found.items() if value}
    if isinstance(tree, list):
        found = [nulls(value) for value in tree]
        return found if any(found) else []
    return tree is None


def is_reason(tree: Any) -> Any:
    """Return the tree with every reason replaced by ``True``."""
    if isinstance(tree, dict):
        return {name: is_reason(value) for name, value in tree.items()}
    return [is_reason(value) for value in tree] if isinstance(tree, list) else tree in REASONS


def check(operation: str, contract: dict, inputs: dict, outputs: dict, answer: dict) -> None:
    """Check the keys and shapes of a response, and the reasons for its nulls."""
    assert set(answer) - {"absent"} == KEYS[operation]
    absent = answer.pop("absent", None)
    assert absent is None or absent, "an empty absent is left out"
    found, wanted = shapes_of(answer), expected_shapes(operation, contract, inputs, outputs)
    [main] = KEYS[operation] - {"outputs"} or {"outputs"}
    assert is_reason(absent or {}) == (nulls(found[main]) or {})
    for where, shape in leaves(found):
        # If an order is constant, TensorFlow may find no path to it: null and zeros are both correct.
        assert shape == at(wanted, where) or (shape is None and at(absent, where[1:]) == "disconnected"), where


def leaves(tree: Any, where: tuple = ()) -> Any:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for name, value in items:
        yield from leaves(value, (*where, name))
    if not isinstance(tree, (dict, list)):
        yield where, tree


def at(tree: Any, where: tuple) -> Any:
    for name in where:
        tree = tree[name]
    return tree


def run_op(client: httpx.Client, op: str, operations: tuple[str, ...], examples: int | None, **run: Any) -> None:
    contract = client.get(f"/v1/ops/{op}").json()
    for example in contract["examples"][:examples]:
        values = ask(client, op, "forward", inputs=example["inputs"], attrs=example["attrs"])
        outputs = shapes_of(values["outputs"])
        inputs = {name: np.shape(value) for name, value in example["inputs"].items()}
        for operation in operations:
            response = post(client, op, operation, **body_of(operation, contract, example), **run)
            if operation == "jvp" and response.status_code == 422:
                assert op == "clip_gradient"
                assert "not linear" in fault(response)["message"]
                continue
            assert response.status_code == 200, f"{op}/{operation} at {example}: {response.text}"
            check(operation, contract, inputs, outputs, response.json())


@pytest.mark.share(2)
@pytest.mark.slow
@pytest.mark.parametrize("op", OPS)
def test_every_operation_works_at_every_example(client: httpx.Client, op: str):
    run_op(client, op, OPERATIONS, None)


@pytest.mark.slow
@pytest.mark.parametrize("op", XLA_OPS)
def test_operations_work_in_a_session(client: httpx.Client, op: str):
    run_op(client, op, SESSION_OPERATIONS, 1, mode="v1")


@pytest.mark.parametrize("op", XLA_OPS)
def test_operations_work_in_xla(client: httpx.Client, op: str):
    run_op(client, op, XLA_OPERATIONS, None, mode="xla")


def test_the_ready_lines_example(client: httpx.Client):
    """The request is the curl command that ``make serve`` prints."""
    body = '{"inputs":{"x":[1,100]},"order":2}'
    response = client.post("/v1/ops/log1pexp2/gradients", content=body, headers=JSON)
    assert response.status_code == 200
    for word in ("0.7310586", "-1.7182817", "1.0", '"-Infinity"'):
        assert word in response.text
    assert data(response.json()["gradients"]) == [{"x": [0.7310586, 1.0]}, {"x": [-1.7182817, "-Infinity"]}]


@pytest.mark.parametrize("mode", ["graph", "eager", "xla", "v1"])
def test_the_ready_lines_example_in_every_mode(client: httpx.Client, mode: str):
    answer = ask(client, "log1pexp2", "gradients", inputs={"x": [1, 100]}, order=2, mode=mode)
    first, second = (array(level["x"]) for level in answer["gradients"])
    ulps = 2 * np.finfo(np.float32).eps
    np.testing.assert_allclose(first, np.float32([0.7310586, 1.0]), rtol=ulps)
    np.testing.assert_allclose(second, np.float32([-1.7182817, -np.inf]), rtol=ulps)


# fmt: off
EXACT = [
    ("square", "forward", {"inputs": {"x": [[1, 2, 3], [4, 5, 6]]}}, {"outputs": {"y": [[1, 4, 9], [16, 25, 36]]}}),
    ("square", "gradients", {"inputs": {"x": [[1, 2, 3], [4, 5, 6]]}, "order": 2},
     {"outputs": {"y": [[1, 4, 9], [16, 25, 36]]},
     "gradients": [{"x": [[2, 4, 6], [8, 10, 12]]}, {"x": [[2, 2, 2], [2, 2, 2]]}]}),
    ("square", "vjp", {"inputs": {"x": [1, 2]}, "cotangents": {"y": [10, -0.5]}}, {"gradients": {"x": [20, -2]}}),
    ("square", "vjp", {"inputs": {"x": [1, 2]}, "outputs": True},
     {"outputs": {"y": [1, 4]}, "gradients": {"x": [2, 4]}}),
    ("square", "vjp", {"inputs": {"x": [1, 2]}, "wrt": ["x"], "outputs": False}, {"gradients": {"x": [2, 4]}}),
    ("square", "jvp", {"inputs": {"x": [1, 2]}, "tangents": {"x": [1, 3]}}, {"tangents": {"y": [2, 12]}}),
    ("square", "jacobian", {"inputs": {"x": [1, 2]}}, {"jacobian": {"y": {"x": [[2, 0], [0, 4]]}}}),
    ("square", "hvp", {"inputs": {"x": [1, 2]}, "vectors": {"x": [1, 3]}, "cotangents": {"y": [1, 5]}},
     {"products": {"x": [2, 30]}}),
    ("square", "hessian", {"inputs": {"x": [1, 2]}, "cotangents": {"y": [1, 5]}},
     {"hessian": {"x": {"x": [[2, 0], [0, 10]]}}}),
    ("square", "hessian", {"inputs": {"x": [1, 2]}, "diagonal": True}, {"diagonal": {"x": [2, 2]}}),
    # Scalars have the shape [].
    ("square", "forward", {"inputs": {"x": 3}}, {"outputs": {"y": 9}}),
    ("square", "gradients", {"inputs": {"x": 3}, "order": 2},
     {"outputs": {"y": 9}, "gradients": [{"x": 6}, {"x": 2}]}),
    ("square", "jacobian", {"inputs": {"x": 3}}, {"jacobian": {"y": {"x": 6}}}),
    ("square", "hessian", {"inputs": {"x": 3}}, {"hessian": {"x": {"x": 2}}}),
    # Many directions in one call.
    ("square", "vjp", {"inputs": {"x": [1, 2]}, "cotangents": {"y": [[1, 0], [0, 1], [1, 1]]}, "batched": True},
     {"gradients": {"x": [[2, 0], [0, 4], [2, 4]]}}),
    ("square", "jvp", {"inputs": {"x": [1, 2]}, "tangents": {"x": [[1, 0], [0, 1], [1, 1]]}, "batched": True},
     {"tangents": {"y": [[2, 0], [0, 4], [2, 4]]}}),
    ("square", "hvp",
     {"inputs": {"x": [1, 2]}, "vectors": {"x": [[1, 0], [0, 3]]}, "cotangents": {"y": [1, 5]}, "batched": True},
     {"products": {"x": [[2, 0], [0, 30]]}}),
    ("square", "vjp", {"inputs": {"x": 3}, "cotangents": {"y": [1, 2]}, "batched": True},
     {"gradients": {"x": [6, 12]}}),
    ("square", "vjp", {"inputs": {"x": [1, 2]}, "cotangents": {"y": [[1, 1]]}, "batched": True, "outputs": True},
     {"outputs": {"y": [1, 4]}, "gradients": {"x": [[2, 4]]}}),
    # Empty tensors.
    ("square", "forward", {"inputs": {"x": []}}, {"outputs": {"y": []}}),
    ("square", "vjp", {"inputs": {"x": [[], []]}}, {"gradients": {"x": [[], []]}}),
    ("square", "jacobian", {"inputs": {"x": []}}, {"jacobian": {"y": {"x": []}}}),
    # Several inputs, one of which has no derivative.
    ("softmax_cross_entropy", "gradients",
     {"inputs": {"logits": [[0, 0]], "labels": [0]}, "cotangents": {"loss": [2]}},
     {"outputs": {"loss": [0.6931472]}, "gradients": [{"logits": [[-1, 1]], "labels": None}],
     "absent": [{"labels": "not_differentiable"}]}),
    ("softmax_cross_entropy", "vjp", {"inputs": {"logits": [[0, 0]], "labels": [0]}},
     {"gradients": {"logits": [[-0.5, 0.5]], "labels": None}, "absent": {"labels": "not_differentiable"}}),
    ("softmax_cross_entropy", "vjp", {"inputs": {"logits": [[0, 0]], "labels": [0]}, "wrt": ["logits"]},
     {"gradients": {"logits": [[-0.5, 0.5]]}}),
    ("softmax_cross_entropy", "hessian", {"inputs": {"logits": [[0, 0]], "labels": [1]}},
     {"hessian": {"logits": {"logits": [[[[0.25, -0.25]], [[-0.25, 0.25]]]], "labels": None},
     "labels": {"logits": None, "labels": None}},
     "absent": {"logits": {"labels": "not_differentiable"},
     "labels": {"logits": "not_differentiable", "labels": "not_differentiable"}}}),
    ("softmax_cross_entropy", "jacobian", {"inputs": {"logits": [[0, 0]], "labels": [1]}},
     {"jacobian": {"loss": {"logits": [[[0.5, -0.5]]], "labels": None}},
     "absent": {"loss": {"labels": "not_differentiable"}}}),
    ("softmax_cross_entropy", "jvp",
     {"inputs": {"logits": [[0, 0]], "labels": [0]}, "tangents": {"logits": [[1, 3]]}}, {"tangents": {"loss": [1]}}),
    # Several outputs: a cotangent for one of them implies zeros for the rest.
    ("self_adjoint_eig", "forward", {"inputs": {"a": [[2, 0], [0, 3]]}},
     {"outputs": {"w": [2, 3], "v": [[1, 0], [0, 1]]}}),
    ("self_adjoint_eig", "vjp", {"inputs": {"a": [[2, 0], [0, 3]]}, "cotangents": {"w": [10, 1]}},
     {"gradients": {"a": [[10, 0], [0, 1]]}}),
    ("self_adjoint_eig", "jacobian", {"inputs": {"a": [[2, 0], [0, 3]]}, "of": ["w"]},
     {"jacobian": {"w": {"a": [[[1, 0], [0, 0]], [[0, 0], [0, 1]]]}}}),
    ("self_adjoint_eig", "jvp", {"inputs": {"a": [[2, 0], [0, 3]]}, "tangents": {"a": [[1, 2], [2, 5]]}},
     {"tangents": {"w": [1, 5], "v": [[0, 2], [-2, 0]]}}),
    # Attributes: numbers and static ones.
    ("gradient_reversal", "vjp", {"inputs": {"x": [1, 2]}, "attrs": {"strength": 0.5}},
     {"gradients": {"x": [-0.5, -0.5]}}),
    ("gradient_reversal", "vjp", {"inputs": {"x": [1, 2]}, "attrs": {"strength": 3, "mechanism": "override_map"}},
     {"gradients": {"x": [-3, -3]}}),
    ("clip_gradient", "vjp",
     {"inputs": {"x": [1, 2]}, "cotangents": {"y": [3, -4]}, "attrs": {"by": "norm", "limit": 2.5}},
     {"gradients": {"x": [1.5, -2]}}),
    ("clip_gradient", "vjp", {"inputs": {"x": [1, 2]}, "cotangents": {"y": [3, -4]}, "attrs": {"by": "none"}},
     {"gradients": {"x": [3, -4]}}),
    ("surrogate", "gradients", {"inputs": {"x": [2.5]}, "attrs": {"forward": "step", "backward": "square"}},
     {"outputs": {"y": [1]}, "gradients": [{"x": [5]}]}),
    ("safe_norm", "vjp", {"inputs": {"x": [[0, 0], [3, 4]]}}, {"gradients": {"x": [[0, 0], [0.6, 0.8]]}}),
]
# fmt: on


@pytest.mark.parametrize(("op", "operation", "body", "answer"), EXACT)
def test_responses_are_exact(client: httpx.Client, op: str, operation: str, body: dict, answer: dict):
    # Vectorised functions, such as exp, round in the last bit.
    assert_near(data(ask(client, op, operation, **body)), answer)


def assert_near(found: Any, expected: Any) -> None:
    """Assert that two responses are equal, and numbers that are no integers up to two float32 roundings."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert_near(found[key], value)
    elif isinstance(expected, list) and expected and not isinstance(expected[0], dict | str):
        np.testing.assert_allclose(found, expected, rtol=2.5e-7)
    elif isinstance(expected, list):
        for one, other in zip(found, expected, strict=True):
            assert_near(one, other)
    else:
        assert found == expected


def test_only_selected_names_are_in_the_response(client: httpx.Client):
    a = [[2, 0], [0, 3]]
    assert set(ask(client, "self_adjoint_eig", "jacobian", inputs={"a": a}, of=["v"])["jacobian"]) == {"v"}
    labelled = {"logits": [[0, 0]], "labels": [0]}
    answer = ask(client, "softmax_cross_entropy", "vjp", inputs=labelled, wrt=["labels"])
    assert answer == {"gradients": {"labels": None}, "absent": {"labels": "not_differentiable"}}
    answer = ask(client, "softmax_cross_entropy", "hessian", inputs=labelled, wrt=["logits"])
    assert set(answer) == {"hessian"}
    assert set(answer["hessian"]["logits"]) == {"logits"}


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_have_values_and_no_gradients(client: httpx.Client, dtype: str):
    answer = ask(client, "square", "gradients", inputs={"x": [2, 3]}, dtype=dtype, order=2)
    assert answer["outputs"]["y"] == {"dtype": dtype, "shape": [2], "data": [4, 9]}
    assert answer["gradients"] == [{"x": None}, {"x": None}]
    assert answer["absent"] == [{"x": "not_differentiable"}, {"x": "not_differentiable"}]
    answer = ask(client, "square", "jacobian", inputs={"x": [2, 3]}, dtype=dtype)
    assert answer == {"jacobian": {"y": {"x": None}}, "absent": {"y": {"x": "not_differentiable"}}}


@pytest.mark.parametrize("dtype", FLOATS)
def test_dtype_binds_only_the_type_variable(client: httpx.Client, dtype: str):
    body = {"inputs": {"logits": [[0.5, 0.25]], "labels": [0]}, "dtype": dtype}
    answer = ask(client, "softmax_cross_entropy", "gradients", **body)
    assert answer["outputs"]["loss"]["dtype"] == answer["gradients"][0]["logits"]["dtype"] == dtype
    exact = math.log1p(math.exp(-0.25))
    rough = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-22, "float64": 2**-51}[dtype]
    assert abs(float(array(answer["outputs"]["loss"])[0]) - exact) < rough


def test_the_dtype_is_never_inferred(client: httpx.Client):
    for x in ([1, 2], [1.5, 2.5], [1e300 * 1e-280]):
        assert ask(client, "square", "forward", inputs={"x": x})["outputs"]["y"]["dtype"] == "float32"


@pytest.mark.parametrize("encoding", ["nested", "flat", "base64"])
def test_encodings_are_equivalent(client: httpx.Client, encoding: str):
    answer = ask(client, "square", "vjp", inputs={"x": [[1.5, 2], [3, 4]]}, encoding=encoding, outputs=True)
    written = {
        "nested": {"data": [[3.0, 4.0], [6.0, 8.0]]},
        "flat": {"data": [3.0, 4.0, 6.0, 8.0]},
        "base64": {"base64": base64.b64encode(np.array([3, 4, 6, 8], "<f4").tobytes()).decode()},
    }[encoding]
    assert answer["gradients"]["x"] == {"dtype": "float32", "shape": [2, 2], **written}
    np.testing.assert_array_equal(array(answer["outputs"]["y"]), np.float32([[2.25, 4], [9, 16]]))


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize("encoding", ["nested", "base64"])
def test_a_response_can_be_sent_as_a_request(client: httpx.Client, dtype: str, encoding: str):
    """Typed tensors have the same form in requests and responses."""
    once = ask(client, "square", "forward", inputs={"x": [[1, 2], [3, 0]]}, dtype=dtype, encoding=encoding)
    twice = ask(client, "square", "forward", inputs={"x": once["outputs"]["y"]}, dtype=dtype)["outputs"]["y"]
    assert twice == {"dtype": dtype, "shape": [2, 2], "data": [[1, 16], [81, 0]]}


@pytest.mark.parametrize(
    "x",
    [
        {"dtype": "float32", "shape": [2, 2], "data": [1, 2, 3, "Infinity"]},
        {"dtype": "float32", "shape": [2, 2], "data": [[1, 2], [3, "Infinity"]]},
        [[1, 2.0], [3e0, "Infinity"]],
    ],
)
def test_typed_tensors_are_accepted(client: httpx.Client, x: Any):
    answer = ask(client, "square", "vjp", inputs={"x": x}, outputs=True)
    assert data(answer) == {"outputs": {"y": [[1, 4], [9, "Infinity"]]}, "gradients": {"x": [[2, 4], [6, "Infinity"]]}}


@pytest.mark.parametrize("shape", [[0], [2, 0], [0, 3], [1, 1, 1, 1, 1, 1, 1, 2]])
def test_typed_tensors_keep_their_shape(client: httpx.Client, shape: list[int]):
    x = {"dtype": "float32", "shape": shape, "data": [0.5] * math.prod(shape)}
    for mode in ("graph", "eager", "v1"):
        assert ask(client, "square", "vjp", inputs={"x": x}, mode=mode)["gradients"]["x"]["shape"] == shape
    blocks = ask(client, "square", "jacobian", inputs={"x": {**x, "shape": shape[-4:]}})
    assert blocks["jacobian"]["y"]["x"]["shape"] == [*shape[-4:], *shape[-4:]]


# x² z² at (1, 3): an order is the gradient of the sum of all gradients of the order before, over wrt.
SUMMED = [
    (["x"], [{"x": 18}, {"x": 18}, {"x": 0}, {"x": 0}]),
    (["z"], [{"z": 6}, {"z": 2}, {"z": 0}, {"z": 0}]),
    (["x", "z"], [{"x": 18, "z": 6}, {"x": 30, "z": 14}, {"x": 28, "z": 20}, {"x": 12, "z": 12}]),
    (None, [{"x": 18, "z": 6}, {"x": 30, "z": 14}, {"x": 28, "z": 20}, {"x": 12, "z": 12}]),
]


@pytest.mark.parametrize("mode", ["graph", "eager", "v1"])
@pytest.mark.parametrize(("wrt", "levels"), SUMMED)
def test_gradients_are_summed_over_wrt(plugged: httpx.Client, wrt: list[str] | None, levels: list, mode: str):
    for order in (1, 2, 3, 4):
        body = {"inputs": {"x": 1, "z": 3}, "order": order, "mode": mode}
        answer = ask(plugged, "squares", "gradients", **body, **({"wrt": wrt} if wrt else {}))
        assert len(answer["gradients"]) == order
        found = [{k: 0 if v is None else v["data"] for k, v in level.items()} for level in answer["gradients"]]
        assert found == levels[:order]


M = np.arange(9.0).reshape(3, 3)
I3 = np.eye(3)
SKEWED = {"x": {"x": M, "z": 3 * I3}, "z": {"x": 5 * I3, "z": 0 * I3}}


@pytest.mark.parametrize("mode", ["graph", "eager", "v1"])
def test_hessian_rows_belong_to_the_gradient(plugged: httpx.Client, mode: str):
    body = {"inputs": {"x": [1, 2, 3], "z": [4, 5, 6]}, "cotangents": {"y": 2}, "mode": mode}
    blocks = ask(plugged, "skewed", "hessian", **body)["hessian"]
    for a, b in (("x", "x"), ("x", "z"), ("z", "x")):
        np.testing.assert_array_equal(array(blocks[a][b]), 2 * SKEWED[a][b])
    assert blocks["z"]["z"] is None or not array(blocks["z"]["z"]).any()


@pytest.mark.parametrize("mode", ["graph", "eager", "v1"])
def test_hvp_is_the_transposed_hessian_times_vectors(plugged: httpx.Client, mode: str):
    v = {"x": [1.0, -2.0, 0.5], "z": [3.0, 0.0, 1.0]}
    body = {"inputs": {"x": [1, 2, 3], "z": [4, 5, 6]}, "cotangents": {"y": 2}, "mode": mode}
    products = ask(plugged, "skewed", "hvp", vectors=v, **body)["products"]
    for i in "xz":
        wanted = sum(2 * SKEWED[j][i].T @ np.array(v[j]) for j in "xz")
        np.testing.assert_array_equal(array(products[i]), wanted)
    alone = ask(plugged, "skewed", "hvp", vectors={"x": v["x"]}, wrt=["x"], **body)["products"]
    assert set(alone) == {"x"}
    np.testing.assert_array_equal(array(alone["x"]), 2 * M.T @ np.array(v["x"]))


@pytest.mark.parametrize("mode", ["graph", "eager", "xla", "v1"])
def test_reasons_for_null(plugged: httpx.Client, mode: str):
    body = {"inputs": {"x": [1, 3, 2], "hint": 0.5}, "mode": mode}
    answer = ask(plugged, "largest", "vjp", **body)
    assert answer["gradients"]["hint"] is None
    assert data(answer["gradients"]["x"]) == [0, 2, 0]
    assert answer["absent"] == {"hint": "disconnected"}
    answer = ask(plugged, "largest", "jvp", tangents={"x": [5, 6, 7]}, **body)
    assert data(answer) == {"tangents": {"y": 12, "index": None}, "absent": {"index": "not_differentiable"}}


def test_reasons_for_null_blocks(plugged: httpx.Client):
    answer = ask(plugged, "largest", "jacobian", inputs={"x": [1, 3, 2], "hint": 0.5})
    assert data(answer["jacobian"]) == {"y": {"x": [0, 2, 0], "hint": None}, "index": {"x": None, "hint": None}}
    nothing = "not_differentiable"
    assert answer["absent"] == {"y": {"hint": "disconnected"}, "index": {"x": nothing, "hint": nothing}}


def test_the_catalogue(client: httpx.Client):
    ops = client.get("/v1/ops").json()["ops"]
    assert [op["name"] for op in ops] == OPS
    for op in ops:
        assert set(op) - {"last_check"} == {"name", "summary", "mechanism", "claim", "available", "group"}
        assert set(op["claim"]) == {"first", "second", "linear"}
        assert op["available"] is True
        assert op["summary"]
    claims = {op["name"]: op["claim"] for op in ops}
    assert claims["square"] == {"first": "derivative", "second": "derivative", "linear": True}
    assert claims["log1pexp2"]["second"] != "derivative"
    assert claims["sign"]["first"] == "surrogate"
    assert claims["clip_gradient"]["linear"] is False


def test_a_contract_shows_which_rows_share_calls(client: httpx.Client):
    for size, rows, is_joined in ((7, 64, True), (100, 16, True), (5000, 1, False)):
        answer = client.post(
            "/v1/ops/safe_norm/jvp", json={"inputs": {"x": [0.5] * size}, "tangents": {"x": [1] * size}}
        )
        assert answer.status_code == 200
        calls = client.get("/v1/ops/safe_norm").json()["row_calls"]
        one = next(one for one in calls if one["shapes"] == {"x": [size], "tx": [size]})
        assert one["transforms"] == ["jvp"]
        assert (one["mode"], one["dtype"], one["rows"], one["joined"]) == ("graph", "float32", rows, is_joined)
        assert ("reason" in one) != is_joined
    metrics = client.get("/metrics").text
    for is_joined in ("true", "false"):
        assert re.search(rf'pullback_row_shapes{{[^}}]*joined="{is_joined}",op="safe_norm"[^}}]*}} [1-9]', metrics)


@pytest.mark.parametrize("op", OPS)
def test_a_contract(client: httpx.Client, op: str):
    contract = client.get(f"/v1/ops/{op}").json()
    summary = next(one for one in client.get("/v1/ops").json()["ops"] if one["name"] == op)
    assert summary.pop("group")
    summary.pop("last_check", None)
    more = {"doc", "source", "batching", "dtypes", "modes", "default_mode", "inputs", "outputs", "attrs", "examples"}
    assert set(contract) == set(summary) | more | {"derivations", "batching_varies", "shared", "row_calls"}
    assert {name: contract[name] for name in summary} == summary
    slot = {"name", "dtypes", "shape", "differentiable", "doc"}
    assert all(set(output) == slot for output in contract["outputs"])
    assert all(set(x) == slot | {"domain", "kinks", "poles"} for x in contract["inputs"])
    assert contract["attrs"]["type"] == "object"
    assert contract["attrs"]["additionalProperties"] is False
    assert contract["examples"]
    for example in contract["examples"]:
        assert set(example) == {"name", "inputs", "attrs"}
        assert list(example["inputs"]) == [x["name"] for x in contract["inputs"]]
        assert set(example["attrs"]) <= set(contract["attrs"]["properties"])
    assert set(contract["default_mode"]) == set(OPERATIONS)
    for modes in contract["default_mode"].values():
        assert set(modes) == set(contract["dtypes"])
        assert set(modes.values()) <= {"graph", "eager", "xla", "v1"}


def test_a_contract_has_the_bounds_of_attributes(client: httpx.Client):
    attrs = client.get("/v1/ops/gradient_reversal").json()["attrs"]["properties"]
    assert attrs["strength"]["minimum"] == 0
    assert attrs["strength"]["default"] == 1.0
    assert attrs["mechanism"]["enum"] == ["custom_gradient", "override_map", "stop_gradient"]
    labels = client.get("/v1/ops/softmax_cross_entropy").json()["inputs"][1]
    assert (labels["dtypes"], labels["shape"], labels["differentiable"]) == (["int32"], ["N"], False)
