"""The ops of a SavedModel: which of them an op of the service may have, and how they are emitted."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

# Private, because the definitions of ops have no public name.
from tensorflow.python.framework import op_def_registry

flow: Any = tf
find_op: Any = op_def_registry.get

STRING, RESOURCE = 7, 20
CALLS = ("PartitionedCall", "StatefulPartitionedCall")
LOOPS, BRANCHES = ("While", "StatelessWhile"), ("If", "StatelessIf")
READS = ("ReadVariableOp", "ResourceGather", "VariableShape", "VarHandleOp", "VarIsInitializedOp")
# What only checks or prints is left out.
MESSAGES = ("Assert", "Print", "PrintV2", "StringFormat")
PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
GRADIENT = "_gradient_op_type"


class NotEmitted(ValueError):
    """A SavedModel has an op that cannot be part of an op of the service."""


@dataclass(eq=False)
class Variable:
    """A variable of a SavedModel in place of its handle; ``value`` is the tensor that a read returns."""

    name: str
    dtype: Any
    shape: tuple[int, ...]
    key: str
    value: Any = None
    is_read: bool = False

    def read(self) -> Any:
        """Return the value."""
        self.is_read = True
        return self.value


def need_allowed(node: Any) -> None:
    """Raise ``NotEmitted`` for an op that is none of this TensorFlow, runs Python, has state, or reads files."""
    definition, where = find_op(node.op), f"the op {node.op} at {node.name}"
    if node.op in PYTHON:
        raise NotEmitted(f"{where} runs Python of the process that saved it; write it with TensorFlow")
    if definition is None or not hasattr(tf.raw_ops, node.op):
        raise NotEmitted(f"{where} is not one of TensorFlow {tf.version.VERSION}; export the model again with it")
    known = {each.name for each in definition.attr}
    if unknown := sorted(name for name in node.attr if not name.startswith("_") and name not in known):
        expected = f"is known to TensorFlow {tf.version.VERSION} without {unknown[0]}"
        raise NotEmitted(f"{where} {expected}; export the model again with it")
    if definition.is_stateful and node.op not in (*CALLS, *LOOPS, *BRANCHES, *READS, *MESSAGES):
        cure = (
            "an op changes nothing, and has no random numbers and tables; export the model at inference, and recurrent"
        )
        cure += " layers without dropout, or serve those by Op.from_keras"
        raise NotEmitted(f"{where} has state: {cure}")
    if node.op not in MESSAGES and any(each.type == STRING for each in definition.input_arg):
        raise NotEmitted(f"{where} works with text or files; export a signature of numbers alone")


def of_variable(node: Any, inputs: Sequence[Any]) -> Any:
    """Return what an op returns that gets a variable; raises ``NotEmitted`` for one that may change it."""
    variable, *others = inputs
    if node.op == "ReadVariableOp":
        return {"value": variable.read()}
    if node.op == "Identity":
        return {"output": variable}
    if node.op == "ResourceGather" and not node.attr["batch_dims"].i:
        return {"output": tf.gather(variable.read(), others[0])}
    if node.op == "VariableShape":
        return {"output": tf.shape(variable.read(), out_type=tf.dtypes.as_dtype(node.attr["out_type"].type))}
    raise NotEmitted(f"the op {node.op} at {node.name} uses the variable {variable.name} in an unknown way")


def plain(node: Any, inputs: list[Any]) -> Any:
    """Return the results of an op without functions and variables, by the names of its outputs."""
    definition = find_op(node.op)
    if node.op == "Const":
        if node.attr["dtype"].type == STRING:
            return {"output": None}  # only messages have strings; what computes with one is refused
        return {"output": tf.constant(flow.make_ndarray(node.attr["value"].tensor))}
    if any(each is None or getattr(each, "dtype", None) == tf.string for each in inputs):
        raise NotEmitted(f"the op {node.op} at {node.name} works with text; export a signature of numbers alone")
    make: Any = getattr(tf.raw_ops, node.op)
    given, rest = dict[str, Any](), list(inputs)
    for each in definition.input_arg:
        count = _count(each, node)
        given[each.name] = rest.pop(0) if count is None else [rest.pop(0) for _ in range(count)]
    own = _names_in_python(definition, list(inspect.signature(make).parameters))
    given |= {name: _attribute(value) for name, value in node.attr.items() if name in own}
    result = make(**{own[name]: value for name, value in given.items()})
    outputs = definition.output_arg
    if len(outputs) == 1:
        return {outputs[0].name: result}
    return {each.name: getattr(result, each.name) for each in outputs} if outputs else {}


def _names_in_python(definition: Any, taken: Sequence[str]) -> dict[str, str]:
    """Return what Python calls each input, and each attribute that does not follow from inputs.

    A few have another name, such as ``axis`` for ``reduction_indices`` and ``squeeze_dims``.
    """
    inputs = definition.input_arg
    follow = {name for each in inputs for name in (each.type_attr, each.number_attr, each.type_list_attr)}
    names: list[str] = [each.name for each in (*inputs, *definition.attr) if each.name not in follow]
    others = [name for name in taken if name not in names and name != "name"]
    renamed = dict(zip((name for name in names if name not in taken), others, strict=True))
    return {name: renamed.get(name, name) for name in names}


def _count(argument: Any, node: Any) -> int | None:
    """Return how many tensors an argument has, ``None`` for one."""
    if argument.number_attr:
        return int(node.attr[argument.number_attr].i)
    return len(node.attr[argument.type_list_attr].list.type) if argument.type_list_attr else None


def _attribute(value: Any) -> Any:
    """Return the value of an attribute, as ``tf.raw_ops`` takes it."""
    kind = value.WhichOneof("value")
    if kind == "list" and not value.list.func:
        for name in ("s", "i", "f", "b"):
            if len(found := getattr(value.list, name)):
                return list(found)
        return [tf.dtypes.as_dtype(each) for each in value.list.type] or list(map(tf.TensorShape, value.list.shape))
    if kind == "type":
        return tf.dtypes.as_dtype(value.type)
    if kind == "shape":
        return tf.TensorShape(value.shape)
    if kind == "tensor":
        return flow.make_ndarray(value.tensor)
    if kind in ("s", "i", "f", "b"):
        return getattr(value, kind)
    raise NotEmitted("an op inside calls a function in a way that is not known here; export the model without it")
