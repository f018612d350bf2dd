"""Traces: shapes and numbers make none; a process keeps a bounded number, and displaced ones free their memory."""

import gc
import json
import threading
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import tensorflow as tf
from pydantic import Field

from app.autodiff import derivatives
from app.autodiff.binding import bind
from app.autodiff.point import Point
from app.errors import OpFailed
from app.runtime import trace_entry, trace_room, traces
from app.runtime.trace_entry import Reference
from app.tensors.json import decode
from ops import Attrs, Example, Input, Mode, Op, Output, Tensor, custom_gradient, discover
from tests.patience import PATIENCE_S

CPU = "/device:CPU:0"
MANY = 1000
JSON = {"content-type": "application/json"}
# One trace for each of a thousand requests would take 250 MB, and one leaked byte per number sent 1 MB. After a warm-up
# of 200 requests, the allocator and the caches of TensorFlow, HTTP and the log grow by far less than this.
LEAK_MB = 30


def resident_mb(service) -> float:
    lines = Path(f"/proc/{service.process.pid}/status").read_text(encoding="ascii").splitlines()
    [kilobytes] = [int(line.split()[1]) for line in lines if line.startswith("VmRSS:")]
    return kilobytes / 1024


def shape(i: int) -> list[int]:
    """Return the i-th of many distinct shapes of rank 2."""
    return [1 + i % 37, 1 + i // 37]


def body_of_shape(i: int) -> dict:
    rows, columns = shape(i)
    return {"inputs": {"x": np.ones((rows, columns)).tolist()}}


def body_of_number(i: int) -> dict:
    return {"inputs": {"x": [1.0, 2.0]}, "attrs": {"scale": i / 1024}}


@pytest.mark.share(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "body", "mode"),
    [("safe_norm", body_of_shape, {}), ("scale_gradient", body_of_number, {"mode": "graph"})],
)
def test_shapes_and_numbers_leak_neither_traces_nor_memory(service, client, op, body, mode):
    def vjp(i: int) -> None:
        content = json.dumps({**body(i), **mode})
        response = client.post(f"/v1/ops/{op}/vjp", content=content, headers=JSON)
        assert response.status_code == 200, response.text

    for i in range(200):
        vjp(MANY + i)
    before, resident = client.get("/health/ready").json(), resident_mb(service)
    for i in range(MANY):
        vjp(i)
    after = client.get("/health/ready").json()
    assert (after["traces"], after["compiled"]) == (before["traces"], before["compiled"])
    assert resident_mb(service) - resident < LEAK_MB


class PowerAttrs(Attrs):
    """A static attribute: each value has its own trace."""

    power: int = Field(default=1, ge=1, le=99)
    how: Literal["by hand", "by map"] = "by hand"


def forward(x: Tensor, *, power: int, how: str) -> Tensor:
    return x**power


def vjp(x: Tensor, dy: Tensor, *, power: int, how: str) -> Tensor:
    return dy * power * x ** (power - 1)


def op_of(name: str, mechanism: Literal["custom_gradient", "gradient_override_map"]) -> Op:
    return Op(
        name=name,
        summary="a power of x",
        doc="y = x^power",
        function=custom_gradient(forward, vjp),
        reference=np.asarray,
        inputs=(Input("x"),),
        outputs=(Output("y"),),
        attrs=PowerAttrs,
        mechanism=mechanism,
        source="a test",
        examples=(Example("two", {"x": [1.0, 2.0]}),),
    )


@pytest.fixture
def few_traces(monkeypatch):
    """A process without traces that keeps three, two of them compiled, and one of these for good."""
    monkeypatch.setattr(trace_room, "TRACES_KEPT", 3)
    monkeypatch.setattr(trace_entry, "MEMBERS", 1)
    monkeypatch.setattr(trace_room, "SESSIONS_KEPT", 2)
    monkeypatch.setattr(traces, "TRACES", traces.Traces())


def point(op: Op, x: list[float], mode: Mode, power: int = 2) -> Point:
    where = {"mode": mode, "device": CPU, "max_elements": 1000}
    return bind(op, {"x": x}, {"power": power}, None, decode, **where)


def gradient(op: Op, x: list[float], mode: Mode, power: int = 2) -> list[float]:
    _, found = derivatives.vjp(point(op, x, mode, power), ("x",), None, batched=False, outputs=False).run()
    assert isinstance(found["x"], np.ndarray)
    return found["x"].tolist()


POWER = op_of("power", "custom_gradient")


def test_traces_have_so_many_nodes_together_and_the_owner_with_the_most_makes_room(monkeypatch: pytest.MonkeyPatch):
    def make(owner: str, number: int, nodes: int) -> None:
        op, program = ops[owner], programs.setdefault((owner, number), Held())
        key = Reference(weakref.ref(program), weakref.ref(op)), number
        cache.make(key, owner, lambda why_over, session: Held(nodes), is_compiled=False)

    class Held:
        def __init__(self, nodes: int = 0) -> None:
            self.nodes = nodes

    monkeypatch.setattr(trace_room, "NODES_KEPT", 100)
    cache, programs, ops = traces.Traces(), dict[tuple[str, int], Held](), {"few": Held(), "many": Held()}
    make("few", 0, 10)
    for number in range(5):
        make("many", number, 30)
    assert (len(cache), cache.room.displaced) == (4, 2)
    make("few", 0, 10)
    assert cache.made == {"few": 1, "many": 5}
    make("many", 5, 1000)
    assert (len(cache), cache.room.displaced) == (1, 6)
    monkeypatch.setattr(trace_room, "NODES_KEPT", 1)
    monkeypatch.setattr(traces, "TRACES", real := traces.Traces())
    for power in (1, 2, 3):
        gradient(POWER, [2.0], "graph", power)
    assert (len(real), real.room.displaced) == (1, 2)


@pytest.mark.usefixtures("few_traces")
@pytest.mark.parametrize("mode", ["graph", "v1", "xla"])
def test_traces_past_the_limit_displace_the_oldest(mode: Mode):
    for power in (1, 2, 3, 4, 5, 6, 1, 6):
        assert gradient(POWER, [2.0], mode, power) == [power * 2.0 ** (power - 1)]
        assert len(traces.TRACES) <= 3
    made, compiled = traces.trace_counts()
    assert made == 7
    assert compiled == (7 if mode == "xla" else 0)


@pytest.mark.usefixtures("few_traces")
def test_a_trace_in_use_stays():
    for power in (2, 3, 4, 5, 6):
        gradient(POWER, [2.0], "graph", 1)
        gradient(POWER, [2.0], "graph", power)
    assert traces.trace_counts()[0] == 6


@pytest.mark.usefixtures("few_traces")
def test_one_op_leaves_the_traces_of_others():
    other = op_of("other", "custom_gradient")
    gradient(other, [2.0], "v1", 3)
    for power in range(1, 9):
        gradient(POWER, [2.0], "v1", power)
    made = traces.trace_counts()[0]
    assert gradient(other, [2.0], "v1", 3) == [12.0]
    assert traces.trace_counts()[0] == made


@pytest.mark.usefixtures("few_traces")
def test_one_owner_of_work_leaves_the_traces_of_others():
    """Two clients with different keys call the same op."""
    with traces.traces_of("power (key a)"):
        gradient(POWER, [2.0], "graph", 3)
    with traces.traces_of("power (key b)"):
        for power in range(4, 9):
            gradient(POWER, [2.0], "graph", power)
    made = traces.trace_counts()[0]
    gradient(POWER, [2.0], "graph", 3)
    assert traces.trace_counts()[0] == made


@pytest.mark.usefixtures("few_traces")
def test_an_executable_in_a_session_gives_the_same_bits():
    x = [2.0, 0.1, -3.3]
    first = gradient(POWER, x, "xla", 3)  # it stays
    for power in (1, 2, 4):
        gradient(POWER, x, "xla", power)
    fresh = op_of("power", "custom_gradient")
    assert gradient(fresh, x, "xla", 3) == first


@pytest.mark.usefixtures("few_traces")
def test_all_sessions_together_are_bounded():
    """One stays, for a program of few shapes; requests of ever new shapes share the rest."""
    few, many = replace(op_of("few", "custom_gradient"), batching="elementwise"), op_of("many", "custom_gradient")
    for power in (1, 2, 3, 4):
        gradient(few, [2.0], "xla", power)
        gradient(many, [2.0], "xla", power)
    entries = traces.TRACES._entries.values()
    assert [each.op for each in entries if each.is_permanent] == ["few"]
    assert len({each.session for each in entries}) == traces.TRACES.room.most_sessions == 2


@pytest.mark.parametrize("batching", ["elementwise", "none"])
def test_xla_reads_the_constants_of_a_page_but_no_table(batching):
    constant = tf.constant([1.5])
    numbers = tf.lookup.KeyValueTensorInitializer(tf.constant([2], tf.int64), tf.constant([1.0]))
    table = tf.lookup.StaticHashTable(numbers, 0.0)

    def scaled(x: Tensor) -> Tensor:
        return x * constant[0]

    def looked_up(x: Tensor) -> Tensor:
        return x + table.lookup(tf.cast(x, tf.int64))

    def op(function) -> Op:
        first = custom_gradient(function, lambda x, dy: dy * constant[0])
        return replace(op_of("reads", "custom_gradient"), function=first, attrs=Attrs, batching=batching)

    def run(page: Op):
        at = bind(page, {"x": [2.0]}, {}, "float32", decode, mode="xla", device=CPU, max_elements=10)
        return derivatives.vjp(at, ("x",), None, batched=False, outputs=False).run()[1]

    assert run(op(scaled))["x"] == 1.5
    with pytest.raises(OpFailed, match=r"uses a table or random generator .* which mode xla cannot read"):
        run(op(looked_up))


@pytest.mark.thorough
@pytest.mark.slow
def test_compiled_shapes_give_their_memory_back(monkeypatch):
    """The executables of a session end with it, and nothing keeps the graph."""
    monkeypatch.setattr(trace_entry, "MEMBERS", 2)
    monkeypatch.setattr(trace_room, "SESSIONS_KEPT", 2)
    monkeypatch.setattr(traces, "TRACES", traces.Traces())
    op = discover().ops["safe_norm"]

    def compile_for(columns: int) -> None:
        where = {"mode": "xla", "device": CPU, "max_elements": 1000}
        at = bind(op, {"x": [[1.0] * columns]}, {}, None, decode, **where)
        derivatives.vjp(at, ("x",), None, batched=False, outputs=False).run()

    for columns in range(1, 4):
        compile_for(columns)
    before = count_of(tf.compat.v1.Session), count_of(tf.Graph)
    for columns in range(4, 8):
        compile_for(columns)
    assert traces.TRACES.room.displaced == 4
    assert (count_of(tf.compat.v1.Session), count_of(tf.Graph)) == before


def count_of(kind: type) -> int:
    gc.collect()
    return sum(isinstance(each, kind) for each in gc.get_objects())


def test_a_thread_that_must_not_compile_leaves_it_to_another(monkeypatch):
    monkeypatch.setattr(traces, "TRACES", traces.Traces())
    traces.forbid_tracing(("xla",))
    try:
        with pytest.raises(traces.NotTraced):
            gradient(POWER, [2.0, 3.0], "xla")
        assert gradient(POWER, [2.0, 3.0], "graph") == [4.0, 6.0]
        thread = threading.Thread(target=gradient, args=(POWER, [2.0, 3.0], "xla"))
        thread.start()
        thread.join(PATIENCE_S)
        assert gradient(POWER, [2.0, 3.0], "xla") == [4.0, 6.0]
    finally:
        traces.forbid_tracing(())


@pytest.mark.usefixtures("few_traces")
def test_a_failed_trace_is_made_once():
    """A failed trace leaks too, so it is cached as its error."""
    calls: list[int] = []

    def fails(x: Tensor, *, power: int, how: str) -> Tensor:
        calls.append(power)
        raise tf.errors.UnknownError(None, None, "no such luck")

    broken = op_of("broken", "custom_gradient")
    object.__setattr__(broken, "function", fails)
    for _ in range(5):
        with pytest.raises(Exception, match="no such luck"):
            derivatives.forward(point(broken, [1.0], "graph")).run()
    assert traces.trace_counts()[0] == 1
    # Once for the trace, and once eagerly for a clearer error.
    assert len(calls) <= 2
