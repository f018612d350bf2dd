"""The trial of kernels that no test has compared: the first call of a graph with one of them must be as in mode eager.

A kernel may write into the memory of an input that nothing else in a graph needs, before it has read it all, and may
be vectorised wrongly. TensorFlow's kernels for which that was tested are in ``app.runtime.kernels``; those of C++ pages
are not. What draws random numbers, has a state or calls Python is not tried, nor are loops and large tensors: those
take long.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

# Private, because nothing public tells whether a kernel has a state.
from tensorflow.python.framework import op_def_registry

from app.runtime.kernels import CALLS, KERNELS, LOOPS, PYTHON, nodes_of
from ops import Array, OpFault

Results: TypeAlias = Mapping[Any, Array | None]
Run: TypeAlias = Callable[[Sequence[Array]], Results]

# The most numbers in the leaves, and on their first axes, where directions are: eager mode takes one by one.
LARGEST, LONGEST = 1 << 14, 64
# What proves a fault: a difference of this part of the largest number of a result, which is as many times as large as
# that by which the last bits of the leaves change it.
RELATIVE, SHAKEN = 1e-2, 64


def untried(definition: Any) -> list[str]:
    """Return the kernels of a graph's definition that no test has compared; none where some kernel prevents a trial."""
    kernels = {node.op for node in nodes_of(definition)}
    definitions = [op_def_registry.get(kernel) for kernel in kernels - CALLS]
    if kernels & (LOOPS | PYTHON) or any(each is not None and each.is_stateful for each in definitions):
        return []
    return sorted(kernels - KERNELS.keys() - CALLS)


def compare(
    kernels: Sequence[str], leaves: Sequence[Array], in_graph: Run, eagerly: Run, *, has_directions: bool = True
) -> None:
    """Raise ``OpFault`` if a graph with these kernels computes something else than mode eager.

    The first axes may be those of directions if the program ``has_directions``.
    """
    longest = max((len(x) for x in leaves if x.ndim), default=0) if has_directions else 0
    if not kernels or longest > LONGEST or sum(x.size for x in leaves) > LARGEST:
        return
    try:
        found, expected = in_graph(leaves), eagerly(leaves)
        differing = [key for key, value in found.items() if _difference(value, expected[key]) > RELATIVE]
        shaken = eagerly([_shaken(leaf) for leaf in leaves]) if differing else expected
    except Exception:  # noqa: BLE001 - the author's code may raise anything; the next call reports it
        return
    for key in differing:
        if _difference(found[key], expected[key]) > SHAKEN * _difference(shaken[key], expected[key]):
            what, cure = f"{', '.join(kernels)} in a graph", "the numbers of mode eager; send this mode"
            raise OpFault(what, str(key[-1]), expected=cure, got="others", message="computes wrong numbers")


def _difference(value: Array | None, expected: Array | None) -> float:
    """Return how far numbers are from those expected, relative to the largest of them; infinite ones do not count."""
    if value is None or expected is None or value.shape != expected.shape or value.dtype.kind == "c":
        return 0.0
    x, y = np.asarray(value, np.float64), np.asarray(expected, np.float64)
    usable = np.isfinite(x) & np.isfinite(y)
    apart = np.abs(x - y)[usable].max(initial=0.0)
    return float(apart / max(np.abs(x[usable]).max(initial=0.0), np.abs(y[usable]).max(initial=0.0))) if apart else 0.0


def _shaken(leaf: Array) -> Array:
    if leaf.dtype.kind not in "fV":
        return leaf
    return leaf + leaf * np.spacing(leaf.dtype.type(1))
