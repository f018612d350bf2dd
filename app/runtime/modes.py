"""How a program is run: eagerly, as a graph function, compiled by XLA, or in a v1 graph with a session."""

from collections.abc import Sequence

import tensorflow as tf

from app.errors import Overloaded
from app.runtime import traces
from app.runtime.eager import KeyedArrays, Traceable, run_eagerly
from app.runtime.traces import BudgetSpent
from ops import Array, Mode


def run(program: Traceable, mode: Mode, leaves: Sequence[Array], device: str) -> KeyedArrays:
    """Run ``program`` on NumPy leaves and return NumPy results, ``None`` where no derivative exists.

    Raises ``Overloaded`` when the mode needs a new trace and the budget is spent, and whatever TensorFlow raises.
    """
    with tf.device(device):
        if mode == "eager":
            return run_eagerly(program, leaves)
        try:
            return traces.TRACES.get(program, mode, leaves, device)(leaves)
        except BudgetSpent as spent:
            if mode == "graph" and program.runs_eagerly:
                return run_eagerly(program, leaves)
            raise Overloaded(f"{spent}; use mode eager, or restart the service", retry_after_s=60) from None
