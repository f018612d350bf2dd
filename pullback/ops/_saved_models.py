"""SavedModels as ops: a signature is the function, and the variables that it reads are the parameters."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2, trackable_object_graph_pb2

from pullback.ops._models import Fields, named, slots
from pullback.ops._parameters import Parameter
from pullback.ops._saved_functions import MODEL, Functions, gradients_of
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
    functions = Functions(graph.graph_def.library, gradients_of(graph.graph_def.library, objects))
    name = call.attr["f"].func.name
    bound = [str(index) for index in objects.concrete_functions[name].bound_inputs]
    gradients = functions.reached_gradients(name)
    captured = (key for each in gradients for function, key in each.captures if function == MODEL)
    model = _captured(folder, graph, nodes, list(dict.fromkeys((*bound, *captured))))
    given = {each.name.partition(":")[0]: key for key, each in declared.inputs.items()}
    keys = [given[each] for each in call.input if each in given]
    specs = [_spec(declared.inputs[key]) for key in keys]
    names = {key: _index(each.name) for key, each in declared.outputs.items()}
    inputs = slots(Input, "x", specs, _own(keys))
    results = sorted(names)
    outputs = slots(Output, "y", [_spec(declared.outputs[key]) for key in results], _own(results))

    def emitted(tensors: Sequence[Any], model: Mapping[str, Any]) -> list[Any]:
        found = functions.call(name, [*tensors, *(model[each] for each in bound)], {MODEL: model})
        return [found[names[key]] for key in results]

    read = _try(folder, functions, name, specs, model, emitted=emitted)
    parameters = _parameters(folder, [model[each] for each in read], [slot.name for slot in inputs])

    def forward(*tensors: Any) -> Any:
        # Copies, because two traces may be made at a time.
        values = zip(read, tensors[len(inputs) :], strict=True)
        chosen = emitted(tensors[: len(inputs)], model | {each: replace(model[each], value=x) for each, x in values})
        return chosen[0] if len(chosen) == 1 else tuple(chosen)

    source = f"a SavedModel of TensorFlow {graph.meta_info_def.tensorflow_version}"
    source += ", with its custom gradients" * bool(gradients)
    source += ", saved without some of its custom gradients" * functions.has_lost_gradients(name)
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


def _captured(folder: Path, graph: Any, nodes: Any, indices: Sequence[str]) -> dict[str, Any]:
    """Return what functions capture, by its number: variables, and constants as tensors of NumPy."""
    objects, found, keys = graph.object_graph_def.nodes, dict[str, Any](), dict[int, str]()
    for index in indices:
        saved = objects[int(index)]
        kind = saved.WhichOneof("kind")
        if kind == "variable":
            keys = keys or _keys(folder, objects)
            shape = tuple(each.size for each in saved.variable.shape.dim)
            dtype = tf.dtypes.as_dtype(saved.variable.dtype)
            found[index] = Variable(saved.variable.name, dtype, shape, keys[int(index)])
        elif kind == "constant":
            found[index] = flow.make_ndarray(nodes[saved.constant.operation].attr["value"].tensor)
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


def _try(
    folder: Path,
    functions: Functions,
    name: str,
    specs: Sequence[Any],
    model: Mapping[str, Any],
    *,
    emitted: Callable[[Sequence[Any], Mapping[str, Any]], Any],
) -> list[str]:
    """Emit a signature and its gradients in a graph; return the numbers of the variables that they read.

    Raises ``NotEmitted`` for what cannot be emitted.
    """
    with tf.Graph().as_default():

        def placeholder(like: Any) -> Any:
            return flow.compat.v1.placeholder(like.dtype, like.shape)

        tried = {
            index: replace(each, value=placeholder(each)) if isinstance(each, Variable) else each
            for index, each in model.items()
        }
        functions.tries_gradients = True
        try:
            functions.need_pure(name)
            emitted([placeholder(each) for each in specs], tried)
        except NotEmitted as error:
            raise NotEmitted(f"{folder.name}: {error}") from None
        finally:
            functions.tries_gradients = False
    return [index for index, each in tried.items() if isinstance(each, Variable) and each.is_read]


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
