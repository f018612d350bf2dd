"""The graph of a trace in double precision: what is narrower than float64 in it becomes float64.

The nodes are those that TensorFlow has traced, so the function is the author's, with its custom gradients, and only
rounds less. Variables keep their dtype, in which their values are exact. A kernel that has no float64 is an error of
TensorFlow, when the graph is imported or when it runs.
"""

import weakref
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

import tensorflow as tf

# Private, because what is public does not give the runtime the functions of an imported graph.
from tensorflow.python.eager import context

from ops import Tensor

DOUBLE = {tf.float16: tf.float64, tf.bfloat16: tf.float64, tf.float32: tf.float64, tf.complex64: tf.complex128}
_ENUMS = {narrow.as_datatype_enum: wide.as_datatype_enum for narrow, wide in DOUBLE.items()}
_OF_CONSTANTS = {narrow.as_datatype_enum: wide for narrow, wide in DOUBLE.items()}
# What reads variables, and the name of its output in the definition of the kernel.
_READS = {"ReadVariableOp": "value", "ResourceGather": "output", "ResourceGatherNd": "output"}
_READ = "/narrow"
# TensorFlow knows functions by their names.
_numbers = count()


def in_double_precision(
    function: tf.types.experimental.ConcreteFunction, leaves: Sequence[Tensor], results: Sequence[Tensor]
) -> list[Tensor]:
    """Add a traced function to the graph that is being built, in float64; return some of its tensors there.

    ``leaves`` are its arguments, float64 where the function has narrower floats. Raises ``ValueError`` where a kernel
    has no float64.
    """
    captured = [tf.cast(x, DOUBLE[x.dtype]) if x.dtype in DOUBLE else x for x in function.captured_inputs]
    values: dict[str, Tensor] = dict(zip((x.name for x in function.inputs), [*leaves, *captured], strict=True))
    used = {x.name for op in function.graph.get_operations() for x in op.inputs}
    graph = _converted(function.graph.as_graph_def())
    _register(graph.library.function)
    computed = [name for name in dict.fromkeys(y.name for y in results) if name not in values]
    found: Any = tf.import_graph_def(
        graph,
        input_map={name: x for name, x in values.items() if name in used},
        return_elements=computed,
        name="",
    )
    values |= dict(zip(computed, found, strict=True))
    return [values[y.name] for y in results]


def _register(functions: Iterable[Any]) -> None:
    """Let the runtime find functions as long as the graph that is being built lives."""
    runtime, graph = context.context(), tf.compat.v1.get_default_graph()
    for function in functions:
        runtime.add_function_def(function)
        weakref.finalize(graph, runtime.remove_function, function.signature.name).atexit = False


def _converted(graph: Any) -> Any:
    """Return a ``GraphDef`` and its functions in float64, under other names."""
    wide, number = tf.compat.v1.GraphDef(versions=graph.versions), next(_numbers)
    names = (function.signature.name for function in graph.library.function)
    functions = {name: f"{name}_in_float64_{number}" for name in names}
    _convert_nodes(graph.node, wide.node, functions)
    for function in graph.library.function:
        copy = wide.library.function.add()
        copy.CopyFrom(function)
        copy.signature.name = functions[function.signature.name]
        for arg in (*copy.signature.input_arg, *copy.signature.output_arg):
            arg.type = _ENUMS.get(arg.type, arg.type)
        del copy.node_def[:]
        # A function names the outputs of its nodes: "node:output:0". Those that read variables become casts.
        casts = {
            f"{node.name}:{_READS[node.op]}:0": f"{node.name}:y:0" for node in function.node_def if node.op in _READS
        }
        _convert_nodes(function.node_def, copy.node_def, functions, casts)
        for name, result in copy.ret.items():
            copy.ret[name] = casts.get(result, result)
    return wide


def _convert_nodes(
    nodes: Iterable[Any], to: Any, functions: Mapping[str, str], casts: Mapping[str, str] | None = None
) -> None:
    """Add nodes in float64 to others; in a function, ``casts`` renames the outputs of those that read variables."""
    for node in nodes:
        copy = to.add()
        copy.CopyFrom(node)
        copy.op = functions.get(node.op, node.op)
        copy.input[:] = [(casts or {}).get(name, name) for name in node.input]
        if node.op not in _READS:
            for name, value in copy.attr.items():
                if not name.startswith("_"):
                    _convert(value, functions)
        elif node.attr["dtype"].type in _ENUMS:
            copy.name += _READ
            narrow, cast = node.attr["dtype"].type, to.add(name=node.name, op="Cast")
            cast.input.append(copy.name if casts is None else f"{copy.name}:{_READS[node.op]}:0")
            cast.attr["SrcT"].type, cast.attr["DstT"].type = narrow, _ENUMS[narrow]


def _convert(value: Any, functions: Mapping[str, str]) -> None:
    """Convert the value of an attribute: a type, a constant, a function with attributes, or a list of these."""
    match value.WhichOneof("value"):
        case "type":
            value.type = _ENUMS.get(value.type, value.type)
        case "tensor" if value.tensor.dtype in _ENUMS:
            wide = _OF_CONSTANTS[value.tensor.dtype]
            array = tf.make_ndarray(value.tensor).astype(wide.as_numpy_dtype)
            value.tensor.CopyFrom(tf.make_tensor_proto(array, wide))
        case "func":
            _convert_function(value.func, functions)
        case "list":
            value.list.type[:] = [_ENUMS.get(each, each) for each in value.list.type]
            for each in value.list.func:
                _convert_function(each, functions)
        case _:
            pass


def _convert_function(function: Any, functions: Mapping[str, str]) -> None:
    function.name = functions.get(function.name, function.name)
    for value in function.attr.values():
        _convert(value, functions)
