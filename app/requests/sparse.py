"""Sparse Jacobians and Hessians of a request: which sparsity is used, and what is kept of it."""

from dataclasses import dataclass
from typing import Any

from app.autodiff.known_sparsity import declared, of_elementwise
from app.autodiff.sparse_matrices import Floats, Matrix, Missed, blocks, hessian, jacobian, nonzeros
from app.autodiff.sparsity import Pattern, Sparsity, by_rows, colored
from app.autodiff.sparsity_search import find
from app.errors import Entry, Gone, OpFailed, wrong
from app.execution.calls import Steps
from app.execution.sparsities import Sparsities
from app.requests.plans import Fields, Plan
from app.runtime.cancellation import Checkpoint

Found = tuple[Sparsity, Floats]


@dataclass(frozen=True)
class SparsityOf:
    """The sparsities that a ``key`` has, or gets."""

    kept: Sparsities
    key: str

    def keep(self, sparsity: Sparsity) -> str | None:
        """Keep a sparsity, and return its id, ``None`` if there is no room."""
        use = sparsity.pattern.of
        if self.kept.last(self.key, use) is sparsity or self.kept.keep(sparsity, self.key, use):
            return sparsity.pattern.digest
        return None

    def named(self, matrix: Matrix, name: str, checkpoint: Checkpoint) -> Found:
        """Return the sparsity with an id, and the numbers of a matrix.

        The id is the digest of the pattern: where it is not kept, the pattern may be found again. Raises
        ``Unprocessable`` where it is not that of the matrix, ``Gone`` and ``NotFound``.
        """
        try:
            sparsity = self.kept.get(name, self.key)
        except Gone:
            found = self._new(matrix, checkpoint)
            if found[0].pattern.digest != name:
                raise
            return found
        if sparsity.pattern.of != matrix.of:
            message, got = "the sparsity is that of another derivative", describe(sparsity.pattern)
            raise wrong(("sparsity",), message, expected=f"that of {describe(matrix)}", got=got)
        try:
            return _nonzeros(matrix, sparsity, checkpoint)
        except Missed as error:
            message = f"the sparsity misses a nonzero at this point: {error}; find it again here, or leave it out"
            raise wrong(("sparsity",), message, expected="every nonzero", got=name) from None

    def found(self, matrix: Matrix, checkpoint: Checkpoint) -> Found:
        """Return the last sparsity of the key, or else one that is known or found, and the numbers of a matrix.

        Raises ``Unprocessable`` if there is none, and ``OpFailed`` if the op declares one that misses a nonzero.
        """
        last = self.kept.last(self.key, matrix.of)
        if last is None:
            return self._new(matrix, checkpoint)
        try:
            return _nonzeros(matrix, last, checkpoint)
        except Missed:
            return _of_search(matrix, find(matrix, checkpoint).joined(last.pattern), checkpoint)

    @staticmethod
    def _new(matrix: Matrix, checkpoint: Checkpoint) -> Found:
        """Return the sparsity that is declared, known or found; raises as ``found``."""
        if (pattern := declared(matrix)) is not None:
            return _declared(matrix, pattern, checkpoint)
        return _of_search(matrix, of_elementwise(matrix) or find(matrix, checkpoint), checkpoint)


def of_pattern(matrix: Matrix, pattern: Pattern, checkpoint: Checkpoint) -> Found:
    """Return a pattern with its coloring, and the numbers of a matrix; raises as ``nonzeros``."""
    return _nonzeros(matrix, colored(pattern, checkpoint, has_columns=matrix.push is not None), checkpoint)


def _of_search(matrix: Matrix, pattern: Pattern, checkpoint: Checkpoint) -> Found:
    """Return a pattern that the service has found; raise ``Unprocessable`` if it misses a nonzero."""
    try:
        return of_pattern(matrix, pattern, checkpoint)
    except Missed as error:
        message = f"the service found no sparsity of the {matrix.name}: {error}; request it without sparse"
        raise wrong(("sparse",), message, expected="a derivative that is linear in directions", got="another") from None


def _declared(matrix: Matrix, pattern: Pattern, checkpoint: Checkpoint) -> Found:
    """Return the pattern that the op declares; raise ``OpFailed`` if it misses a nonzero."""
    try:
        return of_pattern(matrix, pattern, checkpoint)
    except Missed as error:
        message = f"the sparsity that op {matrix.of.op} declares misses a nonzero: {error}"
        entry = Entry((matrix.of.op, "sparsity"), message, expected="every nonzero", got=f"{len(pattern.row)} nonzeros")
        raise OpFailed(message, entry) from None


def sparse_work(plan: Plan, fields: Fields, sparsities: SparsityOf) -> Steps:
    """Return the work of a request for a sparse matrix; raises ``Unprocessable`` for invalid tensors.

    Its result is the blocks by the name of the operation, and the id of the sparsity, ``None`` if it is not kept. The
    work raises the errors of ``SparsityOf``.
    """
    (point, directions), request = plan.bind(fields), plan.request

    def work(checkpoint: Checkpoint) -> tuple[dict[str, Any], str | None]:
        if plan.operation.name == "jacobian":
            matrix = jacobian(point, plan.of, plan.wrt)
        else:
            matrix = hessian(point, plan.wrt, directions["cotangents"])
        if request.sparsity is None:
            sparsity, values = sparsities.found(matrix, checkpoint)
        else:
            sparsity, values = sparsities.named(matrix, request.sparsity, checkpoint)
        of = plan.of if matrix.of.order == 1 else plan.wrt
        tree = blocks(matrix, of, plan.wrt, (sparsity.pattern, values), request.sparse)
        return {plan.operation.name: tree}, sparsities.keep(sparsity)

    return work


def _nonzeros(matrix: Matrix, sparsity: Sparsity, checkpoint: Checkpoint) -> Found:
    """Return the numbers at the nonzeros; a Hessian that is not symmetric is recovered from its rows."""
    try:
        return sparsity, nonzeros(matrix, sparsity, checkpoint)
    except Missed:
        if sparsity.kind != "star":
            raise
    sparsity = by_rows(sparsity.pattern, checkpoint)
    return sparsity, nonzeros(matrix, sparsity, checkpoint)


def describe(of: Matrix | Pattern) -> str:
    """Return what a matrix is, as text."""
    op, static, order, rows, columns = of.of
    sides = [", ".join(f"{name}{list(shape)}" for name, shape in side) for side in (rows, columns)]
    attrs = "".join(f", {name} {value!r}" for name, value in static)
    return f"the {'jacobian' if order == 1 else 'hessian'} of op {op}{attrs}, of {sides[0]} by {sides[1]}"
