"""Mistakes of op authors: each is an op error, and the response names the slot, the expected and the actual value."""

from typing import Any, NamedTuple

import httpx
import pytest

from tests.http.native_client import MODES, ask, post, problem

X = [0.5, 1.0, 2.0]


class Mistake(NamedTuple):
    """An op, the operation that finds its mistake, and parts of the response."""

    op: str
    slot: str
    expected: str
    got: str
    operation: str = "vjp"

    @property
    def body(self) -> dict[str, Any]:
        inputs = {"x": X, "z": X} if self.op in ("bare_few", "bare_zero_of_two") else {"x": X}
        return {"inputs": inputs} | ({"vectors": {"x": X}} if self.operation == "hvp" else {})


MISTAKES = [
    Mistake("bare_zero", "gradient", "tensor", "int"),
    Mistake("bare_zero_of_two", "gradient", "tensor", "int"),
    Mistake("bare_many", "gradient", "one gradient for each input", "1 too many"),
    Mistake("bare_few", "gradient", "one gradient for each input", "1 too few"),
    Mistake("bare_shape", "x", "[3]", "[]"),
    Mistake("bare_dtype", "x", "float32", "float64"),
    Mistake("bare_none", "x", "float32 tensor", "None"),
    Mistake("stopped", "x", "float32 tensor", "None"),
    Mistake("helper_zero", "x", "float32", "0 (int)"),
    Mistake("helper_many", "its inputs", "one value for each of x", "2"),
    Mistake("helper_shape", "x", "", "[]"),
    Mistake("helper_dtype", "x", "float32", "float64"),
    Mistake("second_few", "its inputs", "one value for each of x, dy", "1", "hvp"),
    Mistake("second_zero", "x", "float32", "0 (int)", "hvp"),
    Mistake("override_few_arguments", "its arguments", "2 by position", "sign_gradient_without_op(dy)"),
    Mistake("override_many_arguments", "its arguments", "2 by position", "sign_gradient_with_one_more(op, dy, more)"),
    Mistake("override_zero", "input 0 of Sign", "float32", "0 (int)"),
    Mistake("override_misspelt", "sign", "", "", "forward"),
    Mistake("not_registered", "Unique", "a gradient registered for op type Unique", "none"),
    Mistake("forward_dtype", "y", "a float32 tensor", "float64", "forward"),
    Mistake("forward_many", "its outputs", "one value for each of y", "2", "forward"),
    Mistake("forward_python", "y", "a float32 tensor", "float", "forward"),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.op)
def test_a_mistake_is_named(plugged: httpx.Client, mistake: Mistake, mode: str):
    response = post(plugged, mistake.op, mistake.operation, **mistake.body, mode=mode)
    document = problem(response, 500)
    assert mistake.op in document["detail"]
    [entry] = document["errors"]
    assert entry["loc"][0] == mistake.op
    assert mistake.slot in f"{entry['loc'][1]} {entry['message']}"
    assert mistake.expected in as_lists(entry["expected"])
    assert mistake.got in as_lists(entry["got"])


def as_lists(text: str) -> str:
    """Return a text with its shapes as lists; TensorFlow writes tuples."""
    return text.replace("(3,)", "[3]").replace("()", "[]")


@pytest.mark.parametrize("mode", ["graph", "eager", "v1"])
@pytest.mark.parametrize("operation", ["gradients", "jvp", "jacobian", "hvp", "hessian"])
def test_a_wrong_shape_is_found_by_every_operation(plugged: httpx.Client, operation: str, mode: str):
    """TensorFlow would broadcast it silently."""
    along = {"jvp": {"tangents": {"x": X}}, "hvp": {"vectors": {"x": X}}}.get(operation, {})
    [entry] = problem(post(plugged, "bare_shape", operation, inputs={"x": X}, mode=mode, **along), 500)["errors"]
    assert entry["loc"] == ["bare_shape", "x"]
    assert "[3]" in entry["expected"]
    assert "[]" in entry["got"]


@pytest.mark.parametrize("mode", MODES)
def test_an_exception_is_reported_without_file_names(plugged: httpx.Client, mode: str):
    document = problem(post(plugged, "raises", "forward", inputs={"x": X}, mode=mode), 500)
    assert "op raises failed" in document["detail"]
    assert "exploded" in document["detail"]
    [entry] = document["errors"]
    assert entry["loc"] == ["raises", "RuntimeError"]
    assert entry["got"] == "RuntimeError"


@pytest.mark.parametrize("mode", ["graph", "eager", "v1"])
def test_an_exception_of_a_python_function_is_reported_without_its_traceback(plugged: httpx.Client, mode: str):
    document = problem(post(plugged, "raises_in_python", "forward", inputs={"x": X}, mode=mode), 500)
    assert document["detail"].endswith("RuntimeError: exploded")
    assert all(word not in str(document) for word in ("Traceback", "return func", "raise RuntimeError", "^"))


@pytest.mark.parametrize("op", ["raises_a_surrogate", "raises_a_surrogate_in_python"])
@pytest.mark.parametrize("mode", ["graph", "eager", "v1"])
def test_a_message_that_is_not_unicode_is_reported(plugged: httpx.Client, op: str, mode: str):
    """TensorFlow ends the process if a Python function raises one."""
    document = problem(post(plugged, op, "forward", inputs={"x": X}, mode=mode), 500)
    assert "is half a letter" in document["detail"]


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_a_long_message_takes_linear_time(plugged: httpx.Client, mode: str):
    """A pattern that takes quadratic time would take days."""
    document = problem(post(plugged, "raises_at_length", "forward", inputs={"x": X}, mode=mode), 500)
    assert len(document["detail"]) <= 300
    assert "aaa…" in document["detail"]


@pytest.mark.parametrize("mode", ["graph", "xla", "v1"])
def test_an_untraceable_op_is_explained_and_runs_eagerly(plugged: httpx.Client, mode: str):
    document = problem(post(plugged, "decides_in_python", "forward", inputs={"x": X}, mode=mode), 500)
    assert "decides_in_python" in document["detail"]
    assert ask(plugged, "decides_in_python", "forward", inputs={"x": X}, mode="eager")["outputs"]["y"]["data"] == X


def test_a_mistake_in_the_gradient_leaves_the_value(plugged: httpx.Client):
    assert ask(plugged, "bare_zero", "forward", inputs={"x": X})["outputs"]["y"]["data"] == [1.0, 2.0, 4.0]


def test_a_mistake_is_reported_every_time(plugged: httpx.Client):
    """A failed trace is cached as its error, so the second response equals the first."""
    first, second = (post(plugged, "helper_zero", "vjp", inputs={"x": X}).content for _ in range(2))
    assert first == second
