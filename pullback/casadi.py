"""Ops of a service as functions of CasADi, with exact derivatives of first and second order for its solvers.

::

    import pullback.casadi

    norm = pullback.casadi.callback("safe_norm", "http://127.0.0.1:8000", shapes={"x": 3})
    x = casadi.MX.sym("x", 3)
    casadi.hessian(norm(x), x)

Matrices are matrices; other arrays are columns, in row-major order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

import casadi
import numpy as np

from pullback.addresses import DEFAULT_TIMEOUT
from pullback.dtypes import Array
from pullback.errors import BadArgument
from pullback.remotes import Jacobians, Remote, TensorType

__all__ = ["RemoteCallback", "callback"]

MATRIX = 2
"""The rank of a matrix."""


def callback(
    op: str,
    url: str | None = None,
    shapes: Mapping[str, Any] | None = None,
    attrs: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    mode: str | None = None,
    api_key: str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float | None = DEFAULT_TIMEOUT,
    deadline: float | None = None,
) -> "RemoteCallback":
    """Return an op of a service as a function of CasADi; keep it as long as anything that uses it.

    ``shapes`` are those of the inputs, by name; ``name`` is that of the function. The other arguments are those of
    ``pullback.jax.remote``.
    """
    remote = Remote(op, url, attrs, mode, api_key, headers=headers, timeout=timeout, deadline=deadline)
    of = Jacobians.of(remote, shapes or {})
    contract = of.p.remote.contract()
    inputs = [_Argument(slot.name, of.inputs[i], i) for i, slot in enumerate(contract.inputs)]
    outputs = [_Argument(slot.name, of.outputs[i], i) for i, slot in enumerate(contract.outputs)]
    return RemoteCallback(name or op.replace(".", "_"), of, inputs, outputs, {})


@dataclass(frozen=True)
class _Argument:
    """An input or an output of a function, and its position among those of the derivative.

    Without a position, an output is 0; an input is not read, and empty if it is an output of the derived function.
    """

    name: str
    type: TensorType
    position: int | None
    is_empty: bool = False

    @property
    def sparsity(self) -> casadi.Sparsity:
        """The sparsity of the matrix."""
        shape = _matrix_shape(self.type)
        return casadi.Sparsity(*shape) if self.is_empty else casadi.Sparsity.dense(*shape)


class _Callback(casadi.Callback):
    """A function of CasADi with the inputs of a derivative; it keeps the functions that are derived from it."""

    def __init__(self, of: Jacobians, inputs: Sequence[_Argument]) -> None:
        super().__init__()
        self.of, self.inputs = of, inputs
        self._derived = list[Any]()

    def kept(self, function: Any) -> Any:
        """Keep a function: CasADi itself does not."""
        self._derived.append(function)
        return function

    def arrays(self, given: Sequence[casadi.DM]) -> list[Array]:
        """Return the inputs of the derivative."""
        values = {a.position: _array(value, a) for a, value in zip(self.inputs, given, strict=True)}
        return [values[i] for i in range(len(self.of.inputs))]

    def get_n_in(self) -> int:
        """Return the number of inputs."""
        return len(self.inputs)

    def get_name_in(self, i: int) -> str:
        """Return the name of an input."""
        return self.inputs[i].name

    def get_sparsity_in(self, i: int) -> casadi.Sparsity:
        """Return the sparsity of an input."""
        return self.inputs[i].sparsity


class RemoteCallback(_Callback):
    """An op of a service, or a derivative of it, as a function of CasADi.

    CasADi raises a ``RuntimeError`` with the message for an error of the service; solvers try another point.
    """

    def __init__(
        self, name: str, of: Jacobians, inputs: Sequence[_Argument], outputs: Sequence[_Argument], options: Any
    ) -> None:
        """Take the derivative, and what its inputs and outputs are here."""
        super().__init__(of, inputs)
        self.outputs = outputs
        self.construct(name, options)

    def get_n_out(self) -> int:
        """Return the number of outputs."""
        return len(self.outputs)

    def get_name_out(self, i: int) -> str:
        """Return the name of an output."""
        return self.outputs[i].name

    def get_sparsity_out(self, i: int) -> casadi.Sparsity:
        """Return the sparsity of an output."""
        return self.outputs[i].sparsity

    def eval(self, given: Sequence[casadi.DM]) -> list[casadi.DM]:
        """Evaluate the derivative."""
        found = self.of.values(self.arrays(given))
        return [_matrix(np.zeros(a.type.shape) if a.position is None else found[a.position]) for a in self.outputs]

    def has_jac_sparsity(self, output: int, given: int) -> bool:
        """Report that the sparsity of each block is known."""
        del output, given
        return True

    def get_jac_sparsity(self, output: int, given: int, symmetric: bool) -> casadi.Sparsity:
        """Return the sparsity of a block of the Jacobian."""
        del symmetric
        return self.block(output, given).sparsity

    def has_jacobian(self) -> bool:
        """Report that there is a Jacobian."""
        return True

    def get_jacobian(self, name: str, inputs: Sequence[str], outputs: Sequence[str], options: Any) -> casadi.Function:
        """Return the function of the Jacobian."""
        return self.kept(_JacobianCallback(name, self, self._known(inputs), outputs, options))

    def has_forward(self, count: int) -> bool:
        """Report whether there is a function of this number of tangents: of one, if the op has a jvp."""
        return count == 1 and self.of.p.remote.is_linear

    def get_forward(
        self, count: int, name: str, inputs: Sequence[str], outputs: Sequence[str], options: Any
    ) -> casadi.Function:
        """Return the function of the tangents of the inputs."""
        p = self.of.p
        tangents = _placed(
            inputs[len(self.inputs) + len(self.outputs) :], self.inputs, p.differentiable_inputs, p.arity
        )
        results = _placed(outputs, self.outputs, p.differentiable_outputs, 0)
        given = [*self._known(inputs), *tangents]
        return self.kept(RemoteCallback(name, self.of.jvp, given, results, options))

    def has_reverse(self, count: int) -> bool:
        """Report whether there is a function of this number of cotangents."""
        return count == 1

    def get_reverse(
        self, count: int, name: str, inputs: Sequence[str], outputs: Sequence[str], options: Any
    ) -> casadi.Function:
        """Return the function of the cotangents of the outputs."""
        p = self.of.p
        seeds = _placed(inputs[len(self.inputs) + len(self.outputs) :], self.outputs, p.differentiable_outputs, p.arity)
        results = _placed(outputs, self.inputs, p.differentiable_inputs, 0)
        given = [*self._known(inputs), *seeds]
        return self.kept(RemoteCallback(name, self.of.vjp, given, results, options))

    def block(self, output: int, given: int) -> "_Block":
        """Return a block of the Jacobian."""
        o, i = self.outputs[output], self.inputs[given]
        return _Block.of(self.of, o, i)

    def _known(self, names: Sequence[str]) -> list[_Argument]:
        """Return the first inputs of each derivative: those of the function, and its outputs, which are not needed."""
        inputs = [replace(a, name=name) for name, a in zip(names, self.inputs, strict=False)]
        outputs = zip(names[len(inputs) :], self.outputs, strict=False)
        return [*inputs, *(_Argument(name, a.type, None, is_empty=True) for name, a in outputs)]


@dataclass(frozen=True)
class _Block:
    """A block of a Jacobian: its entries in CasADi's order, by the order of ``Jacobians``; zero without a pair."""

    pair: tuple[int, int] | None
    sparsity: casadi.Sparsity
    order: Array

    @classmethod
    def of(cls, of: Jacobians, output: _Argument, given: _Argument) -> "_Block":
        """Return the block of an output and an input."""
        pair = (output.position, given.position)
        if pair not in of.patterns:
            size = prod(_matrix_shape(output.type)), prod(_matrix_shape(given.type))
            return cls(None, casadi.Sparsity(*size), np.empty(0, int))
        pattern = of.patterns[pair]
        rows, columns = _places(output.type)[pattern.rows], _places(given.type)[pattern.columns]
        order = np.lexsort((rows, columns))
        if pattern.is_dense:
            return cls(pair, casadi.Sparsity.dense(*pattern.shape), order)
        return cls(pair, casadi.Sparsity.triplet(*pattern.shape, rows.tolist(), columns.tolist()), order)


class _JacobianCallback(_Callback):
    """The Jacobian of a function, a block for each output and input.

    Its own derivatives are those of an expression, in which each row of the blocks is a call of its function's vjp.
    """

    def __init__(
        self, name: str, function: RemoteCallback, inputs: Sequence[_Argument], outputs: Sequence[str], options: Any
    ) -> None:
        super().__init__(function.of, inputs)
        self._function, self._names = function, outputs
        pairs = product(range(function.get_n_out()), range(function.get_n_in()))
        self._blocks = [function.block(o, i) for o, i in pairs]
        self.construct(name, options)

    def get_n_out(self) -> int:
        return len(self._blocks)

    def get_name_out(self, i: int) -> str:
        return self._names[i]

    def get_sparsity_out(self, i: int) -> casadi.Sparsity:
        return self._blocks[i].sparsity

    def eval(self, given: Sequence[casadi.DM]) -> list[casadi.DM]:
        entries = self.of.entries(self.arrays(given))
        return [
            casadi.DM(b.sparsity) if b.pair is None else casadi.DM(b.sparsity, entries[b.pair][b.order].astype(float))
            for b in self._blocks
        ]


def _placed(names: Sequence[str], arguments: Sequence[_Argument], live: Sequence[int], first: int) -> list[_Argument]:
    """Return the directions, or the results, that belong to arguments: from ``first`` on, for those that are live."""
    places = [first + live.index(a.position) if a.position in live else None for a in arguments]
    return [replace(a, name=name, position=place) for name, a, place in zip(names, arguments, places, strict=True)]


def _matrix_shape(t: TensorType) -> tuple[int, int]:
    return (t.shape[0], t.shape[1]) if len(t.shape) == MATRIX else (t.size, 1)


def _places(t: TensorType) -> Array:
    """Return the place of each element in CasADi's order, by column."""
    rows, columns = _matrix_shape(t)
    return np.arange(t.size).reshape(columns, rows).T.ravel()


def _matrix(array: Array) -> casadi.DM:
    """Return an array as a matrix."""
    return casadi.DM(array.astype(float).reshape(_matrix_shape(TensorType.of(array))))


def _array(value: casadi.DM, argument: _Argument) -> Array:
    """Return a matrix as an array; raises ``BadArgument`` for a fraction in place of an integer."""
    found = np.array(value, float).reshape(argument.type.shape) if not argument.is_empty else np.empty(0)
    array = found.astype(argument.type.dtype)
    if array.dtype.kind != "f" and not np.array_equal(array, found):
        raise BadArgument(f"{argument.name}: expected integers of {array.dtype}, got {found.ravel()[:4]}")
    return array
