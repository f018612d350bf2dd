"""Other traces of a program: at many points in one call, and once more."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import tensorflow as tf

from app.autodiff.programs import Program
from app.runtime.calculus import Calculus
from app.runtime.modes import Results, Trace, is_shape
from ops import Tensor


@dataclass(frozen=True)
class Variant:
    """Another way to trace a program. It shares no trace with the program itself."""

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
    def ranks(self) -> tuple[int | None, ...]:
        """The rank of each leaf, ``None`` where it varies."""
        return self.program.ranks

    @property
    def has_few_shapes(self) -> bool:
        """Whether the program's leaves are padded to a few lengths."""
        return self.program.has_few_shapes


@dataclass(frozen=True)
class RetracedProgram(Variant):
    """A program that is traced again, for the ``turn``-th time."""

    turn: int

    def build(self, calculus: Calculus, leaves: Sequence[Tensor]) -> Results:
        """Return the program's results."""
        return self.program.build(calculus, leaves)


@dataclass(frozen=True)
class MappedProgram(Variant):
    """A program at many points, for ops without a batch axis: a loop that calls the program's own trace.

    Every leaf and every result has a leading axis of points.
    """

    trace: Trace = field(compare=False)

    @property
    def ranks(self) -> tuple[int | None, ...]:
        """The rank of each leaf, ``None`` where it varies."""
        return tuple(None if rank is None else rank + 1 for rank in self.program.ranks)

    def build(self, calculus: Calculus, leaves: Sequence[Tensor]) -> Results:
        """Return the program's results at each point, ``None`` for missing ones, without results that are shapes."""
        # TensorFlow prunes what computes the others.
        kinds = {key: kind for key, kind in self.trace.kinds.items() if not is_shape(key)}

        def at_point(rows: Sequence[Tensor]) -> list[Tensor]:
            results = self.trace.within_graph(rows)
            return [results[key] for key in kinds]

        # Points are cheap, and more threads take longer to share them than to compute them.
        signature = list(kinds.values())
        values = tf.map_fn(at_point, list(leaves), fn_output_signature=signature, parallel_iterations=1)
        return {**dict(zip(kinds, values, strict=True)), **dict.fromkeys(self.trace.missing)}
