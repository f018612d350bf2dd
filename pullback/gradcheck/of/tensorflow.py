"""Functions of TensorFlow: ``tf+MODULE:FUNCTION``. The page of an op is checked in more ways, by its file."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from typing import Any

import numpy as np
import tensorflow as tf

# Private, because TensorFlow shows no caller what it casts.
from tensorflow.python.ops import gen_math_ops as _kernels

from pullback.dtypes import FLOATS, Array
from pullback.gradcheck import floats
from pullback.gradcheck.function import Arrays
from pullback.gradcheck.of.calling import Tree, flatten, ordered, rebuild
from pullback.gradcheck.of.source import Source, call, part
from pullback.gradcheck.of.source import array as written


class TensorFlowFunction:
    """A function of tensors. It runs in eager mode, as written."""

    mode, remark, has_layouts, checks_indices, has_solver, casts_to = "eager", "", False, False, False, ""
    dtypes: Sequence[str] = FLOATS

    def __init__(self, function: Callable[..., Any]) -> None:
        """Keep the function; ``leaves`` sets its arguments."""
        self._function, self._arguments, self._is_wide = function, dict[str, Tree](), False
        self._start = dict[str, Array]()

    def leaves(self, arguments: Mapping[str, Tree]) -> dict[str, Array]:
        """Keep the arguments, and return the arrays of floats in them."""
        self._arguments = dict(arguments)
        self._start = {name: array(x) for name, x in flatten(self._arguments, "") if is_float(x)}
        return self._start

    def values(self, leaves: Arrays) -> dict[str, Array]:
        """Return the outputs."""
        with _casts(widens=self._is_wide) as dtypes:
            found = self._outputs(self._tensors(leaves))
        if dtypes and not self._is_wide:
            self.casts_to = floats.narrowest(dtypes)
        return {name: array(y) for name, y in found.items()}

    @property
    def draws(self) -> bool:
        """Whether the graph of the function has random numbers."""
        try:
            found: Any = tf.function(lambda: self._outputs(self._tensors(self._start)))
            graph = found.get_concrete_function().graph.as_graph_def()
        except Exception:  # noqa: BLE001 - the function, or TensorFlow, may raise anything as it is traced
            return False
        nodes = [*graph.node, *(node for each in graph.library.function for node in each.node_def)]
        return any("Random" in node.op for node in nodes)

    def vjp(self, leaves: Arrays, output: str, cotangent: Array, inputs: Sequence[str]) -> dict[str, Array]:
        """Return Jᵀ dy by input."""
        with self._casting():
            found = self._gradients(self._tensors(leaves), output, cotangent, inputs)
        return {name: array(dx) for name, dx in found.items()}

    def jvp(self, leaves: Arrays, name: str, tangent: Array, outputs: Sequence[str]) -> dict[str, Array]:
        """Raise ``NotImplementedError``: TensorFlow's forward mode ignores custom gradients."""
        raise NotImplementedError

    def hessian(self, leaves: Arrays, output: str, inputs: tuple[str, str], dy: Array, v: Array) -> Array:
        """Return ∂/∂b [Jₐᵀ dy] · v as the gradient of a gradient: that in a of ⟨J_bᵀ dy, v⟩."""
        a, b = inputs
        tensors = self._tensors(leaves)
        with self._casting():
            with tf.GradientTape() as tape:
                tape.watch(tensors[a])
                product = tf.reduce_sum(self._gradients(tensors, output, dy, [b])[b] * tensor(v))
            found = tape.gradient(product, tensors[a], unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return array(found)

    def source(self, name: str, leaves: Arrays, output: str, cotangent: Array, wrt: str) -> tuple[str, str]:
        """Return a call of ``tf.gradients``, which needs a graph."""
        sources = {key: _written(x) for key, x in leaves.items()} | {wrt: Source("x")}
        y = call(name, ordered(self._function, rebuild(self._arguments, "", lambda key, x: sources.get(key) or x)))
        pull = f"tf.function(lambda x: tf.gradients({y}{part(output)}, x, {_written(cotangent)}))"
        return "import tensorflow as tf", f"{pull}({_written(leaves[wrt])})[0]"

    def widened(self) -> "TensorFlowFunction":
        """Return the function with float64 in place of each narrower dtype that it casts to."""
        found = copy(self)
        found._is_wide, found.casts_to = True, ""
        return found

    def other(self, *, compiles: bool) -> "TensorFlowFunction":
        """Return the function as a graph, with the same arguments."""
        del compiles

        def called(**arguments: Tree) -> Tree:
            return self._function(**arguments)

        # TensorFlow would take the signature of what the function itself wraps.
        found = TensorFlowFunction(tf.function(called))
        found.mode, found._arguments, found.casts_to = "graph", self._arguments, self.casts_to
        return found

    def _casting(self) -> AbstractContextManager[Any]:
        return _casts(widens=True) if self._is_wide else nullcontext()

    def _gradients(
        self, tensors: Mapping[str, tf.Tensor], output: str, cotangent: Array, inputs: Sequence[str]
    ) -> dict[str, tf.Tensor]:
        xs = [tensors[name] for name in inputs]
        with tf.GradientTape() as tape:
            tape.watch(xs)
            y = self._outputs(tensors)[output]
        found = tape.gradient(y, xs, output_gradients=tensor(cotangent))
        dxs = [tf.zeros_like(x) if dx is None else tf.convert_to_tensor(dx) for x, dx in zip(xs, found, strict=True)]
        return dict(zip(inputs, dxs, strict=True))

    def _tensors(self, leaves: Arrays) -> dict[str, tf.Tensor]:
        return {name: tensor(x) for name, x in leaves.items()}

    def _outputs(self, tensors: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        found = self._function(**rebuild(self._arguments, "", tensors.get))
        name = "" if isinstance(found, dict | list | tuple) else "y"
        return {key: y for key, y in flatten(found, name) if is_float(y)}


LIBRARY = TensorFlowFunction


def is_float(x: object) -> bool:
    """Return whether a value is a tensor, an array or a number of real floats."""
    return isinstance(x, float) or tf.as_dtype(getattr(x, "dtype", tf.int32)).is_floating


def array(x: object) -> Array:
    """Return the numbers of a tensor, in its dtype; the bits of bfloat16."""
    found = np.asarray(x)
    return found.view(np.uint16) if found.dtype.name == "bfloat16" else found


def tensor(x: Array) -> tf.Tensor:
    """Return the tensor of an array, of which uint16 is the bits of bfloat16."""
    return tf.constant(x.view(tf.bfloat16.as_numpy_dtype) if x.dtype == np.uint16 else x)


@contextmanager
def _casts(*, widens: bool) -> Generator[set[str]]:
    """Yield the dtypes that casts round floats to; if it ``widens``, float64 takes their place."""
    kernels: Any = _kernels
    dtypes, cast = set[str](), kernels.cast

    def seen(x: tf.Tensor, DstT: Any, *others: Any, **named: Any) -> tf.Tensor:
        before, after = x.dtype.name, tf.as_dtype(DstT).name
        if {before, after} <= {*FLOATS} and floats.eps(after) > floats.eps(before):
            dtypes.add(after)
            DstT = tf.float64 if widens else DstT
        return cast(x, DstT, *others, **named)

    kernels.cast = seen
    try:
        yield dtypes
    finally:
        kernels.cast = cast


def _written(x: Array) -> Source:
    return written("tf.constant", x, "tf")
