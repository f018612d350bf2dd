"""The places where a derivative can be taken: eagerly, inside or outside a (nested) function, by XLA, in a v1 graph."""

import tensorflow as tf


def by_tapes(f, x, orders):
    """Differentiate by nested tapes, all in the context of the caller."""
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        levels = [f(x)] if orders == 1 else by_tapes(f, x, orders - 1)
    return [*levels, tape.gradient(levels[-1], x)]


def by_gradients(f, x, orders):
    """Differentiate by ``tf.gradients`` in the graph of the caller."""
    levels = [f(x)]
    for _ in range(orders):
        levels += tf.gradients(levels[-1], x, grad_ys=tf.ones_like(levels[-1]))  # complex numbers need cotangents
    return levels


def in_function(differentiate, **options):
    """Take the derivatives inside a ``tf.function``."""

    def run(f, x, orders):
        return tf.function(lambda x: differentiate(f, x, orders), autograph=False, **options)(tf.constant(x))

    return run


def of_function(differentiate, **options):
    """Take the derivatives of a ``tf.function``, outside it."""

    def run(f, x, orders):
        return differentiate(tf.function(f, autograph=False, **options), tf.convert_to_tensor(x), orders)

    return run


def in_v1(f, x, orders):
    with tf.Graph().as_default() as graph:
        holder = tf.compat.v1.placeholder(x.dtype, [None])
        levels = by_gradients(f, holder, orders)
    with tf.compat.v1.Session(graph=graph) as session:
        return session.run(levels, {holder: x})


def at_once(f, x, orders):
    return by_tapes(f, tf.constant(x), orders)


PLACES = {
    "eager": at_once,
    "tape inside": in_function(by_tapes),
    "tape outside": of_function(by_tapes),
    "nested, tape between": in_function(of_function(by_tapes)),
    "nested, tape outside": of_function(lambda f, x, n: by_tapes(tf.function(f, autograph=False), x, n)),
    "gradients inside": in_function(by_gradients),
    "gradients of a nested function": in_function(of_function(by_gradients)),
    "xla, tape inside": in_function(by_tapes, jit_compile=True),
    "xla, tape outside": of_function(by_tapes, jit_compile=True),
    "v1": in_v1,
}
