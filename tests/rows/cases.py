"""Draw requests: for each op several kinds, which share a trace, and for each kind many requests with other numbers.

Rows, trailing sizes, dtypes, attributes, modes and formats vary. Some numbers are NaN, infinite, huge, 0 or subnormal,
some rows are equal, and some requests are wrong.
"""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from app.gradcheck.points import draw
from app.tensors import safetensors
from app.tensors.dtypes import DTYPES
from ops import FLOATS, Array, Input, Op, Output

JSON, BINARY = "application/json", "application/vnd.safetensors"
# With the order of gradients.
OPERATIONS = (("forward", 0), ("vjp", 0), ("gradients", 1), ("jvp", 0), ("gradients", 2), ("hvp", 0))
# Mostly one row: those requests would share calls.
ROWS, ROW_WEIGHTS = (1, 2, 3, 5, 8, 33), (0.6, 0.13, 0.1, 0.08, 0.06, 0.03)
SIZES = (3, 4, 5, 8, 10)
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e8, -1e8, 3e30, 1e-40, 1e-310)
# How often numbers are special, rows equal, numbers whole, labels out of range, and requests wrong.
SPECIAL_SHARE, TWIN_SHARE, WHOLE_SHARE, RANGE_SHARE, WRONG_SHARE = 0.12, 0.08, 0.05, 0.04, 0.05
Tensors = Mapping[str, Mapping[str, Array]]
"""Tensors by field, such as ``inputs``, and by name."""


@dataclass(frozen=True, eq=False)
class Kind:
    """What the requests of one kind have in common.

    ``fields`` are those of the body without tensors; ``form`` is that of a tensor in JSON (``nested``, ``typed`` or
    ``base64``), or ``safetensors``; ``sizes`` has the sizes of the symbols, other than that of the rows.
    """

    op: Op
    operation: str
    fields: Mapping[str, Any]
    form: str
    has_cotangents: bool
    sizes: tuple[Mapping[str, int], ...]

    @property
    def dtype(self) -> str:
        """The dtype of the type variable."""
        return self.fields.get("dtype", self.op.dtypes[0])


@dataclass(eq=False)
class Case:
    """A request of a kind, as bytes, and the answer that it must get: what ``comparable`` returns.

    No finite number of its tensors is larger than ``largest``.
    """

    kind: Kind
    request: bytes
    largest: float
    expected: tuple[int, bytes] = field(default=(0, b""))


def comparable(status: int, body: bytes) -> tuple[int, bytes]:
    """Return what must not differ between two answers: status and body; of an error status, detail and entries."""
    if status < 400:
        return status, body
    document = json.loads(body)
    return status, json.dumps([document.get("detail"), document.get("errors")]).encode()


def kinds_of(op: Op, rng: np.random.Generator, count: int) -> list[Kind]:
    """Draw ``count`` kinds of an op, of each operation in turn."""
    return [_kind(op, rng, OPERATIONS[number % len(OPERATIONS)]) for number in range(count)]


def _kind(op: Op, rng: np.random.Generator, operation: tuple[str, int]) -> Kind:
    name, order = operation
    fields: dict[str, Any] = {"attrs": dict(op.examples[int(rng.integers(len(op.examples)))].attrs)}
    if rng.random() < 0.6:
        fields["dtype"] = str(rng.choice([dtype for dtype in op.dtypes if dtype in FLOATS]))
    if rng.random() < 0.4:
        fields["mode"] = str(rng.choice(op.modes))
    if order:
        fields["order"] = order
    if name == "vjp" and rng.random() < 0.3:
        fields["outputs"] = True
    if rng.random() < 0.2:
        fields["encoding"] = str(rng.choice(["flat", "base64"]))
    # XLA compiles for each shape.
    symbols = {size for slot in op.inputs for size in slot.shape if isinstance(size, str)} - {_leading(op)}
    shapes = 1 if fields.get("mode") == "xla" else 2
    sizes = tuple({symbol: int(rng.choice(SIZES)) for symbol in sorted(symbols)} for _ in range(shapes))
    form = str(rng.choice(["nested", "nested", "typed", "base64", "safetensors", "safetensors"]))
    return Kind(op, name, fields, form, rng.random() < 0.7, sizes)


def cases_of(kind: Kind, rng: np.random.Generator, count: int) -> Iterator[Case]:
    """Yield ``count`` requests of a kind."""
    for _ in range(count):
        tensors = _tensors(kind, rng)
        fields = dict(kind.fields)
        mistake = rng.integers(4) if rng.random() < WRONG_SHARE else None
        if mistake is not None:
            _spoil(int(mistake), tensors, fields)
        is_whole = kind.form == "nested" and rng.random() < WHOLE_SHARE
        body = _binary(tensors, fields) if kind.form == "safetensors" else _text(kind, tensors, fields, is_whole)
        yield Case(kind, _request(kind, body[:-3] if mistake == 3 else body), _largest(tensors))


def _largest(tensors: Tensors) -> float:
    """Return the largest of the absolute values that are finite."""
    arrays = [np.abs(x.astype(np.float64)) for values in tensors.values() for x in values.values()]
    return max((float(x[np.isfinite(x)].max(initial=0)) for x in arrays), default=0.0)


def _leading(op: Op) -> str:
    """Return the symbol of the leading axis, "" if it is a size."""
    first = op.inputs[0].shape[0]
    return first if isinstance(first, str) else ""


def _tensors(kind: Kind, rng: np.random.Generator) -> dict[str, dict[str, Array]]:
    """Draw a point of a kind, with directions."""
    op, leading = kind.op, _leading(kind.op)
    sizes = {symbol: (size,) for symbol, size in kind.sizes[int(rng.integers(len(kind.sizes)))].items()}
    # An executable for each number of rows would take the time of the attack.
    count = int(rng.choice(ROWS, p=ROW_WEIGHTS)) if kind.fields.get("mode") != "xla" else int(rng.choice([1, 1, 3]))
    rows = () if leading == "..." and rng.random() < 0.25 else (count,)
    drawn = draw(op, kind.fields["attrs"], kind.dtype, rng, {**sizes, leading: rows})
    if op.sample is not None and op.batching == "leading_axis":
        drawn = {name: x[:count] for name, x in drawn.items()}
    dims = _dims(op.inputs, drawn)
    inputs = {slot.name: drawn[slot.name].astype(_numpy(op, slot, kind.dtype)) for slot in op.inputs}
    tensors = {"inputs": {name: _disturbed(x, rng) for name, x in inputs.items()}}
    live = [slot for slot in op.inputs if op.is_differentiable(slot, kind.dtype)]
    if along := {"jvp": "tangents", "hvp": "vectors"}.get(kind.operation):
        tensors[along] = {slot.name: _direction(rng, inputs[slot.name].shape, inputs[slot.name].dtype) for slot in live}
    if kind.operation in ("vjp", "hvp", "gradients") and kind.has_cotangents:
        shapes = {slot: _shape(slot, dims) for slot in op.outputs if op.is_differentiable(slot, kind.dtype)}
        tensors["cotangents"] = {
            slot.name: _direction(rng, shape, _numpy(op, slot, kind.dtype))
            for slot, shape in shapes.items()
            if shape is not None
        }
    return tensors


def _numpy(op: Op, slot: Input | Output, dtype: str) -> np.dtype[Any]:
    return DTYPES[op.dtype_of(slot, dtype)].numpy


def _dims(slots: Sequence[Input], arrays: Mapping[str, Array]) -> dict[str | int, tuple[int, ...]]:
    """Return the sizes that the symbols have."""
    dims: dict[str | int, tuple[int, ...]] = {}
    for slot in slots:
        shape, room = list(arrays[slot.name].shape), arrays[slot.name].ndim - len(slot.shape) + 1
        for size in slot.shape:
            taken = room if size == "..." else 1
            dims[size], shape = tuple(shape[:taken]), shape[taken:]
    return dims


def _shape(slot: Output, dims: Mapping[str | int, tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the shape of an output, ``None`` if the inputs do not tell."""
    sizes = [(size,) if isinstance(size, int) else dims.get(size) for size in slot.shape]
    return None if None in sizes else tuple(n for size in sizes for n in size or ())


def _direction(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    return _disturbed(rng.uniform(-2, 2, shape).astype(dtype), rng)


def _disturbed(x: Array, rng: np.random.Generator) -> Array:
    """Return an array, now and then with a special number, or with two equal rows."""
    if not x.size or x.dtype.kind == "b":
        return x
    x = x.copy()
    if x.dtype.kind in "iu":
        if rng.random() < RANGE_SHARE:
            x.flat[int(rng.integers(x.size))] = rng.choice([99, 3])
        return x
    if rng.random() < SPECIAL_SHARE:
        with np.errstate(over="ignore", under="ignore"):
            x.flat[int(rng.integers(x.size))] = np.asarray(rng.choice(SPECIAL)).astype(x.dtype)
    if x.ndim and len(x) > 1 and rng.random() < TWIN_SHARE:
        x[-1] = x[0]
    return x


def _spoil(mistake: int, tensors: dict[str, dict[str, Array]], fields: dict[str, Any]) -> None:
    """Make a request wrong: an input is missing or has another rank, or there is an unknown field."""
    inputs = tensors["inputs"]
    name = next(iter(inputs))
    match mistake:
        case 0:
            del inputs[name]
        case 1:
            inputs[name] = inputs[name][..., np.newaxis, np.newaxis]
        case 2:
            fields["unknown"] = 1
        case _:
            pass  # the body is cut


def _binary(tensors: Tensors, fields: Mapping[str, Any]) -> bytes:
    named = {f"{of}/{name}": x for of, values in tensors.items() for name, x in values.items()}
    return b"".join(bytes(part) for part in safetensors.lay_out(named, fields).pieces())


def _text(kind: Kind, tensors: Tensors, fields: Mapping[str, Any], is_whole: bool) -> bytes:
    lists = {
        of: {name: _in_json(kind.form, x, is_whole) for name, x in values.items()} for of, values in tensors.items()
    }
    return json.dumps(lists | dict(fields)).encode()


def _in_json(form: str, x: Array, is_whole: bool) -> Any:
    """Return a tensor in JSON: whole numbers without a fraction if ``is_whole`` and all are finite."""
    head = {"dtype": x.dtype.name, "shape": list(x.shape)}
    if form == "base64":
        return head | {"base64": base64.b64encode(np.ascontiguousarray(x).tobytes()).decode()}
    if x.dtype.kind in "biu":
        lists: Any = x.tolist()
    elif is_whole and np.isfinite(wide := x.astype(np.float64)).all() and (abs(wide) < 1e6).all():
        lists = np.round(wide).astype(int).tolist()
    else:
        lists = _words(x.astype(np.float64).tolist())
    return head | {"data": lists} if form == "typed" else lists


def _words(tree: Any) -> Any:
    """Return nested lists with strings in place of NaN and infinity, which JSON does not have."""
    if isinstance(tree, list):
        return [_words(item) for item in cast(list[Any], tree)]
    return tree if np.isfinite(tree) else {np.inf: "Infinity", -np.inf: "-Infinity"}.get(tree, "NaN")


def _request(kind: Kind, body: bytes) -> bytes:
    types = f"content-type: {BINARY}\r\naccept: {BINARY}" if kind.form == "safetensors" else f"content-type: {JSON}"
    path = f"/v1/ops/{kind.op.name}/{kind.operation}"
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\n{types}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body
