"""Compositions in compositions, what Python has for numbers, equal functions, and inputs by position."""

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pullback
from pullback.compose import traced
from pullback.graph_values import is_traced
from pullback.remotes import Function, evaluate
from tests.conftest import Service

A, X = np.array([[1.0, 2.0], [0.5, -1.0]]), np.array([0.25, 1.0])


class Plain(Function):
    """The functions of a framework that has only NumPy."""

    def __call__(self, *inputs: Any) -> Any:
        """Return the outputs."""
        if is_traced(inputs):
            return self.in_graph(inputs)
        return evaluate(self.p, [np.asarray(x) for x in inputs], batched=False, ahead=False)


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[pullback.Client]:
    """A client of the service."""
    with pullback.Client(service.url) as one:
        yield one


def test_a_composition_in_another_adds_its_ops(client: pullback.Client) -> None:
    square, scale = client.op("square"), client.op("scale_gradient")

    def pair(x: Any, z: Any) -> dict[str, Any]:
        return {"sum": scale(x, scale=pullback.Attribute("strength")) + z, "product": square(x) * z}

    def outer(x: Any) -> dict[str, Any]:
        both, again = inner(x, 2.0, strength=0.5), inner(z=x, x=square(x))
        return {"both": both["sum"] * both["product"], "again": again["product"]}

    inner = client.compose(pair, attrs={"strength": 3.0})
    composed = client.compose(outer)
    ops = [node["op"] for node in composed.document["nodes"]]
    assert not any(op.startswith("graph") for op in ops)
    assert [node.get("attrs") for node in composed.document["nodes"] if node["op"] == "scale_gradient"] == [
        {"scale": 0.5}
    ]
    found = composed.forward(X)
    assert np.allclose(found["both"], (X + 2) * (X**2 * 2))
    assert np.allclose(found["again"], X**4 * X)


def test_attributes_of_a_composition_in_another(client: pullback.Client) -> None:
    scale = client.op("scale_gradient")

    def twice(x: Any) -> Any:
        return scale(scale(x, scale=pullback.Attribute("s")), scale=pullback.Attribute("s"))

    inner = client.compose(twice)

    def bound(x: Any) -> Any:
        return inner(x, s=pullback.Attribute("t"))

    composed = client.compose(bound, attrs={"t": 2.0})
    assert np.allclose(composed.vjp(X).gradients["x"], 4.0)
    for wrong, said in (({"q": 1.0}, "unknown attribute 'q'"), ({}, "value of attribute s")):

        def refused(x: Any, wrong: Any = wrong) -> Any:
            return inner(x, **wrong)

        with pytest.raises(pullback.BadArgument, match=said):
            client.compose(refused)


def test_a_composed_remote_function_in_another_and_pickled(service: Service) -> None:
    square, log1pexp = (Plain.remote(name, url=service.url) for name in ("square", "log1pexp"))

    def inner(x: Any) -> Any:
        return log1pexp(square(x))

    def outer(x: Any) -> Any:
        return copy(x) * 2

    composed = Plain.compose(inner)
    copy = pickle.loads(pickle.dumps(composed))
    assert copy == composed
    assert copy.p.remote.document == composed.p.remote.document
    [y] = Plain.compose(outer)(X)
    assert np.allclose(y, 2 * np.log1p(np.exp(X**2)))


def test_equal_functions_are_equal(service: Service) -> None:
    one, same = (Plain.remote("scale_gradient", url=service.url, attrs={"scale": 0.5}) for _ in range(2))
    other = Plain.remote("scale_gradient", url=service.url, attrs={"scale": 2.0})
    assert one == same == pickle.loads(pickle.dumps(one))
    assert len({one, same, other}) == 2
    assert one != Function(one.p)


def test_a_default_of_an_argument_is_no_input(client: pullback.Client) -> None:
    square = client.op("square")

    def scaled(x: Any, factor: float = 3.0, *, op: Any = square) -> Any:
        return factor * op(x)

    assert np.allclose(client.compose(scaled).forward(X)["y"], 3 * X**2)


def test_a_square_is_a_power(client: pullback.Client) -> None:
    def power(x: Any) -> Any:
        return x**2 + 1

    assert np.allclose(client.compose(power).forward(X)["y"], X**2 + 1)


REFUSED: list[tuple[Callable[[Any], Any], str]] = [
    (lambda x: x**3, r"x\*\*3 is not part .* x \* x \* x"),
    *[
        (function, "this operator of Python is not part")
        for function in (lambda x: 2**x, lambda x: x // 2, lambda x: 2 % x, round)
    ],
    *[
        (function, "x has no length or number")
        for function in (lambda x: x + len(x), lambda x: x * float(x), lambda x: x - int(x), lambda x: [1, 2][x])
    ],
    (abs, r"abs\(x\) is not part .* safe_norm"),
    (lambda x: x.sum(), r'x\.sum is not part .* client\.op\("sum"\)\(x\)'),
    (lambda x: x.shape, r"x\.shape is not part"),
    (lambda x: x == 0, "a comparison is not part"),
    (lambda x: x > 0, "a comparison is not part"),
    (lambda x: x[0], r'name of an output .* client\.op\("slice"\)'),
    (lambda x: (x + 1, x + 2), r'dictionary of values by name, such as \{"value": y, "slope": dy\}, got a tuple'),
]


@pytest.mark.parametrize(("function", "said"), REFUSED)
def test_what_a_graph_has_not_is_refused_by_name(function: Any, said: str) -> None:
    with pytest.raises(pullback.BadArgument, match=said):
        traced(function, "", None)


def test_inputs_by_position(client: pullback.Client) -> None:
    matvec = client.op("matvec")
    assert np.allclose(matvec.forward(A, X)["y"], A @ X)
    assert np.allclose(matvec.forward({"a": A, "x": X})["y"], A @ X)
    with pytest.raises(pullback.BadArgument, match=r"expected 2 arrays \(a, x\), or one dictionary .* got 3"):
        matvec.forward(A, X, X)
    with pytest.raises(KeyError, match=r"expected an output \(y\), got 'z'"):
        matvec.forward(A, X)["z"]
