"""A SavedModel whose signatures have custom gradients of many kinds, and what TensorFlow's own loader makes of them.

Hardly a gradient is the derivative, so that each number shows which of both was taken. As a program, it writes both
into a folder: the service changes how tensors are compared, and TensorFlow compares them when it saves these.
"""

import sys
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import tensorflow as tf

f64: Any = tf.float64
VALUES = {"x": [1.0, 2.0], "k": [2.0, 3.0], "z": [0.5, -1.0], "i": [1, 2], "b": [True, False]}
DTYPES = {"i": tf.int32, "b": tf.bool}
# What the loader cannot differentiate, and the same without: sparse cotangents, the residuals of loops and branches,
# gradients of gradients, which are not saved, and sparse gradients without their shape.
SAME = {
    "behind_a_gather": "behind_a_product",
    "in_a_loop": "in_a_row",
    "in_a_branch": "in_no_branch",
    "recomputed": "computed_once",
    "a_sparse_gradient_without_shape": "a_dense_gradient",
}
SIGNATURES, REFUSED = dict[str, tuple[str, Callable[..., Any]]](), dict[str, tuple[str, Callable[..., Any]]]()


def signature(inputs: str) -> Callable[[Any], Any]:
    """Add a signature that takes these inputs, named by letters."""

    def add(function: Any) -> Any:
        SIGNATURES[function.__name__] = inputs, function
        return function

    return add


def refused(message: str) -> Callable[[Any], Any]:
    """Add a signature of x and k that no op may have, for this reason."""

    def add(function: Any) -> Any:
        REFUSED[function.__name__] = message, function
        return function

    return add


def product_of(order: str, none: str) -> Any:
    """Return the product of all inputs, whose gradient is ``None`` for integers, truth values and those in ``none``."""

    @tf.custom_gradient
    def f(*args):
        named = dict(zip(order, args, strict=True))
        floats = {name: tf.cast(each, f64) for name, each in named.items()}
        y = tf.exp(0.1 * tf.reduce_prod(tf.stack(list(floats.values())), 0))

        def grad(dy):
            return [
                None if name in none or name in DTYPES else (2 + place) * dy * y * floats[name]
                for place, name in enumerate(order)
            ]

        return y, grad

    def serve(_, **given):
        floats = [(5 + place) * given[name] for place, name in enumerate(order) if name not in DTYPES]
        return tf.add_n(floats) + f(*(given[name] for name in order))

    return serve


def every_position() -> None:
    """Add a signature for each choice of ``None`` among three floats, and each place of integers and truth values."""
    for chosen in product(*(["", name] for name in "xkz")):
        SIGNATURES["none_" + "".join(chosen)] = "xkz", product_of("xkz", "".join(chosen))
    for other, place, none in (*product("i", range(3), ["", "x", "k"]), *product("b", range(3), "x")):
        order = "xk"[:place] + other + "xk"[place:]
        SIGNATURES[f"none_{none}_in_{order}"] = order, product_of(order, none)


every_position()


@tf.custom_gradient
def two(x, k):
    return (x * k, x + k), lambda da, db: (2 * da * k + 3 * db, None)


@signature("xk")
def two_outputs(_, x, k):
    a, b = two(x, k)
    return a * b + k


@signature("xk")
def an_output_without_use(_, x, k):
    return two(x, k)[0] + k


@signature("xk")
def an_integer_output(_, x, k):
    @tf.custom_gradient
    def f(x, k):
        return (tf.cast(x, tf.int32), x * k), lambda _, dy: (None, 3 * dy * x)

    whole, y = f(x, k)
    return y + k * tf.cast(whole, f64) + x


@signature("xk")
def nested_arguments(_, x, k):
    @tf.custom_gradient
    def f(d):
        y = d["a"] + d["b"] * d["c"][0] + d["c"][1]
        return y, lambda dy: {"a": 2 * dy * d["a"], "b": None, "c": [3 * dy, None]}

    return f({"a": x, "b": k, "c": [k, x]}) + x * k


@signature("xk")
def variables_behind(model, x, k):
    @tf.custom_gradient
    def f(x, k):
        def grad(dy, variables):
            own = {"w": 3 * dy * x, "v": None}
            return (None, 2 * dy), [own[each.name.partition(":")[0]] for each in variables]

        return x * model.w * model.v + k, grad

    return f(x, k) + model.v * x + model.w * k


@signature("xk")
def a_variable_between(model, x, k):
    @tf.custom_gradient
    def f(x, w, k):
        return x * w + k, lambda dy: (None, 2 * dy * x, 3 * dy)

    return f(x, model.w, k) + x


@signature("xk")
def a_variable_in_the_gradient_alone(model, x, k):
    @tf.custom_gradient
    def f(x, k):
        return x * k, lambda dy: (2 * dy * model.v * x, None)

    return f(x, k) + model.w * k


@signature("xk")
def a_constant(model, x, k):
    @tf.custom_gradient
    def f(x, k):
        return x * k * model.c, lambda dy: (2 * dy * model.c * k, None)

    return f(x, k) + k


@signature("xi")
def sparse_gradients(model, x, i):
    @tf.custom_gradient
    def f(x):
        def grad(dy, variables):
            del variables
            return 2 * dy * x, [tf.IndexedSlices(3 * dy * x, i, dense_shape=tf.constant([4]))]

        return x + tf.gather(model.table, i), grad

    return f(x)


@signature("xk")
def a_sparse_gradient_without_shape(_, x, k):
    @tf.custom_gradient
    def f(k, x):
        return x * k, lambda dy: (None, tf.IndexedSlices(2 * dy * x, tf.constant([1, 0])))

    return f(k, x) + k


@signature("xk")
def a_dense_gradient(_, x, k):
    @tf.custom_gradient
    def f(k, x):
        return x * k, lambda dy: (None, tf.gather(2 * dy * x, [1, 0]))

    return f(k, x) + k


@tf.custom_gradient
def before_a_gather(x, k):
    return x * k, lambda dy: (2 * dy * k * x, None)


@signature("xk")
def behind_a_gather(_, x, k):
    return tf.reduce_sum(tf.gather(before_a_gather(x, k), [1, 1, 0]) * tf.constant([1.0, 2.0, 3.0], f64)) + k


@signature("xk")
def behind_a_product(_, x, k):
    return tf.reduce_sum(tf.gather(1.0 * before_a_gather(x, k), [1, 1, 0]) * tf.constant([1.0, 2.0, 3.0], f64)) + k


@signature("xk")
def recomputed(model, x, k):
    return tf.recompute_grad(lambda x, k: tf.tanh(x * model.w) * k)(x, k) * k


@signature("xk")
def computed_once(model, x, k):
    return tf.tanh(x * model.w) * k * k


@signature("xk")
def residuals_of_the_gradient_alone(_, x, k):
    @tf.custom_gradient
    def f(x, k):
        residual, one_of = tf.sin(x) * k, tf.split(x * k, 2)
        return x * k, lambda dy: (dy * residual * one_of[1], None)

    return f(x, k) + k


@tf.custom_gradient
def with_residual(x, k):
    y = tf.exp(0.1 * x)
    return y * k, lambda dy: (2 * dy * y * k, None)


@signature("xk")
def in_a_loop(_, x, k):
    return tf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, with_residual(x, k)), [0, x])[1] + k


@signature("xk")
def in_a_row(_, x, k):
    return with_residual(with_residual(with_residual(x, k), k), k) + k


@signature("xk")
def in_a_branch(_, x, k):
    return tf.cond(tf.reduce_sum(x) > 0, lambda: with_residual(x, k), lambda: x) + k


@signature("xk")
def in_no_branch(_, x, k):
    return with_residual(x, k) + k


@signature("xk")
def called_twice(_, x, k):
    @tf.function
    def g(x, k):
        return with_residual(x, k)

    return g(g(x, k), k + x) + k


@signature("xk")
def one_in_another(_, x, k):
    @tf.custom_gradient
    def inner(x, k):
        return x * k, lambda dy: (3 * dy * k * x, None)

    @tf.custom_gradient
    def f(x, k):
        y = inner(x, k)
        with tf.GradientTape() as tape:
            tape.watch(x)
            slope = inner(x, k)
        return y, lambda dy: (2 * dy * tape.gradient(slope, x) * x, None)

    return f(x, k) + inner(x, k) + k


@signature("xk")
def two_dtypes(_, x, k):
    @tf.custom_gradient
    def f(x, k):
        return x * tf.cast(k, tf.float32), lambda dy: (None, tf.cast(2 * dy * x, f64) * k)

    return tf.cast(f(tf.cast(x, tf.float32), k), f64) + x


@signature("xk")
def overridden(_, x, k):
    with tf.compat.v1.get_default_graph().gradient_override_map({"Sign": "SavedSign"}):
        return tf.sign(x) * k + x


@signature("xk")
def squeezed(_, x, k):
    """An op whose attribute has another name in Python."""
    return tf.reduce_sum(tf.transpose(tf.squeeze(tf.reshape(x * k, [1, 2, 1]), axis=2)) * x, 1)


@refused("RandomStandardNormal at .* has state")
def with_noise(_, x, k):
    @tf.custom_gradient
    def f(x, k):
        return x * k, lambda dy: (dy * tf.random.normal([2], dtype=f64), None)

    return f(x, k)


@refused("PyFunc at .* runs Python")
def in_python(_, x, k):
    @tf.custom_gradient
    def f(x, k):
        return x * k, lambda dy: (tf.numpy_function(np.tanh, [dy], f64), None)

    return f(x, k)


@refused("ReadFile at .* (works with text or files|has state)")
def of_a_file(_, x, k):
    @tf.custom_gradient
    def f(x, k):
        return x * k, lambda dy: (dy * tf.strings.to_number(tf.io.read_file("/etc/hostname"), f64), None)

    return f(x, k)


@refused("IdentityN at .* works with text")
def with_text(_, x, k):
    @tf.custom_gradient
    def f(x, text):
        del text
        return x, lambda dy: (2 * dy, None)

    return f(x, "text") * k


class Model(tf.Module):
    """The variables and the constant."""

    def __init__(self):
        super().__init__()
        self.w = tf.Variable([0.5, 1.5], name="w", dtype=f64)
        self.v = tf.Variable([2.5, -1.5], name="v", dtype=f64)
        self.table = tf.Variable([1.0, 2.0, 3.0, 4.0], name="table", dtype=f64)
        self.c = tf.constant([2.0, 3.0], f64)


def specs(inputs: str) -> dict[str, Any]:
    return {name: tf.TensorSpec([2], DTYPES.get(name, f64), name=name) for name in inputs}


def save(folder: str) -> None:
    tf.RegisterGradient("SavedSign")(lambda _, dy: 3 * dy)
    model, functions = Model(), dict[str, Any]()
    refused = {name: ("xk", function) for name, (_, function) in REFUSED.items()}
    for name, (inputs, function) in (SIGNATURES | refused).items():

        def serve(function=function, **given):
            return {"y": function(model, **given)}

        functions[name] = tf.function(serve).get_concrete_function(**specs(inputs))
    tf.saved_model.save(model, folder, signatures=functions)


def expected(function: Any, inputs: str) -> dict[str, Any]:
    """Return the result of a loaded function, its gradients, and those of their sum."""
    values = {name: tf.constant(VALUES[name], DTYPES.get(name, f64)) for name in inputs}
    sources = {name: x for name, x in values.items() if x.dtype.is_floating}
    sources |= {each.name.partition(":")[0]: each for each in function.variables}
    with tf.GradientTape() as second:
        second.watch(list(sources.values()))
        with tf.GradientTape() as first:
            first.watch(list(sources.values()))
            y = function(**values)["y"]
        once = first.gradient(y, sources)
        once = {name: _dense(dx, sources[name]) for name, dx in once.items() if dx is not None}
        total = tf.add_n([tf.reduce_sum(dx) for dx in once.values()])
    twice = second.gradient(total, sources, unconnected_gradients="zero")
    found = {"y": y, **{f"0/{name}": dx for name, dx in once.items()}}
    return found | {f"1/{name}": _dense(dx, sources[name]) for name, dx in twice.items() if name in once}


def _dense(dx: Any, x: Any) -> Any:
    return tf.math.unsorted_segment_sum(dx.values, dx.indices, x.shape[0]) if isinstance(dx, tf.IndexedSlices) else dx


if __name__ == "__main__":
    save(sys.argv[1])
    loaded: Any = tf.saved_model.load(sys.argv[1])
    found = {name: loaded.signatures[SAME.get(name, name)] for name in SIGNATURES}
    results = {name: expected(found[name], inputs) for name, (inputs, _) in SIGNATURES.items()}
    flat = {f"{name}/{key}": np.asarray(x) for name, own in results.items() for key, x in own.items()}
    np.savez(f"{sys.argv[1]}/expected.npz", **flat)
