"""Examples and symbols that are refused when a page is loaded, and those that must not be."""

import time
from dataclasses import replace

import pytest
import tensorflow as tf
from pydantic import Field

from app.autodiff import admission
from app.autodiff.admission import admit
from ops import Attrs, Example, Input, Op, Output, Tensor
from tests.patience import PATIENCE_S


class Window(Attrs):
    """The numbers of a window."""

    width: int = Field(default=2, ge=1, le=9)


def made(function, x: Input, y: Output, at: object, **changes) -> Op:
    """Return an op of one input."""
    return Op(
        name="made",
        summary="a test",
        doc=None,
        function=function,
        inputs=(x,),
        outputs=(y,),
        mechanism="symbolic_gradient",
        source="a test",
        examples=(Example("first", {"x": at}),),
        **changes,
    )


def differences(x: Tensor) -> Tensor:
    return x[1:] - x[:-1]


def positive(x: Tensor) -> Tensor:
    return tf.boolean_mask(x, x > 0)


def windows(x: Tensor) -> Tensor:
    return tf.signal.frame(x, 2, 1)


def transposed(x: Tensor) -> Tensor:
    return tf.transpose(x)


def refusing(x: Tensor) -> Tensor:
    """The function accepts two numbers alone."""
    if x.shape[0] != 2:
        raise ValueError("expected two numbers")
    return x


OWN = {
    "a size by a formula": made(differences, Input("x", shape=("N",)), Output("y", shape=("M",)), [1.0, 2.0, 4.0]),
    # The sizes of a trace are (5, 7) and then (11, 7): each of these sums is equal to one by chance.
    "two more": made(
        lambda x: tf.pad(x[:, 0], [[0, 2]]), Input("x", shape=("N", "M")), Output("y", shape=("K",)), [[1.0]]
    ),
    "four less": made(lambda x: x[4:, 0], Input("x", shape=("N", "M")), Output("y", shape=("K",)), [[1.0]] * 5),
    "a size by values": made(positive, Input("x", shape=("N",)), Output("y", shape=("K",)), [1.0, 2.0]),
    "a fixed size": made(windows, Input("x", shape=("N",)), Output("y", shape=("K", "W")), [1.0, 2.0, 3.0]),
    "a function that refuses": made(refusing, Input("x", shape=("N",)), Output("y", shape=("K",)), [1.0, 2.0]),
    "free dimensions": made(tf.sin, Input("x", shape=("N",)), Output("y"), [1.0, 2.0]),
}
MISTAKEN = {
    "another letter": (made(tf.sin, Input("x", shape=("N",)), Output("y", shape=("M",)), [1.0, 2.0]), "M", "N"),
    "the second of two": (
        made(transposed, Input("x", shape=("N", "M")), Output("y", shape=("K", "N")), [[1.0, 2.0]]),
        "K",
        "M",
    ),
    "after free dimensions": (
        made(tf.sin, Input("x", shape=("...", "H", "W")), Output("y", shape=("...", "H", "V")), [[1.0, 2.0]]),
        "V",
        "W",
    ),
}


@pytest.mark.parametrize("op", OWN.values(), ids=OWN)
def test_a_size_of_its_own_is_accepted(op: Op) -> None:
    admit(op)


@pytest.mark.parametrize(("op", "got", "cure"), MISTAKEN.values(), ids=MISTAKEN)
def test_a_mistaken_symbol_is_refused(op: Op, got: str, cure: str) -> None:
    with pytest.raises(ValueError, match=f"output 'y': .* got '{got}', .* write '{cure}'"):
        admit(op)


def test_an_integer_attribute_is_a_symbol() -> None:
    x, y = Input("x", shape=("N",)), Output("y", shape=("K", "width"))
    admit(made(lambda x, *, width: tf.signal.frame(x, width, 1), x, y, [1.0, 2.0, 3.0], attrs=Window))


def at(low: float, high: float, x: object, dtype: str = "float32") -> Op:
    return made(tf.identity, Input("x", (dtype,), domain=(low, high)), Output("y", (dtype,)), x)


@pytest.mark.parametrize("x", [[0.1, 0.7], ["NaN", 0.5], []])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_an_example_at_the_ends_of_its_domain_is_accepted(x: object, dtype: str) -> None:
    """Both ends round, up or down."""
    admit(at(0.1, 0.7, x, dtype))


@pytest.mark.parametrize("x", [[0.1, 0.8], 0.0, ["-Infinity"], [[0.5], [1e30]]])
def test_an_example_outside_of_its_domain_is_refused(x: object) -> None:
    with pytest.raises(ValueError, match=r"example 'first': expected numbers in the domain of x, \(0.1, 0.7\), got"):
        admit(at(0.1, 0.7, x))


def test_every_example_is_checked() -> None:
    op = at(0.1, 0.7, 0.2)
    with pytest.raises(ValueError, match="example 'second'"):
        admit(replace(op, examples=(*op.examples, Example("second", {"x": 3.0}))))


def test_an_undeclared_domain_has_no_outside() -> None:
    admit(made(tf.negative, Input("x"), Output("y"), [-1e9]))


def test_a_slow_trace_is_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def sleeping(x: Tensor) -> Tensor:
        for _ in range(200):
            time.sleep(0.01)  # many short sleeps, because the trace is ended between them
        return 2 * x

    def busy(x: Tensor) -> Tensor:
        until = time.thread_time() + 2
        while time.thread_time() < until:
            pass
        return 2 * x

    monkeypatch.setattr(admission, "TRACED_S", 0.5)
    monkeypatch.setattr(admission, "WAITED_S", PATIENCE_S)
    admit(made(differences, Input("x", shape=("N",)), Output("y", shape=("M",)), [1.0, 3.0]))
    # Sleep takes no CPU time, as the time in which others have the CPU.
    admit(made(sleeping, Input("x", shape=("N",)), Output("y", shape=("N",)), [1.0, 3.0]))
    assert not caplog.messages
    admit(made(busy, Input("x", shape=("N",)), Output("y", shape=("N",)), [1.0, 3.0]))
    monkeypatch.setattr(admission, "WAITED_S", 0.1)
    admit(made(sleeping, Input("x", shape=("N",)), Output("y", shape=("N",)), [1.0, 3.0]))
    message = "op made: a trace took over 0.5 s, so its state is not known yet; requests refuse variables"
    assert caplog.messages == [message, message]
