"""Batches of elementwise calls: the bits of a result depend neither on the rest of the batch nor on the shape."""

import asyncio
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

from app.autodiff import derivatives, padded_numbers, programs
from app.autodiff.binding import bind
from app.autodiff.default_mode import default_mode, op_is_arithmetic
from app.autodiff.evaluation import Evaluation, compute
from app.autodiff.padded_numbers import PaddedNumbers
from app.autodiff.point import Point
from app.errors import OpFailed
from app.execution import batching
from app.execution.batching import Batches
from app.execution.scheduler import Scheduler
from app.runtime import traces
from app.tensors.json import decode
from ops import Example, Input, Op, Output, discover
from tests.http.plugins.masked import OP as MASKED
from tests.patience import PATIENCE_S

CPU = "/device:CPU:0"
REGISTRY = discover().ops
ELEMENTWISE = [op for op in REGISTRY.values() if op.batching == "elementwise"]
KINDS = ("forward", "vjp", "gradients", "hvp", "jvp", "diagonal")


@pytest.fixture(scope="module", autouse=True)
def _traces_of_their_own() -> Iterator[None]:
    """Leave the traces of this process, which it shares with other tests, unchanged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traces, "TRACES", traces.Traces())
        yield


def test_equal_but_distinct_numbers_are_not_batched():
    x = np.ones(3)
    zeros = [point(REGISTRY["gradient_reversal"], x, "float32", "graph", {"strength": s}) for s in (0.0, -0.0, 0.0)]
    companies = [derivatives.vjp(at, ("x",), None, batched=False, outputs=False).batch_key for at in zeros]
    assert companies[0] == companies[2] != companies[1]


def point(op: Op, x: np.ndarray, dtype: str, mode: str, attrs=None) -> Point:
    inputs = {slot.name: x.tolist() for slot in op.inputs}
    run = {"device": CPU, "max_elements": 1 << 22}
    return bind(op, inputs, attrs or {}, dtype, decode, mode=mode, **run)


def call(op: Op, kind: str, x: np.ndarray, dtype: str, mode: str) -> Evaluation:
    at = point(op, x, dtype, mode)
    names, outputs = tuple(at.inputs), tuple(slot.name for slot in op.outputs)
    directions = {name: np.cos(value).astype(value.dtype) for name, value in at.inputs.items()}
    dys = dict.fromkeys(outputs, directions[names[0]])
    match kind:
        case "forward":
            return derivatives.forward(at)
        case "vjp":
            return derivatives.vjp(at, names, dys, batched=False, outputs=True)
        case "gradients":
            return derivatives.gradients(at, names, None, 2)
        case "hvp":
            return derivatives.hvp(at, names, dys, directions, batched=False)
        case "diagonal":
            return derivatives.hessian_diagonal(at, names, dys)
        case _:
            return derivatives.jvp(at, directions, batched=False)


def bits(found) -> list[bytes]:
    """Return the bits of all arrays of a result, in order."""
    if isinstance(found, np.ndarray):
        return [found.tobytes(), repr((found.shape, found.dtype)).encode()]
    values = found.values() if isinstance(found, dict) else found if isinstance(found, list | tuple) else ()
    return [one for value in values for one in bits(value)]


def is_asked(op: Op, kind: str, dtype: str) -> bool:
    return dtype in op.dtypes and not (kind == "jvp" and not op.claim(op.attrs()).linear)


@pytest.mark.parametrize("mode", ["graph", pytest.param("xla", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
def test_a_result_is_the_same_alone_and_in_a_batch(op: Op, kind: str, mode: str) -> None:
    if mode not in op.modes:
        pytest.skip("the op has no kernels for it")
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


def picky(x):
    with tf.control_dependencies([tf.debugging.assert_less(x, 100.0, message="x is too large")]):
        return tf.identity(x) * x


PICKY = Op(
    name="picky",
    summary="x²",
    doc=__doc__,
    function=picky,
    reference=np.square,
    inputs=(Input("x", ("float32",)),),
    outputs=(Output("y", ("float32",)),),
    mechanism="custom_gradient",
    source="a test",
    batching="elementwise",
    examples=(Example("one", {"x": [1.0]}),),
)


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


def together(calls: list[Evaluation], **options) -> list:
    """Run calls concurrently, as requests do; return the result or the exception of each."""

    async def run() -> list:
        scheduler = Scheduler(64)
        scheduler.start()
        batches = Batches(scheduler, options.get("waiting", 64))
        deadline = time.monotonic() + PATIENCE_S
        try:
            pending = (batches.run(one, queue="short", owner=one.point.op.name, deadline=deadline) for one in calls)
            found = await asyncio.gather(*pending, return_exceptions=True)
            return [
                each if isinstance(each, BaseException) else one.finish(each)
                for one, each in zip(calls, found, strict=True)
            ]
        finally:
            scheduler.stop()

    return asyncio.run(run())


def test_a_bad_value_fails_only_its_own_call() -> None:
    calls = [derivatives.forward(point(PICKY, np.full(2, value), "float32", "graph")) for value in (1.0, 200.0, 3.0)]
    first, bad, last = together(calls)
    assert first["y"].tolist() == [1, 1]
    assert last["y"].tolist() == [9, 9]
    assert "x is too large" in str(bad)


def test_simultaneous_calls_are_one_tensorflow_call(monkeypatch) -> None:
    sizes: list[int] = []
    run = PaddedNumbers.run

    def counted(packing, members):
        sizes.append(len(members))
        return run(packing, members)

    monkeypatch.setattr(PaddedNumbers, "run", counted)
    op = REGISTRY["square"]
    for _ in range(2):  # the second time on the event loop, if that is as fast
        sizes.clear()
        found = together([call(op, "vjp", np.full(3, float(i)), "float64", "graph") for i in range(20)])
        assert sizes == [20]
        for i, (values, _gradients) in enumerate(found):
            assert values["y"].tolist() == [float(i * i)] * 3


def test_a_batch_is_limited_in_size() -> None:
    size = padded_numbers.SHARED // 2
    found = together(
        [call(REGISTRY["square"], "forward", np.full(size, float(i)), "float64", "graph") for i in range(5)]
    )
    assert [one["y"][0] for one in found] == [0, 1, 4, 9, 16]


def test_only_the_calls_over_the_queue_limit_are_refused() -> None:
    ops = [REGISTRY["square"]] * 5 + [REGISTRY["round_ste"]]
    found = together([call(op, "forward", np.ones(2), "float64", "graph") for op in ops], waiting=4)
    assert ["queue full" in str(one) for one in found] == [False, False, True, True, True, False]


@pytest.mark.parametrize("seconds", [0.4, 1.5])
def test_an_expired_call_does_not_fail_its_batch(seconds: float) -> None:
    """The scheduler is busy past one call's deadline, or its whole batch's; others are answered."""

    async def run() -> list:
        scheduler = Scheduler(64)
        scheduler.start()
        batches = Batches(scheduler, 64)
        now = time.monotonic()
        busy = asyncio.create_task(
            scheduler.run(lambda checkpoint: time.sleep(seconds), queue="short", deadline=now + 60, owner="a")
        )
        await asyncio.sleep(0.05)
        calls = [call(REGISTRY["round_ste"], "forward", np.ones(2), "float32", "graph") for _ in range(3)]
        try:
            deadlines = (now + 0.1, now + 60, now + 60)
            pending = [
                batches.run(one, queue="short", owner=one.point.op.name, deadline=at)
                for one, at in zip(calls, deadlines, strict=True)
            ]
            return await asyncio.gather(*pending, busy, return_exceptions=True)
        finally:
            scheduler.stop()

    impatient, *others, _ = asyncio.run(run())
    assert "deadline" in str(impatient)
    assert [one[0, "y"].tolist() for one in others] == [[1, 1], [1, 1]]


def test_padding_values_are_in_the_ops_domain() -> None:
    def positive(x):
        with tf.control_dependencies([tf.debugging.assert_positive(x)]):
            return tf.identity(x) * x

    op = Op(**{**{name: getattr(PICKY, name) for name in PICKY.__dataclass_fields__}, "function": positive})
    x = np.array([3.0, 2.0])
    assert derivatives.forward(point(op, x, "float32", "graph")).run()["y"].tolist() == [9, 4]


@pytest.mark.parametrize(("op", "on_the_loop"), [(REGISTRY["square"], True), (PICKY, False)])
def test_only_brief_arithmetic_runs_on_the_event_loop(monkeypatch, op: Op, on_the_loop: bool) -> None:
    threads: list[str] = []
    run = PaddedNumbers.run

    def seen(*args):
        threads.append(threading.current_thread().name)
        return run(*args)

    monkeypatch.setattr(PaddedNumbers, "run", seen)
    monkeypatch.setattr(batching, "INLINE_S", 60.0)

    async def ask() -> None:
        scheduler = Scheduler(64)
        scheduler.start()
        shared = Batches(scheduler, 64)
        for _ in range(2):
            pending = derivatives.forward(point(op, np.ones(2), "float32", "graph"))
            await shared.run(pending, queue="short", owner="a", deadline=time.monotonic() + PATIENCE_S)
        scheduler.stop()

    asyncio.run(ask())
    assert threads == ["scheduler-short", threading.current_thread().name if on_the_loop else "scheduler-short"]


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
    programs.program_of.cache_clear()
    assert call(REGISTRY["square"], "vjp", np.ones(3), "float64", "graph").program is first
