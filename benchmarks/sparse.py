"""Sparse Jacobians and Hessians beside dense ones and SciPy's grouped differences, in one run.

``python -m benchmarks.sparse`` prints Markdown, and ``python -m benchmarks.sparse PAGE`` writes it into a page, between
the two marker lines of the part. The residuals are those of u'' + u³ on a line and of Δu + u³ on a square; the
Hessian is that of half the sum of their squares. All in float64, in mode graph, without a service.
"""

import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
from scipy import sparse

from app.autodiff import derivatives, matrices
from app.autodiff.binding import bind
from app.autodiff.point import Point
from app.autodiff.sparse_matrices import Matrix, hessian, jacobian, nonzeros
from app.autodiff.sparsity import Sparsity, colored
from app.autodiff.sparsity_search import find
from app.tensors.json import decode
from benchmarks.pages import publish, table
from ops import Array, Example, Input, Op, Output, Tensor

T = TypeVar("T")

PART = "sparse table"
matrices_of_scipy: Any = sparse
differences: Any = import_module("scipy.optimize._numdiff")  # private: solvers alone are public
SIZES = (1_000, 10_000, 100_000)
# A dense matrix with more numbers does not fit the service (PULLBACK_MAX_ELEMENTS), nor the time.
MOST_DENSE = 4_000_000
# How far differences may be from the derivative, relative to its largest number.
FAR = 1e-5
EXAMPLES = (Example("one", {"x": [1.0]}),)


def line(x: Tensor) -> Tensor:
    """Return u'' + u³ on a line, with zeros beyond its ends."""
    padded = tf.pad(x, [[1, 1]])
    return padded[:-2] - 2 * x + padded[2:] + x**3


def square(x: Tensor) -> Tensor:
    """Return Δu + u³ on a square, with zeros around it."""
    n = tf.cast(tf.round(tf.sqrt(tf.cast(tf.size(x), tf.float64))), tf.int32)
    u = tf.reshape(x, (n, n))
    p = tf.pad(u, [[1, 1], [1, 1]])
    around = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]
    return tf.reshape(around - 4 * u + u**3, (-1,))


def op_of(residuals: Callable[[Tensor], Tensor], order: int) -> Op:
    """Return the residuals as an op, or half the sum of their squares."""

    def forward(x: Tensor) -> Tensor:
        r = tf.ensure_shape(residuals(x), x.shape)
        return r if order == 1 else tf.reduce_sum(r * r) / 2

    shape = ("n",) if order == 1 else ()
    x, y = Input("x", dtypes=("float64",), shape=("n",)), Output("y", dtypes=("float64",), shape=shape)
    return Op(
        name="residuals" if order == 1 else "fit",
        summary="residuals",
        doc="Residuals.",
        function=forward,
        inputs=(x,),
        outputs=(y,),
        examples=EXAMPLES,
        mechanism="symbolic_gradient",
        source="a benchmark",
    )


def timed(work: Callable[[], T]) -> tuple[T, str]:
    """Return the result of work, and its time as text."""
    began = time.perf_counter()
    result = work()
    return result, f"{time.perf_counter() - began:.2g} s"


def compare(name: str, residuals: Callable[[Tensor], Tensor], order: int, size: int) -> list[str]:
    """Return a row of the table; raise ``AssertionError`` where two ways differ."""
    op, x = op_of(residuals, order), np.random.default_rng(0).uniform(0.5, 1, size)

    def point() -> Point:
        return bind(op, {"x": x}, {}, None, decode, mode="graph", device="/device:CPU:0", max_elements=1 << 22)

    def matrix() -> Matrix:
        return jacobian(point(), ("y",), ("x",)) if order == 1 else hessian(point(), ("x",), None)

    def searched() -> Sparsity:
        return colored(find(matrix(), _go_on), _go_on, has_columns=order == 1)

    nonzeros(matrix(), searched(), _go_on)  # traces
    sparsity, search_s = timed(searched)
    values, sparse_s = timed(lambda: nonzeros(matrix(), sparsity, _go_on))
    nonzero = values, (sparsity.pattern.row, sparsity.pattern.column)
    found = matrices_of_scipy.csr_array(matrices_of_scipy.coo_array(nonzero, shape=(size, size)))
    memory = found.data.nbytes + found.indices.nbytes + found.indptr.nbytes
    cells = [f"{name}, {'Jacobian' if order == 1 else 'Hessian'}", f"{size:,}", f"{found.nnz:,}"]
    cells += [_mib(memory), _mib(8 * size**2), search_s, sparse_s, str(sparsity.products + 1)]
    return cells + _dense(point, order, size, found) + _grouped(point(), order, x, found)


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.2g}" if size < 100 << 20 else f"{size / (1 << 20):,.0f}"


def _dense(point: Callable[[], Point], order: int, size: int, found: Any) -> list[str]:
    if size * size > MOST_DENSE:
        return ["–"] * 2

    def whole() -> Any:
        if order == 1:
            return matrices.jacobian(point(), ("y",), ("x",), _go_on)["y"]["x"]
        return matrices.hessian(point(), ("x",), None, _go_on)["x"]["x"]

    whole()  # traces
    dense, seconds = timed(whole)
    np.testing.assert_allclose(found.toarray(), dense, rtol=1e-9, atol=1e-9)
    return [seconds, str(size)]


def _grouped(point: Point, order: int, x: Array, found: Any) -> list[str]:
    count, groups = 0, differences.group_columns(found)

    def f(x: Array) -> Any:
        nonlocal count
        count += 1
        at = Point(point.spec, {"x": x}, point.dims, point.size, point.output_shapes)
        if order == 1:
            return derivatives.values_of(at).run()["y"]
        return derivatives.gradient(at, {"y": np.ones(())}).run()["x"]

    f(x)  # traces
    count = 0
    estimate, seconds = timed(lambda: differences.approx_derivative(f, x, method="3-point", sparsity=(found, groups)))
    assert abs(estimate - found).max() < FAR * abs(found).max()
    return [seconds, str(count)]


def _go_on() -> None:
    """Let the work go on."""


def part() -> str:
    """Return the table."""
    head = ("derivative", "unknowns", "nonzeros", "MiB", "MiB if dense", "search", "sparse", "products")
    others = ("dense", "products", "SciPy", "evaluations")
    problems = (("tridiagonal", line), ("2-D Laplacian", square))
    rows = list[list[str]]()
    for name, residuals in problems:
        for order in (1, 2):
            for size in SIZES:
                own = size if residuals is line else round(size**0.5) ** 2
                rows.append(compare(name, residuals, order, own))
                print(*rows[-1], file=sys.stderr)
    return table((*head, *others), rows)


def main() -> None:
    """Print the part, or write it into the named page."""
    publish(PART, part())


if __name__ == "__main__":
    main()
