"""Sparse Jacobians and Hessians: their nonzeros from a few products, and a proof that none is missing.

Each use of a sparsity is verified: the products of the derivative with fresh random directions must be those of the
sparse matrix, within the rounding of both. The magnitudes of a direction are between 0.5 and 1, so a nonzero outside
the pattern always shows, unless it cancels one of another row by chance.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from app.autodiff import derivatives, directions
from app.autodiff.absent import Absent
from app.autodiff.all_branches import run_in_all_branches
from app.autodiff.binding import need_linear
from app.autodiff.coloring import Index
from app.autodiff.derivatives import Derivatives
from app.autodiff.evaluation import Evaluation
from app.autodiff.point import Arrays, Point
from app.autodiff.sparsity import Pattern, Shapes, Sparsity, Subject, parts, pattern, size
from app.errors import wrong
from app.runtime.cancellation import Checkpoint
from app.tensors.dtypes import DTYPES
from ops import Array

Floats: TypeAlias = NDArray[np.float64]
Run: TypeAlias = Callable[[Evaluation[Any]], Any]
Product: TypeAlias = Callable[..., Derivatives]
"""Returns the products of directions, along a leading axis, with a matrix; ``run`` runs their evaluation."""
Form: TypeAlias = Literal["coo", "csr"]
Block: TypeAlias = dict[str, Any]
"""A sparse matrix, as an answer has it."""

# The largest rounding of numbers at which a random product still shows a missed nonzero: that of float32.
LARGEST_EPS = 2e-7
# How many random products verify a matrix of float32. Once in some ten thousand, two numbers of one direction differ by
# no more than the rounding, and it does not show a nonzero that was added to another one.
COARSE_EPS, PROBES = 1e-10, 3
# How many times the rounding of a sum of products may be exceeded, and by how much the measured rounding.
ROUNDING, MEASURED, SPLITS = 4.0, 4.0, 8


class Missed(Exception):
    """A matrix has a nonzero outside its pattern; the text says where."""


@dataclass(frozen=True, eq=False)
class Matrix:
    """A derivative at a point as a matrix.

    ``pull`` returns the products with directions of the rows from the left, ``push`` those with directions of the
    columns from the right, if there are such. For a Hessian, the outputs ``weighted`` have cotangents.
    """

    of: Subject
    point: Point
    dtypes: Mapping[str, np.dtype[Any]]
    column_dtypes: Mapping[str, np.dtype[Any]]
    pull: Product
    push: Product | None
    weighted: tuple[str, ...] = ()

    @property
    def use(self) -> Hashable:
        """What determines where nonzeros may be at any point: shapes, and the outputs that have cotangents."""
        return self.of, tuple((name, x.shape) for name, x in self.point.inputs.items()), self.weighted

    @property
    def all_branches(self) -> "Matrix":
        """The matrix whose products a NaN reaches wherever it may at any point; they raise ``UnknownBranches``."""
        pull = partial(self.pull, run=run_in_all_branches)
        return replace(self, pull=pull, push=self.push and partial(self.push, run=run_in_all_branches))

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return "jacobian" if self.of.order == 1 else "hessian"

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and of columns."""
        return self.of.shape

    def pattern(self, row: Index, column: Index) -> Pattern:
        """Return the pattern of nonzeros; runs the op, to see which slots no path connects."""
        absent = dict[tuple[str, str], Absent]()
        for y, shape in self.of.rows if self.of.columns else ():
            found = self.pull({y: np.zeros((1, *shape), self.dtypes[y])})
            absent |= {(y, x): dx for x, dx in found.items() if isinstance(dx, Absent)}
        return pattern(self.of, row, column, absent)

    @cached_property
    def eps(self) -> float:
        """The distance from 1 to the next number, in the coarsest dtype of rows and columns."""
        every = {*self.dtypes.values(), *self.column_dtypes.values()}
        finfo: Any = ml_dtypes.finfo
        return max((float(finfo(dtype).eps) for dtype in every), default=0.0)

    @property
    def per_call(self) -> int:
        """How many directions one call may have."""
        most = self.point.spec.max_elements // max(1, *self.shape)
        return max(1, min(directions.per_call(self.point), most))

    def left(self, rows: Floats) -> Floats:
        """Return the products of directions, each a row of a matrix, with this one from the left."""
        return _products(self.pull, rows, self.of.rows, self.dtypes, self.of.columns)

    def right(self, columns: Floats) -> Floats:
        """Return the transposed products of directions with this matrix from the right."""
        assert self.push is not None
        return _products(self.push, columns, self.of.columns, self.column_dtypes, self.of.rows)


def run_alone(evaluation: Evaluation[Any]) -> Any:
    """Return the result of an evaluation that shares no call."""
    return evaluation.run()


def jacobian(point: Point, of: tuple[str, ...], wrt: tuple[str, ...]) -> Matrix:
    """Return the Jacobian as a matrix; may run the op, for the shapes of its outputs.

    Raises ``Unprocessable`` for coarse dtypes, and for a gradient that is not linear in the cotangent.
    """
    need_linear(point.op, point.spec.attrs)
    shapes, spec = derivatives.output_shapes(point), point.spec
    rows = tuple((y, shapes[y]) for y in of if y in spec.outputs.differentiable)
    inputs = derivatives.differentiable_inputs(point, wrt)
    columns = tuple((x, point.inputs[x].shape) for x in inputs)

    def pull(dys: Arrays, run: Run = run_alone) -> Derivatives:
        return run(derivatives.vjp(point, inputs, dys, batched=True, outputs=False))[1]

    def push(txs: Arrays, run: Run = run_alone) -> Derivatives:
        return run(derivatives.jvp(point, txs, batched=True))

    return _matrix(1, point, (rows, columns), pull, push)


def hessian(point: Point, wrt: tuple[str, ...], cotangents: Arrays | None) -> Matrix:
    """Return the derivative of the vjp at ``cotangents`` as a matrix; raises ``Unprocessable`` for coarse dtypes."""
    inputs = derivatives.differentiable_inputs(point, wrt)
    slots = tuple((x, point.inputs[x].shape) for x in inputs)

    def pull(vectors: Arrays, run: Run = run_alone) -> Derivatives:
        return run(derivatives.hvp(point, inputs, cotangents, vectors, batched=True))

    weighted = point.spec.outputs.differentiable if cotangents is None else tuple(sorted(cotangents))
    return replace(_matrix(2, point, (slots, slots), pull, None), weighted=weighted)


def _matrix(order: int, point: Point, slots: tuple[Shapes, Shapes], pull: Product, push: Product | None) -> Matrix:
    spec, (rows, columns) = point.spec, slots
    side = spec.outputs if order == 1 else spec.inputs
    dtypes = {y: DTYPES[side.dtypes[y]].numpy for y, _ in rows}
    column_dtypes = {x: point.inputs[x].dtype for x, _ in columns}
    of = Subject(spec.op.name, spec.static, order, rows, columns)
    matrix = Matrix(of, point, dtypes, column_dtypes, pull, push)
    if matrix.eps > LARGEST_EPS:
        message = f"a sparse {matrix.name} cannot be verified in numbers so coarse"
        raise wrong(("dtype",), message, expected="float32 or float64", got=spec.dtype)
    return matrix


def _products(
    product: Product, given: Floats, slots: Shapes, dtypes: Mapping[str, np.dtype[Any]], results: Shapes
) -> Floats:
    """Return the products with directions, one line for each; zeros where no path exists."""
    shapes = dict(slots)
    found = product(
        {
            name: given[:, begin:end].reshape(len(given), *shapes[name]).astype(dtypes[name])
            for name, begin, end in parts(slots)
        }
    )
    lines = np.zeros((len(given), size(results)))
    for name, begin, end in parts(results):
        if not isinstance(part := found[name], Absent):
            lines[:, begin:end] = part.reshape(len(given), end - begin)
    return lines


def nonzeros(matrix: Matrix, sparsity: Sparsity, checkpoint: Checkpoint) -> Floats:
    """Return the numbers of a matrix at the nonzeros of a pattern.

    Raises ``Missed`` if it has others, and ``Unprocessable`` where the derivative is not finite.
    """
    pattern, products = sparsity.wider, sparsity.products
    matrix.point.admit(len(pattern.row), f"nonzeros of the {matrix.name}")
    matrix.point.admit_work(products)
    values = np.zeros(len(pattern.row))
    if not all(matrix.shape):
        return values
    is_right = sparsity.kind == "columns"
    multiply, lines = (matrix.right, matrix.shape[1]) if is_right else (matrix.left, matrix.shape[0])
    probes = _probes(matrix, lines, is_right=is_right)
    by_color, found = np.argsort(sparsity.color, kind="stable"), list[Floats]()
    starts, step = np.searchsorted(sparsity.color[by_color], np.arange(products + 1)), matrix.per_call
    own, other = (pattern.column, pattern.row) if is_right else (pattern.row, pattern.column)
    line = sparsity.colors[own]
    for start in range(0, products + len(probes), step):
        checkpoint()
        stop = min(products + len(probes), start + step)
        given, last = np.zeros((stop - start, lines)), min(stop, products)
        chosen = np.flatnonzero((sparsity.colors >= start) & (sparsity.colors < last))
        given[sparsity.colors[chosen] - start, chosen] = 1
        given[max(0, products - start) :] = probes[max(0, start - products) : max(0, stop - products)]
        results = multiply(given)
        entries = by_color[starts[min(start, products)] : starts[last]]
        values[entries] = results[sparsity.color[entries] - start, sparsity.at[entries]]
        here = (line >= start) & (line < last)
        _need_zeros(matrix, given, results, (line[here] - start, other[here]), is_right=is_right)
        found += [*results[max(0, products - start) :]]
    _verify(matrix, pattern, values, np.stack(found), probes, is_right=is_right)
    if sparsity.inside is None:
        return values
    outside = np.flatnonzero(~sparsity.inside & (values != 0))
    if outside.size:
        at, (rows, columns) = outside[0], (matrix.of.rows, matrix.of.columns)
        where = f"at {_place(int(pattern.row[at]), rows)}, {_place(int(pattern.column[at]), columns)}"
        raise Missed(f"the {matrix.name} {where} is {values[at]:.9g}")
    return values[sparsity.inside]


def _need_zeros(
    matrix: Matrix, given: Floats, results: Floats, nonzeros: tuple[Index, Index], *, is_right: bool
) -> None:
    """Raise ``Missed`` where products with lines of one color are not zero, though no nonzero is expected there.

    The ``nonzeros`` are those of the pattern: their products, and their places in these.
    """
    outside = results != 0
    outside[nonzeros] = False
    outside[int(nonzeros[0].max(initial=-1)) + 1 :] = False  # those are random
    for product in np.flatnonzero(outside.any(axis=1)):
        rounding = _measured_rounding(matrix, results[product], given[product], is_right=is_right)
        off = np.where(outside[product], np.abs(results[product]) - rounding, 0)
        # What is not finite is reported for the whole matrix.
        if off.max(initial=0) > 0 and np.isfinite(off).all():
            at = int(off.argmax())
            where = _place(at, matrix.of.rows if is_right else matrix.of.columns)
            raise Missed(f"a product of the {matrix.name} at {where} is {results[product, at]:.9g}, not 0")


def _probes(matrix: Matrix, lines: int, *, is_right: bool) -> Floats:
    """Return random directions, whose numbers their dtypes hold exactly."""
    rng = np.random.default_rng()
    shape = PROBES if matrix.eps > COARSE_EPS else 1, lines
    probes = rng.uniform(0.5, 1, shape) * rng.choice((-1.0, 1.0), shape)
    slots, dtypes = (matrix.of.columns, matrix.column_dtypes) if is_right else (matrix.of.rows, matrix.dtypes)
    for name, begin, end in parts(slots):
        probes[:, begin:end] = probes[:, begin:end].astype(dtypes[name])
    return probes


def _verify(matrix: Matrix, pattern: Pattern, values: Floats, found: Floats, probes: Floats, *, is_right: bool) -> None:
    """Raise ``Missed`` unless the products with ``probes`` are those of the sparse matrix."""
    if not np.isfinite(found).all() or not np.isfinite(values).all():
        message = f"the {matrix.name} is not finite here, so that its nonzeros cannot be verified"
        raise wrong(
            ("inputs",), message, expected="finite derivatives, or a request without sparse", got="NaN or Infinity"
        )
    own, other = (pattern.column, pattern.row) if is_right else (pattern.row, pattern.column)
    count = matrix.shape[0 if is_right else 1]
    terms = np.bincount(other, minlength=count)
    for product, probe in zip(found, probes, strict=True):
        weighted = probe[own] * values
        expected = np.bincount(other, weighted, count)
        # A sum of products of rounded numbers, computed once by TensorFlow, and once from the rounded nonzeros.
        magnitude = np.bincount(other, np.abs(weighted), count)
        tolerance = ROUNDING * (terms + 4) * matrix.eps * magnitude
        off = np.abs(product - expected) - tolerance
        if off.max(initial=0) > 0:
            rounding = _measured_rounding(matrix, product, probe, is_right=is_right)
            # At some positions all parts happen to be rounded as the whole is: there, what is usual elsewhere.
            usual = np.median(rounding[magnitude > 0] / magnitude[magnitude > 0]) if magnitude.any() else 0.0
            off -= np.maximum(rounding, usual * magnitude)
        if off.max(initial=0) > 0:
            at = int(off.argmax())
            where = _place(at, matrix.of.rows if is_right else matrix.of.columns)
            expected_here, got = f"{expected[at]:.9g}", f"{product[at]:.9g}"
            raise Missed(
                f"a random product of the {matrix.name} at {where} is {got}, that of the nonzeros {expected_here}"
            )


def _measured_rounding(matrix: Matrix, product: Floats, probe: Floats, *, is_right: bool) -> Floats:
    """Return how much the products with parts of a direction differ from that with the whole, at each position.

    The parts have other digits than the whole: a kernel may round its operands.
    """
    some = np.random.default_rng().uniform(0, 1, (SPLITS, len(probe))) * probe
    multiply = matrix.right if is_right else matrix.left
    gaps = [np.abs(product - multiply(np.stack((part, probe - part))).sum(axis=0)) for part in some]
    return MEASURED * np.sum(gaps, axis=0)


def _place(at: int, slots: Shapes) -> str:
    """Return the slot and the index of a number, as text."""
    name, begin = next((name, begin) for name, begin, end in parts(slots) if begin <= at < end)
    return f"{name}{[int(i) for i in np.unravel_index(at - begin, dict(slots)[name])]}"


def blocks(
    matrix: Matrix, of: Sequence[str], wrt: Sequence[str], nonzeros: tuple[Pattern, Floats], form: Form
) -> dict[str, dict[str, Block | Absent]]:
    """Return the ``nonzeros``, a pattern with its numbers, as blocks ``[row slot][column slot]``."""
    (found, values), spec = nonzeros, matrix.point.spec
    result = dict[str, dict[str, Block | Absent]]()
    side, known = spec.outputs if matrix.of.order == 1 else spec.inputs, {y: part for y, *part in parts(matrix.of.rows)}
    for y in of:
        if y not in known:
            result[y] = dict.fromkeys(wrt, derivatives.without_derivative(side, y))
            continue
        top, bottom = known[y]
        begin, end = np.searchsorted(found.row, (top, bottom))
        row, column, own = found.row[begin:end] - top, found.column[begin:end], values[begin:end]
        result[y] = {x: derivatives.without_derivative(spec.inputs, x) for x in wrt}
        for x, left, right in parts(matrix.of.columns):
            if (y, x) in found.absent:
                result[y][x] = found.absent[y, x]
                continue
            here = (column >= left) & (column < right)
            numbers = own[here].astype(matrix.column_dtypes[x])
            result[y][x] = _block((bottom - top, right - left), row[here], column[here] - left, numbers, form)
    return result


def _block(shape: tuple[int, int], row: Index, column: Index, values: Array, form: Form) -> Block:
    if form == "coo":
        return {"shape": shape, "rows": row, "columns": column, "values": values}
    return {
        "shape": shape,
        "indptr": np.searchsorted(row, np.arange(shape[0] + 1)),
        "columns": column,
        "values": values,
    }
