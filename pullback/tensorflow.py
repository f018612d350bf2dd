"""Ops of a service as functions of TensorFlow: gradients of any order work, eagerly, in ``tf.function`` and in Keras.

::

    import pullback.tensorflow

    log1pexp = pullback.tensorflow.remote("log1pexp", url="http://127.0.0.1:8000")
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = log1pexp(x)
    tape.gradient(y, x)

The gradient of each function is the function one derivation further. It is recorded and registered with the same calls
that ``tf.custom_gradient`` makes, except for the op of the graph itself: ``tf.custom_gradient`` loses a gradient, and
then answers zero, where ``pfor`` copies the op, as in ``GradientTape.jacobian``, and with a ``ForwardAccumulator`` in
``tf.function``.

TensorFlow calls the functions in this process, so XLA does not compile a graph that has them, and a saved model does
not keep them.
"""

import itertools
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np
import tensorflow as tf

# What tf.custom_gradient uses: no public API records the gradient of an op, or says whether a tape records.
from tensorflow.python.eager import record

from pullback.dtypes import Array
from pullback.errors import BadArgument
from pullback.graph_values import is_traced
from pullback.remotes import Derivative, Function, Remote, TensorType, evaluate

__all__ = ["compose", "remote"]

_SERIAL = itertools.count()


class RemoteFunction(Function):
    """An op of a service as a function of its inputs, by position in the contract's order.

    It returns a tensor, or a tuple if the op has several outputs, in the dtype of its arguments. Inputs that are not
    differentiable have the gradient ``None``.

    It raises ``BadArgument`` for shapes that do not match, and the error of the service if it refuses a call; inside
    ``tf.function`` TensorFlow raises its own error, with that of the service in its message.
    """

    # As tf.autograph.experimental.do_not_convert marks a function: AutoGraph would only slow tracing down, and wrap
    # errors. It has nothing for objects that are called.
    autograph_info__ = None

    def __init__(self, p: Derivative) -> None:
        """Set the op."""
        super().__init__(p)
        self._derivative = _Derivative(p)
        self._without = dict[Derivative, _Derivative]()

    def __call__(self, *inputs: Any) -> Any:
        """Return the outputs."""
        if is_traced(inputs):
            return self.in_graph(inputs)
        p, given = self.given(inputs)
        derivative = self._derivative if p is self.p else self._without.setdefault(p, _Derivative(p))
        outputs = derivative([tf.convert_to_tensor(x) for x in given])
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def get_config(self) -> dict[str, Any]:
        """Return what Keras saves with a model; from now on Keras finds the class, as ``clone_model`` needs."""
        if (keras := sys.modules.get("keras")) is not None:
            objects: dict[str, Any] = cast(Any, keras).saving.get_custom_objects()
            objects.setdefault(type(self).__name__, type(self))
        return self.p.remote.saved

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "RemoteFunction":
        """Return the function of a model that Keras loads."""
        return cls(Derivative(Remote(**config)))


remote, compose = RemoteFunction.remote, RemoteFunction.compose


class _Derivative:
    """A derivative as a function of tensors."""

    def __init__(self, p: Derivative) -> None:
        """Set the derivative."""
        self._p = p
        self._is_differentiated = False

    def __call__(self, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        """Return the results: now if eager, else in the graph that is being traced."""
        if tf.executing_eagerly():
            results = [tf.convert_to_tensor(x) for x in self._evaluated(inputs, record.could_possibly_record())]
        else:
            results = self._traced(inputs)

        def gradient(*upstream: Any) -> list[tf.Tensor | None]:
            return self._gradient(inputs, upstream)

        def tangents(*given: tf.Tensor) -> list[tf.Tensor | None]:
            found = self._tangents(inputs, given)
            return [found.get(i) for i in range(len(results))]

        record.record_operation("PullbackRemote", results, inputs, gradient, tangents)
        return results

    def _traced(self, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        specs = _specs(self._p, inputs)
        overridden = tf.compat.v1.get_default_graph().gradient_override_map({"PyFuncStateless": self._gradient_name})
        with overridden, record.stop_recording():
            # Not stateful: Grappler may drop results that nothing uses, and share equal calls.
            results = tf.numpy_function(self._run, inputs, [spec.dtype for spec in specs], stateful=False)
        for result, spec in zip(results, specs, strict=True):
            result.set_shape(spec.shape)
        return results

    def _run(self, *arrays: Any) -> list[Array]:
        """Evaluate in the session of a graph, whose gradient was traced before if there is one."""
        return self._evaluated(arrays, self._is_differentiated)

    def _evaluated(self, arrays: Sequence[Any], is_differentiated: bool) -> list[Array]:
        given = self._p.cast([np.asarray(x) for x in arrays])
        has_gradient = all(given[i].dtype.kind not in "iub" for i in self._p.differentiable_inputs)
        return evaluate(self._p, given, ahead=is_differentiated and has_gradient and not self._p.path)

    @cached_property
    def _gradient_name(self) -> str:
        """The name of the gradient in the registry, which keeps it while the process lives."""
        name = f"PullbackRemote-{next(_SERIAL)}"

        def gradient(op: tf.Operation, *upstream: Any) -> list[tf.Tensor | None]:
            return self._gradient(list(op.inputs), upstream)

        tf.RegisterGradient(name)(gradient)
        return name

    @cached_property
    def _vjp(self) -> "_Derivative":
        return _Derivative(self._p.vjp)

    @cached_property
    def _jvp(self) -> "_Derivative":
        return _Derivative(self._p.jvp)

    def _gradient(self, inputs: list[tf.Tensor], upstream: Sequence[Any]) -> list[tf.Tensor | None]:
        """Return a gradient for each input, ``None`` for those that are not differentiable."""
        self._is_differentiated = True
        gradients: list[tf.Tensor | None] = [None] * len(inputs)
        if self._p.differentiable_inputs and self._p.differentiable_outputs:
            cotangents = [tf.convert_to_tensor(upstream[i]) for i in self._p.differentiable_outputs]
            for i, gradient in zip(self._p.differentiable_inputs, self._vjp([*inputs, *cotangents]), strict=True):
                gradients[i] = gradient
        return gradients

    def _tangents(self, inputs: list[tf.Tensor], given: Sequence[tf.Tensor]) -> dict[int, tf.Tensor]:
        """Return the tangents of the outputs that are differentiable."""
        self._is_differentiated = True
        if not (self._p.differentiable_inputs and self._p.differentiable_outputs):
            return {}
        found = self._jvp([*inputs, *(given[i] for i in self._p.differentiable_inputs)])
        return dict(zip(self._p.differentiable_outputs, found, strict=True))


def _specs(p: Derivative, inputs: Sequence[tf.Tensor]) -> list[tf.TensorSpec]:
    """Return the types of the results, with the sizes that are known while a graph is traced."""
    if p.path and p.path[-1] == "vjp":
        return [tf.TensorSpec(inputs[i].shape, inputs[i].dtype) for i in p.parent.differentiable_inputs]
    if p.path:
        specs = _specs(p.parent, inputs[: p.parent.arity])
        return [specs[i] for i in p.parent.differentiable_outputs]
    return [tf.TensorSpec(t.static_shape, t.dtype) for t in p.types([_type(x) for x in inputs])]


def _type(array: tf.Tensor) -> TensorType:
    if array.shape.rank is None:
        raise BadArgument(f"{array.name}: expected a tensor of known rank, got an unknown one: use tf.ensure_shape")
    return TensorType.symbolic(array.shape.as_list(), array.dtype.as_numpy_dtype)
