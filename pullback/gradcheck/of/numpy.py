"""Functions of NumPy with gradients by hand: ``numpy+MODULE:FUNCTION``, with ``FUNCTION_vjp`` beside it."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from pullback.dtypes import FLOATS, Array, needs_ml_dtypes
from pullback.errors import BadArgument
from pullback.gradcheck.function import Arrays
from pullback.gradcheck.of.calling import Arguments
from pullback.gradcheck.of.source import Source, array, call
from pullback.gradcheck.of.trees import Tree, flatten, rebuild

GRADIENTS = ("_vjp", "_grad", "_der", "_prime", "_jac")
"""How the name of a gradient ends, beside that of its function."""
HESSIANS = ("_hvp", "_hess_prod")
"""How the name of the action of a Hessian ends: the last is that of SciPy."""


class NumpyFunction:
    """A function with its gradient: ``vjp(x, dy)``, or ``gradient(x)`` of a scalar, or the Jacobian."""

    mode = remark = ""
    has_layouts = checks_indices = True
    dtypes: Sequence[str] = [dtype for dtype in FLOATS if not needs_ml_dtypes(dtype)]

    def __init__(
        self, function: Callable[..., Any], gradient: Callable[..., Any], action: Callable[..., Any] | None
    ) -> None:
        """Keep the functions; ``leaves`` sets their arguments."""
        self._function, self._gradient, self._action = function, gradient, action
        self._arguments = dict[str, Tree]()
        self._inputs = list[str]()

    def leaves(self, arguments: Mapping[str, Tree]) -> dict[str, Array]:
        """Keep the arguments, and return the arrays of floats in them."""
        self._arguments = dict(arguments)
        found = {name: np.asarray(x) for name, x in flatten(self._arguments, "") if is_float(x)}
        self._inputs = list(found)
        return found

    def values(self, leaves: Arrays) -> dict[str, Array]:
        """Return the outputs."""
        found = self._function(**self._with(leaves))
        name = "" if isinstance(found, dict | list | tuple) else "y"
        return {key: np.asarray(y) for key, y in flatten(found, name) if is_float(y)}

    def vjp(self, leaves: Arrays, output: str, cotangent: Array, inputs: Sequence[str]) -> dict[str, Array]:
        """Return Jᵀ dy by input; what the gradient returns is, in its order, for the inputs with floats."""
        arguments = list(self._with(leaves).values())
        if self._takes_cotangent:
            values = self.values(leaves)
            dys = [cotangent if name == output else np.zeros_like(y) for name, y in values.items()]
            found = self._gradient(*arguments, dys[0] if len(dys) == 1 else tuple(dys))
        else:
            found = self._gradient(*arguments)
        parts = list(cast(Sequence[Any], found)) if isinstance(found, tuple | list) else [found]
        if len(parts) != len(self._inputs):
            raise TypeError(
                f"expected a gradient for each of {', '.join(self._inputs)}, got {len(parts)}: return a tuple"
            )
        if any(part is None for part in parts):
            raise TypeError("expected a gradient for each input, got None: return zeros where there is none")
        by_name = {name: np.asarray(dx) for name, dx in zip(self._inputs, parts, strict=True) if name in inputs}
        if self._takes_cotangent:
            return by_name
        return {name: _contracted(cotangent, dx, leaves[name]) for name, dx in by_name.items()}

    def jvp(self, leaves: Arrays, name: str, tangent: Array, outputs: Sequence[str]) -> dict[str, Array]:
        """Raise ``NotImplementedError``: there is none by hand."""
        raise NotImplementedError

    def hessian(self, leaves: Arrays, output: str, inputs: tuple[str, str], dy: Array, v: Array) -> Array:
        """Return the action of the Hessian of a scalar function of one input."""
        if self._action is None or len(self._inputs) > 1 or dy.ndim:
            raise NotImplementedError
        return np.asarray(dy * self._action(*self._with(leaves).values(), v))

    def source(self, name: str, leaves: Arrays, output: str, cotangent: Array, wrt: str) -> tuple[str, str]:
        """Return a call of the gradient, whose name this is."""
        arguments = [*self._with({key: _written(x) for key, x in leaves.items()}).values()]
        dy = _written(cotangent)
        if self._takes_cotangent:
            values = self.values(leaves)
            dys = tuple(dy if key == output else _written(np.zeros_like(y)) for key, y in values.items())
            found = call(name, Arguments([*arguments, dys[0] if len(dys) == 1 else dys], {}))
        else:
            found = call(name, Arguments(arguments, {}))
        found += f"[{self._inputs.index(wrt)}]" if len(self._inputs) > 1 else ""
        return (
            "import numpy as np",
            found if self._takes_cotangent else f"np.tensordot({dy}, {found}, {cotangent.ndim})",
        )

    def other(self, *, compiles: bool) -> None:
        """Return no other mode; raise ``BadArgument`` if it ``compiles``."""
        if compiles:
            raise BadArgument("--mode compile: expected none for a function of NumPy: leave it out")

    @property
    def _takes_cotangent(self) -> bool:
        """Whether the gradient has one more parameter than the function has arguments."""
        return len(inspect.signature(self._gradient).parameters) > len(self._arguments)

    def _with(self, leaves: Mapping[str, Any]) -> dict[str, Tree]:
        return cast(dict[str, Tree], rebuild(self._arguments, "", leaves.get))


def is_float(x: object) -> bool:
    """Return whether a value is an array, or a number, of real floats."""
    return isinstance(x, float) or (isinstance(x, np.ndarray | np.generic) and cast(Array, x).dtype.kind == "f")


def _contracted(dy: Array, jacobian: Array, x: Array) -> Array:
    """Return the product of a cotangent and a Jacobian of shape (*dy, *x); of a scalar, it is the gradient."""
    if jacobian.shape != (*dy.shape, *x.shape):
        expected = f"a Jacobian of shape {[*dy.shape, *x.shape]}"
        raise TypeError(f"expected {expected}, got shape {list(jacobian.shape)}; or take dy as the last argument")
    return np.tensordot(dy, jacobian, axes=dy.ndim)


def _written(x: Array) -> Source:
    return array("np.array", x, "np")
