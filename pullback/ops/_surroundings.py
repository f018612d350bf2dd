"""What all code of a process shares, and a page must leave as it is: functions of modules, and the recursion limit."""

import builtins
import math
import os
import sys
from collections.abc import Callable, Mapping
from operator import is_
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

MISSING = object()
# A page may replace the names of the built-ins, not these.
_all: Callable[[Any], bool] = all
_map: Any = map


class _Noted(NamedTuple):
    """A module's functions and classes."""

    name: str
    now: dict[str, Any]
    before: dict[str, Any]

    def is_unchanged(self) -> bool:
        """Report whether each is the same; there are thousands, and this is called after each finding."""
        return _all(_map(is_, _map(self.now.get, self.before), self.before.values()))


class Surroundings:
    """The public functions and classes of Python's built-ins, ``math``, ``os``, NumPy and TensorFlow at one time."""

    def __init__(self) -> None:
        """Note what there is now."""
        self._before = [_Noted(name, vars(module), _settled(module)) for name, module in _modules().items()]
        self._recursion_limit = sys.getrecursionlimit()

    def restore(self) -> list[str]:
        """Restore what has changed since, such as ``tf.sigmoid``; return its names.

        It calls no built-in function by a name that may have been replaced.
        """
        changed: list[str] = []
        if sys.getrecursionlimit() != self._recursion_limit:
            sys.setrecursionlimit(self._recursion_limit)
            changed.append("the recursion limit")
        for noted in self._before:
            if noted.is_unchanged():
                continue
            names = [name for name, value in noted.before.items() if noted.now.get(name, MISSING) is not value]
            for name in names:
                noted.now[name] = noted.before[name]
                changed.append(f"{noted.name}.{name}")
        return changed


def _modules() -> Mapping[str, ModuleType]:
    """Return the modules by the names that pages give them."""
    found = {"builtins": builtins, "math": math, "os": os, "np": np, "np.linalg": np.linalg, "tf": tf}
    public = tf.__name__ + "._api"
    parts = {name: value for name, value in vars(tf).items() if type(value) is ModuleType}
    return found | {f"tf.{name}": part for name, part in parts.items() if part.__name__.startswith(public)}


def _settled(module: ModuleType) -> dict[str, Any]:
    """Return the functions and classes of a module; other values may change, and modules may be loaded later."""
    return {name: value for name, value in vars(module).items() if callable(value) and name[0] != "_"}
