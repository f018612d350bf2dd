"""The models of the Open Inference Protocol: each op, and each of its derivatives, with tensors named after its slots.

For an op ``f`` with an input ``x`` and an output ``y``:

==============  ========================================  ==========
model           inputs besides ``x``                      outputs
==============  ========================================  ==========
``f``                                                     ``y``
``f.vjp``       ``dy``, a cotangent (omitted: ones)       ``dx``
``f.jvp``       ``tx``, a tangent                         ``ty``
``f.hvp``       ``vx``, a vector; ``dy``                  ``hx``
``f.jacobian``                                            ``dy_dx``
``f.hessian``   ``dy``                                    ``ddx_dx``
==============  ========================================  ==========

Only tensors that are differentiable in the default dtype have a cotangent, a tangent or a derivative. A name that is
taken has its first letter once more in front. Derived ops have these models too: ``f.vjp.vjp`` is the vjp of ``f.vjp``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from app.autodiff.binding import has_order
from app.autodiff.derived import is_optional, variant_of
from app.autodiff.transforms import fresh
from app.errors import Loc, PullbackError, Unprocessable, unprocessable
from app.http.problems import RenderedError
from app.requests.answers import JSON
from app.tensors.dtypes import DTYPES, DType
from ops import Input, Op, Output

VERSION = "1"
PLATFORM = "pullback"
# The parameters of a request that are not attributes of the op.
PARAMETERS = ("binary_data_output", "priority", "timeout")

DATATYPES: Mapping[str, str] = {row.name: row.datatype for row in DTYPES.values()}
"""The datatypes of the protocol by dtype."""
ROWS: Mapping[str, DType] = {row.datatype: row for row in DTYPES.values()}

Slot = Input | Output


@dataclass(frozen=True)
class ModelInput:
    """An input of a model: the tensor named after ``slot`` in ``field`` of the native request."""

    name: str
    field: str
    slot: Slot

    @property
    def is_optional(self) -> bool:
        """Whether a request may omit it."""
        return self.field != "inputs" or is_optional(self.slot)


@dataclass(frozen=True)
class ModelOutput:
    """An output of a model: the tensor at ``path`` in the native response.

    Its shape is the shapes of ``slots``, concatenated; its dtype is that of the last slot.
    """

    name: str
    path: tuple[str, ...]
    slots: tuple[Slot, ...]


@dataclass(frozen=True, eq=False)
class Model:
    """An operation on an op; ``dtypes`` are the dtypes of the op's type variable in which all of its tensors exist."""

    name: str
    op: Op
    operation: str
    inputs: Mapping[str, ModelInput]
    outputs: Mapping[str, ModelOutput]
    dtypes: tuple[str, ...]

    def datatype(self, slot: Slot, dtype: str, second: str = "") -> str:
        """Return the datatype of a slot when these are the op's type variables."""
        return DATATYPES[self.op.dtype_of(slot, dtype, second)]

    def datatypes(self, slot: Slot) -> tuple[str, ...]:
        """Return the datatypes that a slot accepts."""
        pairs = product(self.dtypes, self.op.second_dtypes or ("",))
        return tuple(dict.fromkeys(self.datatype(slot, dtype, second) for dtype, second in pairs))

    def absent(self, sent: Iterable[str]) -> list[str]:
        """Return the outputs that do not exist for requests with these inputs, because optional ones are missing."""
        if not self.op.has_variants:
            return []
        one = variant_of(self.op, dict.fromkeys(sent))
        inputs, outputs = ({slot.name for slot in slots} for slots in (one.inputs, one.outputs))
        return [
            name
            for name, output in self.outputs.items()
            if any(slot.name not in (inputs if isinstance(slot, Input) else outputs) for slot in output.slots)
        ]

    def selection(self, outputs: Iterable[ModelOutput]) -> dict[str, list[str]]:
        """Return the fields of a native request that select these outputs, and as few others as possible."""
        requested = set(outputs)
        selected = [output for output in self.outputs.values() if output in requested]
        return {
            field: list(dict.fromkeys(output.path[place] for output in selected for place in places))
            for field, places in _KINDS[self.operation].selection.items()
        }

    def metadata(self) -> dict[str, Any]:
        """Return the protocol's metadata, with the datatypes for the op's default dtype."""
        inputs = [
            self._tensor(tensor.name, (tensor.slot,)) | ({"optional": True} if is_optional(tensor.slot) else {})
            for tensor in self.inputs.values()
        ]
        outputs = [self._tensor(tensor.name, tensor.slots) for tensor in self.outputs.values()]
        return {"name": self.name, "versions": [VERSION], "platform": PLATFORM, "inputs": inputs, "outputs": outputs}

    def config(self) -> dict[str, Any]:
        """Return the configuration in Triton's format."""
        document = self.metadata()
        inputs, outputs = (
            [{"name": each["name"], "data_type": f"TYPE_{each['datatype']}", "dims": each["shape"]} for each in tensors]
            for tensors in (document["inputs"], document["outputs"])
        )
        for tensor, model_input in zip(inputs, self.inputs.values(), strict=True):
            tensor["optional"] = model_input.is_optional
        fixed: dict[str, Any] = {"platform": PLATFORM, "backend": PLATFORM, "max_batch_size": 0}
        return {"name": self.name, **fixed, "input": inputs, "output": outputs}

    def _tensor(self, name: str, slots: Sequence[Slot]) -> dict[str, Any]:
        """Return the metadata of a tensor: -1 is a dimension of any size, or any number of dimensions (``"..."``)."""
        shape = [size if isinstance(size, int) else -1 for slot in slots for size in slot.shape]
        return {"name": name, "datatype": self.datatype(slots[-1], self.op.dtypes[0]), "shape": shape}


@dataclass(frozen=True)
class _Kind:
    """How an operation becomes a model.

    ``order`` is that of its derivatives. ``directions`` maps each field with directions to the first letter of their
    names. ``outputs`` yields the outputs for an op. ``selection`` maps each field that selects outputs to the places,
    in an output's path, of the names that the field lists.
    """

    order: int
    directions: Mapping[str, str]
    outputs: Callable[[Op], Iterator[ModelOutput]]
    selection: Mapping[str, tuple[int, ...]]


def models(ops: Iterable[Op]) -> dict[str, Model]:
    """Return the models of these ops, by name; ops that the protocol cannot represent are left out."""
    # The protocol has no datatype for complex numbers.
    pairs = ((op, operation) for op in ops if not op.is_complex for operation in _KINDS if _supports(op, operation))
    return {model.name: model for op, operation in pairs if (model := _model(op, operation)) is not None}


def _supports(op: Op, operation: str) -> bool:
    claim = op.claim(op.attrs())
    if not has_order(op, claim, _KINDS[operation].order):
        return False
    if operation == "forward":
        return claim.linear or not op.needs_linear
    return bool(_differentiable(op, op.inputs) and _differentiable(op, op.outputs)) and (
        claim.linear or operation != "jvp"
    )


def _model(op: Op, operation: str) -> Model | None:
    """Return the model, ``None`` if an attribute has the name of a parameter of the protocol."""
    kind = _KINDS[operation]
    if any(name in PARAMETERS for name in op.attrs.model_fields):
        return None
    inputs = {slot.name: ModelInput(slot.name, "inputs", slot) for slot in op.inputs}
    taken = {*inputs, *op.attrs.model_fields}
    for field, letter in kind.directions.items():
        slots = {slot.name: slot for slot in _differentiable(op, op.outputs if field == "cotangents" else op.inputs)}
        names = fresh(letter, {name: name for name in slots}, {*taken, *inputs})
        inputs |= {new: ModelInput(new, field, slots[name]) for name, new in names.items()}
    outputs: dict[str, ModelOutput] = {}
    for output in kind.outputs(op):
        name = output.name
        while operation != "forward" and (name in inputs or name in taken or name in outputs):
            name = name[0] + name
        outputs[name] = replace(output, name=name)
    name = op.name if operation == "forward" else f"{op.name}.{operation}"
    return Model(name, op, operation, inputs, outputs, _dtypes(op, operation))


def _differentiable(op: Op, slots: Sequence[Slot], dtype: str = "") -> list[Slot]:
    """Return the slots that are differentiable in ``dtype``, by default in the op's default dtype."""
    return [slot for slot in slots if op.is_differentiable(slot, dtype or op.dtypes[0])]


def _dtypes(op: Op, operation: str) -> tuple[str, ...]:
    """Return the dtypes of the type variable with the same differentiable slots as the default dtype."""
    slots = (*op.inputs, *op.outputs)
    same = (dtype for dtype in op.dtypes if _differentiable(op, slots, dtype) == _differentiable(op, slots))
    return op.dtypes if operation == "forward" else tuple(same)


def _forward(op: Op) -> Iterator[ModelOutput]:
    return (ModelOutput(y.name, ("outputs", y.name), (y,)) for y in op.outputs)


def _vjp(op: Op) -> Iterator[ModelOutput]:
    return (ModelOutput(f"d{x.name}", ("gradients", x.name), (x,)) for x in _differentiable(op, op.inputs))


def _jvp(op: Op) -> Iterator[ModelOutput]:
    return (ModelOutput(f"t{y.name}", ("tangents", y.name), (y,)) for y in _differentiable(op, op.outputs))


def _hvp(op: Op) -> Iterator[ModelOutput]:
    return (ModelOutput(f"h{x.name}", ("products", x.name), (x,)) for x in _differentiable(op, op.inputs))


def _jacobian(op: Op) -> Iterator[ModelOutput]:
    pairs = product(_differentiable(op, op.outputs), _differentiable(op, op.inputs))
    return (ModelOutput(f"d{y.name}_d{x.name}", ("jacobian", y.name, x.name), (y, x)) for y, x in pairs)


def _hessian(op: Op) -> Iterator[ModelOutput]:
    pairs = product(_differentiable(op, op.inputs), repeat=2)
    return (ModelOutput(f"dd{a.name}_d{b.name}", ("hessian", a.name, b.name), (a, b)) for a, b in pairs)


_KINDS: Mapping[str, _Kind] = {
    "forward": _Kind(0, {}, _forward, {}),
    "vjp": _Kind(1, {"cotangents": "d"}, _vjp, {"wrt": (1,)}),
    "jvp": _Kind(1, {"tangents": "t"}, _jvp, {}),
    "hvp": _Kind(2, {"vectors": "v", "cotangents": "d"}, _hvp, {"wrt": (1,)}),
    "jacobian": _Kind(1, {}, _jacobian, {"of": (1,), "wrt": (2,)}),
    "hessian": _Kind(2, {"cotangents": "d"}, _hessian, {"wrt": (1, 2)}),
}


def dialect(error: PullbackError, instance: str, model: Model | None = None) -> RenderedError:
    """Render an error as one sentence that names the client's fields, which are the tensors of a ``model``."""
    del instance
    status = 400 if isinstance(error, Unprocessable) else error.status
    if isinstance(error, Unprocessable) and error.entries:
        entry = error.entries[0]
        error = unprocessable([replace(entry, loc=_client_loc(model, entry.loc))])
    return RenderedError(status, JSON, {"error": error.sentence()})


def _client_loc(model: Model | None, loc: Loc) -> Loc:
    """Return the location in the client's request of a location in the native one."""
    match loc:
        case ("attrs", *rest):
            return ("parameters", *rest)
        case (str(field), str(slot), *rest) if model is not None:
            inputs = model.inputs.values()
            name = next((tensor.name for tensor in inputs if (tensor.field, tensor.slot.name) == (field, slot)), None)
            return loc if name is None else ("inputs", name, *rest)
        case _:
            return loc
