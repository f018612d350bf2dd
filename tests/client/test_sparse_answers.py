"""Sparse Jacobians and Hessians of the client, as matrices of SciPy."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from scipy.optimize import least_squares

import pullback
from pullback.sparse import SparseBlock
from tests.conftest import Service
from tests.patience import PATIENCE_S

PLUGINS = Path(__file__).parents[1] / "http" / "plugins"
N = 600
AT = {"x": np.linspace(-1.0, 2.0, N), "a": np.array(0.25), "k": 1}


@pytest.fixture(scope="module")
def plugged(start_for_session) -> Service:
    return start_for_session(OPS_PATH=str(PLUGINS)).wait_until_ready()


@pytest.fixture(scope="module")
def op(plugged):
    with pullback.Client(plugged.url, timeout=PATIENCE_S) as client:
        yield client.op("stencil")


@pytest.mark.parametrize("n", [4, N])
def test_blocks_are_matrices_of_scipy(op, n: int):
    # The smaller request is JSON, the larger one safetensors.
    at = {**AT, "x": AT["x"][:n]}
    dense = op.jacobian(at)
    for form, kind in (("coo", scipy.sparse.coo_array), ("csr", scipy.sparse.csr_array)):
        found = op.jacobian(at, sparse=form)
        again = op.jacobian(at, sparse=form, sparsity=found.sparsity)
        assert again.sparsity == found.sparsity
        assert found.absent == dense.absent
        for y, blocks in dense.jacobian.items():
            for x, expected in blocks.items():
                if expected is None:
                    assert found.jacobian[y][x] is None
                    continue
                assert isinstance(found.jacobian[y][x], kind)
                assert found.jacobian[y][x].dtype == expected.dtype
                np.testing.assert_allclose(found.jacobian[y][x].toarray().ravel(), expected.ravel(), atol=1e-12)
                assert (again.jacobian[y][x] != found.jacobian[y][x]).nnz == 0
    # The service has another one at this point: it finds that.
    assert op.jacobian(at, sparse="csr", sparsity="0" * 32).sparsity == found.sparsity
    given = {"cotangents": {"r": np.cos(at["x"])}, "wrt": ["x"]}
    hessian = op.hessian(at, **given, sparse="csr").hessian["x"]["x"]
    np.testing.assert_allclose(hessian.toarray(), op.hessian(at, **given).hessian["x"]["x"], atol=1e-12)


def test_least_squares(op):
    def given(x: np.ndarray) -> dict:
        return {**AT, "x": x}

    def residual(x: np.ndarray) -> np.ndarray:
        return op.forward(given(x))["r"]

    def jac(x: np.ndarray) -> scipy.sparse.csr_array:
        return op.jacobian(given(x), of=["r"], wrt=["x"], sparse="csr").jacobian["r"]["x"]

    x = np.full(20, 0.1)
    found = least_squares(residual, x, jac=jac)
    dense = least_squares(residual, x, jac=lambda x: jac(x).toarray())
    assert found.cost == pytest.approx(dense.cost, rel=1e-6)


def test_blocks_without_scipy_have_the_arrays(op, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    coo, csr = (op.jacobian(AT, of=["r"], wrt=["x"], sparse=form).jacobian["r"]["x"] for form in ("coo", "csr"))
    assert isinstance(coo, SparseBlock)
    assert (coo.shape, coo.indptr, csr.rows) == ((N, N), None, None)
    np.testing.assert_array_equal(np.diff(csr.indptr), np.bincount(coo.rows, minlength=N))
    np.testing.assert_array_equal(coo.data, csr.data)


def test_sparse_answers_are_shown_and_printed(op, ask):
    text = repr(op.jacobian({**AT, "x": AT["x"][:3]}, of=["r"], wrt=["x"], sparse="coo"))
    assert "jacobian.r.x.rows" in text
    shown = ask("call", "square", "jacobian", "x=1,3", "--sparse", "csr", "--json")
    assert json.loads(shown.out)["jacobian.y.x.indptr"]["data"] == [0, 1, 2]
