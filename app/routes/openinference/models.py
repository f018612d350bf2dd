"""The models of the Open Inference Protocol: each op, and each of its derivatives, with tensors named after its slots.

For an op ``f`` with an input ``x`` and an output ``y``:

==============  ========================================  ==========
model           takes ``x`` and                           gives
==============  ========================================  ==========
``f``                                                     ``y``
``f.vjp``       ``dy``, a cotangent (omitted: ones)       ``dx``
``f.jvp``       ``tx``, a tangent                         ``ty``
``f.hvp``       ``vx``, a vector; ``dy``                  ``hx``
``f.jacobian``                                            ``dy_dx``
``f.hessian``   ``dy``                                    ``ddx_dx``
==============  ========================================  ==========

Only what is differentiable in the op's default dtype has a cotangent, a tangent or a derivative.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from app.tensors.dtypes import DTYPES, DType
from ops import Input, Op, Output

VERSION = "1"
PLATFORM = "pullback"
# What a request's parameters may be besides the op's attributes.
PARAMETERS = ("binary_data_output", "priority", "timeout")
SEQUENCE = "sequence_"

DATATYPES: Mapping[str, str] = {row.name: row.datatype for row in DTYPES.values()}
"""The datatypes of the protocol by dtype."""
ROWS: Mapping[str, DType] = {row.datatype: row for row in DTYPES.values()}

Slot = Input | Output


@dataclass(frozen=True)
class ModelInput:
    """A tensor that a model takes: what stands under ``field`` in a native request, by the name of the slot."""

    name: str
    field: str
    slot: Slot

    @property
    def is_optional(self) -> bool:
        """Whether it may be left out."""
        return self.field != "inputs"


@dataclass(frozen=True)
class ModelOutput:
    """A tensor that a model gives: what stands at ``path`` in a native answer.

    Its shape is those of ``slots``, one after the other; its dtype is that of the last of them.
    """

    name: str
    path: tuple[str, ...]
    slots: tuple[Slot, ...]


@dataclass(frozen=True, eq=False)
class Model:
    """An operation on an op; ``dtypes`` are those of the op's type variable in which it has all of these tensors."""

    name: str
    op: Op
    operation: str
    inputs: Mapping[str, ModelInput]
    outputs: Mapping[str, ModelOutput]
    dtypes: tuple[str, ...]

    def datatype(self, slot: Slot, dtype: str) -> str:
        """Return the datatype of a slot when the op's type variable is ``dtype``."""
        return DATATYPES[self.op.dtype_of(slot, dtype)]

    def datatypes(self, slot: Slot) -> tuple[str, ...]:
        """Return the datatypes that a slot may have."""
        return tuple(dict.fromkeys(self.datatype(slot, dtype) for dtype in self.dtypes))

    def selection(self, gives: Iterable[ModelOutput]) -> dict[str, list[str]]:
        """Return the fields of a native request that ask for these tensors, and for as little else as can be."""
        wanted, kind = set(gives), _KINDS[self.operation]
        chosen = [given for given in self.outputs.values() if given in wanted]
        return {
            field: list(dict.fromkeys(given.path[place] for given in chosen for place in places))
            for field, places in kind.selects.items()
        }

    def metadata(self) -> dict[str, Any]:
        """Return the metadata of the protocol: datatypes are those of the op's default dtype."""
        takes = [self._tensor(one.name, (one.slot,)) for one in self.inputs.values()]
        gives = [self._tensor(one.name, one.slots) for one in self.outputs.values()]
        return {"name": self.name, "versions": [VERSION], "platform": PLATFORM, "inputs": takes, "outputs": gives}

    def config(self) -> dict[str, Any]:
        """Return the configuration as Triton has it."""
        document = self.metadata()
        takes, gives = ([_configured(one) for one in document[side]] for side in ("inputs", "outputs"))
        for tensor, taken in zip(takes, self.inputs.values(), strict=True):
            tensor["optional"] = taken.is_optional
        fixed: dict[str, Any] = {"platform": PLATFORM, "backend": PLATFORM, "max_batch_size": 0}
        return {"name": self.name, **fixed, "input": takes, "output": gives}

    def _tensor(self, name: str, slots: Sequence[Slot]) -> dict[str, Any]:
        """Return a tensor as metadata: any dimension is -1, and so is any number of them (``"..."``)."""
        shape = [size if isinstance(size, int) else -1 for slot in slots for size in slot.shape]
        return {"name": name, "datatype": self.datatype(slots[-1], self.op.dtypes[0]), "shape": shape}


@dataclass(frozen=True)
class _Kind:
    """How an operation becomes a model.

    ``directions`` are the fields of what it takes besides the inputs, each with the first letter of their names, and
    ``results`` gives what it answers. ``selects`` has the fields that ask for a part of it, and where in a path the
    names stand that they list.
    """

    directions: Mapping[str, str]
    results: Callable[[Op], Iterator[ModelOutput]]
    selects: Mapping[str, tuple[int, ...]]


def models(ops: Iterable[Op]) -> dict[str, Model]:
    """Return the models of these ops by their names: those that an op has, and in which no two names are the same."""
    made = (_model(op, operation, kind) for op in ops for operation, kind in _KINDS.items() if _has(op, operation))
    return {model.name: model for model in made if model is not None}


def _has(op: Op, operation: str) -> bool:
    if operation == "forward":
        return True
    is_linear = op.claim(op.attrs()).linear
    return bool(_live(op, op.inputs) and _live(op, op.outputs)) and (is_linear or operation != "jvp")


def _model(op: Op, operation: str, kind: _Kind) -> Model | None:
    """Return the model, ``None`` where two of its names clash, or an attribute with a parameter of the protocol."""
    takes, gives = [ModelInput(slot.name, "inputs", slot) for slot in op.inputs], list(kind.results(op))
    for field, letter in kind.directions.items():
        slots = op.outputs if field == "cotangents" else op.inputs
        takes += [ModelInput(letter + slot.name, field, slot) for slot in _live(op, slots)]
    named, given = {one.name: one for one in takes}, {one.name: one for one in gives}
    clash = len(named) < len(takes) or len(given) < len(gives)
    if clash or any(name in PARAMETERS or name.startswith(SEQUENCE) for name in op.attrs.model_fields):
        return None
    name = op.name if operation == "forward" else f"{op.name}.{operation}"
    return Model(name, op, operation, named, given, _dtypes(op, operation))


def _live(op: Op, slots: Sequence[Slot], dtype: str = "") -> list[Slot]:
    """Return the differentiable ones among slots, in a dtype or else in the default one."""
    return [slot for slot in slots if op.is_differentiable(slot, dtype or op.dtypes[0])]


def _dtypes(op: Op, operation: str) -> tuple[str, ...]:
    """Return the dtypes of the type variable in which the same slots are differentiable as in the default one."""
    slots = (*op.inputs, *op.outputs)
    same = (dtype for dtype in op.dtypes if _live(op, slots, dtype) == _live(op, slots))
    return op.dtypes if operation == "forward" else tuple(same)


def _configured(tensor: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": tensor["name"], "data_type": f"TYPE_{tensor['datatype']}", "dims": tensor["shape"]}


def _forward(op: Op) -> Iterator[ModelOutput]:
    return (ModelOutput(y.name, ("outputs", y.name), (y,)) for y in op.outputs)


def _vjp(op: Op) -> Iterator[ModelOutput]:
    return (ModelOutput(f"d{x.name}", ("gradients", x.name), (x,)) for x in _live(op, op.inputs))


def _jvp(op: Op) -> Iterator[ModelOutput]:
    return (ModelOutput(f"t{y.name}", ("tangents", y.name), (y,)) for y in _live(op, op.outputs))


def _hvp(op: Op) -> Iterator[ModelOutput]:
    return (ModelOutput(f"h{x.name}", ("products", x.name), (x,)) for x in _live(op, op.inputs))


def _jacobian(op: Op) -> Iterator[ModelOutput]:
    pairs = product(_live(op, op.outputs), _live(op, op.inputs))
    return (ModelOutput(f"d{y.name}_d{x.name}", ("jacobian", y.name, x.name), (y, x)) for y, x in pairs)


def _hessian(op: Op) -> Iterator[ModelOutput]:
    pairs = product(_live(op, op.inputs), repeat=2)
    return (ModelOutput(f"dd{a.name}_d{b.name}", ("hessian", a.name, b.name), (a, b)) for a, b in pairs)


_KINDS: Mapping[str, _Kind] = {
    "forward": _Kind({}, _forward, {}),
    "vjp": _Kind({"cotangents": "d"}, _vjp, {"wrt": (1,)}),
    "jvp": _Kind({"tangents": "t"}, _jvp, {}),
    "hvp": _Kind({"vectors": "v", "cotangents": "d"}, _hvp, {"wrt": (1,)}),
    "jacobian": _Kind({}, _jacobian, {"of": (1,), "wrt": (2,)}),
    "hessian": _Kind({"cotangents": "d"}, _hessian, {"wrt": (1, 2)}),
}
