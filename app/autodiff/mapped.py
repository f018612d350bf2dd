"""A program at many points in one call, for ops without a batch axis."""

from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from app.autodiff.programs import Program
from app.runtime.calculus import Calculus
from app.runtime.modes import Results
from ops import Tensor


@dataclass(frozen=True)
class MappedProgram:
    """A program at many points, as a loop inside a graph; every leaf and every result has a leading axis of points."""

    program: Program

    @property
    def owner(self) -> str:
        """The op's name."""
        return self.program.owner

    @property
    def orders(self) -> int:
        """The number of nested pullbacks."""
        return self.program.orders

    @property
    def runs_eagerly(self) -> bool:
        """Always false: the loop needs a graph."""
        return False

    @property
    def ranks(self) -> tuple[int | None, ...]:
        """The rank of each leaf."""
        return tuple(None if rank is None else rank + 1 for rank in self.program.ranks)

    def build(self, calculus: Calculus, leaves: Sequence[Tensor]) -> Results:
        """Return the program's results at each point, ``None`` for missing ones, without results that are shapes."""

        def at_point(rows: Sequence[Tensor]) -> list[Tensor]:
            results = self.program.build(calculus, rows)
            return [results[key] for key in keys]  # pyright: ignore[reportReturnType] - the keys of missing results are not in keys

        # The first point shows which results exist; TensorFlow prunes the rest of its work from the graph.
        first = self.program.build(calculus, [leaf[0] for leaf in leaves])
        keys = [key for key, tensor in first.items() if tensor is not None and not str(key[0]).endswith("shape")]
        kinds = [tensor.dtype for key, tensor in first.items() if key in keys and tensor is not None]
        stacked = tf.map_fn(at_point, list(leaves), fn_output_signature=kinds)
        missing = {key: None for key, tensor in first.items() if tensor is None}
        return {**dict(zip(keys, stacked, strict=True)), **missing}
