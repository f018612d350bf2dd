"""SavedModels as ops: a signature is the function, and the variables that it reads are the parameters."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2, trackable_object_graph_pb2

from pullback.ops._models import Fields, named, slots
from pullback.ops._parameters import Parameter
from pullback.ops._saved_functions import Functions
from pullback.ops._saved_ops import CALLS, RESOURCE, NotEmitted, Variable
from pullback.ops._slots import Input, Output
from pullback.page_files import SAVED_MODEL

flow: Any = tf

CHECKPOINT, SIGNATURE = "variables/variables", "serving_default"
# A file without weights is not larger.
MAX_FILE = 1 << 28
OBJECTS, VALUE = "_CHECKPOINTABLE_OBJECT_GRAPH", "VARIABLE_VALUE"
_NAMED_BY_EXPORT = re.compile(r"(keras_tensor|input_layer|output|args|inputs?)(_\d+)?")


def fields_of_saved_model(folder: Path, signature: str = SIGNATURE) -> Fields:
    """Return the fields of the op of a signature: function, inputs, outputs, parameters, source.

    Nothing of the file is executed. Raises ``ValueError`` for a folder without a SavedModel of TensorFlow 2, for a
    signature that it does not have, and, as ``NotEmitted``, for one that has ops with state, Python or files.
    """
    graph = _graph_of(folder)
    _need_readable(folder, graph, signature)
    declared, objects = graph.signature_def[signature], graph.object_graph_def
    nodes = {node.name: node for node in graph.graph_def.node}
    call = nodes.get(next(iter(declared.outputs.values())).name.partition(":")[0])
    if call is None or call.op not in CALLS or call.attr["f"].func.name not in objects.concrete_functions:
        raise ValueError(f"{folder.name}: expected a SavedModel of TensorFlow 2 (tf.saved_model.save, model.export)")
    functions = Functions(graph.graph_def.library, _captures(objects))
    name = call.attr["f"].func.name
    captured = _captured(folder, graph, nodes, objects.concrete_functions[name].bound_inputs)
    given = {each.name.partition(":")[0]: key for key, each in declared.inputs.items()}
    keys = [given[each] for each in call.input if each in given]
    names = {key: _index(each.name) for key, each in declared.outputs.items()}
    inputs = slots(Input, "x", [_spec(declared.inputs[key]) for key in keys], _own(keys))
    results = sorted(names)
    outputs = slots(Output, "y", [_spec(declared.outputs[key]) for key in results], _own(results))

    def emitted(tensors: Sequence[Any]) -> list[Any]:
        found = functions.call(name, [*tensors, *captured])
        return [found[names[key]] for key in results]

    variables = [each for each in captured if isinstance(each, Variable)]
    _try(folder, lambda: functions.need_pure(name), emitted, [_spec(declared.inputs[key]) for key in keys], variables)
    read = [each for each in variables if each.is_read]
    parameters = _parameters(folder, read, [slot.name for slot in inputs])

    def forward(*tensors: Any) -> Any:
        # Copies, because two traces may be made at a time.
        own = {
            id(one): Variable(one.name, one.dtype, one.shape, one.key, tensor)
            for one, tensor in zip(read, tensors[len(inputs) :], strict=True)
        }
        given = [own.get(id(each), each) for each in captured]
        found = functions.call(name, [*tensors[: len(inputs)], *given])
        chosen = [found[names[key]] for key in results]
        return chosen[0] if len(chosen) == 1 else tuple(chosen)

    source = f"a SavedModel of TensorFlow {graph.meta_info_def.tensorflow_version}"
    source += ", with its custom gradients" * bool(functions.gradients)
    source += ", saved without some of its custom gradients" * functions.has_lost_gradients
    return {"function": forward, "inputs": inputs, "outputs": outputs, "parameters": parameters, "source": source}


def _need_readable(folder: Path, graph: Any, signature: str) -> None:
    """Raise ``NotEmitted`` for a graph of a later TensorFlow, ``ValueError`` for an unknown signature."""
    version, needed = graph.meta_info_def.tensorflow_version, graph.graph_def.versions.min_consumer
    if needed > tf.version.GRAPH_DEF_VERSION:
        got = f"one of TensorFlow {version}, whose graph needs version {needed}"
        expected = f"graphs up to version {tf.version.GRAPH_DEF_VERSION}, those of TensorFlow {tf.version.VERSION}"
        raise NotEmitted(f"{folder.name}: expected {expected}, got {got}")
    if signature not in graph.signature_def or signature.startswith("__"):
        known = ", ".join(name for name in sorted(graph.signature_def) if not name.startswith("__"))
        raise ValueError(f"{folder.name}: expected one of the signatures {known}, got {signature!r}")


def _parameters(folder: Path, variables: Sequence[Variable], taken: Sequence[str]) -> tuple[Parameter, ...]:
    """Return the variables as parameters, with their values in the checkpoint, under names that are not taken."""
    if not variables:
        return ()
    paths = [each.name.split("/") for each in variables]
    if len({path[0] for path in paths}) == 1 and all(len(path) > 1 for path in paths):
        paths = [path[1:] for path in paths]  # all are in the model itself
    names = named(["/".join(path) for path in paths], taken)
    checkpoint: Any = flow.train.load_checkpoint(str(folder / CHECKPOINT))
    return tuple(Parameter(name, checkpoint.get_tensor(each.key)) for name, each in zip(names, variables, strict=True))


def _graph_of(folder: Path) -> Any:
    """Return the graph of a SavedModel."""
    path = folder / SAVED_MODEL
    if not path.is_file() or path.stat().st_size > MAX_FILE:
        expected = f"a folder with {SAVED_MODEL} of at most {MAX_FILE} bytes"
        raise ValueError(f"{folder.name}: expected {expected}; write it by model.export or tf.saved_model.save")
    message: Any = saved_model_pb2
    saved = message.SavedModel()
    try:
        saved.ParseFromString(path.read_bytes())
        [graph] = saved.meta_graphs
    except (DecodeError, ValueError, OSError) as error:
        raise ValueError(f"{folder.name}/{SAVED_MODEL}: expected a SavedModel with one graph: {error}") from None
    return graph


def _captured(folder: Path, graph: Any, nodes: Any, bound: Sequence[int]) -> list[Any]:
    """Return what a function captures: variables, and constants as tensors of NumPy."""
    objects, found, keys = graph.object_graph_def.nodes, list[Any](), dict[int, str]()
    for index in bound:
        kind = objects[index].WhichOneof("kind")
        if kind == "variable":
            keys = keys or _keys(folder, objects)
            variable = objects[index].variable
            shape = tuple(each.size for each in variable.shape.dim)
            found.append(Variable(variable.name, tf.dtypes.as_dtype(variable.dtype), shape, keys[index]))
        elif kind == "constant":
            value = nodes[objects[index].constant.operation].attr["value"].tensor
            found.append(flow.make_ndarray(value))
        else:
            raise NotEmitted(f"{folder.name}: the signature needs a {kind}, such as a table; export one without it")
    return found


def _keys(folder: Path, objects: Any) -> dict[int, str]:
    """Return the key in the checkpoint of each variable, by its number among the objects of the SavedModel."""
    message: Any = trackable_object_graph_pb2
    saved = message.TrackableObjectGraph()
    try:
        saved.ParseFromString(flow.train.load_checkpoint(str(folder / CHECKPOINT)).get_tensor(OBJECTS))
    except (ValueError, tf.errors.OpError) as error:
        raise ValueError(f"{folder.name}: expected its variables in {CHECKPOINT}: {error}") from None
    known, found, left = {0: 0}, dict[int, str](), [0]
    while left:
        here = left.pop()
        for attribute in saved.nodes[known[here]].attributes:
            if attribute.name == VALUE:
                found[here] = attribute.checkpoint_key
        there = {child.local_name: child.node_id for child in saved.nodes[known[here]].children}
        for child in objects[here].children:
            if child.node_id not in known and child.local_name in there:
                known[child.node_id] = there[child.local_name]
                left.append(child.node_id)
    return found


def _captures(objects: Any) -> dict[str, list[tuple[str, str]]]:
    """Return the tensors that gradient functions capture: the function that computes each, and its name there."""
    found = dict[str, list[tuple[str, str]]]()
    for name, function in objects.concrete_functions.items():
        kinds = [objects.nodes[index] for index in function.bound_inputs]
        if kinds and all(each.WhichOneof("kind") == "captured_tensor" for each in kinds):
            found[name] = [(each.captured_tensor.concrete_function, each.captured_tensor.name) for each in kinds]
    return found


def _try(folder: Path, pure: Any, emitted: Any, specs: Sequence[Any], variables: Sequence[Variable]) -> None:
    """Emit a signature in a graph, which shows which variables it reads; raises ``NotEmitted``."""
    with tf.Graph().as_default():
        for each in variables:
            each.value = flow.compat.v1.placeholder(each.dtype, each.shape)
        try:
            pure()
            emitted([flow.compat.v1.placeholder(each.dtype, each.shape) for each in specs])
        except NotEmitted as error:
            raise NotEmitted(f"{folder.name}: {error}") from None
        finally:
            for each in variables:
                each.value = None


def _spec(info: Any) -> Any:
    if info.dtype == RESOURCE:
        raise NotEmitted("expected a signature of tensors, got a resource")
    shape = None if info.tensor_shape.unknown_rank else [d.size if d.size >= 0 else None for d in info.tensor_shape.dim]
    return tf.TensorSpec(shape, tf.dtypes.as_dtype(info.dtype))


def _index(tensor: str) -> int:
    return int(tensor.partition(":")[2] or 0)


def _own(names: Sequence[str]) -> list[str]:
    """Return the names that an author has given, none if Keras or TensorFlow made one of them."""
    return [] if any(_NAMED_BY_EXPORT.fullmatch(name) for name in names) else list(names)
