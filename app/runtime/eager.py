"""What can be run in every mode, and eager mode, which runs it op by op under gradient tapes."""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

import tensorflow as tf

from app.runtime.calculus import Calculus, Tapes
from ops import Array, Tensor

Key: TypeAlias = tuple[str | int, str]
"""What a result is, and the name that it belongs to."""
Results: TypeAlias = Mapping[Key, Tensor | None]
KeyedArrays: TypeAlias = dict[Key, Array | None]
"""Results as NumPy arrays, ``None`` where no derivative exists."""


class Traceable(Protocol):
    """What can be run in every mode: it builds tensors from tensors, and takes derivatives through a ``Calculus``.

    Equal ones share their traces, so it must be hashable.
    """

    @property
    def owner(self) -> str:
        """The op's name: its budget pays for the traces."""
        ...

    @property
    def orders(self) -> int:
        """How many pullbacks are nested in it."""
        ...

    @property
    def ranks(self) -> tuple[int | None, ...]:
        """The rank of each leaf, ``None`` where it varies."""
        ...

    @property
    def runs_eagerly(self) -> bool:
        """Whether the eager answer is the graph's answer, whoever wrote the op."""
        ...

    def build(self, calculus: Calculus, leaves: Sequence[Tensor]) -> Results:
        """Compute the results of the leaves."""
        ...


def run_eagerly(program: Traceable, leaves: Sequence[Array]) -> KeyedArrays:
    """Run a program on NumPy leaves, on the current device; raises what the op and TensorFlow raise."""
    with Tapes(program.orders) as tapes:
        results = program.build(tapes, [tf.constant(leaf) for leaf in leaves])
        return {key: None if tensor is None else tensor.numpy() for key, tensor in results.items()}
