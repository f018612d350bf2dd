"""The functions of a SavedModel, emitted op by op: variables are tensors, and nothing of the file is executed.

TensorFlow's own loader restores functions that capture variables. Emitted anew, the ops of a function are those of the
program that calls it: they have derivatives of every order in inputs and variables, in every mode.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, cast

import tensorflow as tf
from tensorflow.core.protobuf import struct_pb2

from pullback.ops._rules import has_gradient
from pullback.ops._saved_ops import (
    BRANCHES,
    CALLS,
    GRADIENT,
    LOOPS,
    RESOURCE,
    NotEmitted,
    Variable,
    find_op,
    need_allowed,
    of_variable,
    plain,
)

message: Any = struct_pb2
# The function of what a gradient captures from the model itself, a variable or a constant.
MODEL = ""
SLICES = message.TypeSpecProto.INDEXED_SLICES_SPEC
flow: Any = tf
# Functions that call functions, deeper than any model.
DEEPEST = 64


@dataclass(frozen=True)
class Gradient:
    """A function that was saved as the gradient of an op.

    ``parts`` says how many results make the gradient of each input of the op: none, a tensor, or the values, the
    indices, and perhaps the shape of a sparse one; it is ``None`` where the file does not say. ``captures`` names the
    tensors that the function takes behind the cotangents: the function that computes each, and its name there; for a
    variable or a constant, ``MODEL`` and its number among the objects.
    """

    function: str
    parts: tuple[int, ...] | None
    captures: tuple[tuple[str, str], ...]

    def arranged(self, results: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        """Return the gradient of each input, ``None`` where there is none."""
        rest, found = iter(results), list[Any]()
        for count, x in zip(self.parts or (), inputs, strict=True):
            own = list(islice(rest, count))
            if not own or not has_gradient(x):
                found.append(None)
            else:
                found.append(own[0] if count == 1 else flow.math.unsorted_segment_sum(*own[:2], tf.shape(x)[0]))
        return found


def gradients_of(library: Any, objects: Any) -> dict[str, Gradient]:
    """Return the gradients that a library of functions has, by the types of the ops that have them."""
    names = {each.registered_op_type: each.gradient_func for each in library.registered_gradients}
    return {kind: _gradient(name, objects) for kind, name in names.items() if kind}


def _gradient(name: str, objects: Any) -> Gradient:
    if name not in objects.concrete_functions:
        return Gradient(name, None, ())
    saved = objects.concrete_functions[name]
    captures = list[tuple[str, str]]()
    for index in saved.bound_inputs:
        node = objects.nodes[index]
        if node.WhichOneof("kind") == "captured_tensor":
            captures.append((node.captured_tensor.concrete_function, node.captured_tensor.name))
        else:
            captures.append((MODEL, str(index)))
    return Gradient(name, _parts(saved.output_signature), tuple(captures))


def _parts(signature: Any) -> tuple[int, ...] | None:
    """Return how many tensors a value, or each value of a list, is made of; ``None`` for any other structure."""
    values = signature.list_value.values or signature.tuple_value.values or [signature]
    found = [_count(each) for each in values]
    return None if None in found else tuple([count for count in found if count is not None])


def _count(value: Any) -> int | None:
    kind = value.WhichOneof("kind")
    if kind == "type_spec_value" and value.type_spec_value.type_spec_class == SLICES:
        # The shape and the dtype of the values, and the dtypes of the indices and, if it has one, of its own shape.
        fields = value.type_spec_value.type_state.tuple_value.values
        return 2 + (fields[3].WhichOneof("kind") != "none_value")
    return {"none_value": 0, "tensor_spec_value": 1}.get(kind)


@dataclass(eq=False)
class Body:
    """A function: its definition, and its nodes by name."""

    definition: Any
    nodes: Mapping[str, Any]

    def order(self, captured: Callable[[Any], Iterable[str]]) -> list[Any]:
        """The nodes that its results need, each behind those that it needs; others only check or print.

        A node also needs what gradient functions behind it capture: ``captured`` returns its names.
        """
        found, entered = dict[str, Any](), set[str]()
        stack = [_source(name) for name in self.definition.ret.values()]
        while stack:
            name = stack.pop()
            node = self.nodes.get(name)
            if node is None or name in found:
                continue
            needed = [_source(each) for each in (*node.input, *captured(node)) if not each.startswith("^")]
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
    gradients: Mapping[str, Gradient]
    tries_gradients: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Index the functions."""
        self.bodies = {
            each.signature.name: Body(each, {node.name: node for node in each.node_def})
            for each in self.library.function
        }
        self._orders = dict[str, list[Any]]()
        self._reached = dict[str, list[Gradient]]()

    def call(self, name: str, arguments: Sequence[Any], seen: Mapping[str, Any], depth: int = 0) -> Any:
        """Return the results of a function for tensors and variables; raises ``NotEmitted``.

        ``seen`` has the tensors of the functions that are being emitted, and the objects of the model, which gradient
        functions capture.
        """
        if depth > DEEPEST or name not in self.bodies:
            raise NotEmitted(f"expected the function {name} in the SavedModel, and at most {DEEPEST} nested calls")
        body = self.bodies[name]
        signature = body.definition.signature
        values = dict[str, Any](zip((each.name for each in signature.input_arg), arguments, strict=True))
        seen = {**seen, name: values}
        for node in self._order(name):
            inputs = [_value(values, each) for each in node.input if not each.startswith("^")]
            values[node.name] = self._emitted(node, inputs, depth, seen)
        return [_value(values, body.definition.ret[each.name]) for each in signature.output_arg]

    def need_pure(self, name: str) -> None:
        """Raise ``NotEmitted`` if a function has an op with state, also beside its results, or one that it reaches."""
        for each in self.reached(name):
            for node in self.bodies[each].nodes.values():
                need_allowed(node)

    def reached(self, name: str) -> list[str]:
        """Return the names of a function, of those that it calls, and of their gradient functions."""
        left, found = [name], dict[str, None]()
        while left:
            name = left.pop()
            if name in found or name not in self.bodies:
                continue
            found[name] = None
            for node in self.bodies[name].nodes.values():
                left += [*_called(node), *(each.function for each in self._own_gradient(node))]
        return list(found)

    def reached_gradients(self, name: str) -> list[Gradient]:
        """Return the gradients of the ops of a function, and of those that it reaches."""
        if name not in self._reached:
            nodes = (node for each in self.reached(name) for node in self.bodies[each].nodes.values())
            self._reached[name] = list(dict.fromkeys(each for node in nodes for each in self._own_gradient(node)))
        return self._reached[name]

    def has_lost_gradients(self, name: str) -> bool:
        """Return whether an op that a function reaches had a gradient that was not saved.

        TensorFlow does not save the gradient of a gradient.
        """
        nodes = (node for each in self.reached(name) for node in self.bodies[each].nodes.values())
        return any(GRADIENT in node.attr and node.op not in CALLS and not self._own_gradient(node) for node in nodes)

    def _own_gradient(self, node: Any) -> list[Gradient]:
        """Return the gradient that was saved for a node, if one was; a call has that of its function."""
        kind = node.attr[GRADIENT].s.decode() if GRADIENT in node.attr and node.op not in CALLS else ""
        return [self.gradients[kind]] if kind in self.gradients else []

    def _order(self, name: str) -> list[Any]:
        def captured(node: Any) -> list[str]:
            own = self._own_gradient(node)
            inner = [*_called(node), *(each.function for each in own)]
            gradients = [*own, *(each for function in inner for each in self.reached_gradients(function))]
            return [reference for each in gradients for function, reference in each.captures if function == name]

        if name not in self._orders:
            self._orders[name] = self.bodies[name].order(captured)
        return self._orders[name]

    def _emitted(self, node: Any, inputs: list[Any], depth: int, seen: Mapping[str, Any]) -> Any:
        """Return the results of a node, by the names of its outputs."""
        if node.op in CALLS:
            return {"output": self.call(node.attr["f"].func.name, inputs, seen, depth + 1)}
        if node.op in BRANCHES:
            return {"output": self._branch(node, inputs, depth, seen)}
        if node.op in LOOPS:
            return {"output": self._loop(node, inputs, depth, seen)}
        if node.op == "IdentityN":
            return {"output": self._identities(node, inputs, depth, seen)}
        for gradient in self._own_gradient(node):
            return self._with_gradient(gradient, node, inputs, depth, seen)
        return of_variable(node, inputs) if isinstance(next(iter(inputs), None), Variable) else plain(node, inputs)

    def _identities(self, node: Any, inputs: list[Any], depth: int, seen: Mapping[str, Any]) -> list[Any]:
        """Return tensors, with the gradient that was saved for them, if one was; variables stay as they are."""
        tensors = [each.read() if isinstance(each, Variable) else each for each in inputs]
        for gradient in self._own_gradient(node):
            tensors = self._with_gradient(gradient, node, tensors, depth, seen)["output"]
        return [each if isinstance(each, Variable) else x for each, x in zip(inputs, tensors, strict=True)]

    def _branch(self, node: Any, inputs: list[Any], depth: int, seen: Mapping[str, Any]) -> list[Any]:
        def side(key: str) -> Any:
            return lambda: self.call(node.attr[key].func.name, inputs[1:], seen, depth + 1)

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
            [going] = self.call(node.attr["cond"].func.name, filled(values), seen, depth + 1)
            return tf.reshape(going, [])

        def turn(*values: Any) -> list[Any]:
            found = self.call(node.attr["body"].func.name, filled(values), seen, depth + 1)
            return [found[i] for i in varying]

        shapes = list(map(tf.TensorShape, node.attr["output_shapes"].list.shape))
        given = [inputs[i] for i in varying]
        invariants = [shapes[i] if shapes else each.shape for i, each in zip(varying, given, strict=True)]
        return filled(list(flow.while_loop(condition, turn, given, shape_invariants=invariants)))

    def _with_gradient(self, gradient: Gradient, node: Any, inputs: list[Any], depth: int, seen: Any) -> Any:
        """Return the results of a node, whose gradient is one that was saved."""
        if any(x is None for x in inputs):
            raise NotEmitted(f"the op {node.op} at {node.name} works with text; export a signature of numbers alone")
        inputs = [tf.convert_to_tensor(x) for x in inputs]
        kinds = [each.type for each in self.bodies[gradient.function].definition.signature.input_arg]
        sizes = len(inputs), len(inputs) + len(gradient.captures)
        if gradient.parts is None or (len(gradient.parts), len(kinds)) != sizes:
            got = f"{gradient.function} with {len(kinds)} arguments, for {len(inputs)} inputs of {node.op}"
            raise NotEmitted(f"expected a gradient function with a tensor or None for each input, got {got}")
        captured = [_value(seen[function], name) for function, name in gradient.captures]
        for i, (each, kind) in enumerate(zip(captured, kinds[len(inputs) :], strict=True)):
            captured[i] = each.read() if isinstance(each, Variable) and kind != RESOURCE else each

        def pullback(*dys: Any) -> list[Any]:
            # TensorFlow has no cotangent of an output without a path to what is differentiated, or with integers.
            given = [tf.zeros_like(x) if dy is None else dy for x, dy in zip(inputs, dys, strict=True)]
            results = self.call(gradient.function, [*map(tf.convert_to_tensor, given), *captured], seen, depth + 1)
            return gradient.arranged(results, inputs)

        @flow.custom_gradient
        def marked(*xs: Any) -> Any:
            outputs = plain(node, list(xs))
            return [outputs[each.name] for each in find_op(node.op).output_arg], pullback

        if self.tries_gradients:
            pullback(*map(tf.zeros_like, inputs))
        outputs = marked(*inputs)
        if len(tf.nest.flatten(outputs)) != len(inputs):
            raise NotEmitted(f"expected a custom gradient of an op with as many outputs as inputs, got {node.op}")
        return dict(zip((each.name for each in find_op(node.op).output_arg), outputs, strict=True))


def _called(node: Any) -> list[str]:
    """Return the names of the functions that a node calls."""
    return [value.func.name for value in node.attr.values() if value.WhichOneof("value") == "func"]


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
