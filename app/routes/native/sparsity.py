"""POST /v1/ops/{op}/sparsity: where a derivative has nonzeros, for sparse Jacobians and Hessians at other points."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from app.autodiff import derivatives
from app.autodiff.coloring import Index
from app.autodiff.sparse_matrices import Matrix, Missed, hessian, jacobian
from app.autodiff.sparsity import Pattern, Sparsity, parts
from app.errors import Loc, near, wrong
from app.execution.calls import Call
from app.execution.engine import Engine
from app.http.request import Request
from app.http.route import RawRoute
from app.requests import answers, models
from app.requests.answering import Reply
from app.requests.brief import Reading
from app.requests.fields import validated
from app.requests.plans import Operation, Plans
from app.requests.sparse import SparsityOf
from app.routes.native.derivatives import Format, FormatsHandler, operation_route
from app.runtime.cancellation import Checkpoint
from app.telemetry.counters import Counters
from app.tensors.json import decode
from app.tensors.strict_json import Body
from ops import Op

SPARSITY = Operation(
    "sparsity",
    "Find where a derivative has nonzeros",
    models.SparsityRequest,
    answers.SparsityAnswer,
    {"cotangents": "outputs"},
    lambda plan, point, directions: derivatives.forward(point),
    lambda plan, result: {"sparsity": result},
)


def sparsity_route(engine: Engine, plans: Plans) -> RawRoute:
    """Return the route."""

    def handler(op: Op, counters: Counters) -> "SparsityHandler":
        return SparsityHandler(engine, counters, op.owner, plans, op)

    return operation_route(engine, SPARSITY, handler)


@dataclass(frozen=True)
class SparsityHandler(FormatsHandler):
    """The handler that finds the sparsity of a derivative of one op, or verifies the one that it is given."""

    plans: Plans
    op: Op

    def call(self, source: Format, target: Format, request: Request, body: Body) -> Call:
        """Return the call of a request."""
        with Reading(self.op, "sparsity", len(body)):
            fields = source.read(body, request.parse)
            given = validated({"pattern": fields.pop("pattern", None)}, models.GivenPattern).pattern
            plan = self.plans.plan(SPARSITY, self.op, fields)
            point, directions = plan.bind(fields)
        kept = SparsityOf(self.engine.sparsities, request.key)

        def work(checkpoint: Checkpoint) -> tuple[Sparsity, str | None]:
            if plan.request.order == 1:
                matrix = jacobian(point, plan.of, plan.wrt)
            else:
                matrix = hessian(point, plan.wrt, directions["cotangents"])
            if given is None:
                sparsity, _ = kept.found(matrix, checkpoint)
            else:
                sparsity = _verified(kept, matrix, pattern_of(matrix, given), checkpoint)
            return sparsity, kept.keep(matrix, sparsity)

        def write(result: tuple[Sparsity, str | None]) -> Reply:
            sparsity, name = result
            about = {"id": name, "nonzeros": len(sparsity.pattern.row), "colors": sparsity.products}
            return target.write({}, "nested", {"sparsity": about})

        return Call(self.op.owner, plan.spec, work, True, write, self.counters)


def _verified(kept: SparsityOf, matrix: Matrix, pattern: Pattern, checkpoint: Checkpoint) -> Sparsity:
    try:
        return kept.of_pattern(matrix, pattern, checkpoint)[0]
    except Missed as error:
        message = f"the pattern misses a nonzero: {error}"
        raise wrong(("pattern",), message, expected="every nonzero", got=f"{len(pattern.row)} nonzeros") from None


def pattern_of(matrix: Matrix, given: Mapping[str, Mapping[str, models.Nonzeros]]) -> Pattern:
    """Return the pattern of a request; blocks that it leaves out have no nonzeros. Raises ``Unprocessable``."""
    rows, columns = ({name: span for name, *span in parts(side)} for side in (matrix.of.rows, matrix.of.columns))
    found: list[tuple[Index, Index]] = [(np.zeros(0, np.intp), np.zeros(0, np.intp))]
    for y, blocks in given.items():
        if y not in rows:
            raise wrong(("pattern", y), "unknown name", expected=near(y, rows), got=y)
        for x, block in blocks.items():
            loc = ("pattern", y, x)
            if x not in columns:
                raise wrong(loc, "unknown name", expected=near(x, columns), got=x)
            row, column = (
                _indices(block.rows, rows[y], (*loc, "rows")),
                _indices(block.columns, columns[x], (*loc, "columns")),
            )
            if len(row) != len(column):
                expected = f"{len(row)} numbers, as of rows"
                raise wrong(
                    (*loc, "columns"), "rows and columns differ in length", expected=expected, got=str(len(column))
                )
            found.append((row, column))
    row, column = (np.concatenate(each) for each in zip(*found, strict=True))
    return matrix.pattern(row, column)


def _indices(value: object, span: list[int], loc: Loc) -> Index:
    begin, end = span
    found = decode(value, "int64", loc)
    if found.ndim != 1:
        raise wrong(loc, "expected a list of integers", expected="one axis", got=f"shape {list(found.shape)}")
    if found.size and not 0 <= found.min() <= found.max() < end - begin:
        outside = found[(found < 0) | (found >= end - begin)][0]
        raise wrong(loc, "outside the block", expected=f"numbers from 0 to {end - begin - 1}", got=str(outside))
    return found.astype(np.intp) + begin
