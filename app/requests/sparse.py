"""Sparse Jacobians and Hessians of a request: which sparsity is used, and what is kept of it."""

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from app.autodiff.sparse_matrices import Floats, Matrix, Missed, blocks, hessian, jacobian, nonzeros
from app.autodiff.sparsity import Pattern, Sparsity, by_rows, covered
from app.autodiff.sparsity_search import FEW, declared, find, find_in_all_branches, of_elementwise
from app.errors import Entry, Gone, OpFailed, Unprocessable, wrong
from app.execution.calls import Steps
from app.kept.linearizations import Sparsities
from app.requests.plans import Fields, Plan
from app.runtime.cancellation import Checkpoint

Found = tuple[Sparsity, Floats]
# A matrix of so many numbers takes no more products than a search, if each has its own line.
SMALL = 1 << 14


@dataclass(frozen=True)
class SparsityOf:
    """The sparsities that a ``key`` has, or gets."""

    kept: Sparsities
    key: str

    def keep(self, matrix: Matrix, sparsity: Sparsity) -> str | None:
        """Keep a sparsity of a matrix, and return its id, ``None`` if there is no room."""
        if self.kept.last(self.key, matrix.use) is sparsity or self.kept.add(sparsity, self.key, matrix.use):
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
            return self._nonzeros(matrix, sparsity, checkpoint)
        except Missed as error:
            message = f"the sparsity misses a nonzero at this point: {error}; find it again here, or leave it out"
            raise wrong(("sparsity",), message, expected="every nonzero", got=name) from None

    def found(self, matrix: Matrix, checkpoint: Checkpoint) -> Found:
        """Return the last sparsity of the key, or else one that is known or found, and the numbers of a matrix.

        Raises ``Unprocessable`` if there is none, and ``OpFailed`` if the op declares one that misses a nonzero.
        """
        last = self.kept.last(self.key, matrix.use)
        if last is None:
            return self._new(matrix, checkpoint)
        try:
            return self._nonzeros(matrix, last, checkpoint)
        except Missed:
            return self._searched(matrix, find(matrix, checkpoint).joined(last.pattern), checkpoint)

    def of_pattern(self, matrix: Matrix, pattern: Pattern, checkpoint: Checkpoint) -> Found:
        """Return a pattern with a coloring that covers all that may be nonzero, and the numbers of a matrix.

        Raises as ``nonzeros``.
        """
        whole = self._whole(matrix, checkpoint)
        other = find(matrix, checkpoint) if whole is None else whole
        sparsity = covered(pattern, other, checkpoint, has_columns=matrix.push is not None)
        return _recovered(matrix, replace(sparsity, use=None if whole is None else matrix.use), checkpoint)

    def _nonzeros(self, matrix: Matrix, sparsity: Sparsity, checkpoint: Checkpoint) -> Found:
        """Return a sparsity that is kept, and the numbers of a matrix; raises as ``nonzeros``."""
        if sparsity.use == matrix.use:
            return _recovered(matrix, sparsity, checkpoint)
        return self.of_pattern(matrix, sparsity.pattern, checkpoint)

    def _new(self, matrix: Matrix, checkpoint: Checkpoint) -> Found:
        """Return the sparsity that is declared, known or found; raises as ``found``."""
        if (pattern := declared(matrix)) is not None:
            return self._declared(matrix, pattern, checkpoint)
        pattern = self._whole(matrix, checkpoint)
        if pattern is None or pattern.is_full:
            pattern = find(matrix, checkpoint)
        return self._searched(matrix, pattern, checkpoint)

    def _searched(self, matrix: Matrix, pattern: Pattern, checkpoint: Checkpoint) -> Found:
        """Return a pattern that the service has found; raise ``Unprocessable`` if it misses a nonzero."""
        try:
            return self.of_pattern(matrix, pattern, checkpoint)
        except Missed as error:
            message = f"the service found no sparsity of the {matrix.name}: {error}; request it without sparse"
            expected = "a derivative that is linear in directions"
            raise wrong(("sparse",), message, expected=expected, got="another") from None

    def _declared(self, matrix: Matrix, pattern: Pattern, checkpoint: Checkpoint) -> Found:
        """Return the pattern that the op declares; raise ``OpFailed`` if it misses a nonzero."""
        try:
            return self.of_pattern(matrix, pattern, checkpoint)
        except Missed as error:
            op, got = matrix.of.op, f"{len(pattern.row)} nonzeros"
            message = f"the sparsity that op {op} declares misses a nonzero: {error}"
            raise OpFailed(message, Entry((op, "sparsity"), message, expected="every nonzero", got=got)) from None

    def _whole(self, matrix: Matrix, checkpoint: Checkpoint) -> Pattern | None:
        """Return where the matrix may have nonzeros at any point: everywhere if that takes few products.

        Return ``None`` if it is not known: then each point must be searched.
        """
        if (diagonals := of_elementwise(matrix)) is not None:
            return diagonals
        last, found = self.kept.last(self.key, matrix.use), None
        if last is not None and last.use == matrix.use:
            return last.wider
        if not self.kept.is_unknown(matrix.use):
            with suppress(Unprocessable, OpFailed):  # not finite at this point, for one
                found = find_in_all_branches(matrix, checkpoint)
                if found is None:
                    self.kept.note_unknown(matrix.use)
        return full(matrix) if found is None else found


def full(matrix: Matrix) -> Pattern | None:
    """Return the pattern of all numbers of a matrix, if it takes few products; ``None`` for any other."""
    rows, columns = matrix.shape
    products = rows if matrix.push is None else min(rows, columns)
    if products > FEW or rows * columns > SMALL:
        return None
    row, column = (each.ravel() for each in np.indices(matrix.shape))
    return matrix.pattern(row, column)


def _recovered(matrix: Matrix, sparsity: Sparsity, checkpoint: Checkpoint) -> Found:
    """Return the numbers at the nonzeros; a Hessian that is not symmetric is recovered from its rows."""
    try:
        return sparsity, nonzeros(matrix, sparsity, checkpoint)
    except Missed:
        if sparsity.kind != "star":
            raise
    by_row = replace(by_rows(sparsity.wider, checkpoint), pattern=sparsity.pattern, use=sparsity.use)
    return by_row, nonzeros(matrix, by_row, checkpoint)


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
        return {plan.operation.name: tree}, sparsities.keep(matrix, sparsity)

    return work


def describe(of: Matrix | Pattern) -> str:
    """Return what a matrix is, as text."""
    op, static, order, rows, columns = of.of
    sides = [", ".join(f"{name}{list(shape)}" for name, shape in side) for side in (rows, columns)]
    attrs = "".join(f", {name} {value!r}" for name, value in static)
    return f"the {'jacobian' if order == 1 else 'hessian'} of op {op}{attrs}, of {sides[0]} by {sides[1]}"
