"""Functions of NumPy with gradients by hand: ``numpy+MODULE:FUNCTION``, with ``FUNCTION_vjp`` beside it."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from pullback.dtypes import FLOATS, Array, needs_ml_dtypes
from pullback.errors import BadArgument
from pullback.gradcheck.function import Arrays
from pullback.gradcheck.of.calling import Arguments, Tree, flatten, rebuild
from pullback.gradcheck.of.source import Source, array, call

GRADIENTS = ("_vjp", "_grad", "_der", "_prime", "_jac")
"""How the name of a gradient ends, beside that of its function."""
HESSIANS = ("_hvp", "_hess_prod")
"""How the name of the action of a Hessian ends: the last is that of SciPy."""


class NumpyFunction:
    """A function with its gradient: ``vjp(x, dy)``, or ``gradient(x)`` of a scalar, or the Jacobian.

    Arguments in which it has none, because it returns None for them or only that of the first, are constants.
    """

    mode = remark = casts_to = ""
    has_layouts, checks_indices, has_solver, draws = True, True, False, False
    dtypes: Sequence[str] = [dtype for dtype in FLOATS if not needs_ml_dtypes(dtype)]

    def __init__(
        self, function: Callable[..., Any], gradient: Callable[..., Any], action: Callable[..., Any] | None
    ) -> None:
        """Keep the functions; ``leaves`` sets their arguments."""
        self._function, self._gradient, self._action = function, gradient, action
        self._arguments, self._constants = dict[str, Tree](), dict[str, Array]()
        self._names, self._floats = list[str](), list[str]()

    def leaves(self, arguments: Mapping[str, Tree]) -> dict[str, Array]:
        """Keep the arguments, and return the arrays of floats in them that the gradient is in.

        Raises ``BadArgument`` for the derivative of an elementwise function that is neither a vjp nor a Jacobian.
        """
        self._arguments, self._constants, self.remark = dict(arguments), {}, ""
        leaves = dict(flatten(self._arguments, ""))
        found = {name: np.asarray(x) for name, x in leaves.items() if is_float(x)}
        self._names, self._floats = list(leaves), list(found)
        inputs = self._differentiated(found)
        self._constants = {name: x for name, x in found.items() if name not in inputs}
        if self._constants:
            names = ", ".join(self._constants)
            self.remark = f"The gradient has no part for {names}: these were constants, and not differentiated."
        return {name: x for name, x in found.items() if name in inputs}

    def values(self, leaves: Arrays) -> dict[str, Array]:
        """Return the outputs."""
        found = self._function(**self._with(leaves))
        name = "" if isinstance(found, dict | list | tuple) else "y"
        return {key: np.asarray(y) for key, y in flatten(found, name) if is_float(y)}

    def vjp(self, leaves: Arrays, output: str, cotangent: Array, inputs: Sequence[str]) -> dict[str, Array]:
        """Return Jᵀ dy by input; what the gradient returns is, in its order, for the inputs with floats."""
        parts = self._parts(self._returned(leaves, output, cotangent))
        if missing := [name for name in inputs if parts.get(name) is None]:
            raise TypeError(f"expected a gradient in {missing[0]}, got None: return zeros where it is 0")
        by_name = {name: np.asarray(parts[name]) for name in inputs}
        if self._takes_cotangent:
            return by_name
        return {name: _contracted(cotangent, dx, leaves[name]) for name, dx in by_name.items()}

    def jvp(self, leaves: Arrays, name: str, tangent: Array, outputs: Sequence[str]) -> dict[str, Array]:
        """Raise ``NotImplementedError``: there is none by hand."""
        raise NotImplementedError

    def hessian(self, leaves: Arrays, output: str, inputs: tuple[str, str], dy: Array, v: Array) -> Array:
        """Return the action of the Hessian of a scalar function of one input."""
        if self._action is None or len(self._floats) > 1 or dy.ndim:
            raise NotImplementedError
        return np.asarray(dy * self._action(*self._with(leaves).values(), v))

    def source(self, name: str, leaves: Arrays, output: str, cotangent: Array, wrt: str) -> tuple[str, str]:
        """Return a call of the gradient, whose name this is."""
        sources = {key: _written(x) for key, x in self._arrays(leaves).items()}
        arguments = [*rebuild(self._arguments, "", lambda key, x: sources.get(key) or _kept(x)).values()]
        dy = _written(cotangent)
        if self._takes_cotangent:
            values = self.values(leaves)
            dys = tuple(dy if key == output else _written(np.zeros_like(y)) for key, y in values.items())
            found = call(name, Arguments([*arguments, dys[0] if len(dys) == 1 else dys], {}))
        else:
            found = call(name, Arguments(arguments, {}))
        returned = self._returned(leaves, output, cotangent)
        found += f"[{list(self._parts(returned)).index(wrt)}]" if isinstance(returned, tuple | list) else ""
        return (
            "import numpy as np",
            found if self._takes_cotangent else f"np.tensordot({dy}, {found}, {cotangent.ndim})",
        )

    def widened(self) -> None:
        """Return no such function: its casts are not seen."""

    def other(self, *, compiles: bool) -> None:
        """Return no other mode; raise ``BadArgument`` if it ``compiles``."""
        if compiles:
            raise BadArgument("--mode compile: expected none for a function of NumPy: leave it out")

    @property
    def _takes_cotangent(self) -> bool:
        """Whether the gradient has one more parameter than the function has arguments."""
        return len(inspect.signature(self._gradient).parameters) > len(self._arguments)

    def _arrays(self, leaves: Arrays) -> dict[str, Array]:
        """Return the leaves, and the constants in their dtype."""
        dtype = next(iter(leaves.values())).dtype
        return {name: x.astype(dtype) for name, x in self._constants.items()} | dict(leaves)

    def _with(self, leaves: Arrays) -> dict[str, Tree]:
        return cast(dict[str, Tree], rebuild(self._arguments, "", self._arrays(leaves).get))

    def _returned(self, leaves: Arrays, output: str, cotangent: Array) -> Any:
        """Return what the gradient returns."""
        arguments = list(self._with(leaves).values())
        if not self._takes_cotangent:
            return self._gradient(*arguments)
        values = self.values(leaves)
        dys = [cotangent if name == output else np.zeros_like(y) for name, y in values.items()]
        return self._gradient(*arguments, dys[0] if len(dys) == 1 else tuple(dys))

    def _parts(self, returned: Any) -> dict[str, Any]:
        """Return what the gradient returns by argument: for those with floats, for all, or for the first alone."""
        parts = list(cast(Sequence[Any], returned)) if isinstance(returned, tuple | list) else [returned]
        names = self._names if len(parts) == len(self._names) else self._floats
        names = names[:1] if len(parts) == 1 and names[0] in self._arguments else names
        if len(parts) != len(names):
            raise TypeError(
                f"expected a gradient for each of {', '.join(names)}, got {len(parts)}: return a tuple, with None "
                "where there is none"
            )
        return dict(zip(names, parts, strict=True))

    def _differentiated(self, leaves: Arrays) -> list[str]:
        """Return the names of the arguments that the gradient is in; all of them where the checks will say why not."""
        try:
            name, y = next(iter(self.values(_copied(leaves)).items()))
            parts = self._parts(self._returned(_copied(leaves), name, np.ones_like(y)))
        except (Exception, SystemExit):  # noqa: BLE001 - the same call raises it in the checks, which tell it
            return [*leaves]
        found = {key: np.asarray(parts[key]) for key in leaves if parts.get(key) is not None}
        is_like_y = any(dx.shape == leaves[key].shape == y.shape for key, dx in found.items())
        if is_like_y and y.ndim and not self._takes_cotangent:
            raise BadArgument(self._not_a_jacobian(y.shape))
        return [*found] or [*leaves]

    def _not_a_jacobian(self, shape: tuple[int, ...]) -> str:
        named = [getattr(each, "__name__", "") for each in (self._function, self._gradient)]
        name, gradient = (each if each.isidentifier() else other for each, other in zip(named, "fg", strict=True))
        arguments = ", ".join(self._arguments)
        cure = f"define {name}_vjp({arguments}, dy): return dy * {gradient}({arguments})"
        return (
            f"expected {gradient} to return a Jacobian, of shape {[*shape, *shape]}, got shape {[*shape]}; for an "
            f"elementwise function, {cure}"
        )


def is_float(x: object) -> bool:
    """Return whether a value is an array, or a number, of real floats."""
    return isinstance(x, float) or (isinstance(x, np.ndarray | np.generic) and cast(Array, x).dtype.kind == "f")


def _contracted(dy: Array, jacobian: Array, x: Array) -> Array:
    """Return the product of a cotangent and a Jacobian of shape (*dy, *x); of a scalar, it is the gradient."""
    if jacobian.shape != (*dy.shape, *x.shape):
        expected = f"a Jacobian of shape {[*dy.shape, *x.shape]}"
        raise TypeError(f"expected {expected}, got shape {list(jacobian.shape)}; or take dy as the last argument")
    return np.tensordot(dy, jacobian, axes=dy.ndim)


def _copied(leaves: Arrays) -> Arrays:
    return {name: x.copy() for name, x in leaves.items()}


def _written(x: Array) -> Source:
    return array("np.array", x, "np")


def _kept(x: object) -> object:
    """Return an array that is not an input as Python source, and other values as they are."""
    if not isinstance(x, np.ndarray | np.generic):
        return x
    array = cast(Array, x)
    return Source(f"np.array({array.tolist()!r}, np.{array.dtype})")
