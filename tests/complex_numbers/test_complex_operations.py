"""Complex ops over HTTP: every operation, mode and order against derivatives of their NumPy functions."""

import base64
import re
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from app.autodiff import linearization
from tests.complex_numbers import truth
from tests.complex_numbers.pages import ROWS, draw, pairs, point
from tests.http.native_client import MODES, ask, post, problem

RUNS = {f"{op}-{mode}": (op, mode) for op, row in ROWS.items() for mode in row.fields.get("modes", MODES)}


@pytest.fixture(scope="module")
def client(serve_for_module, pages) -> Iterator[httpx.Client]:
    with serve_for_module(OPS_PATH=str(pages)).client() as one:
        yield one


def number(tensor: dict[str, Any]) -> np.ndarray:
    """Return a typed tensor of a response as an array."""
    found = np.array(tensor["data"], np.float64)
    is_complex = tensor["dtype"] == "complex128"
    assert tensor["dtype"] in ("complex128", "float64")
    assert list(found.shape) == [*tensor["shape"], *([2] if is_complex else [])]
    return found[..., 0] + 1j * found[..., 1] if is_complex else found


def assert_close(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Compare tensors with arrays; one without a path from the inputs is null, which stands for zeros."""
    for name, want in expected.items():
        if found[name] is None:
            np.testing.assert_allclose(want, 0, atol=2e-6)
            continue
        got = number(found[name])
        assert np.iscomplexobj(got) == np.iscomplexobj(want)
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6)


def row_of(found: dict[str, Any], i: int) -> dict[str, Any]:
    """Return one of the results that a batched request has for each direction."""
    return {n: t and {**t, "data": t["data"][i], "shape": t["shape"][1:]} for n, t in found.items()}


@pytest.mark.slow
@pytest.mark.share(14)
@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_every_order(client, run) -> None:
    op, mode = run
    row, rng = ROWS[op], np.random.default_rng(7)
    inputs = point(op, row)
    at = {name: x for name, x in inputs.items() if x.dtype.kind in "fc"}

    def f(xs: Any) -> Any:
        return row.of(*({**inputs, **xs}).values(), *row.attrs.values())

    def like(x: Any) -> Any:
        return np.asarray(draw(rng, *np.shape(x), real=not np.iscomplexobj(x)))

    y = np.asarray(f(at))
    dy, vs = like(y), {name: like(x) for name, x in at.items()}
    dtype = "complex128" if any(map(np.iscomplexobj, inputs.values())) else "float64"
    body: dict[str, Any] = {"inputs": {n: pairs(x) for n, x in inputs.items()}, "attrs": dict(row.attrs)}
    body |= {"mode": mode, "dtype": dtype}
    given = {"cotangents": {"w": pairs(dy)}}
    found = ask(client, op, "vjp", **body, **given, outputs=True)
    assert_close(found["outputs"], {"w": y})
    assert_close(found["gradients"], truth.vjp(f, at, dy))
    directions = {n: pairs(v) for n, v in vs.items()}
    assert_close(ask(client, op, "jvp", **body, tangents=directions)["tangents"], {"w": truth.jvp(f, at, vs)})
    hvp = ask(client, op, "hvp", **body, **given, vectors=directions)["products"]
    assert_close(hvp, truth.hvp(f, at, dy, vs))
    ones = ask(client, op, "gradients", **body)["gradients"][0]
    assert_close(ones, truth.vjp(f, at, np.ones(y.shape)))
    # Each direction twice: the second of complex numbers is 1j times the first.
    turned = [{n: (1j if np.iscomplexobj(v) else -1) * v for n, v in each.items()} for each in ({"w": dy}, vs)]
    dys, vectors = (
        {n: pairs(np.stack([v, w[n]])) for n, v in x.items()} for x, w in zip(({"w": dy}, vs), turned, strict=True)
    )
    rows = ask(client, op, "vjp", **body, cotangents=dys, batched=True)["gradients"]
    assert_close(row_of(rows, 1), truth.vjp(f, at, turned[0]["w"]))
    rows = ask(client, op, "jvp", **body, tangents=vectors, batched=True)["tangents"]
    assert_close(row_of(rows, 1), {"w": truth.jvp(f, at, turned[1])})
    rows = ask(client, op, "hvp", **body, **given, vectors=vectors, batched=True)["products"]
    assert_close(row_of(rows, 1), truth.hvp(f, at, dy, turned[1]))


@pytest.mark.parametrize("mode", MODES)
def test_jacobians(client, mode) -> None:
    """Holomorphic ops have complex Jacobians; others the real one of pairs [re, im], an axis of each tensor."""
    z = [[1.0, 2.0], [0.5, -1.0]]
    square = ask(client, "cx_square", "jacobian", inputs={"z": z}, mode=mode, dtype="complex128")["jacobian"]["w"]["z"]
    np.testing.assert_allclose(number(square), np.diag([2 + 4j, 1 - 2j]))
    conj = ask(client, "cx_conj", "jacobian", inputs={"z": z[:1]}, mode=mode)["jacobian"]["w"]["z"]
    assert conj == {"dtype": "float32", "shape": [1, 2, 1, 2], "data": [[[[1, 0]], [[0, -1]]]]}
    size = ask(client, "cx_abs2", "jacobian", inputs={"z": z[:1]}, mode=mode)["jacobian"]["w"]["z"]
    assert size == {"dtype": "float32", "shape": [1, 1, 2], "data": [[[2, 4]]]}
    phase = ask(client, "cx_phase", "jacobian", inputs={"r": [2], "t": [0]}, mode=mode)["jacobian"]["w"]
    assert phase["r"]["data"] == [[[1], [0]]]
    assert phase["t"]["data"] == [[[0], [2]]]
    scale = ask(client, "cx_scale", "jacobian", inputs={"a": [2], "z": [[0, 3]]}, mode=mode)["jacobian"]["w"]
    assert scale["z"] == {"dtype": "complex64", "shape": [1, 1], "data": [[[2, 0]]]}
    assert scale["a"] == {"dtype": "float32", "shape": [1, 2, 1], "data": [[[0], [3]]]}
    hessian = ask(client, "cx_square", "hessian", inputs={"z": z[0]}, mode=mode)["hessian"]["z"]["z"]
    assert hessian == {"dtype": "float32", "shape": [2, 2], "data": [[2, 0], [0, -2]]}


def test_a_wrong_claim_has_no_complex_jacobian(client) -> None:
    for i in range(5):
        response = post(client, "cx_claim", "jacobian", inputs={"z": [[1, i]]}, dtype="complex128")
        assert "declares holomorphic=True" in problem(response, 500)["detail"]
        assert ask(client, "cx_claim", "hessian", inputs={"z": [[1, i]]})
    jvp = ask(client, "cx_claim", "jvp", inputs={"z": [[1, 2]]}, tangents={"z": [[0, 1]]}, dtype="complex128")
    np.testing.assert_allclose(number(jvp["tangents"]["w"]), [0.999j])


def test_derived_ops_points_and_linearizations(client, monkeypatch) -> None:
    z, dw = [[1, 2]], [[1, -1]]
    there = {"inputs": {"z": z, "dw": dw}, "cotangents": {"dz": [[0, 1]]}}
    assert ask(client, "cx_square.vjp", "vjp", **there)["gradients"] == {
        "z": {"dtype": "complex64", "shape": [1], "data": [[-2, -2]]},
        "dw": {"dtype": "complex64", "shape": [1], "data": [[-4, 2]]},
    }
    tangent = ask(client, "cx_square.jvp", "forward", inputs={"z": z, "tz": [[0, 1]]})["outputs"]["tw"]["data"]
    assert tangent == [[-4, 2]]
    points = ask(client, "cx_square", "vjp", inputs={"z": [z, dw]}, cotangents={"w": [dw, z]}, points=True)
    assert points["gradients"]["z"]["data"] == [[[-2, -6]], [[-2, 6]]]
    monkeypatch.setattr(linearization, "CHEAP_S", 0)  # otherwise this one is not worth keeping
    kept = ask(client, "cx_sum", "linearize", inputs={"z": z})["linearization"]
    path = f"/v1/linearizations/{kept['id']}"
    assert client.post(f"{path}/vjp", json={}).json()["gradients"]["z"]["data"] == [[2, -4]]  # for a cotangent of 1
    assert client.get(path).json()["outputs"]["w"]["data"] == [-3, 4]
    product = client.post(f"{path}/jvp", json={"tangents": {"z": [[0, 1]]}}).json()["tangents"]["w"]
    assert product == {"dtype": "complex64", "shape": [], "data": [-4, 2]}


def test_third_order(client) -> None:
    """The gradient of Re conj(exp z) is that of Re exp z: every order is the same."""
    z = np.array([0.5 + 1j])
    levels = ask(client, "cx_exp", "gradients", inputs={"z": pairs(z)}, order=4, dtype="complex128")["gradients"]
    for level in levels:
        np.testing.assert_allclose(number(level["z"]), np.exp(z.conj()), rtol=1e-12)


def fast_answers(client: httpx.Client) -> float:
    lines = client.get("/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("pullback_express_requests_total"))


def single(tensor: dict[str, Any]) -> np.ndarray:
    """Return a tensor of complex64 in any form as an array."""
    assert tensor["dtype"] == "complex64"
    if "base64" in tensor:
        return np.frombuffer(base64.b64decode(tensor["base64"]), np.complex64).reshape(tensor["shape"])
    parts = np.array(tensor["data"], np.float32).reshape(*tensor["shape"], 2)
    return parts[..., 0] + 1j * parts[..., 1]


@pytest.mark.parametrize("form", ["nested", "flat", "base64"])
@pytest.mark.parametrize("op", ["cx_cubic", "cx_number"])
def test_the_fast_path_answers_the_same(client, op, form) -> None:
    """Requests that differ in their numbers alone, against closed forms."""
    rng, before = np.random.default_rng(2), fast_answers(client)
    for _ in range(12):
        z, dw = (np.asarray(draw(rng, *ROWS[op].inputs["z"].sizes)).astype(np.complex64) for _ in range(2))
        sent: dict[str, Any] = {"inputs": {"z": z}, "cotangents": {"w": dw}}
        for tensors in sent.values():
            for name, x in tensors.items():
                raw = base64.b64encode(x.tobytes()).decode()
                typed = {"dtype": "complex64", "shape": list(x.shape), "base64": raw}
                tensors[name] = typed if form == "base64" else pairs(x)
        answer = ask(client, op, "vjp", **sent, outputs=True, encoding=form)
        gradient, w = single(answer["gradients"]["z"]), single(answer["outputs"]["w"])
        np.testing.assert_allclose(gradient, 2 * np.abs(z) ** 2 * dw + z**2 * np.conj(dw), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(w, z * np.abs(z) ** 2, rtol=1e-5, atol=1e-5)
    assert fast_answers(client) - before >= 4


TYPED = {"dtype": "complex64", "shape": [2]}
SAME = [
    [[1, 2], [0.5, -1]],
    TYPED | {"data": [[1, 2], [0.5, -1]]},
    TYPED | {"data": [1, 2, 0.5, -1]},
    TYPED | {"base64": "AACAPwAAAEAAAAA/AACAvw=="},
]


@pytest.mark.parametrize("value", SAME)
@pytest.mark.parametrize("encoding", ["nested", "flat", "base64"])
def test_forms_in_json(client, value, encoding) -> None:
    for _ in range(4):  # the fast path answers the same
        y = ask(client, "cx_conj", "forward", inputs={"z": value}, encoding=encoding)["outputs"]["w"]
        content = {
            "nested": {"data": [[1, -2], [0.5, 1]]},
            "flat": {"data": [1, -2, 0.5, 1]},
            "base64": {"base64": "AACAPwAAAMAAAAA/AACAPw=="},
        }
        assert y == TYPED | content[encoding]


# fmt: off
WRONG = [
    ("cx_square", {"z": [1, 2, 3]}, "pairs"),
    ("cx_square", {"z": 1}, "pairs"),
    ("cx_square", {"z": []}, "pairs"),
    ("cx_square", {"z": [[1, 2], [3]]}, "ragged"),
    ("cx_square", {"z": [[1, None]]}, "number"),
    ("cx_square", {"z": TYPED | {"data": [1, 2]}}, "does not match the shape"),
    ("cx_square", {"z": TYPED | {"base64": "AACAPwAAAEA="}}, "does not match the shape"),
    ("cx_square", {"z": {"dtype": "float32", "shape": [2, 2], "data": [1, 2, 3, 4]}}, "not cast"),
    ("cx_square", {"z": {"dtype": "complex128", "shape": [1], "data": [1, 2]}}, "not cast"),
    ("cx_phase", {"r": TYPED | {"data": [1, 2, 3, 4]}, "t": [1, 2]}, "not cast"),
    ("cx_scale", {"a": [1], "z": [[1, 2], [3, 4]]}, r"shape \[2\]"),
    ("square", {"x": TYPED | {"data": [1, 2, 3, 4]}}, "not cast"),
    ("cx_square", {"z": [[1e300, 0]]}, "overflows"),
]
# fmt: on


@pytest.mark.parametrize(("op", "inputs", "match"), WRONG)
def test_errors(client, op, inputs, match) -> None:
    response = post(client, op, "forward", inputs=inputs)
    assert response.status_code == 422
    assert re.search(match, str(problem(response, 422))), response.text


def test_what_has_no_complex_numbers_refuses_them(client) -> None:
    wrong = post(client, "cx_square", "forward", inputs={"z": [[1, 2]]}, dtype="float32")
    assert problem(wrong, 422)["errors"][0]["expected"].startswith("one of complex64, complex128 (")
    tangent = post(client, "cx_square", "jvp", inputs={"z": [[1, 2]]}, tangents={"z": [[1, 2], [3, 4]]})
    assert problem(tangent, 422)["errors"][0] | {"loc": []} == {
        "loc": [], "message": "shape mismatch", "expected": "[1]", "got": "[2]",
    }  # fmt: skip
    diagonal = post(client, "cx_square", "hessian", inputs={"z": [[1, 2]]}, diagonal=True)
    assert diagonal.status_code == 422
    node = {"name": "a", "op": "cx_square", "inputs": {"z": "z"}}
    graph = {"inputs": ["z"], "nodes": [node], "outputs": {"w": "a.w"}}
    for answer in (
        client.get("/v2/models/cx_square"),
        client.post("/tesseract/cx_conj/jacobian", json={}),
        client.post("/ModelInfo", json={"name": "cx_square"}),
        client.post("/v1/graphs", json=graph),
    ):
        assert answer.status_code in (400, 404, 422)
        assert "complex" in answer.text or "unknown endpoint 'jacobian'" in answer.text
    assert not any(name.startswith(("cx_square", "cx_phase")) for name in client.get("/Info").json()["models"])


def test_tesseract(client) -> None:
    """Cotangents are those of JAX: (z²)' = 2z, transposed without a conjugate."""

    def tesseract(op: str, endpoint: str, **body: Any) -> Any:
        answer = client.post(f"/tesseract/{op}/{endpoint}", json=body, headers={"accept": "application/json"})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def form(data: Any, shape: list[int]) -> dict[str, Any]:
        more = {"shape": shape, "dtype": "complex64", "data": {"buffer": data, "encoding": "json"}}
        return {"object_type": "array", **more}

    z, dw = form([[1, 2]], [1]), form([[0, 1]], [1])
    assert tesseract("cx_square", "apply", inputs={"z": z}) == {"w": form([[-3, 4]], [1])}
    directions = {"jvp_inputs": ["z"], "jvp_outputs": ["w"], "tangent_vector": {"z": dw}}
    found = tesseract("cx_square", "jacobian_vector_product", inputs={"z": z}, **directions)
    assert found == {"w": form([[-4, 2]], [1])}
    directions = {"vjp_inputs": ["z"], "vjp_outputs": ["w"], "cotangent_vector": {"w": dw}}
    found = tesseract("cx_square", "vector_jacobian_product", inputs={"z": z}, **directions)
    assert found == {"z": form([[-4, 2]], [1])}
    jacobian = {"jac_inputs": ["z"], "jac_outputs": ["w"]}
    assert tesseract("cx_square", "jacobian", inputs={"z": z}, **jacobian) == {"w": {"z": form([[[2, 4]]], [1, 1])}}
    abstract = tesseract("cx_mean", "abstract_eval", inputs={"z": {"shape": [2, 3], "dtype": "complex128"}})
    assert abstract == {"w": {"shape": [2], "dtype": "complex128"}}
    assert tesseract("cx_sum", "vector_jacobian_product", inputs={"z": z}, **directions | {
        "cotangent_vector": {"w": form([0, 1], [])}}) == {"z": form([[-4, 2]], [1])}  # fmt: skip
    wide = {"a": {"shape": [1], "dtype": "float64", "data": {"buffer": [1], "encoding": "json"}}, "z": z}
    mixed = client.post("/tesseract/cx_scale/apply", json={"inputs": wide})
    assert mixed.status_code == 422
    assert "different dtypes" in mixed.text


def test_contract(client) -> None:
    contract = client.get("/v1/ops/cx_scale").json()
    assert contract["holomorphic"] is True
    assert [(slot["dtypes"], slot["shape"]) for slot in (*contract["inputs"], *contract["outputs"])] == [
        (["float32", "float64"], ["..."]),
        (["complex64", "complex128"], ["..."]),
        (["complex64", "complex128"], ["..."]),
    ]
    derived = client.get("/v1/ops/cx_square.vjp").json()
    assert derived["dtypes"] == ["complex64", "complex128"]
    assert derived["examples"][0]["inputs"]["dw"] == [[1, 0]] * 3


def test_numeric_derivatives_and_verdicts(client) -> None:
    """Both have cotangents of 1 + 0i by default, as the operations have."""
    z = [[1, 2], [0.5, 1]]
    body = {"inputs": {"z": z}, "dtype": "complex128"}
    for order in (1, 2):
        numeric = ask(client, "cx_cubic", "numeric", **body, order=order)
        assert (numeric["dtype"], numeric["computed_in"]) == ("complex128", "complex128")
        own = ask(client, "cx_cubic", "gradients", **body, order=order)["gradients"][-1]["z"]["data"]
        np.testing.assert_allclose(numeric["derivatives"]["z"]["derivative"], own, rtol=1e-9)
    own = ask(client, "cx_cubic", "gradients", **body)["gradients"][0]["z"]["data"]
    for gradient, verdict in ((own, "pass"), ([[a, -b] for a, b in own], "fail")):
        document = ask(client, "cx_cubic", "verify", **body, gradients={"z": gradient})
        assert (document["verdict"], document["dtype"]) == (verdict, "complex128")


def test_a_matrix_that_is_not_hermitian(client) -> None:
    a = [[[2, 0], [0.5, 1]], [[0.5, -1], [3, 0]]]
    y = ask(client, "cx_hermitian", "vjp", inputs={"a": a}, dtype="complex128", outputs=True)["outputs"]["w"]["data"]
    matrix = np.array(a)[..., 0] + 1j * np.array(a)[..., 1]
    np.testing.assert_allclose(y, np.trace(matrix @ matrix @ matrix).real)
    for i, part in ((0, 1e-3), (1, 2), (2, 1)):  # the fast path refuses it too
        wrong = [[a[0][0], [0.5, 1 + part]], a[1]]
        document = problem(post(client, "cx_hermitian", "vjp", inputs={"a": wrong}), 422)
        assert "not Hermitian" in document["detail"], i
        assert document["errors"][0]["loc"][:2] == ["inputs", "a"]
    assert problem(post(client, "cx_hermitian", "forward", inputs={"a": [[[2, 1]]]}), 422)


def test_complex_ops_in_other_places(client) -> None:
    """Jobs, sparse matrices and parameters have them; nodes of graphs are refused by name."""
    z = [[1, 2], [0.5, -1]]
    body = {"inputs": {"z": z}, "cotangents": {"w": [[0, 1], [1, 0]]}}
    job = client.post("/v1/ops/cx_square/vjp", json=body, headers={"prefer": "respond-async"}).json()["id"]
    assert client.get(f"/v1/jobs/{job}?wait=60").json()["state"] == "done"
    assert client.get(f"/v1/jobs/{job}/result").json() == ask(client, "cx_square", "vjp", **body)
    # The rows and columns of a sparse matrix are the parts: those of 2z are [[2a, -2b], [2b, 2a]].
    for at in (z, z[::-1]):
        sparse = ask(client, "cx_square", "jacobian", inputs={"z": at}, sparse="coo")["jacobian"]["w"]["z"]
        dense = np.zeros(sparse["shape"])
        dense[sparse["rows"]["data"], sparse["columns"]["data"]] = sparse["values"]["data"]
        expected = np.zeros((4, 4))
        for i, (a, b) in enumerate(at):
            expected[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[2 * a, -2 * b], [2 * b, 2 * a]]
        np.testing.assert_allclose(dense, expected)
    node = {"name": "a", "op": "cx_square.vjp", "inputs": {"z": "z", "dw": "dw"}}
    graph = {"inputs": ["z", "dw"], "nodes": [node], "outputs": {"dz": "a.dz"}}
    refused = problem(client.post("/v1/graphs", json=graph), 422)
    assert "an op with complex numbers cannot be a node" in refused["detail"]
    assert client.get("/explore/cx_square").status_code == 200


def test_digits_are_those_of_each_part(client) -> None:
    """The real part of z² at 1 + (1 + 1e-9) i cancels."""
    z = [[1.0, 1.0 + 1e-9], [0.5, -2.0]]
    for operation in ("forward", "vjp"):
        found = ask(client, "cx_square", operation, inputs={"z": z}, dtype="complex128", digits=True)
        for name, slots in found["uncertainty"].items():
            for slot, off in slots.items():
                number = found[name][slot]
                assert (number["dtype"], off["dtype"]) == ("complex128", "float64")
                assert off["shape"] == [*number["shape"], 2]
    narrow = ask(client, "cx_square", "forward", inputs={"z": z}, dtype="complex64", digits=True)
    off = np.array(narrow["uncertainty"]["outputs"]["w"]["data"])
    assert narrow["uncertainty"]["outputs"]["w"]["dtype"] == "float32"
    parts = np.array([[np.float32(1), np.float32(1 + 1e-9)], [0.5, -2]], np.float64)
    true = (parts[:, 0] + 1j * parts[:, 1]) ** 2
    given = np.array(narrow["outputs"]["w"]["data"])
    assert (np.abs(given - np.stack([true.real, true.imag], -1)) <= off).all()
