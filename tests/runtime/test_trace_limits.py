"""Traces stop between two nodes: at the deadline, and before they have too many; and they go on where that helps."""

import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import tensorflow as tf

from app.autodiff.programs import Program, program_of
from app.autodiff.transforms import Transform
from app.errors import DeadlinePassed, Overloaded, Unprocessable
from app.execution.scheduler import Scheduler
from app.graphs.document import GraphDocument
from app.graphs.graph_op import graph_op
from app.runtime import modes, trace_limits, traces
from app.runtime.cancellation import Interruptible
from app.runtime.modes import KeyedArrays
from app.runtime.trace_limits import MOST_OF_COMPOSITION, Limits, TooManyNodes, limited
from app.telemetry.accounts import Owner
from ops import Example, Input, Mode, Op, Output, Tensor
from tests.autodiff.elementwise_calls import CPU, own_traces
from tests.execution.test_scheduler import in_a_scheduler, later
from tests.ops.cases import REGISTRY
from tests.patience import PATIENCE_S, PAUSE_S


@pytest.fixture(autouse=True)
def _own_traces() -> Iterator[None]:
    with own_traces():
        yield


def chain(count: int, op: str) -> Op:
    """Return a graph in which each node is ``op`` of the one before with itself."""
    nodes = [
        {"name": f"n{i}", "op": op, "inputs": [f"n{i - 1}" if i else "x"] * len(REGISTRY.ops[op].inputs)}
        for i in range(count)
    ]
    document = {"inputs": ["x"], "nodes": nodes, "outputs": {"y": f"n{count - 1}"}}
    return graph_op(GraphDocument.model_validate(document), REGISTRY.ops.__getitem__)


def page(function: Callable[[Tensor], Tensor]) -> Op:
    return Op(
        name="slow",
        summary="y = x, traced slowly",
        doc="y = x",
        function=function,
        inputs=(Input("x"),),
        outputs=(Output("y"),),
        mechanism="composition",
        source="a test",
        examples=(Example("two", {"x": [1.0, 2.0]}),),
    )


def derivative(op: Op, order: int) -> Program:
    of = [("y",), *[("x",)] * order]
    transforms = tuple(Transform("vjp", ("x",), of[i], ones=True) for i in range(order))
    return program_of((op, "float64", (), transforms, (), False, 0))


def run(program: Program, mode: Mode = "graph", seconds: float = PATIENCE_S) -> KeyedArrays:
    with Interruptible(time.monotonic() + seconds):
        return modes.run(program, mode, [np.array([0.5])], CPU)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["graph", pytest.param("v1", marks=pytest.mark.thorough)])
def test_a_deep_graph_of_a_high_order_is_refused_with_the_count_and_the_limit(mode: Mode) -> None:
    deep = derivative(chain(100, "multiply"), 4)
    for _ in range(2):
        with pytest.raises(TooManyNodes) as refused:
            run(deep, mode)
        [entry] = refused.value.entries
        assert int(entry.got.split()[0]) > MOST_OF_COMPOSITION
        assert str(MOST_OF_COMPOSITION) in entry.expected
        assert "eager" in entry.expected
    assert traces.TRACES.stopped["nodes"] == 1  # the second request costs nothing
    assert run(deep, "eager")[4, "x"] is not None


@pytest.mark.slow
@pytest.mark.parametrize(("count", "op", "order"), [(120, "multiply", 1), (120, "add", 4), (10, "multiply", 3)])
def test_what_ends_is_not_refused(count: int, op: str, order: int) -> None:
    """A chain of sums does not grow with the order, whatever the first order has made of it."""
    program = derivative(chain(count, op), order)
    eager, graph = (run(program, mode)[order, "x"] for mode in ("eager", "graph"))
    if op != "add" or order == 1:
        np.testing.assert_allclose(np.asarray(graph), np.asarray(eager), rtol=1e-9)


def test_the_count_is_that_of_the_graph_and_growth_is_foreseen() -> None:
    limits, graph = Limits("op", 10, lambda: None), tf.Graph()
    with graph.as_default(), limited(limits):
        for _ in range(10):
            tf.constant(1.0)
        with pytest.raises(TooManyNodes, match="at least 11 nodes"):
            tf.constant(1.0)
        with pytest.raises(TooManyNodes):  # it stays stopped
            tf.constant(1.0)
    assert len(graph.get_operations()) == 10
    tf.constant(1.0)  # and only that trace
    growing = Limits("op", 1000, lambda: None, nodes=90)
    growing.look_ahead(31, 3)  # less than three times as many: nobody knows
    growing.look_ahead(30, 2)
    with pytest.raises(TooManyNodes, match="at least 2430 nodes"):
        growing.look_ahead(30, 3)


@pytest.mark.parametrize("mode", ["graph", "v1", "xla", "eager"])
def test_a_composition_stops_at_its_deadline_and_leaves_nothing(mode: Mode) -> None:
    program = derivative(chain(60, "multiply"), 3)
    for _ in range(2):
        with pytest.raises(DeadlinePassed):
            run(program, mode, 0.05)
        assert len(traces.TRACES) == 0
    small = derivative(chain(2, "multiply"), 3)
    with pytest.raises(DeadlinePassed):
        run(small, mode, -1)
    np.testing.assert_array_equal(np.asarray(run(small, mode)[3, "x"]), [4 * 3 * 2 * 0.5])


def test_an_op_that_catches_the_error_makes_no_wrong_trace() -> None:
    """Its code takes another branch when a node is refused; the next trace must not have that branch."""
    until = time.monotonic() + 0.3

    def forward(x: Tensor) -> Tensor:
        try:
            y = x
            while time.monotonic() < until:
                y = tf.identity(y)
        except DeadlinePassed:
            return x
        return y + 1

    program = derivative(page(forward), 0)
    with pytest.raises(DeadlinePassed):
        run(program, "graph", 0.05)
    time.sleep(max(0.0, until - time.monotonic()))
    np.testing.assert_array_equal(np.asarray(run(program)[0, "y"]), [1.5])


def test_one_caller_that_leaves_does_not_fail_another() -> None:
    entered, count = threading.Event(), 0

    def forward(x: Tensor) -> Tensor:
        nonlocal count
        count += 1
        entered.set()
        for _ in range(40):
            time.sleep(0.01)
            x = tf.identity(x)
        return x

    program, errors = derivative(page(forward), 0), list[BaseException]()

    def leave() -> None:
        try:
            run(program, "graph", 0.1)
        except DeadlinePassed as error:
            errors.append(error)

    first = threading.Thread(target=leave)
    first.start()
    assert entered.wait(PATIENCE_S)
    np.testing.assert_array_equal(np.asarray(run(program)[0, "y"]), [0.5])
    first.join()
    assert (len(errors), count) == (1, 2)


def test_the_trace_of_a_page_goes_on_in_the_background_once() -> None:
    """The first request pays; the next ones are told to come back, and cost nothing."""
    goes_on, count = threading.Event(), 0

    def forward(x: Tensor) -> Tensor:
        nonlocal count
        count += 1
        while not goes_on.is_set():
            time.sleep(PAUSE_S)
            x = tf.identity(x)
        return x

    program = derivative(page(forward), 0)

    async def test(scheduler: Scheduler) -> None:
        def ask(seconds: float):
            def work(checkpoint: Callable[[], None]) -> KeyedArrays:
                return modes.run(program, "graph", [np.array([0.5])], CPU)

            return scheduler.run(work, queue="short", deadline=later(seconds), owner=Owner("slow"))

        with pytest.raises(DeadlinePassed):
            await ask(0.2)
        for _ in range(3):
            with pytest.raises(Overloaded, match=r"op slow is still traced .*, since \d s") as refused:
                await ask(PATIENCE_S)
            assert refused.value.headers == {"Retry-After": "5"}
        assert traces.TRACES.in_background == 1
        assert scheduler.overruns() == []  # of work that holds others
        goes_on.set()
        until = time.monotonic() + PATIENCE_S
        while traces.TRACES.in_background:
            assert time.monotonic() < until
            time.sleep(PAUSE_S)
        assert (await ask(PATIENCE_S))[0, "y"] is not None
        assert count == 1

    in_a_scheduler(test)


def test_a_trace_in_the_background_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "BACKGROUND_S", 0.4)
    monkeypatch.setattr(traces, "REFUSED_S", 0.5)
    count = 0

    def forward(x: Tensor) -> Tensor:
        nonlocal count
        count += 1
        while True:
            time.sleep(PAUSE_S)
            x = tf.identity(x)

    program, refusals = derivative(page(forward), 0), set[str]()

    async def test(scheduler: Scheduler) -> None:
        def work(checkpoint: Callable[[], None]) -> KeyedArrays:
            return modes.run(program, "graph", [np.array([0.5])], CPU)

        until = time.monotonic() + PATIENCE_S
        while count < 2:  # it is tried again, later
            assert time.monotonic() < until
            try:
                await scheduler.run(work, queue="short", deadline=later(0.1), owner=Owner("slow"))
            except Overloaded as refused:
                refusals.add(refused.detail.split(",")[0].split(" more")[0])
            except DeadlinePassed:
                pass
            time.sleep(PAUSE_S)

    in_a_scheduler(test)
    derivative_of_slow = "for this mode and derivative"
    assert refusals == {f"op slow is still traced {derivative_of_slow}", f"tracing op slow {derivative_of_slow} took"}
    assert traces.TRACES.stopped["time"] >= 1


def test_a_trace_that_makes_no_node_leaves_its_place_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "IDLE_S", 0.1)
    ends = threading.Event()

    def waits(x: Tensor) -> Tensor:
        assert ends.wait(PATIENCE_S)
        return tf.identity(x)

    def works(x: Tensor) -> Tensor:
        while not ends.is_set():
            time.sleep(PAUSE_S)
            x = tf.identity(x)
        return x

    async def test(scheduler: Scheduler) -> None:
        def ask(function: Callable[[Tensor], Tensor], owner: str, seconds: float):
            program = derivative(page(function), 0)

            def work(checkpoint: Callable[[], None]) -> KeyedArrays:
                return modes.run(program, "graph", [np.array([0.5])], CPU)

            return lambda: scheduler.run(work, queue="short", deadline=later(seconds), owner=Owner(owner))

        for i in range(traces.BACKGROUND + 1):
            # The last one begins when the others have turned out to be slow.
            again = ask(waits, f"op{i}", 0.2) if i < traces.BACKGROUND else ask(works, f"op{i}", 2.0)
            with pytest.raises(DeadlinePassed):
                await again()
            with pytest.raises(Overloaded, match="still traced"):
                await again()
        ends.set()

    in_a_scheduler(test)


def test_too_many_nodes_are_the_fault_of_the_request() -> None:
    assert issubclass(TooManyNodes, Unprocessable)
    assert trace_limits.nodes() == 0


def test_the_first_call_of_a_large_trace_is_part_of_it() -> None:
    """TensorFlow optimises it then, for seconds: not where other work waits, and not again for each caller."""

    def forward(x: Tensor) -> Tensor:
        for _ in range(modes.LARGE):
            x = x + 1
        return tf.numpy_function(counted, [x], x.dtype)

    calls = list[bool]()

    def counted(x: np.ndarray) -> np.ndarray:
        calls.append(block.is_uninterrupted)
        return x

    program = derivative(page(forward), 0)
    with Interruptible(later(PATIENCE_S)) as block:
        modes.run(program, "graph", [np.array([0.5])], CPU)
    assert calls == [True, False]
