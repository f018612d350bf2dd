"""Sparse Jacobians and Hessians."""

from typing import Any

import httpx
import numpy as np
import pytest
import scipy.sparse

from tests.http.native_client import BINARY, array, ask, post, problem
from tests.http.test_binary import decode

N = 40
X = np.linspace(-1.0, 2.0, N)
AT: dict[str, Any] = {"inputs": {"x": X.tolist(), "a": 0.25, "k": 1}}
DIAGONALS = [[i, j] for i in range(N) for j in (i - 1, i, i + 1) if 0 <= j < N and i]
R_BY_X = {"rows": [i for i, _ in DIAGONALS], "columns": [j for _, j in DIAGONALS]}
PATTERN = {
    "r": {"x": R_BY_X, "a": {"rows": [*range(1, N)], "columns": [0] * (N - 1)}},
    "s": {"x": {"rows": [0, 0], "columns": [0, 1]}, "a": {"rows": [0], "columns": [0]}},
}


def matrix(block: dict[str, Any]) -> Any:
    """Return a block of an answer as SciPy's matrix."""
    values, columns = array(block["values"]), array(block["columns"])
    if "rows" in block:
        return scipy.sparse.coo_array((values, (array(block["rows"]), columns)), block["shape"])
    return scipy.sparse.csr_array((values, columns, array(block["indptr"])), block["shape"])


def agrees(sparse: dict[str, Any], dense: dict[str, Any]) -> int:
    """Check that blocks are those of a dense answer; return the number of nonzeros."""
    assert sparse.keys() == dense.keys()
    count = 0
    for y, blocks in dense.items():
        assert blocks.keys() == sparse[y].keys()
        for x, block in blocks.items():
            if block is None:
                assert sparse[y][x] is None
                continue
            found, expected = matrix(sparse[y][x]), array(block)
            count += found.nnz
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found.toarray().ravel(), expected.ravel(), rtol=1e-6, atol=1e-12)
    return count


def sparsity(client: httpx.Client, op: str = "stencil", **body: Any) -> dict[str, Any]:
    return ask(client, op, "sparsity", **body)["sparsity"]


@pytest.mark.parametrize("form", ["coo", "csr"])
def test_a_jacobian_with_a_pattern_of_the_client(plugged: httpx.Client, form: str):
    about = sparsity(plugged, **AT, pattern=PATTERN)
    # The row of s and those of r have a in common; a column of x has three nonzeros, and one of its rows s.
    assert about["nonzeros"] == len(DIAGONALS) + N + 2
    assert about["colors"] <= 5
    other = {"inputs": {"x": (X**2).tolist(), "a": 0.5, "k": 2}}
    found = ask(plugged, "stencil", "jacobian", **other, sparse=form, sparsity=about["id"])
    dense = ask(plugged, "stencil", "jacobian", **other)
    assert found["sparsity"] == about["id"]
    assert found["absent"] == dense["absent"]
    assert agrees(found["jacobian"], dense["jacobian"]) == about["nonzeros"]


@pytest.mark.parametrize("selected", [{}, {"of": ["r"], "wrt": ["x"]}, {"of": ["n"]}, {"of": ["s"], "wrt": ["k"]}])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_service_finds_the_sparsity_of_a_jacobian(plugged: httpx.Client, dtype: str, selected: dict[str, Any]):
    # At zeros, where most derivatives are zero by chance.
    zeros = {"inputs": {"x": [0.0] * N, "a": 0.0, "k": 1}, "dtype": dtype, **selected}
    about = sparsity(plugged, **zeros)
    at = {**AT, "dtype": dtype, **selected}
    dense = ask(plugged, "stencil", "jacobian", **at)
    for more in ({"sparsity": about["id"]}, {}):
        found = ask(plugged, "stencil", "jacobian", **at, sparse="coo", **more)
        assert found["sparsity"] == about["id"]
        assert agrees(found["jacobian"], dense["jacobian"]) == about["nonzeros"]


@pytest.mark.parametrize("selected", [{}, {"wrt": ["x"]}, {"wrt": ["a"]}, {"wrt": ["k"]}])
def test_a_hessian(plugged: httpx.Client, selected: dict[str, Any]):
    at = {**AT, "cotangents": {"r": np.cos(X).tolist(), "s": 2.0}, **selected}
    dense = ask(plugged, "stencil", "hessian", **at)
    about = sparsity(plugged, **at, order=2)
    for form in ("coo", "csr"):
        found = ask(plugged, "stencil", "hessian", **at, sparse=form, sparsity=about["id"])
        assert agrees(found["hessian"], dense["hessian"]) == about["nonzeros"]
    if selected == {}:
        # An arrow, whose rows and columns all meet, has a star coloring with few colors.
        assert about["colors"] <= 3


def test_a_hessian_that_is_not_symmetric(plugged: httpx.Client):
    at = {"inputs": {"x": X[:4].tolist(), "z": X[4:8].tolist()}}
    found = ask(plugged, "skewed", "hessian", **at, sparse="coo")
    assert agrees(found["hessian"], ask(plugged, "skewed", "hessian", **at)["hessian"]) > 0


def test_an_answer_in_safetensors(plugged: httpx.Client):
    for form, index in (("coo", "rows"), ("csr", "indptr")):
        response = plugged.post("/v1/ops/stencil/jacobian", json={**AT, "sparse": form}, headers={"accept": BINARY})
        tensors, metadata = decode(response.content)
        dense = ask(plugged, "stencil", "jacobian", **AT)
        at = "jacobian/r/x"
        assert {name for name in tensors if name.startswith(at)} == {
            f"{at}/{part}" for part in ("shape", index, "columns", "values")
        }
        assert metadata["sparsity"] == sparsity(plugged, **AT)["id"]
        assert metadata["absent"] == dense["absent"]
        parts = {part: tensors[f"{at}/{part}"] for part in (index, "columns", "values")}
        kind = scipy.sparse.coo_array if form == "coo" else scipy.sparse.csr_array
        place = (parts[index], parts["columns"]) if form == "coo" else (parts["columns"], parts[index])
        found = kind((parts["values"], place) if form == "coo" else (parts["values"], *place), tensors[f"{at}/shape"])
        np.testing.assert_allclose(found.toarray(), array(dense["jacobian"]["r"]["x"]), rtol=1e-12)


def test_a_missed_nonzero_is_an_error(plugged: httpx.Client):
    for i in range(0, len(DIAGONALS), 7):
        missing = {name: [*numbers[:i], *numbers[i + 1 :]] for name, numbers in R_BY_X.items()}
        pattern = {**PATTERN, "r": {**PATTERN["r"], "x": missing}}
        found = problem(post(plugged, "stencil", "sparsity", **AT, pattern=pattern), 422)
        assert "the pattern misses a nonzero" in found["detail"]
    empty = problem(post(plugged, "stencil", "sparsity", **AT, pattern={}), 422)
    assert "the pattern misses a nonzero" in empty["detail"]


def test_a_sparsity_that_misses_a_nonzero_at_another_point(plugged: httpx.Client):
    # At x = 0, a client sees no path from a to r.
    zeros = {"inputs": {"x": [0.0] * N, "a": 0.25, "k": 1}}
    more = {"rows": [*R_BY_X["rows"], 1], "columns": [*R_BY_X["columns"], N - 1]}
    about = sparsity(plugged, **zeros, pattern={**PATTERN, "r": {"x": more}})
    found = problem(post(plugged, "stencil", "jacobian", **AT, sparse="coo", sparsity=about["id"]), 422)
    assert "misses a nonzero at this point" in found["detail"]
    # Without its id, the service finds the others, and keeps those of both points.
    again = ask(plugged, "stencil", "jacobian", **AT, sparse="coo")
    assert again["sparsity"] != about["id"]
    count = agrees(again["jacobian"], ask(plugged, "stencil", "jacobian", **AT)["jacobian"])
    assert count == about["nonzeros"] + N - 1


def test_an_elementwise_op_has_diagonals(client: httpx.Client):
    about = sparsity(client, "square", inputs={"x": [[1.0, 2.0], [0.0, -1.0]]})
    assert (about["nonzeros"], about["colors"]) == (4, 1)
    assert about["id"] != sparsity(client, "log1pexp", inputs={"x": [[1.0, 2.0], [0.0, -1.0]]})["id"]
    assert sparsity(client, "square", inputs={"x": []})["colors"] == 0
    found = ask(client, "square", "jacobian", inputs={"x": []}, sparse="csr")["jacobian"]["y"]["x"]
    assert (found["shape"], found["indptr"]["data"]) == ([0, 0], [0])


def test_a_declared_sparsity_needs_no_trace_before(plugged: httpx.Client):
    # The first request for the op in this service: its programs are traced on another thread, where it starts again.
    at = {"inputs": {"x": X.tolist()}}
    found = ask(plugged, "declared_band", "jacobian", **at, sparse="csr")
    assert agrees(found["jacobian"], ask(plugged, "declared_band", "jacobian", **at)["jacobian"]) == 2 * N


@pytest.mark.parametrize(
    ("operation", "body", "detail"),
    [
        ("jacobian", {"sparsity": "0" * 32}, "a sparsity without sparse"),
        ("jacobian", {"sparse": "dense"}, "coo"),
        ("hessian", {"sparse": "coo", "diagonal": True}, "a diagonal is not sparse"),
        ("sparsity", {"pattern": {"q": {}}}, "unknown name"),
        ("sparsity", {"pattern": {"r": {"k": {"rows": [], "columns": []}}}}, "unknown name"),
        ("sparsity", {"pattern": {"r": {"x": {"rows": [1]}}}}, "columns"),
        ("sparsity", {"pattern": {"r": {"x": {"rows": [1, 2], "columns": [1]}}}}, "differ in length"),
        ("sparsity", {"pattern": {"r": {"x": {"rows": [N], "columns": [1]}}}}, "outside the block"),
        ("sparsity", {"pattern": {"r": {"x": {"rows": [0], "columns": [-1]}}}}, "outside the block"),
        ("sparsity", {"pattern": {"r": {"x": {"rows": [[0]], "columns": [[1]]}}}}, "a list of integers"),
        ("sparsity", {"pattern": {"r": {"x": {"rows": [0.5], "columns": [1]}}}}, "integer"),
        ("sparsity", {"pattern": [1]}, "expected an object"),
        ("sparsity", {"order": 3}, "1 or 2"),
        ("jacobian", {"sparse": "coo", "points": True}, "each point has its own request"),
        ("sparsity", {"inputs": {"x": ["NaN"] * N, "a": 1, "k": 1}}, "is not finite here"),
    ],
)
def test_a_mistake_is_an_error(plugged: httpx.Client, operation: str, body: dict[str, Any], detail: str):
    assert detail in problem(post(plugged, "stencil", operation, **{**AT, **body}), 422)["detail"]


def test_an_id_is_good_in_other_processes(client: httpx.Client, plugged: httpx.Client):
    a = np.diag([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    at = {"inputs": {"a": a.tolist(), "x": [1.0] * 7}, "wrt": ["x"]}
    about = sparsity(client, "matvec", **at)
    found = ask(plugged, "matvec", "jacobian", **at, sparse="coo", sparsity=about["id"])
    assert found["sparsity"] == about["id"]
    assert np.array_equal(matrix(found["jacobian"]["y"]["x"]).toarray(), a)
    # Where the point has other nonzeros, another one would be found.
    dense = {"inputs": {"a": (a + a[:, ::-1]).tolist(), "x": [1.0] * 7}, "wrt": ["x"]}
    other = sparsity(client, "matvec", **dense)["id"]
    gone = problem(post(plugged, "matvec", "jacobian", **at, sparse="coo", sparsity=other), 410)
    assert "leave out sparsity" in gone["detail"]


def test_what_is_not_a_registered_op_has_a_sparsity(plugged: httpx.Client):
    inputs = {"x": "x", "a": "a", "k": "k"}
    nodes = [{"name": "s", "op": "stencil", "inputs": inputs}, {"name": "q", "op": "square", "inputs": {"x": "s.r"}}]
    graph = {"inputs": [*inputs], "nodes": nodes, "outputs": {"y": "q"}}
    name = plugged.post("/v1/graphs", json=graph).json()["name"]
    seeds = {"dr": np.cos(X).tolist(), "ds": 1.0}
    at = {name: AT, "stencil.vjp": {"inputs": {**AT["inputs"], **seeds}}}
    for op, point in at.items():
        sparse, dense = ask(plugged, op, "jacobian", **point, sparse="coo"), ask(plugged, op, "jacobian", **point)
        assert 0 < agrees(sparse["jacobian"], dense["jacobian"]) < N * N
    # Those of a parameter, whose values the server has.
    at = {"inputs": {"x": [[0.5, -1.0, 0.25], [2.0, 0.25, -0.75]]}, "wrt": ["x", "w"]}
    sparse, dense = (ask(plugged, "layered", "jacobian", **at, **more) for more in ({"sparse": "csr"}, {}))
    assert agrees(sparse["jacobian"], dense["jacobian"]) > 0


def test_an_id_that_is_not_here(plugged: httpx.Client):
    problem(post(plugged, "stencil", "jacobian", **AT, sparse="coo", sparsity="none"), 404)
    problem(post(plugged, "stencil", "jacobian", **AT, sparse="coo", sparsity="0" * 32), 410)
    about = sparsity(plugged, **AT)
    other = {"inputs": {"x": [1.0, 2.0], "a": 1.0, "k": 1}}
    # The digest of what the service finds for another derivative, where it is not kept.
    problem(post(plugged, "stencil", "jacobian", **AT, sparse="coo", sparsity=about["id"][::-1]), 410)
    found = problem(post(plugged, "stencil", "jacobian", **other, sparse="coo", sparsity=about["id"]), 422)
    assert "that of another derivative" in found["detail"]
    assert f"x[{N}]" in found["errors"][0]["got"]
