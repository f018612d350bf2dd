"""Compositions keep the order in which a function returns its outputs."""

from typing import Any

import numpy as np

import pullback
from pullback.remotes import Function, evaluate
from tests.conftest import Service

X = np.array([0.25, 1.0])


class Plain(Function):
    """The functions of a framework that has only NumPy."""

    def __call__(self, *inputs: Any) -> Any:
        """Return the outputs."""
        return evaluate(self.p, [np.asarray(x) for x in inputs], batched=False, ahead=False)


def test_outputs_keep_the_order_in_which_a_function_returns_them(service: Service) -> None:
    with pullback.Client(service.url) as client:
        square, slope = client.op("square"), client.op("square.vjp")

        def curve(x: Any) -> dict[str, Any]:
            return {"value": square(x), "slope": slope(x, 1.0)}

        composed = client.compose(curve)
        assert [slot.name for slot in composed.contract().outputs] == ["value", "slope"]
        assert list(composed.forward(X).outputs) == ["value", "slope"]
        value, derivative = Plain.remote(composed.name, url=service.url)(X)
        assert np.allclose(value, X**2)
        assert np.allclose(derivative, 2 * X)
