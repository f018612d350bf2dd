"""A function that a program holds, with its arguments: closures and lambdas too."""

import importlib
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from pullback.errors import BadArgument
from pullback.gradcheck.of.calling import Called, Tree, by_name, by_position, flatten
from pullback.gradcheck.of.library import Library
from pullback.gradcheck.of.local import Given, LocalFunction
from pullback.gradcheck.of.numpy import NumpyFunction
from pullback.gradcheck.of.source import Spelling
from pullback.gradcheck.of.ways import local_function

Kind: TypeAlias = Literal["numpy", "torch", "jax", "tf"]
LIBRARIES: Mapping[str, Kind] = {"torch": "torch", "jax": "jax", "jaxlib": "jax", "tensorflow": "tf"}
"""The kinds of functions, by the package that defines their arguments."""
MODULES: Mapping[str, str] = {"torch": "torch", "jax": "jax", "tf": "tensorflow"}


@dataclass(frozen=True)
class CalledFunction:
    """A function and its arguments, by name; one of NumPy has a gradient, and may have the action of its Hessian."""

    protocol: Kind
    function: Callable[..., Any]
    arguments: Mapping[str, Tree]
    gradient: Callable[..., Any] | None = None
    action: Callable[..., Any] | None = None
    only_forward: bool = False

    def __str__(self) -> str:
        return f"{self.protocol}+{self.name}"

    @property
    def name(self) -> str:
        """The name of the function: that of its class for an object that is called, f for a lambda."""
        return _name(self.function, "f")

    def connect(self, opened: ExitStack, timeout: float, config: Mapping[str, Any], given: Given) -> LocalFunction:
        """Return the function as a model; raise ``BadArgument`` if it cannot be checked."""
        del opened, timeout, config
        library = library_of(self.protocol, self.function, self.gradient, self.action, only_forward=self.only_forward)
        # A class's name does not stand for its instance.
        spelled = self.name if hasattr(self.function, "__name__") else "f"
        spelling = Spelling(spelled if self.gradient is None else _name(self.gradient, "vjp"))
        # NumPy would warn of what the errors say.
        with np.errstate(all="ignore"):
            return local_function(str(self), library, self.arguments, given, spelling)


def library_of(
    kind: str,
    function: Called,
    gradient: Called | None = None,
    action: Called | None = None,
    *,
    only_forward: bool = False,
) -> Library:
    """Return a function in its library; one of NumPy has a gradient, and may have the action of its Hessian.

    One of JAX may have forward mode only. Raises ``BadArgument`` if the library is not installed.
    """
    if kind == "numpy" and gradient is not None:
        return NumpyFunction(by_position(function), gradient, action)
    try:
        found = importlib.import_module(f"pullback.gradcheck.of.{MODULES[kind]}")
    except ImportError as error:
        raise BadArgument(f"{error}: install it in this environment, {sys.prefix}") from error
    library = found.FORWARD if only_forward else found.LIBRARY
    return cast(Library, library(function if hasattr(function, "forward") else by_position(function)))


def called_function(
    function: Callable[..., Any],
    inputs: Any,
    *,
    kind: Kind | None = None,
    vjp: Callable[..., Any] | None = None,
    hvp: Callable[..., Any] | None = None,
) -> CalledFunction:
    """Return a function with its arguments: a dict by name, a tuple in their order, or the only one.

    Without a ``kind``, one with a ``vjp`` is of NumPy, and others are of the library of their arguments. Raises
    ``BadArgument`` if it is not a function, or if its library is unknown.
    """
    if not callable(function) or isinstance(function, type):
        raise BadArgument(f"expected a function or a module's instance, got {type(function).__name__}")
    arguments = by_name(inputs, function)
    if kind is None:
        kind = "numpy" if vjp is not None else _kind_of([function, *(leaf for _, leaf in flatten(arguments, ""))])
    if (kind == "numpy") != (vjp is not None):
        expected = "vjp=, the gradient of a function of NumPy" if kind == "numpy" else f"no vjp= for kind={kind!r}"
        raise BadArgument(f"expected {expected}, or arguments of another library, or kind='torch', 'jax' or 'tf'")
    return CalledFunction(kind, function, arguments, vjp, hvp)


def _kind_of(values: list[Any]) -> Kind:
    """Return the kind of the first value that a library of tensors defines; "numpy" without one."""
    packages = (each.__module__.partition(".")[0] for value in values for each in type(value).__mro__)
    for package in packages:
        if package in LIBRARIES:
            return LIBRARIES[package]
    return "numpy"


def _name(function: Callable[..., Any], of_lambda: str) -> str:
    """Return how a program may write a function: ``Cube.apply`` for that of a class, the class of an instance."""
    name = str(getattr(function, "__name__", type(function).__name__))
    owner = getattr(function, "__self__", None)
    name = f"{owner.__name__}.{name}" if isinstance(owner, type) else name
    return name if name.replace(".", "").isidentifier() else of_lambda
