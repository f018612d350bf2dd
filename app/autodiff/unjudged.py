"""Results whose errors no random rounding shows, because other errors than those of TensorFlow's kernels reach them.

What a Python function computes, in NumPy or otherwise, is not seen. A loop that ends when a number is small enough
stops before its limit, and how far from it is no rounding; unless it goes on to some eps.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, TypeAlias, cast

import tensorflow as tf

from app.autodiff.absent import Absent
from app.autodiff.random_errors import eps_of
from app.runtime.kernels import LOOPS, OF_SHAPES, PYTHON
from app.runtime.modes import Key, Trace
from ops import Array

# What does not carry on the errors of its operands.
ENDS = OF_SHAPES | {"OnesLike", "ZerosLike"}
SUMS = frozenset(["Add", "AddV2", "Sub"])
# What a tolerance is made of, besides its constant: the size of the numbers.
PRODUCTS = frozenset(["Cast", "ExpandDims", "Identity", "Mul", "Reshape"])
# The constants of a tolerance that is a rounding, in eps of their dtype.
LEAST, MOST = 1 / 4, 64.0
# The sets of arguments are small: those of a loop.
Names = frozenset[str]
# What ``tf.custom_gradient`` puts behind its outputs: each of its outputs depends on one input alone.
COPIES = "IdentityN"
Place: TypeAlias = tuple[str, int | None]
"""The name of an operation, and the number of one of its outputs, ``None`` for all of them."""


def unjudged(trace: Trace) -> dict[Key, Absent]:
    """Return why results of a trace have no estimate, by key; those that have one are left out."""
    definition = trace.graph_def
    library = _Library(definition)
    nodes = {node.name: node for node in definition.node}
    consumers, found = defaultdict[str, list[tuple[str, Place]]](list), dict[Place, Absent]()
    for node in definition.node:
        for i, of in enumerate(node.input if node.op not in ENDS else ()):
            consumers[_node(of)].append((of, (node.name, i if node.op == COPIES else None)))
    for reason in (Absent.PYTHON, Absent.LOOP):
        reached: list[Place] = [(node.name, None) for node in definition.node if library.reason(node, nodes) is reason]
        while reached:
            place = name, output = reached.pop()
            if place not in found:
                found[place] = reason
                tensor = None if output is None else f"{name}:{output}".removesuffix(":0")
                reached += [place for of, place in consumers[name] if tensor in (None, of)]
    reasons = dict[Key, Absent]()
    for (key, dtype), y in zip(trace.kinds.items(), trace.function.outputs, strict=True):
        of: Any = y
        name: str = of.op.name
        reason = found.get((name, None)) or found.get((name, of.value_index))
        if reason and not isinstance(key[0], str) and dtype.is_floating:
            reasons[key] = reason
    return reasons


class _Library:
    """The functions of a graph: the bodies of its loops and branches, and others that it calls."""

    def __init__(self, definition: Any) -> None:
        self._functions = {function.signature.name: _Body(function) for function in definition.library.function}
        self._reasons = dict[str, Absent | None]()

    def reason(self, node: Any, nodes: Mapping[str, Any]) -> Absent | None:
        """Return why the results of an operation, one of these ``nodes``, have no estimate; ``None`` if they have."""
        if node.op in PYTHON:
            return Absent.PYTHON if any(map(_is_float, node.attr["Tout"].list.type)) else None
        inside = [self._within(name) for name in _called(node)]
        if Absent.PYTHON in inside:
            return Absent.PYTHON
        ends_by_value = node.op in LOOPS and self._ends_by_value(node) and not self._ends_by_rounding(node, nodes)
        return Absent.LOOP if ends_by_value or Absent.LOOP in inside else None

    def _within(self, name: str) -> Absent | None:
        if name not in self._reasons:
            self._reasons[name] = None  # a function may call itself
            nodes = self._functions[name].nodes
            found = [self.reason(node, nodes) for node in nodes.values()]
            self._reasons[name] = next((reason for reason in (Absent.PYTHON, Absent.LOOP) if reason in found), None)
        return self._reasons[name]

    def _ends_by_value(self, node: Any) -> bool:
        """Return whether the end of a loop depends on a float that changes in it, other than by a step."""
        condition, body = (self._functions[node.attr[name].func.name] for name in ("cond", "body"))
        places = {name: i for i, name in enumerate(condition.arguments)}
        wanted = [places[name] for name in condition.arguments_of(*condition.results)]
        seen = set[int]()
        while wanted:
            i = wanted.pop()
            if i in seen or body.keeps(i):
                continue
            seen.add(i)
            if body.is_float(i) and not body.steps(i):
                return True
            wanted += [j for j, name in enumerate(body.arguments) if name in body.arguments_of(body.results[i])]
        return False

    def _ends_by_rounding(self, node: Any, nodes: Mapping[str, Any]) -> bool:
        """Return whether the end of a loop depends on a constant of some eps, which the loop may get in a variable."""
        condition = self._functions[node.attr["cond"].func.name]
        inside = condition.reached(*condition.results)
        if any(_is_rounding(condition.nodes[name]) for name in inside if name in condition.nodes):
            return True
        wanted = [_node(node.input[i]) for i, name in enumerate(condition.arguments) if name in inside]
        while wanted:
            of = nodes.get(wanted.pop())
            if of is not None and _is_rounding(of):
                return True
            wanted += map(_node, of.input) if of is not None and of.op in PRODUCTS else ()
        return False


class _Body:
    """A function of a graph: its ``arguments`` by name, and what computes each of its ``results``."""

    def __init__(self, function: Any) -> None:
        self.nodes = {node.name: node for node in function.node_def}
        self.arguments = [each.name for each in function.signature.input_arg]
        self.results = [function.ret[each.name] for each in function.signature.output_arg]
        self._types = [each.type for each in function.signature.input_arg]

    def is_float(self, i: int) -> bool:
        """Return whether an argument has floats."""
        return _is_float(self._types[i])

    def keeps(self, i: int) -> bool:
        """Return whether a loop with this body does not change a variable."""
        return self._source(self.results[i]) == self.arguments[i]

    def steps(self, i: int) -> bool:
        """Return whether a loop with this body adds the same to a variable each time."""
        node = self.nodes.get(_node(self._source(self.results[i])))
        if node is None or node.op not in SUMS:
            return False
        of = [each for each in map(self._source, node.input) if each != self.arguments[i]]
        return len(of) == 1 and self.arguments_of(*of) <= self._kept

    @cached_property
    def _kept(self) -> Names:
        return frozenset(name for i, name in enumerate(self.arguments[: len(self.results)]) if self.keeps(i))

    def _source(self, name: str) -> str:
        """Return what a tensor is, behind copies."""
        while (node := self.nodes.get(_node(name))) is not None and node.op == "Identity":
            name = node.input[0]
        return name

    def arguments_of(self, *names: str) -> Names:
        """Return the arguments that tensors depend on."""
        return frozenset(self.arguments) & self.reached(*names)

    def reached(self, *names: str) -> set[str]:
        """Return the names of arguments and operations that tensors depend on."""
        wanted, seen = list(map(_node, names)), set[str]()
        while wanted:
            name = wanted.pop()
            if name not in seen:
                seen.add(name)
                node = self.nodes.get(name)
                if node is not None and node.op not in ENDS:
                    wanted += [_node(each) for each in node.input if not each.startswith("^")]
        return seen


def _called(node: Any) -> Iterator[str]:
    """Yield the functions that an operation calls, such as the body of a loop."""
    for value in node.attr.values():
        yield from (each.name for each in (value.func, *value.list.func) if each.name)


def _node(tensor: str) -> str:
    return tensor.removeprefix("^").partition(":")[0]


def _is_rounding(node: Any) -> bool:
    """Return whether an operation is a constant of some eps."""
    if node.op != "Const" or not _is_float(node.attr["dtype"].type):
        return False
    value: Array = tf.make_ndarray(node.attr["value"].tensor)
    unit = eps_of(tf.as_dtype(value.dtype))
    return value.size == 1 and LEAST * unit <= abs(value.item()) <= MOST * unit


def _is_float(kind: int) -> bool:
    dtype: tf.DType = tf.dtypes.as_dtype(cast(Any, kind))
    return dtype.is_floating or dtype.is_complex
