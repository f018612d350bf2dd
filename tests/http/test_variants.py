"""Inputs that a request may leave out, and a second type variable.

Every operation without an optional input answers as with a neutral one.
"""

import pickle
from collections.abc import Iterator
from typing import Any, cast

import httpx
import numpy as np
import pytest

import pullback
from pullback.remotes import Function, TensorType, evaluate
from tests.http.native_client import MODES, array, ask, post, problem
from tests.http.openinference_client import ask as infer_raw
from tests.http.openinference_client import expect_error, in_json, infer, infer_json
from tests.http.test_binary import binary, decode, encode
from tests.http.test_tesseract import VJP, result_of, send
from tests.http.test_umbridge import call

X, W = [[0.5, -1.0], [2.0, 0.25]], [[1.0, 0.5, 2.0], [0.25, 1.0, -1.0]]
SENT = {"x": X, "w": W}
NEUTRAL = {**SENT, "b": [0.0, 0.0, 0.0]}
DY = [[1.0, 2.0, -1.0], [0.5, 1.0, 3.0]]
OPERATIONS: dict[str, dict[str, Any]] = {
    "forward": {},
    "gradients": {"order": 2, "cotangents": {"y": DY}},
    "vjp": {"cotangents": {"y": DY}, "outputs": True},
    "jvp": {"tangents": {"x": [[1, 2], [3, 4]]}},
    "jacobian": {},
    "hvp": {"cotangents": {"y": DY}, "vectors": {"x": [[1, 0], [2, 1]], "w": W}},
    "hessian": {"cotangents": {"y": DY}},
}


def arrays(tree: Any, *path: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the tensors of an answer with their paths, but for those that belong to the input b."""
    branches = (
        {str(i): each for i, each in enumerate(cast("list[Any]", tree))} if isinstance(tree, list) else tree or {}
    )
    if "dtype" in branches:
        yield ".".join(path), array(branches)
        return
    for name, value in branches.items():
        if name not in ("b", "absent"):
            yield from arrays(value, *path, name)


def assert_near(found: Any, expected: Any) -> None:
    one, other = dict(arrays(found)), dict(arrays(expected))
    assert one.keys() == other.keys() != set()
    for name, value in other.items():
        np.testing.assert_allclose(one[name], value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_without_an_input(plugged: httpx.Client, operation: str, mode: str) -> None:
    more = {"dtype": "float64", "mode": mode, **OPERATIONS[operation]}
    found = ask(plugged, "affine", operation, inputs=SENT, **more)
    neutral = ask(plugged, "affine", operation, inputs=NEUTRAL, **more)
    assert_near(found, neutral)
    assert ("not_sent" in str(found.get("absent"))) == (operation not in ("forward", "jvp"))
    again = ask(plugged, "affine", operation, inputs=SENT, **more)  # from the fast path
    assert again == found


def test_a_derivative_with_respect_to_what_is_not_sent(plugged: httpx.Client) -> None:
    assert ask(plugged, "affine", "vjp", inputs=SENT, wrt=["b"]) == {
        "gradients": {"b": None},
        "absent": {"b": "not_sent"},
    }
    for operation, field in (("jvp", "tangents"), ("hvp", "vectors")):
        [error] = problem(post(plugged, "affine", operation, inputs=SENT, **{field: {"b": [1, 1, 1]}}), 422)["errors"]
        assert (error["loc"], error["message"]) == ([field, "b"], "input b is not sent")
    [error] = problem(post(plugged, "affine", "forward", inputs={"x": X, "b": [1, 1, 1]}), 422)["errors"]
    assert error["message"] == "missing input w"


def test_null_is_refused_by_the_name_of_the_input(plugged: httpx.Client) -> None:
    expected = "a tensor, or no b: leave out an optional input"
    for op, more in (("affine", {}), ("affine.vjp", {"dy": DY})):
        [error] = problem(post(plugged, op, "forward", inputs={**SENT, **more, "b": None}), 422)["errors"]
        assert (error["loc"], error["expected"], error["got"]) == (["inputs", "b"], expected, "null")
    assert expected in send(plugged, "affine", "apply", {"inputs": {**SENT, "b": None}}).text
    [error] = problem(post(plugged, "affine", "forward", inputs={**SENT, "w": None, "b": [1, 1, 1]}), 422)["errors"]
    assert error["expected"].startswith("a number")


def test_derived_ops_without_an_input(plugged: httpx.Client) -> None:
    dx = ask(plugged, "affine.vjp", "forward", inputs={**SENT, "dy": DY})
    vjp = ask(plugged, "affine", "vjp", inputs=SENT, cotangents={"y": DY})
    assert {f"d{name}": value for name, value in vjp["gradients"].items()} == dx["outputs"]
    assert dx["absent"] == {"db": "not_sent"}
    tangents = {"tx": [[1, 2], [3, 4]], "tw": W}
    ty = ask(plugged, "affine.jvp", "forward", inputs={**SENT, **tangents})["outputs"]
    assert ty == ask(plugged, "affine.jvp", "forward", inputs={**NEUTRAL, **tangents, "tb": [0, 0, 0]})["outputs"]
    second = {**SENT, "dy": DY, "ddx": [[1, 0], [2, 1]], "ddw": W}
    found = ask(plugged, "affine.vjp.vjp", "forward", inputs=second, dtype="float64")["outputs"]
    hvp = ask(plugged, "affine", "hvp", inputs=SENT, dtype="float64", **OPERATIONS["hvp"])["products"]
    assert_near({name: found[f"d{name}"] for name in SENT}, {name: hvp[name] for name in SENT})


def test_reasons_are_those_of_the_derivatives(plugged: httpx.Client) -> None:
    """Also where an output is null as well, which is not the derivative of that name."""
    inputs = {**SENT, "dy": DY}
    for operation, absent in (("vjp", {"b": "not_sent"}), ("gradients", [{"b": "not_sent"}])):
        more = {"outputs": True} if operation == "vjp" else {}
        found = ask(plugged, "affine.vjp", operation, inputs=inputs, **more)
        assert (found["outputs"]["db"], found["absent"]) == (None, absent)
        assert ask(plugged, "affine.vjp", operation, inputs=inputs, wrt=["x"], **more).get("absent") is None
    with pullback.Client(str(plugged.base_url)) as client:
        orders = client.op("affine.vjp").gradients({name: np.asarray(x, np.float32) for name, x in inputs.items()})
    assert orders.absent == [{"b": "not_sent"}]
    assert orders.gradients[0]["b"] is None


def test_without_an_input_in_safetensors(plugged: httpx.Client) -> None:
    for inputs in (SENT, NEUTRAL, SENT):
        body = encode({f"inputs/{name}": np.asarray(x, np.float32) for name, x in inputs.items()})
        found, fields = decode(binary(plugged, "affine/vjp", body).content)
        assert found.keys() == {f"gradients/{name}" for name in inputs}
        assert fields.get("absent", {}) == ({} if inputs is NEUTRAL else {"b": "not_sent"})


def test_the_contract_says_what_is_optional(plugged: httpx.Client) -> None:
    for op in ("affine", "affine.vjp", "affine.jvp"):
        found = plugged.get(f"/v1/ops/{op}").json()
        optional = {slot["name"] for slot in found["inputs"] if slot.get("optional")}
        assert optional == ({"b", "tb"} if op == "affine.jvp" else {"b"})
        for example in found["examples"]:
            assert ask(plugged, op, "forward", inputs=example["inputs"])


def test_open_inference_without_an_input(plugged: httpx.Client) -> None:
    sent = {name: np.array(x) for name, x in SENT.items()}
    direction = {"dy": np.array(DY)}
    vjp = ask(plugged, "affine", "vjp", inputs=SENT, cotangents={"y": DY}, dtype="float64")["gradients"]
    for send_to in (infer, infer_json, infer):
        found = send_to(plugged, "affine.vjp", sent | direction)
        assert list(found) == ["dx", "dw"]
        for name, x in found.items():
            np.testing.assert_array_equal(x, array(vjp[name[1:]]))
        assert list(send_to(plugged, "affine.vjp", sent | direction | {"b": np.zeros(3)})) == ["dx", "db", "dw"]
    inputs = plugged.get("/v2/models/affine").json()["inputs"]
    assert [tensor["name"] for tensor in inputs if tensor.get("optional")] == ["b"]
    wanted = [{"name": "db"}]
    refused = infer_raw(plugged, "affine.vjp", inputs=in_json(sent), outputs=wanted)
    expect_error(refused, 400, "outputs.db", "an input that is not sent")


def test_tesseract_without_an_input(plugged: httpx.Client) -> None:
    asked = {"vjp_inputs": ["x", "w"], "vjp_outputs": ["y"], "cotangent_vector": {"y": DY}}
    found = result_of(plugged, "affine", VJP, {"inputs": SENT, **asked})
    neutral = result_of(plugged, "affine", VJP, {"inputs": NEUTRAL, **asked})
    for name in SENT:
        np.testing.assert_array_equal(found[name], neutral[name])
    assert result_of(plugged, "affine.vjp", "apply", {"inputs": {**SENT, "dy": DY}}).keys() == {"dx", "dw"}
    refused = send(plugged, "affine", VJP, {"inputs": SENT, **asked, "vjp_inputs": ["x", "b"]})
    assert refused.status_code == 422
    assert "an input that is not sent" in refused.text
    schemas = plugged.get("/tesseract/affine/openapi.json").json()["components"]["schemas"]
    assert schemas["Apply_InputSchema"]["required"] == ["x", "w"]
    shapes = {name: {"shape": list(np.shape(x)), "dtype": "float32"} for name, x in SENT.items()}
    shape = plugged.post("/tesseract/affine/abstract_eval", json={"inputs": shapes}).json()["y"]
    assert shape == {"shape": [2, 3], "dtype": "float32"}


def test_um_bridge_sends_all_inputs(plugged: httpx.Client) -> None:
    refused = plugged.post("/Evaluate", json={"name": "affine", "input": [[0.5, -1.0], [1.0] * 6]}).json()
    assert "UM-Bridge has no optional inputs, so b must be sent too" in refused["error"]["message"]
    assert call(plugged, "/InputSizes", name="affine")["inputSizes"] == [2, 3, 6]
    flat = [[0.5, -1.0], [1.0, 2.0, 3.0], [1.0, 0.5, 2.0, 0.25, 1.0, -1.0]]
    found = call(plugged, "/Evaluate", name="affine", input=flat)["output"]
    example = ask(plugged, "affine", "forward", inputs={"x": flat[:1], "b": flat[1], "w": W}, dtype="float64")
    np.testing.assert_allclose(found[0], array(example["outputs"]["y"])[0])


def test_a_graph_without_an_input(plugged: httpx.Client) -> None:
    nodes: list[dict[str, Any]] = [
        {"name": "z", "op": "affine", "inputs": {"x": "x", "w": {"constant": W}}},
        {"name": "p", "op": "picked", "inputs": ["v", {"constant": [1, 0, 1]}]},
    ]
    document = {"inputs": ["x", "v"], "nodes": nodes, "outputs": {"y": "z", "p": "p.y"}}
    name = plugged.post("/v1/graphs", json=document).json()["name"]
    found = ask(plugged, name, "vjp", inputs={"x": X, "v": [1, 2, 3]}, cotangents={"y": DY})["gradients"]
    assert found["x"] == ask(plugged, "affine", "vjp", inputs=SENT, cotangents={"y": DY})["gradients"]["x"]
    outputs = ask(plugged, name, "forward", inputs={"x": X, "v": [1, 2, 3]})["outputs"]
    assert array(outputs["p"]).tolist() == [2, 1, 2]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("dtype", "expected"), [(None, "int64"), ("int64", "int64"), ("int32", "int32")])
def test_the_second_type_variable_is_that_of_the_tensor(
    plugged: httpx.Client, dtype: str | None, expected: str, mode: str
) -> None:
    if mode == "xla" and expected == "int64":
        pytest.skip("XLA has no kernel for it")
    i: Any = [2, 0, 2] if dtype is None else {"dtype": dtype, "shape": [3], "data": [2, 0, 2]}
    for of_x in ("float32", "float64"):
        body = {"inputs": {"x": [1, 2, 3], "i": i}, "dtype": of_x, "mode": mode}
        outputs = ask(plugged, "picked", "forward", **body)["outputs"]
        assert outputs["y"] == {"dtype": of_x, "shape": [3], "data": [3.0, 1.0, 3.0]}
        assert outputs["next"] == {"dtype": expected, "shape": [3], "data": [3, 1, 3]}
        gradients = ask(plugged, "picked", "vjp", **body)["gradients"]
        assert gradients["x"] == {"dtype": of_x, "shape": [3], "data": [1.0, 0.0, 2.0]}


def test_the_second_type_variable_in_other_formats(plugged: httpx.Client) -> None:
    x = np.array([1, 2, 3], np.float64)
    for dtype in (np.int32, np.int64, np.int32):
        i = np.array([2, 0], dtype)
        body = encode({"inputs/x": x, "inputs/i": i}, dtype="float64")
        found, _ = decode(binary(plugged, "picked/forward", body).content)
        assert (found["outputs/y"].dtype, found["outputs/next"].dtype) == (x.dtype, i.dtype)
        for send_to in (infer, infer_json):
            both = send_to(plugged, "picked", {"x": x, "i": i})
            assert (both["y"].dtype, both["next"].dtype) == (x.dtype, i.dtype)
        typed = {"shape": [2], "dtype": i.dtype.name, "data": {"buffer": i.tolist(), "encoding": "json"}}
        assert result_of(plugged, "picked", "apply", {"inputs": {"x": [1, 2, 3], "i": typed}})["next"].dtype == i.dtype


def test_a_dtype_that_no_variable_has(plugged: httpx.Client) -> None:
    i = {"dtype": "int16", "shape": [1], "data": [0]}
    [error] = problem(post(plugged, "picked", "forward", inputs={"x": [1], "i": i}), 422)["errors"]
    assert (error["loc"], error["expected"]) == (["inputs", "i", "dtype"], "one of int64, int32")
    [error] = problem(post(plugged, "picked", "forward", inputs={"x": [1], "i": [0]}, dtype="int32"), 422)["errors"]
    assert error["loc"] == ["dtype"]


def test_the_client_leaves_out_an_input(plugged: httpx.Client) -> None:
    with pullback.Client(str(plugged.base_url)) as client:
        op = client.op("affine")
        assert [slot.name for slot in op.contract().inputs if slot.optional] == ["b"]
        x, w = np.array(X), np.array(W)
        expected = np.sin(x) @ w
        np.testing.assert_allclose(op.forward(x, None, w).outputs["y"], expected)
        np.testing.assert_allclose(op.forward({"x": x, "w": w}).outputs["y"], expected)
        assert op.vjp({"x": x, "w": w}).gradients["b"] is None
        with pytest.raises(pullback.BadArgument, match="expected 3 arrays"):
            op.forward(x, None)


def test_a_function_of_a_framework_leaves_out_an_input(plugged: httpx.Client) -> None:
    f = Function.remote("affine", url=str(plugged.base_url))
    x, w, dy = np.array(X), np.array(W), np.array(DY)
    p, given = f.given([x, None, w])
    assert [array.shape for array in given] == [x.shape, w.shape]
    assert f.given([x, np.ones(3), w])[0] is f.p
    assert pickle.loads(pickle.dumps(p)) == p != f.p
    np.testing.assert_allclose(evaluate(p, given)[0], np.sin(x) @ w)
    dx, dw = evaluate(p.vjp, [*given, dy])
    np.testing.assert_allclose(dx, np.cos(x) * (dy @ w.T))
    np.testing.assert_allclose(dw, np.sin(x).T @ dy)
    (ty,) = evaluate(p.jvp, [*given, dx, dw])
    np.testing.assert_allclose(ty, (np.cos(x) * dx) @ w + np.sin(x) @ dw)
    found = evaluate(p.vjp.jvp, [*given, dy, dx, dw, np.zeros_like(dy)])
    hvp = ask(
        plugged,
        "affine",
        "hvp",
        inputs=SENT,
        cotangents={"y": DY},
        vectors={"x": dx.tolist(), "w": dw.tolist()},
        dtype="float64",
    )
    for one, name in zip(found, SENT, strict=True):
        np.testing.assert_allclose(one, array(hvp["products"][name]), atol=1e-12)


def test_a_function_of_a_framework_has_two_type_variables(plugged: httpx.Client) -> None:
    f = Function.remote("picked", url=str(plugged.base_url))
    x = np.array([1.0, 2.0, 3.0])
    for dtype in (np.int32, np.int64):
        inputs = [x, np.array([2, 0], dtype)]
        y, following = evaluate(f.p, inputs)
        types = f.p.types([TensorType.of(each) for each in inputs])
        assert [y.dtype, following.dtype] == [t.dtype for t in types] == [x.dtype, dtype]
