"""The op after a path of derivations: its inputs, its results and their types."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from pullback.arrays import name_of
from pullback.dtypes import INTEGERS, Array
from pullback.errors import BadArgument
from pullback.remotes.remote import Remote, is_differentiable
from pullback.remotes.shapes import TensorType, output_types

Transform = Literal["vjp", "jvp"]


@dataclass(frozen=True)
class Derivative:
    """The op after a path of derivations; ``()`` is the op itself.

    Its inputs are those of ``parent``, and then the directions: for a vjp a cotangent of each differentiable output of
    ``parent``, for a jvp a tangent of each differentiable input. Its results are cotangents of the differentiable
    inputs of ``parent``, or tangents of its differentiable outputs. Lists of inputs and outputs have their positions.

    Three rules close it under differentiation, for every p:

    - the jvp of p is ``p.jvp``, at the inputs of p and their tangents;
    - the vjp of p is ``p.vjp``, at the inputs of p and cotangents of its results;
    - the transpose of ``p.jvp`` in its tangents is ``p.vjp``.
    """

    remote: Remote
    path: tuple[Transform, ...] = ()

    @cached_property
    def parent(self) -> "Derivative":
        """What the last derivation derives."""
        return Derivative(self.remote, self.path[:-1])

    @cached_property
    def vjp(self) -> "Derivative":
        """The function that pulls cotangents of the differentiable outputs back to the differentiable inputs."""
        return Derivative(self.remote, (*self.path, "vjp"))

    @cached_property
    def jvp(self) -> "Derivative":
        """The function that pushes tangents of the differentiable inputs forward to the differentiable outputs."""
        return Derivative(self.remote, (*self.path, "jvp"))

    @cached_property
    def arity(self) -> int:
        """The number of inputs."""
        if not self.path:
            return len(self.remote.contract().inputs)
        seeded, _ = self._sides
        return self.parent.arity + len(seeded)

    @cached_property
    def differentiable_inputs(self) -> tuple[int, ...]:
        """The inputs that have derivatives: all directions do."""
        if not self.path:
            return tuple(i for i, slot in enumerate(self.remote.contract().inputs) if is_differentiable(slot))
        return (*self.parent.differentiable_inputs, *range(self.parent.arity, self.arity))

    @cached_property
    def differentiable_outputs(self) -> tuple[int, ...]:
        """The results that have derivatives."""
        if not self.path:
            return tuple(i for i, slot in enumerate(self.remote.contract().outputs) if is_differentiable(slot))
        _, results = self._sides
        return tuple(range(len(results)))

    @cached_property
    def shared_inputs(self) -> tuple[int, ...]:
        """The inputs without rows, which all rows use: those that the contract names, and their tangents."""
        if not self.path:
            contract = self.remote.contract()
            return tuple(i for i, slot in enumerate(contract.inputs) if slot.name in contract.shared)
        (seeded, _), shared, first = self._sides, self.parent.shared_inputs, self.parent.arity
        tangents = [first + k for k, i in enumerate(seeded) if self.path[-1] == "jvp" and i in shared]
        return (*shared, *tangents)

    @cached_property
    def batching(self) -> str:
        """Which rows are independent: a cotangent of a shared input is a sum over all of them."""
        if not self.path:
            return self.remote.batching
        has_sums = not set(self.parent.shared_inputs).isdisjoint(self.parent.differentiable_inputs)
        return "none" if self.path[-1] == "vjp" and has_sums else self.parent.batching

    @property
    def _sides(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What of ``parent`` the directions belong to, and what the results: its inputs, or its outputs."""
        inputs, outputs = self.parent.differentiable_inputs, self.parent.differentiable_outputs
        return (outputs, inputs) if self.path[-1] == "vjp" else (inputs, outputs)

    @cached_property
    def _integers(self) -> Sequence[tuple[int, str, str]]:
        """The position, the dtype and the name of each input that takes integers of one dtype."""
        slots = enumerate(self.remote.contract().inputs)
        return [
            (i, slot.dtypes[0], slot.name) for i, slot in slots if len(slot.dtypes) == 1 and slot.dtypes[0] in INTEGERS
        ]

    def types(self, inputs: Sequence[TensorType], *, batched: bool = False, points: bool = False) -> list[TensorType]:
        """Return the types of the results for inputs of these types, without a request.

        If ``batched``, the directions of the last derivation and the results have a leading axis. With ``points``, all
        inputs and results have one, before that. Raises ``BadArgument``.
        """
        self._check_arity(len(inputs))
        if points:
            of_one = self.types([TensorType(t.shape[1:], t.dtype) for t in inputs], batched=batched)
            return [TensorType((inputs[0].shape[0], *t.shape), t.dtype) for t in of_one]
        if not self.path:
            return output_types(self.remote.contract(), self.remote.attrs, inputs)
        at = inputs[: self.parent.arity]
        if self.path[-1] == "vjp":
            types = [at[i] for i in self.parent.differentiable_inputs]
        else:
            of = self.parent.types(at)
            types = [of[i] for i in self.parent.differentiable_outputs]
        return [TensorType((inputs[-1].shape[0], *t.shape), t.dtype) for t in types] if batched else types

    def cast(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the arrays as the op takes them: integers, such as labels, in its integer dtype if they fit.

        Frameworks have their own defaults for integers. Floats keep their dtype. Raises ``BadArgument``.
        """
        self._check_arity(len(arrays))
        cast = list(arrays)
        for i, dtype, name in self._integers:
            cast[i] = _fitted(cast[i], dtype, name)
        return cast

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the derivatives and contracts that were looked up.
        return Derivative, (self.remote, self.path)

    def _check_arity(self, count: int) -> None:
        if count != self.arity:
            names = ", ".join(slot.name for slot in self.remote.contract(self.path).inputs)
            raise BadArgument(
                f"{'.'.join((self.remote.name, *self.path))}: expected {self.arity} arrays ({names}), got {count}"
            )


def _fitted(array: Array, dtype: str, name: str) -> Array:
    given = name_of(array.dtype)
    if given == dtype or given not in INTEGERS:
        return array
    cast = array.astype(dtype)
    if not np.array_equal(cast, array):
        raise BadArgument(
            f"{name}: expected integers that fit {dtype}, got {given} from {array.min()} to {array.max()}"
        )
    return cast
