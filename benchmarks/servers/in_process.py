"""No server: the same gradient, called in a separate process, from NumPy to NumPy with the copies both ways.

``python -m benchmarks.servers.in_process`` reads lines of "N SECONDS", and answers each with its result in JSON.
"""

from collections.abc import Callable
from typing import Any

from app.autodiff.binding import bind
from app.autodiff.derivatives import vjp
from app.runtime.devices import devices
from benchmarks.candidates import draws, is_gradient
from benchmarks.in_process import answer_lines
from ops.log1pexp import OP


def given(value: Any, dtype: str, loc: object) -> Any:
    """Return an array unchanged: no format is written, so none is read."""
    del dtype, loc
    return value


def prepared(n: str) -> Callable[[int], Any]:
    """Return the function that computes the gradient of n numbers, others in each call."""
    inputs = list(draws(int(n)))
    points = [
        bind(OP, {"x": x}, {}, "float32", given, mode="xla", device=devices()["cpu"], max_elements=int(n))
        for x, _ in inputs
    ]

    def call(number: int) -> Any:
        at = number % len(inputs)
        return vjp(points[at], ("x",), {"y": inputs[at][1]}, batched=False, outputs=False).run()[1]["x"]

    assert is_gradient(call(0), *inputs[0])
    return call


if __name__ == "__main__":
    answer_lines(prepared)
