"""The functions of a SavedModel, emitted op by op: variables are tensors, and nothing of the file is executed.

TensorFlow's own loader restores functions that capture variables. Emitted anew, the ops of a function are those of the
program that calls it: they have derivatives of every order in inputs and variables, in every mode.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import tensorflow as tf

from pullback.ops._saved_ops import (
    BRANCHES,
    CALLS,
    GRADIENT,
    LOOPS,
    RESOURCE,
    NotEmitted,
    Variable,
    need_allowed,
    of_variable,
    plain,
)

flow: Any = tf
# Functions that call functions, deeper than any model.
DEEPEST = 64


@dataclass(eq=False)
class Body:
    """A function: its definition, and its nodes by name."""

    definition: Any
    nodes: Mapping[str, Any]

    @cached_property
    def order(self) -> list[Any]:
        """The nodes that its results need, each behind those that it needs; others only check or print."""
        found, entered = dict[str, Any](), set[str]()
        stack = [_source(name) for name in self.definition.ret.values()]
        while stack:
            name = stack.pop()
            node = self.nodes.get(name)
            if node is None or name in found:
                continue
            needed = [_source(each) for each in node.input if not each.startswith("^")]
            missing = [each for each in needed if each in self.nodes and each not in found]
            if missing and name in entered:
                raise NotEmitted(f"expected a function without cycles, got one at {name}")
            if missing:
                entered.add(name)
                stack += [name, *missing]
                entered.difference_update(missing)
            else:
                found[name] = node
        return list(found.values())


@dataclass(eq=False)
class Functions:
    """The functions of a library, and the gradient functions that it has by their types."""

    library: Any
    captures: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict[str, Sequence[tuple[str, str]]])
    has_lost_gradients: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Index the functions."""
        self.bodies = {
            each.signature.name: Body(each, {node.name: node for node in each.node_def})
            for each in self.library.function
        }
        self.gradients = {
            each.registered_op_type: each.gradient_func
            for each in self.library.registered_gradients
            if each.registered_op_type
        }
        # The gradient of a gradient is not saved with it.
        nodes = (node for name in self.gradients.values() for node in self.bodies[name].nodes.values())
        self.has_lost_gradients = any(_lost(node, self.gradients) for node in nodes)

    def call(self, name: str, arguments: Sequence[Any], depth: int = 0, around: Mapping[str, Any] | None = None) -> Any:
        """Return the results of a function for tensors and variables; raises ``NotEmitted``.

        ``around`` has the tensors of the functions that are being emitted, which gradient functions capture.
        """
        if depth > DEEPEST or name not in self.bodies:
            raise NotEmitted(f"expected the function {name} in the SavedModel, and at most {DEEPEST} nested calls")
        body = self.bodies[name]
        signature = body.definition.signature
        values = dict[str, Any](zip((each.name for each in signature.input_arg), arguments, strict=True))
        seen = {**(around or {}), name: values}
        for node in body.order:
            inputs = [_value(values, each) for each in node.input if not each.startswith("^")]
            values[node.name] = self._emitted(node, inputs, depth, seen)
        return [_value(values, body.definition.ret[each.name]) for each in signature.output_arg]

    def _emitted(self, node: Any, inputs: list[Any], depth: int, seen: Mapping[str, Any]) -> Any:
        """Return the results of a node, by the names of its outputs."""
        if node.op in CALLS:
            return {"output": self.call(node.attr["f"].func.name, inputs, depth + 1, seen)}
        if node.op in BRANCHES:
            return {"output": self._branch(node, inputs, depth, seen)}
        if node.op in LOOPS:
            return {"output": self._loop(node, inputs, depth, seen)}
        if node.op == "IdentityN":
            return {"output": self._identities(node, inputs, depth, seen)}
        return of_variable(node, inputs) if isinstance(next(iter(inputs), None), Variable) else plain(node, inputs)

    def _identities(self, node: Any, inputs: list[Any], depth: int, seen: Mapping[str, Any]) -> list[Any]:
        """Return tensors, with the gradient that was saved for them, if one was; variables stay as they are."""
        tensors = [each.read() if isinstance(each, Variable) else each for each in inputs]
        if _lost(node, self.gradients):
            self.has_lost_gradients = True
        elif GRADIENT in node.attr:
            tensors = self._marked(self.gradients[node.attr[GRADIENT].s.decode()], tensors, depth, seen)
        return [each if isinstance(each, Variable) else x for each, x in zip(inputs, tensors, strict=True)]

    def need_pure(self, name: str) -> None:
        """Raise ``NotEmitted`` if a function, or one that it calls, has an op with state, also beside its results."""
        left, seen = [name], set[str]()
        while left:
            name = left.pop()
            if name in seen or name not in self.bodies:
                continue
            seen.add(name)
            for node in self.bodies[name].nodes.values():
                need_allowed(node)
                left += [value.func.name for value in node.attr.values() if value.WhichOneof("value") == "func"]

    def _branch(self, node: Any, inputs: list[Any], depth: int, seen: Mapping[str, Any]) -> list[Any]:
        def side(key: str) -> Any:
            return lambda: self.call(node.attr[key].func.name, inputs[1:], depth + 1, seen)

        condition = inputs[0]
        if condition.dtype != tf.bool:
            condition = tf.cast(condition, tf.bool)
        return list(flow.cond(condition, side("then_branch"), side("else_branch")))

    def _loop(self, node: Any, inputs: list[Any], depth: int, seen: Mapping[str, Any]) -> list[Any]:
        varying = [i for i, each in enumerate(inputs) if not isinstance(each, Variable)]

        def filled(values: Sequence[Any]) -> list[Any]:
            every = list(inputs)
            for i, value in zip(varying, values, strict=True):
                every[i] = value
            return every

        def condition(*values: Any) -> Any:
            [going] = self.call(node.attr["cond"].func.name, filled(values), depth + 1, seen)
            return tf.reshape(going, [])

        def turn(*values: Any) -> list[Any]:
            found = self.call(node.attr["body"].func.name, filled(values), depth + 1, seen)
            return [found[i] for i in varying]

        shapes = list(map(tf.TensorShape, node.attr["output_shapes"].list.shape))
        given = [inputs[i] for i in varying]
        invariants = [shapes[i] if shapes else each.shape for i, each in zip(varying, given, strict=True)]
        return filled(list(flow.while_loop(condition, turn, given, shape_invariants=invariants)))

    def _marked(self, gradient: str, inputs: list[Any], depth: int, seen: Mapping[str, Any]) -> list[Any]:
        """Return tensors whose gradient is that which was saved with them."""
        captured = [_value(seen[function], name) for function, name in self.captures.get(gradient, ())]
        kinds = [each.type for each in self.bodies[gradient].definition.signature.input_arg][len(inputs) :]
        for i, (each, kind) in enumerate(zip(captured, kinds, strict=True)):
            captured[i] = each.read() if isinstance(each, Variable) and kind != RESOURCE else each

        def gradients(*dys: Any) -> list[Any]:
            found = self.call(gradient, [*dys, *captured], depth + 1, seen)
            return [None] * (len(inputs) - len(found)) + list(found)

        @flow.custom_gradient
        def marked(*xs: Any) -> Any:
            return [tf.identity(x) for x in xs], gradients

        return list(marked(*inputs))


def _lost(node: Any, gradients: Mapping[str, str]) -> bool:
    """Return whether a node had a gradient that was not saved."""
    return GRADIENT in node.attr and node.attr[GRADIENT].s.decode() not in gradients


def _source(name: str) -> str:
    return name.partition(":")[0]


def _value(values: Mapping[str, Any], reference: str) -> Any:
    """Return a tensor by its reference: an argument, ``node:output:index``, or ``node:index`` among all outputs."""
    name, *place = reference.split(":")
    found = values[name]
    if not isinstance(found, dict):
        return found
    outputs = cast("dict[str, Any]", found)
    if len(place) > 1:
        one, index = outputs[place[0]], int(place[1])
        return one[index] if _is_list(one) else one
    every = list[Any]()
    for one in outputs.values():
        every += one if _is_list(one) else [one]
    return every[int(place[0]) if place else 0]


def _is_list(results: Any) -> bool:
    return isinstance(results, list | tuple)
