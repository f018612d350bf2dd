"""What all code of a process shares, and a page must leave as it is: functions of modules, and the recursion limit."""

import builtins
import math
import os
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

MISSING = object()


class Surroundings:
    """The public functions and classes of Python's built-ins, ``math``, ``os``, NumPy and TensorFlow at one time."""

    def __init__(self) -> None:
        """Note what there is now."""
        self._before = [(name, vars(module), _settled(module)) for name, module in _modules().items()]
        self._recursion_limit = sys.getrecursionlimit()

    def restore(self) -> list[str]:
        """Restore what has changed since, such as ``tf.sigmoid``; return its names.

        It calls no built-in function, which may have been replaced.
        """
        changed: list[str] = []
        if sys.getrecursionlimit() != self._recursion_limit:
            sys.setrecursionlimit(self._recursion_limit)
            changed.append("the recursion limit")
        for module, now, before in self._before:
            names = [name for name, value in before.items() if now.get(name, MISSING) is not value]
            for name in names:
                now[name] = before[name]
                changed.append(f"{module}.{name}")
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
