"""Bounded on small tensors runs on the calling thread: the same bits, the same errors, and no trace of the call."""

from functools import partial

import numpy as np
import pytest
import tensorflow as tf

from app.autodiff import derivatives
from app.autodiff.binding import bind
from app.runtime import functions, modes
from app.runtime.calculus import Graph
from app.runtime.functions import Bounded, Function, OnThisThread
from app.runtime.kernels import is_bounded
from app.runtime.modes import Trace
from app.runtime.trace_entry import XlaSession
from app.tensors.json import decode
from ops import Op, Tensor, discover

CPU = "/device:CPU:0"
REGISTRY = discover().ops
# Subnormal numbers, which TensorFlow's threads take for zero, and others that few kernels treat alike.
SPECIAL = [1e-40, -1e-40, 0.0, -0.0, 1e-38, 3e38, -3e38, np.inf, -np.inf, np.nan, 1e-20, 1.5, -87.5, 88.5, 0.1, -0.1]


def vjp(op: Op, number: int, seed: int) -> derivatives.Evaluation:
    """Return the vjp and its outputs at an example, with special numbers instead where the op takes them."""
    example, where = op.examples[number], {"mode": "graph", "device": CPU, "max_elements": 1 << 20}
    inputs, rng = dict(example.inputs), np.random.default_rng(seed)
    if op.batching == "elementwise" and op.validate is None:
        inputs = {slot.name: rng.permutation(SPECIAL).tolist() for slot in op.inputs}
    point = bind(op, inputs, example.attrs, "float32", decode, **where)
    shapes = derivatives.output_shapes(point)
    dys = {y: rng.normal(size=shapes[y]).astype(np.float32) for y in point.spec.outputs.differentiable}
    return derivatives.vjp(point, point.spec.inputs.differentiable, dys, batched=False, outputs=True)


def trace_of(evaluation: derivatives.Evaluation) -> Trace:
    return modes.trace_of(evaluation.program, "graph", evaluation.leaves, CPU)


def built(program: modes.Traceable, *leaves: Tensor) -> list[Tensor]:
    results = program.build(Graph(), leaves)
    return [tensor for key, tensor in results.items() if tensor is not None and not isinstance(key[0], str)]


def bits(arrays: list[np.ndarray]) -> list[bytes]:
    return [array.tobytes() for array in arrays]


CASES = [(op, number) for op in REGISTRY.values() for number in range(len(op.examples))]


@pytest.mark.parametrize(("op", "number"), CASES, ids=[f"{op.name}-{number}" for op, number in CASES])
def test_both_calls_of_a_function_give_the_same_bits(op: Op, number: int) -> None:
    for seed in range(3):
        evaluation = vjp(op, number, seed)
        trace = trace_of(evaluation)
        if isinstance(trace._call, Bounded):
            before = bits(evaluation.leaves)
            here = trace._call(evaluation.leaves)
            assert bits(here) == bits(trace._call._for_large(evaluation.leaves))
            assert bits(evaluation.leaves) == before
            assert not any(array.flags.writeable for array in here)


COMPILED = [op for op in REGISTRY.values() if "xla" in op.modes and op.batching == "elementwise"]


@pytest.mark.parametrize("op", COMPILED, ids=lambda op: op.name)
def test_what_xla_compiles_gives_the_bits_of_a_function_on_each_thread(op: Op, monkeypatch) -> None:
    evaluation = vjp(op, 0, 1)
    program, leaves = evaluation.program, evaluation.leaves
    specs = [tf.TensorSpec(leaf.shape, tf.as_dtype(leaf.dtype)) for leaf in leaves]
    compiled = tf.function(partial(built, program), input_signature=specs, autograph=False, jit_compile=True)
    with tf.device(CPU):
        expected = bits(Function(compiled.get_concrete_function())(leaves))
    for runs_here in (True, False):
        monkeypatch.setattr(modes, "can_run_here", lambda device, here=runs_here: here)
        trace = Trace(program, "xla", specs, CPU)
        assert isinstance(trace._call, OnThisThread) == (runs_here and trace.is_bounded)
        assert bits(trace._call(leaves)) == expected


def test_nothing_rewrites_what_xla_compiles() -> None:
    """TensorFlow's optimiser would, in a session, and change bits."""

    def waves(x: Tensor) -> Tensor:
        for _ in range(6):
            x = tf.sin(x) * 1.5 + tf.exp(-x * x)
        return x

    spec = [tf.TensorSpec([64], tf.float32)]
    compiled = tf.function(waves, input_signature=spec, jit_compile=True).get_concrete_function()
    whole = tf.function(lambda x: tf.identity(compiled(x)), input_signature=spec).get_concrete_function()
    x = np.random.default_rng(0).random(64).astype(np.float32)
    expected = bits(Function(compiled)([x]))
    for runs_here in (True, False):
        call = XlaSession().add(whole.graph, whole.inputs, whole.outputs, runs_here=runs_here)
        assert bits(call([x])) == expected


@pytest.mark.parametrize(
    ("name", "is_arithmetic"),
    [("safe_norm", True), ("relu", True), ("zero_out", True), ("roi_pool", True), ("self_adjoint_eig", False)],
)
def test_only_arithmetic_runs_on_this_thread(name: str, is_arithmetic: bool) -> None:
    """The time of the others depends on values: these must remain cancellable."""
    assert isinstance(trace_of(vjp(REGISTRY[name], 0, 0))._call, Bounded if is_arithmetic else Function)


@pytest.mark.parametrize(
    ("function", "is_known"),
    [
        (lambda n, x: tf.cast(tf.reduce_sum(tf.range(1, n + 1)), tf.float32) + x, False),
        (lambda n, x: tf.fill([n], 1.0) + x, False),
        (lambda n, x: tf.one_hot([1], n), False),
        (lambda n, x: tf.pad(x, [[0, n]]), False),
        (lambda n, x: tf.tile(x, [tf.cast(x[0], tf.int32)]), False),
        (lambda n, x: tf.cast(tf.range(tf.shape(x)[0]), tf.float32) + x, True),
        (lambda n, x: tf.zeros_like(x) + tf.ones([tf.size(x) // 2 + 1])[0] + tf.cast(n, tf.float32), True),
    ],
)
def test_sizes_that_follow_from_values_have_no_bound(function, is_known: bool) -> None:
    specs = [tf.TensorSpec([], tf.int32), tf.TensorSpec([None], tf.float32)]
    traced = tf.function(function, input_signature=specs, autograph=False).get_concrete_function()
    assert is_bounded(traced.graph) == is_known


def function_of(function, *shapes: list[int | None]) -> tf.types.experimental.ConcreteFunction:
    specs = [tf.TensorSpec(shape, tf.float32) for shape in shapes]
    return tf.function(function, input_signature=specs, autograph=False).get_concrete_function()


def test_subnormal_numbers_are_flushed_and_the_thread_keeps_its_own() -> None:
    function = function_of(lambda x: (x * 0.5, x * 1e20), [None])
    x = np.array(SPECIAL, np.float32)
    session = tf.compat.v1.Session(graph=function.graph)
    here = OnThisThread(session, function.inputs, function.outputs)([x])
    assert bits(here) == bits(Function(function)([x]))
    assert here[0][0] == here[1][0] == 0
    assert (x[:1] * np.float32(0.5))[0] > 0


def test_a_failure_leaves_the_thread_as_it_was_and_is_reported_as_ever() -> None:
    function = function_of(tf.matmul, [None, None], [None, None])
    leaves = [np.ones((2, 3), np.float32)] * 2
    with pytest.raises(tf.errors.InvalidArgumentError) as expected:
        Function(function)(leaves)
    with pytest.raises(tf.errors.InvalidArgumentError) as found:
        Bounded(function, are_bounded=False)(leaves)
    assert found.value.message == expected.value.message
    assert np.float32(1e-40) * np.float32(0.5) > 0


def test_large_tensors_remain_cancellable(monkeypatch) -> None:
    called: list[int] = []
    monkeypatch.setattr(OnThisThread, "__call__", lambda self, leaves: called.append(leaves[0].size) or [])
    function = function_of(lambda x: x * 0.5, [None])
    for are_bounded in (False, True):
        for size in (functions.SMALL, functions.SMALL + 1):
            Bounded(function, are_bounded=are_bounded)([np.ones(size, np.float32)])
    assert called == [functions.SMALL, functions.SMALL, functions.SMALL + 1]


def test_captured_constants_are_passed() -> None:
    constant = tf.constant([1.0, 2.0])
    function = function_of(lambda x: x * constant, [None])
    assert Bounded(function, are_bounded=False)([np.ones(2, np.float32)])[0].tolist() == [1.0, 2.0]


def test_unoptimized_functions_run_every_kernel() -> None:
    """TensorFlow's threads flush subnormal numbers: an optimised graph has no multiplication by 1, and keeps them."""

    def keeps_subnormal() -> bool:
        traced = tf.function(lambda x: x * 1.0, input_signature=[tf.TensorSpec([None], tf.float32)])
        (y,) = Function(traced.get_concrete_function())([np.full(1, 1e-40, np.float32)])
        return bool(y[0])

    with functions.unoptimized():
        assert not keeps_subnormal()
    assert keeps_subnormal()
