"""A traced function, called on NumPy arrays without the layers that look at its arguments and watch for tapes."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

# Private, for the public way of calling functions and making tensors takes several times as long as what is to be done.
from tensorflow.python.eager import context
from tensorflow.python.framework.ops import EagerTensor  # for the same reason

from ops import Array


class Function:
    """A concrete function."""

    def __init__(self, function: tf.types.experimental.ConcreteFunction) -> None:
        """Keep it, which the runtime's own function lives as long as."""
        self._function = function
        self._name, self._captured, self._count = function.name, list(function.captured_inputs), len(function.outputs)

    def __call__(self, leaves: Sequence[Array]) -> list[Array]:
        """Call it; tensors share the memory of the leaves where that is aligned, and results, read-only, of tensors."""
        now = context.context()
        tensors = [EagerTensor(leaf, now.device_name, None) for leaf in leaves]
        found = now.call_function(self._name, [*tensors, *self._captured], self._count) or ()
        arrays = [np.asarray(tensor._numpy()) for tensor in found]
        for array in arrays:
            array.flags.writeable = False
        return arrays
