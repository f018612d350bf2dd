"""A program at many points in one call, for ops whose inputs cannot share one."""

from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from app.autodiff.programs import Program
from app.runtime.calculus import Calculus
from app.runtime.eager import Results
from ops import Tensor


@dataclass(frozen=True)
class MappedProgram:
    """A program at many points: every leaf has a leading axis of points, and so has every result.

    A loop inside the graph: for ops whose inputs cannot share one call.
    """

    program: Program

    @property
    def owner(self) -> str:
        """The op's name."""
        return self.program.owner

    @property
    def orders(self) -> int:
        """How many pullbacks are nested in it."""
        return self.program.orders

    @property
    def runs_eagerly(self) -> bool:
        """Tell that it needs a graph."""
        return False

    @property
    def ranks(self) -> tuple[int | None, ...]:
        """The rank of each leaf."""
        return tuple(None if rank is None else rank + 1 for rank in self.program.ranks)

    def build(self, calculus: Calculus, leaves: Sequence[Tensor]) -> Results:
        """Compute the results of the program at each point, those that exist."""

        def one(rows: Sequence[Tensor]) -> list[Tensor]:
            results = self.program.build(calculus, rows)
            return [results[key] for key in keys]  # pyright: ignore[reportReturnType] - missing ones are no keys

        # The first point tells which results there are; what only that takes is cut out of the graph.
        first = self.program.build(calculus, [leaf[0] for leaf in leaves])
        keys = [key for key, tensor in first.items() if tensor is not None and not str(key[0]).endswith("shape")]
        kinds = [tensor.dtype for key, tensor in first.items() if key in keys and tensor is not None]
        found = tf.map_fn(one, list(leaves), fn_output_signature=kinds)
        missing = {key: None for key, tensor in first.items() if tensor is None}
        return {**dict(zip(keys, found, strict=True)), **missing}
