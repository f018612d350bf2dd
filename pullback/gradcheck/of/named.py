"""The function that ``torch+MODULE:FUNCTION`` names, and its arguments."""

import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from pullback.errors import BadArgument
from pullback.gradcheck.of.called import library_of
from pullback.gradcheck.of.calling import Tree, by_name, parameters_of
from pullback.gradcheck.of.library import Library
from pullback.gradcheck.of.local import Domain, Given, LocalFunction
from pullback.gradcheck.of.numpy import GRADIENTS, HESSIANS
from pullback.gradcheck.of.source import Spelling
from pullback.gradcheck.of.user_code import told
from pullback.gradcheck.of.ways import WIDE, local_function

INPUTS = "_inputs"
"""How the name of the function ends that returns a function's arguments."""
NARROW = "float32"
"""The dtype of numbers without one, but of NumPy."""
SHOWN = 8


class NamedFunction(NamedTuple):
    """A function that a user names, and the module and the name."""

    kind: str
    module: ModuleType
    name: str
    function: Callable[..., Any]

    def __str__(self) -> str:
        return f"{self.kind}+{self.module.__name__}:{self.name}"

    def beside(self, names: Sequence[str]) -> str | None:
        """Return the first of these names that a function in the module has."""
        return next((each for each in names if callable(vars(self.module).get(each))), None)


def named_function(kind: str, text: str, given: Given, limit_s: float) -> LocalFunction:
    """Return the function as a model, whose first calls take no longer than the limit.

    Raises ``BadArgument`` for what is none, or lacks arguments or a gradient, and ``TimedOut``.
    """
    target = _named(kind, text)
    gradient = _gradient(target, given)
    library = _library(target, gradient)
    # NumPy would warn of what the errors say.
    with np.errstate(all="ignore"):
        spelling = Spelling(gradient or target.name, target.module.__name__)
        arguments = _arguments(target, given)
        try:
            return local_function(str(target), library, arguments, given, spelling, limit_s=limit_s)
        except BadArgument as error:
            if not (integers := [key for key in given.inputs if np.asarray(arguments[key]).dtype.kind in "iu"]):
                raise
            cure = f"{integers[0]} has integers, as an index beside floats: write {integers[0]}=[1.0,2.0] for floats"
            raise BadArgument(f"{error} ({cure})") from error


def _named(kind: str, text: str) -> NamedFunction:
    """Return a function in a module of the current folder or of the path."""
    where, _, name = text.partition(":")
    if not where or not name:
        raise BadArgument(f"expected {kind}+MODULE:FUNCTION, got {kind}+{text}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(where)
    except (Exception, SystemExit) as error:
        raise BadArgument(f"{kind}+{text}: cannot import {where}: {told(error)}") from error
    finally:
        sys.path.remove(str(Path.cwd()))
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = [each for each, value in vars(module).items() if callable(value) and not each.startswith("_")]
            expected = f"one of {', '.join(known[:SHOWN])}" if known else "a function"
            raise BadArgument(f"{kind}+{text}: {where} has no {name}; expected {expected}")
        found = getattr(found, part)
    if not callable(found) or isinstance(found, type):
        raise BadArgument(f"{kind}+{text}: expected a function or a module's instance, got {type(found).__name__}")
    return NamedFunction(kind, module, name, found)


def _gradient(target: NamedFunction, given: Given) -> str | None:
    """Return the name of the gradient of a function of NumPy, ``None`` for others."""
    if target.kind != "numpy":
        if given.vjp is not None:
            raise BadArgument(f"--vjp: expected none for {target}, which has its own gradient")
        return None
    names = [f"{target.name}{each}" for each in GRADIENTS] if given.vjp is None else [given.vjp]
    if (found := target.beside(names)) is None:
        beside = f"beside {target.name}" if given.vjp is None else f"in {target.module.__name__}"
        expected = f"{', '.join(names)} {beside}"
        raise BadArgument(f"{target}: expected a gradient: {expected}; define it, or name it with --vjp")
    return found


def _library(target: NamedFunction, gradient: str | None) -> Library:
    action = target.beside([f"{target.name}{each}" for each in HESSIANS])
    here = vars(target.module)
    try:
        return library_of(
            target.kind, target.function, here[gradient] if gradient else None, here[action] if action else None
        )
    except BadArgument as error:
        raise BadArgument(f"{target}: {error}") from error


def _arguments(target: NamedFunction, given: Given) -> dict[str, Tree]:
    """Return the arguments by name: those of the command line, or those that stand beside the function."""
    parameters = parameters_of(target.function)
    names = [each.name for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    needed = [each.name for each in parameters if each.default is each.empty and each.name in names]
    if given.inputs or given.shapes:
        # The parameters of a module are floats, beside which an integer may be an index.
        has_floats = hasattr(target.function, "named_parameters")
        found = _written(given, WIDE if target.kind == "numpy" else NARROW, has_floats=has_floats)
    else:
        stands = getattr(target.function, "inputs", None) or vars(target.module).get(f"{target.name}{INPUTS}")
        if stands is None:
            shapes = " ".join(f"--shape {each}=3" for each in needed)
            numbers = f"--input {needed[0] if needed else 'x'}=[1.5,2.5]"
            beside = f"or define {target.name}{INPUTS}() beside the function, which returns them"
            raise BadArgument(f"{target}: expected arguments: write {shapes}, or {numbers}, {beside}")
        found = by_name(stands() if callable(stands) else stands, target.function)
    if wrong := [each for each in found if len(names) == len(parameters) > 0 and each not in names]:
        raise BadArgument(f"{target}: unknown argument {wrong[0]!r}; expected {_some_of(names)}")
    if missing := [each for each in needed if each not in found]:
        raise BadArgument(f"{target}: missing argument {missing[0]!r}: write --shape {missing[0]}=3, for example")
    return found


def _some_of(names: Sequence[str]) -> str:
    return f"some of {', '.join(names)}" if len(names) > 1 else names[0] if names else "none"


def _written(given: Given, dtype: str, *, has_floats: bool) -> dict[str, Tree]:
    """Return the arguments of a command line: random numbers of the shapes, and numbers, whose floats have the dtype.

    Integers are floats too if no argument ``has_floats``.
    """
    rng = np.random.default_rng(0)
    found = {
        key: given.domains.get(key, Domain()).draw(shape, rng).astype(dtype) for key, shape in given.shapes.items()
    }
    arrays = {key: np.asarray(value) for key, value in given.inputs.items()}
    kinds = "f" if found or has_floats or any(x.dtype.kind in "fc" for x in arrays.values()) else "fiu"
    return found | {key: x.astype(dtype) if x.dtype.kind in kinds else x for key, x in arrays.items()}
