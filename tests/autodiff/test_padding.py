"""Batches of elementwise calls: the bits of a result depend neither on the rest of the batch nor on the shape."""

from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

from app.autodiff import derivatives, padded_numbers, programs
from app.autodiff.binding import bind
from app.autodiff.default_mode import default_mode, op_is_arithmetic
from app.autodiff.evaluation import Evaluation, compute
from app.errors import OpFailed
from app.tensors.json import decode
from ops import Op
from tests.autodiff.elementwise_calls import CPU, KINDS, PICKY, REGISTRY, bits, call, own_traces, point
from tests.http.plugins.masked import OP as MASKED

ELEMENTWISE = [op for op in REGISTRY.values() if op.batching == "elementwise"]


@pytest.fixture(scope="module", autouse=True)
def _own_traces() -> Iterator[None]:
    with own_traces():
        yield


def test_equal_but_distinct_numbers_are_not_batched():
    x = np.ones(3)
    zeros = [point(REGISTRY["gradient_reversal"], x, "float32", "graph", {"strength": s}) for s in (0.0, -0.0, 0.0)]
    companies = [derivatives.vjp(at, ("x",), None, batched=False, outputs=False).batch_key for at in zeros]
    assert companies[0] == companies[2] != companies[1]


def is_asked(op: Op, kind: str, dtype: str) -> bool:
    return dtype in op.dtypes and not (kind == "jvp" and not op.claim(op.attrs()).linear)


# XLA compiles seconds for the kinds of an op: ops with an exponential, a division and an attribute stand for all.
COMPILED = ("log1pexp", "divide", "gradient_reversal")


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("op", "kind", "mode"),
    [
        pytest.param(op, kind, mode, id=f"{op.name}-{kind}-{mode}", marks=marks)
        for mode, marks in (("graph", ()), ("xla", pytest.mark.slow))
        for kind in KINDS
        for op in ELEMENTWISE
        if mode in op.modes and (mode == "graph" or op.name in COMPILED)
    ],
)
def test_a_result_is_the_same_alone_and_in_a_batch(op: Op, kind: str, mode: str) -> None:
    low, high = op.inputs[0].domain
    for dtype in (dtype for dtype in ("float32", "float64") if is_asked(op, kind, dtype)):
        rng = np.random.default_rng(3)
        members = [rng.uniform(low, high, shape) for shape in ((3,), (), (5, 7), (1,), (64,), (2, 300), (999,))]
        calls = [call(op, kind, x, dtype, mode) for x in members]
        assert len({one.batch_key for one in calls}) == 1
        for alone, together in zip([one.run() for one in calls], finished_together(calls), strict=True):
            assert bits(alone) == bits(together)


@pytest.mark.parametrize("mode", ["graph", "xla"])
def test_a_result_is_the_same_in_pieces(mode: str) -> None:
    x = np.random.default_rng(4).uniform(-20, 20, 2 * padded_numbers.LENGTHS[-1] + 777)
    whole = call(REGISTRY["log1pexp"], "vjp", x, "float32", mode)
    assert whole.batch_key is None
    values, found = whole.run()
    for start in (0, 1, padded_numbers.LENGTHS[-1] - 5, len(x) - 13):
        piece = slice(start, start + 13)
        at = point(REGISTRY["log1pexp"], x[piece], "float32", mode)
        dy = {"y": np.cos(whole.point.inputs["x"][piece])}
        some, part = derivatives.vjp(at, ("x",), dy, batched=False, outputs=True).run()
        assert bits((values["y"][piece], found["x"][piece])) == bits((some["y"], part["x"]))


def test_calls_with_different_number_attributes_are_not_batched() -> None:
    op = REGISTRY["scale_gradient"]
    x = np.ones(3)
    one, same, other = (
        derivatives.vjp(point(op, x, "float32", "graph", {"scale": s}), ("x",), None, batched=False, outputs=False)
        for s in (2.0, 2.0, 3.0)
    )
    assert one.batch_key == same.batch_key != other.batch_key


def test_ops_with_value_checks_are_not_compiled_by_default() -> None:
    """XLA drops the check."""
    assert not op_is_arithmetic(PICKY)
    assert default_mode(PICKY, "float32", "cpu") == "graph"
    assert default_mode(REGISTRY["log1pexp"], "float32", "cpu") == "xla"
    assert default_mode(REGISTRY["log1pexp"], "float16", "cpu") == "graph"
    assert default_mode(REGISTRY["log1pexp"], "float32", "gpu:0") == "graph"
    assert default_mode(REGISTRY["relu"], "float32", "cpu") == "graph"
    assert default_mode(MASKED, "float32", "cpu") == "xla"


def test_an_op_that_changes_the_shape_is_an_op_error() -> None:
    def shrunk(x):
        return x[:1]

    op = Op(**{**{name: getattr(PICKY, name) for name in PICKY.__dataclass_fields__}, "function": shrunk})
    with pytest.raises(OpFailed, match=r"forward returned a wrong value for y: expected shape \[3\], got \[1\]"):
        derivatives.forward(point(op, np.ones(3), "float32", "graph")).run()


def finished_together(calls: list[Evaluation]) -> list:
    return [one.finish(results) for one, results in zip(calls, compute(calls), strict=True)]


def test_padding_values_are_in_the_ops_domain() -> None:
    def positive(x):
        with tf.control_dependencies([tf.debugging.assert_positive(x)]):
            return tf.identity(x) * x

    op = Op(**{**{name: getattr(PICKY, name) for name in PICKY.__dataclass_fields__}, "function": positive})
    x = np.array([3.0, 2.0])
    assert derivatives.forward(point(op, x, "float32", "graph")).run()["y"].tolist() == [9, 4]


@pytest.mark.parametrize("mode", ["graph", pytest.param("xla", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_is_batched_with_its_numbers(kind: str, mode: str) -> None:
    rng = np.random.default_rng(5)
    calls, expected = list[Evaluation](), list[np.ndarray]()
    for shape in ((3,), (), (5, 7), (1,), (64,), (1000,)):
        x, mask = rng.standard_normal(shape), rng.random(shape) < 0.5
        calls.append(masked_call(kind, x, mask, mode))
        expected.append(np.where(mask, x, 0))
    assert len({one.batch_key for one in calls}) == 1
    for alone, together, y in zip([one.run() for one in calls], finished_together(calls), expected, strict=True):
        assert bits(alone) == bits(together)
        found = together if kind == "forward" else together[0] if isinstance(together, tuple) else {}
        assert all(np.array_equal(one, y) for one in found.values())


def masked_call(kind: str, x: np.ndarray, mask: np.ndarray, mode: str) -> Evaluation:
    inputs = {"x": x.tolist(), "mask": mask.tolist()}
    at = bind(MASKED, inputs, {}, "float64", decode, mode=mode, device=CPU, max_elements=1 << 22)
    both, d = ("x", "mask"), np.asarray(np.cos(x))
    match kind:
        case "forward":
            return derivatives.forward(at)
        case "vjp":
            return derivatives.vjp(at, both, {"y": d}, batched=False, outputs=True)
        case "gradients":
            return derivatives.gradients(at, both, None, 2)
        case "hvp":
            return derivatives.hvp(at, both, {"y": d}, {"x": d}, batched=False)
        case "diagonal":
            return derivatives.hessian_diagonal(at, both, {"y": d})
        case _:
            return derivatives.jvp(at, {"x": d}, batched=False)


def test_equal_programs_are_one_object_while_any_is_in_use() -> None:
    """Otherwise an op with many programs could displace those of another, whose traces would be made again."""
    first = call(REGISTRY["square"], "vjp", np.ones(2), "float64", "graph").program
    programs.PROGRAMS.limit = 0
    try:
        programs.program_of((REGISTRY["square"], "float32", (), (), (), False, 9))
    finally:
        programs.PROGRAMS.limit = 1024
    assert call(REGISTRY["square"], "vjp", np.ones(3), "float64", "graph").program is first
