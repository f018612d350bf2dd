"""The custom gradients of a SavedModel: what each function takes, and which of its results belongs to which input."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import struct_pb2

from pullback.ops._rules import has_gradient

flow: Any = tf
message: Any = struct_pb2
# The function of what a gradient captures from the model itself, a variable or a constant.
MODEL = ""
SLICES = message.TypeSpecProto.INDEXED_SLICES_SPEC


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
