"""Traces have a lifetime budget: shapes and numbers use none of it; past it, requests run eagerly or get a 503."""

import json
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import tensorflow as tf
from pydantic import Field

from app.autodiff import derivatives
from app.autodiff.binding import bind
from app.autodiff.point import Point
from app.errors import Overloaded
from app.runtime import traces
from app.tensors.json import decode
from ops import Attrs, Example, Input, Mode, Op, Output, Tensor, custom_gradient

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
    """A process without traces and with a budget of three, two of them for XLA."""
    monkeypatch.setattr(traces, "TRACES", traces.Traces())
    monkeypatch.setattr(traces, "TRACE_BUDGET", 3)
    monkeypatch.setattr(traces, "XLA_BUDGET", 2)
    monkeypatch.setattr(traces, "SHARE", 1)


def point(op: Op, x: list[float], mode: Mode, power: int = 2) -> Point:
    where = {"mode": mode, "device": CPU, "max_elements": 1000}
    return bind(op, {"x": x}, {"power": power}, None, decode, **where)


def gradient(op: Op, x: list[float], mode: Mode, power: int = 2) -> list[float]:
    _, found = derivatives.vjp(point(op, x, mode, power), ("x",), None, batched=False, outputs=False).run()
    assert isinstance(found["x"], np.ndarray)
    return found["x"].tolist()


POWER = op_of("power", "custom_gradient")


@pytest.mark.usefixtures("few_traces")
def test_static_values_past_the_budget_run_eagerly():
    for power in range(1, 9):
        assert gradient(POWER, [2.0], "graph", power) == [power * 2.0 ** (power - 1)]
    assert traces.trace_counts() == (3, 0)


@pytest.mark.usefixtures("few_traces")
def test_an_op_with_a_bare_override_map_is_refused_past_the_budget():
    """A tape silently ignores the map, so the eager result could differ."""
    bare = op_of("bare", "gradient_override_map")
    for power in (1, 2, 3):
        gradient(bare, [2.0], "graph", power)
    with pytest.raises(Overloaded, match="op bare has no traces left"):
        gradient(bare, [2.0], "graph", 4)
    assert gradient(bare, [2.0], "graph", 3) == [12.0]


@pytest.mark.usefixtures("few_traces")
def test_v1_past_the_budget_is_503_while_eager_works():
    for power in (1, 2, 3):
        gradient(POWER, [2.0], "v1", power)
    with pytest.raises(Overloaded, match="use mode eager") as refused:
        gradient(POWER, [2.0], "v1", 4)
    assert refused.value.status == 503
    assert int(refused.value.headers["Retry-After"]) > 0
    assert gradient(POWER, [2.0], "eager", 4) == [32.0]
    assert gradient(POWER, [2.0], "v1", 3) == [12.0]


@pytest.mark.usefixtures("few_traces")
def test_xla_past_its_own_budget_is_503_while_the_rest_works():
    """Each shape is a compilation."""
    assert gradient(POWER, [2.0], "xla") == [4.0]
    assert gradient(POWER, [2.0, 3.0], "xla") == [4.0, 6.0]
    with pytest.raises(Overloaded, match="op power has no XLA compilations left") as refused:
        gradient(POWER, [2.0, 3.0, 4.0], "xla")
    assert refused.value.status == 503
    assert traces.trace_counts() == (2, 2)
    assert gradient(POWER, [3.0], "xla") == [6.0]
    assert gradient(POWER, [2.0, 3.0, 4.0], "eager") == [4.0, 6.0, 8.0]
    assert gradient(POWER, [2.0, 3.0, 4.0], "graph") == [4.0, 6.0, 8.0]


@pytest.mark.usefixtures("few_traces")
def test_one_op_leaves_a_share_to_the_others(monkeypatch):
    monkeypatch.setattr(traces, "SHARE", 0.5)
    for power in (1, 2):
        gradient(POWER, [2.0], "v1", power)
    with pytest.raises(Overloaded, match="op power"):
        gradient(POWER, [2.0], "v1", 3)
    assert gradient(op_of("other", "custom_gradient"), [2.0], "v1", 3) == [12.0]


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
