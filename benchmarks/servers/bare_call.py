"""No server: the gradient of an op by one bare TensorFlow call, from NumPy to NumPy, in a separate process.

``python -m benchmarks.servers.bare_call`` reads lines of "CASE SECONDS", and answers each with its result in JSON. The
call is a concrete function, traced for the shapes of the case, in the mode that the service takes by default. It is
called as the service calls one, without the public API, which takes 0.1 ms more.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

from app.autodiff.default_mode import default_mode
from app.runtime.cores import share_cores
from app.runtime.modes import Function
from benchmarks.in_process import answer_lines
from benchmarks.op_cases import CASES, Case, several
from benchmarks.op_requests import points
from ops import Array, Tensor, discover

NAMED = {case.name: case for case in CASES}
OPS = discover().ops
DEVICE = "cpu"


@cache
def prepared(name: str) -> Callable[[int], Any]:
    """Return the function that computes the gradients of a case, at another point in each call."""
    drawn = list(points(NAMED[name]))
    arguments = [[*point.inputs.values(), *point.cotangents.values()] for point in drawn]
    compute = traced(NAMED[name], arguments[0])

    def call(number: int) -> Any:
        return compute(arguments[number % len(arguments)])

    assert drawn[0].is_gradient(np.concatenate([dx.ravel() for dx in call(0)]))
    return call


def traced(case: Case, arguments: Sequence[Array]) -> Callable[[Sequence[Array]], list[Array]]:
    """Return the call that computes the gradients, for arrays like these: the inputs, then the cotangents."""
    op = OPS[case.op]
    values = op.attrs(**case.attrs).model_dump()
    attrs = values | {name: tf.constant(values[name], tf.float32) for name in op.attrs.number_names()}

    def gradients(*tensors: Tensor) -> Any:
        given, cotangents = tensors[: len(case.inputs)], tensors[len(case.inputs) :]
        inputs = dict(zip(case.inputs, given, strict=True))
        variables = [inputs[name] for name in case.variables]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            results = several(op.function(*given, **attrs))
            outputs = {slot.name: y for slot, y in zip(op.outputs, results, strict=True)}
            targets = [outputs[name] for name in case.cotangents]
        return tape.gradient(targets, variables, output_gradients=list(cotangents))

    specs = [tf.TensorSpec(array.shape, array.dtype) for array in arguments]
    is_compiled = default_mode(op, "float32", DEVICE) == "xla"
    function = tf.function(gradients, input_signature=specs, autograph=False, jit_compile=is_compiled)
    with tf.device(DEVICE):
        return Function(function.get_concrete_function())


if __name__ == "__main__":
    share_cores(1, 1)
    answer_lines(prepared)
