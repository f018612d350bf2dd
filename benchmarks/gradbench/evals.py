"""The evals of GradBench that are ops here: what each function of an eval asks the service, and how it answers."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pullback import Client

Numbers = NDArray[np.float64]
Call = Callable[[], Any]
MAX_SHOWN = 60
"""Most characters of a value in an error."""


class Eval(NamedTuple):
    """An eval: its op, and for each function what prepares a call from the input; the call is what is timed."""

    op: str
    functions: Mapping[str, Callable[[Client, Any], Call]]


class WrongInput(Exception):
    """The input of a function is not what the eval defines; the message says what was expected and what came."""


def numbers(given: Any, name: str, dimensions: int) -> Numbers:
    """Return a field of an input as an array of float64."""
    value = field(given, name)
    try:
        array = np.array(value, np.float64)
    except (TypeError, ValueError) as error:
        raise WrongInput(f"expected {name} to be an array of numbers, got {shown(value)}") from error
    if array.ndim != dimensions:
        raise WrongInput(f"expected {name} to have {dimensions} dimensions, got {array.ndim}")
    return array


def integer(given: Any, name: str) -> int:
    """Return a field of an input that is an integer."""
    value = field(given, name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise WrongInput(f"expected {name} to be an integer, got {shown(value)}")
    return value


def field(given: Any, name: str) -> Any:
    """Return a field of an input."""
    if not isinstance(given, Mapping):
        raise WrongInput(f"expected an object as input, got {shown(given)}")
    if name not in given:
        raise WrongInput(f"expected {name} in the input, got {', '.join(map(str, given)) or 'nothing'}")
    return given[name]


def shown(value: Any) -> str:
    """Return a value in an error, which stays short."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def scalar_functions(op: str, read: Callable[[Any], tuple[dict[str, Numbers], dict[str, Any]]], wrt: str) -> Eval:
    """Return an eval with the functions ``primal`` and ``gradient`` of an op with one number as its output."""

    def primal(client: Client, given: Any) -> Call:
        inputs, attrs = read(given)
        return lambda: float(client.op(op).forward(inputs, attrs=attrs).outputs["y"])

    def gradient(client: Client, given: Any) -> Call:
        inputs, attrs = read(given)
        return lambda: client.op(op).vjp(inputs, attrs=attrs, wrt=[wrt]).gradients[wrt].reshape(-1).tolist()

    return Eval(op, {"primal": primal, "gradient": gradient})


def llsq_input(given: Any) -> tuple[dict[str, Numbers], dict[str, Any]]:
    """Return the input of ``llsq``: the coefficients, and how many points."""
    return {"x": numbers(given, "x", 1)}, {"n": integer(given, "n")}


def lse_input(given: Any) -> tuple[dict[str, Numbers], dict[str, Any]]:
    """Return the input of ``lse``."""
    return {"x": numbers(given, "x", 1)}, {}


def det_input(given: Any) -> tuple[dict[str, Numbers], dict[str, Any]]:
    """Return the input of ``det``: a matrix, whose rows follow each other."""
    flat, ell = numbers(given, "A", 1), integer(given, "ell")
    if flat.size != ell * ell or ell < 1:
        raise WrongInput(f"expected A to have ell² = {ell * ell} numbers, got {flat.size}")
    return {"a": flat.reshape(ell, ell)}, {"ell": ell}


def square(client: Client, given: Any) -> Call:
    """Return x²."""
    x = one_number(given)
    return lambda: float(client.op("square").forward({"x": x}).outputs["y"])


def double(client: Client, given: Any) -> Call:
    """Return the derivative of x²."""
    x = one_number(given)
    return lambda: float(client.op("square").vjp({"x": x}).gradients["x"])


def one_number(given: Any) -> Numbers:
    """Return an input that is a number."""
    if not isinstance(given, int | float) or isinstance(given, bool):
        raise WrongInput(f"expected a number as input, got {shown(given)}")
    return np.array(given, np.float64)


MIXTURE = {"alpha": "alpha", "mu": "mu", "q": "q", "l": "lower"}
"""The differentiable inputs of ``gmm``, and those of its op."""


def gmm_input(given: Any) -> tuple[dict[str, Numbers], dict[str, Any]]:
    """Return the input of ``gmm``: a mixture and points, and the prior."""
    inputs = {ours: numbers(given, name, 1 if name == "alpha" else 2) for name, ours in MIXTURE.items()}
    gamma = field(given, "gamma")
    if not isinstance(gamma, int | float):
        raise WrongInput(f"expected gamma to be a number, got {shown(gamma)}")
    attrs = {"d": integer(given, "d"), "m": integer(given, "m"), "gamma": float(gamma)}
    return inputs | {"x": numbers(given, "x", 2)}, attrs


def gmm_objective(client: Client, given: Any) -> Call:
    """Return the log posterior."""
    inputs, attrs = gmm_input(given)
    return lambda: float(client.op("gmm").forward(inputs, attrs=attrs).outputs["y"])


def gmm_jacobian(client: Client, given: Any) -> Call:
    """Return the gradient of the log posterior in the mixture."""
    inputs, attrs = gmm_input(given)

    def call() -> dict[str, Any]:
        found = client.op("gmm").vjp(inputs, attrs=attrs, wrt=list(MIXTURE.values())).gradients
        return {name: found[ours].tolist() for name, ours in MIXTURE.items()}

    return call


def kmeans_input(given: Any) -> dict[str, Numbers]:
    """Return the input of ``kmeans``."""
    return {name: numbers(given, name, 2) for name in ("points", "centroids")}


def kmeans_cost(client: Client, given: Any) -> Call:
    """Return the sum of squared distances."""
    inputs = kmeans_input(given)
    return lambda: float(client.op("kmeans").forward(inputs).outputs["y"])


def kmeans_direction(client: Client, given: Any) -> Call:
    """Return the gradient over the diagonal of the Hessian, which is all of it: its product with ones."""
    inputs = kmeans_input(given)
    ones = {"centroids": np.ones_like(inputs["centroids"])}

    def call() -> list[Any]:
        op = client.op("kmeans")
        gradient = op.vjp(inputs, wrt=["centroids"]).gradients["centroids"]
        return (gradient / op.hvp(inputs, vectors=ones, wrt=["centroids"]).products["centroids"]).tolist()

    return call


EVALS: Mapping[str, Eval] = {
    "hello": Eval("square", {"square": square, "double": double}),
    "llsq": scalar_functions("llsq", llsq_input, "x"),
    "lse": scalar_functions("lse", lse_input, "x"),
    "det": scalar_functions("det_by_minors", det_input, "a"),
    "gmm": Eval("gmm", {"objective": gmm_objective, "jacobian": gmm_jacobian}),
    "kmeans": Eval("kmeans", {"cost": kmeans_cost, "dir": kmeans_direction}),
}
