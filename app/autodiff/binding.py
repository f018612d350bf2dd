"""Binding of a request to an op: attributes, dtypes, shapes and values are checked in NumPy, before TensorFlow runs.

The format of tensors is the caller's concern: a ``Decode`` converts the value under a name to an array of the dtype
that the op expects.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from pydantic import ValidationError

from app.autodiff.point import Arrays, Dims, Point, Side, Spec, blame_op
from app.autodiff.symbolic_shapes import expectation, matches, resolved_shape, shape_text
from app.errors import Faults, Loc, Unprocessable, near, unprocessable, wrong
from app.tensors.dtypes import MAX_BYTES
from app.tensors.validation import entries
from ops import ANY_SHAPE, FLOATS, Array, Attrs, Claim, Input, InvalidInput, Mode, Op, Output

# The most float64 elements that an address space can hold.
MAX_SIZE = MAX_BYTES // 8

PAIRS = " of complex numbers, in JSON pairs such as [1.0, 0.0]"
Decode: TypeAlias = Callable[[Any, str, Loc], Array]


def bind(
    op: Op, inputs: Mapping[str, Any], attrs: Mapping[str, Any], dtype: str | None, decode: Decode, **run: Any
) -> Point:
    """Return the point of a request; ``run`` has the other fields of ``Spec``: mode, device, max_elements.

    Raises ``Unprocessable`` with one entry per error, each with its location.
    """
    return bind_inputs(bind_spec(op, attrs, dtype, **run), inputs, decode)


def bind_spec(op: Op, attrs: Mapping[str, Any], dtype: str | None, *, mode: Mode, **run: Any) -> Spec:
    """Return a request's ``Spec``: everything but its tensors. ``run`` has the other fields.

    ``dtype`` is as ``bind_dtype`` returns it.

    These are device, max_elements, and the values of the parameters, by default those of the page.
    """
    if mode not in op.modes:
        message = f"op {op.name} has no kernel for this mode"
        raise wrong(("mode",), message, expected=f"one of {', '.join(op.modes)}", got=mode)
    run = {"parameters": op.own_parameters, **run}
    spec = Spec(op, bind_attrs(op, attrs), dtype or op.dtypes[0], mode, **run)
    if op.needs_linear:
        need_linear(op, spec.attrs)
    need_order(op, spec.attrs, 0)
    for (name, value), scalar in zip(spec.attrs.numbers().items(), spec.numbers, strict=True):
        if not math.isfinite(float(scalar)):
            raise wrong(
                ("attrs", name), f"overflows {spec.dtype}", expected=f"a finite {spec.dtype} number", got=str(value)
            )
    return spec


def bind_inputs(spec: Spec, inputs: Mapping[str, Any], decode: Decode) -> Point:
    """Return the point with these inputs; raise ``Unprocessable`` for inputs that the op does not accept."""
    arrays = decode_inputs(spec.op, inputs, spec.inputs.shown, decode)
    if spec.parameters.arrays:
        arrays = {**spec.parameters.arrays, **arrays}
    if len(arrays) < len(spec.inputs.dtypes):
        missing = next(name for name in spec.inputs.dtypes if name not in arrays)
        expected = f"all of {', '.join(name for name in spec.inputs.dtypes if name not in spec.parameters.arrays)}"
        raise wrong(("inputs",), f"missing input {missing}", expected=expected, got=", ".join(inputs) or "none")
    if len(arrays) > 1:
        arrays = {name: arrays[name] for name in spec.inputs.dtypes}
    point = point_at(spec, arrays)
    check_values(spec, arrays)
    if spec.op.cost is not None:
        point.admit_work()
    elements = 0
    for shape in point.output_shapes.values():
        if shape is not None:
            elements += math.prod(shape)
    if elements > point.size:  # the inputs were admitted, so outputs of their size are
        point.admit(elements, "outputs")
    return point


def check_values(spec: Spec, inputs: Arrays) -> None:
    """Raise ``Unprocessable`` for values that the author of the op refuses."""
    if spec.op.validate is not None:
        try:
            with blame_op(spec.op, "validate"):
                spec.op.validate(inputs, spec.attrs)
        except InvalidInput as error:
            loc = ("attrs" if error.name in type(spec.attrs).model_fields else "inputs", error.name, *error.index)
            raise wrong(loc, error.message, expected=error.expected, got=error.got) from None


def point_at(spec: Spec, inputs: Arrays) -> Point:
    """Return the point with these inputs; a symbol has the same size in the shapes of all of them.

    Integer attributes are symbols too. Raises ``Unprocessable`` with the expected and actual shape of each input that
    does not match.
    """
    dims: dict[str, int | tuple[int, ...]] = dict(spec.sizes)
    size, shapes, faults = 0, dict[str, tuple[int, ...] | None](), Faults()
    for slot in spec.op.inputs:
        x = inputs[slot.name]
        size += x.size if x is not spec.held.get(slot.name) else 0
        if slot.shape == ANY_SHAPE and dims.setdefault("...", x.shape) == x.shape:
            continue
        trial = dict(dims)
        if matches(slot.shape, x.shape, trial):
            dims = trial
        else:
            shape, got = slot.shown_shape, str(list(x.shape)[: len(x.shape) - slot.is_complex])
            message = f"shape {got} does not match {shape_text(shape)}"
            expected = expectation(shape, dims) + (PAIRS if slot.is_complex else "")
            faults.add(("inputs", slot.name), message, expected=expected, got=got)
    faults.check()
    if spec.op.sizes is not None:
        dims |= _sizes(spec.op, dims)
    for slot in spec.op.outputs:
        shapes[slot.name] = resolved_shape(slot.shape, dims)
    return Point(spec, inputs, dims, size, shapes)


def _sizes(op: Op, dims: Dims) -> Mapping[str, int]:
    """Return the sizes of symbols of the outputs; raise ``Unprocessable`` for shapes that the author refuses."""
    assert op.sizes is not None
    try:
        with blame_op(op, "sizes"):
            return op.sizes(dims)
    except InvalidInput as error:
        raise wrong(("inputs", error.name), error.message, expected=error.expected, got=error.got) from None


def moved(point: Point, inputs: Arrays) -> Point:
    """Return a point with the same spec and other inputs, which must be valid for the op."""
    return point_at(point.spec, inputs)


def bind_attrs(op: Op, attrs: Mapping[str, Any]) -> Attrs:
    """Return the op's attributes, validated; raise ``Unprocessable``, which suggests similar names for unknown ones."""
    try:
        return op.attrs.model_validate(attrs)
    except ValidationError as error:
        raise unprocessable(entries(error.errors(include_url=False), op.attrs.model_fields, ("attrs",))) from None
    except BaseException:
        # A validator of the author may raise anything, or exit.
        with blame_op(op, "attrs"):
            raise


def need_linear(op: Op, attrs: Attrs) -> None:
    """Raise ``Unprocessable`` if an op claims a gradient that is not linear in the cotangent: it has no jvp then."""
    with blame_op(op, "claim"):
        is_linear = op.claim(attrs).linear
    if not is_linear:
        message = f"the gradient of {op.owner} is not linear in the cotangent, so it has no jvp"
        raise wrong(("attrs",), message, expected="attributes that make it linear", got="a non-linear gradient")


def has_order(op: Op, claim: Claim, order: int) -> bool:
    """Return whether an op, which may be derived, has derivatives of an order, as its claim says."""
    return claim.second is not None or op.depth + order <= 1


def need_order(op: Op, attrs: Attrs, order: int) -> None:
    """Raise ``Unprocessable`` if derivatives of an op need a second order that its author declares missing."""
    if op.depth + order <= 1:
        return
    with blame_op(op, "claim"):
        claim = op.claim(attrs)
    if not has_order(op, claim, order):
        message = f"op {op.owner} has no second order: its claim declares second=None"
        raise wrong(("attrs",), message, expected="derivatives of the first order", got=f"order {op.depth + order}")


def bind_dtype(op: Op, dtype: str | None) -> str:
    """Return the dtype of the op's type variable that a request names, the op's first one if it is ``None``."""
    if dtype is None:
        return op.dtypes[0]
    found = op.dtype_named(dtype)
    if found is None:
        names = op.shown_dtypes
        cast = f" (in NumPy: x.astype({names[0]!r}))" if names[0].startswith("complex") and dtype in FLOATS else ""
        expected = f"one of {', '.join(names)}{cast}"
        raise wrong(("dtype",), f"op {op.name} does not accept this dtype", expected=expected, got=dtype)
    return found


def bind_shapes(spec: Spec, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the outputs for inputs of these shapes.

    Raises ``Unprocessable`` for shapes that the op does not accept, and for an op whose output shapes depend on values.
    """
    # A broadcast array of any size takes the memory of one number.
    stand_ins = {name: np.broadcast_to(np.False_, shape) for name, shape in shapes.items()}
    stand_ins = {**spec.parameters.arrays, **stand_ins}
    resolved = dict[str, tuple[int, ...]]()
    for name, shape in point_at(spec, stand_ins).output_shapes.items():
        if shape is None:
            message = f"the shape of output {name} of op {spec.op.name} depends on values"
            raise wrong(("inputs",), message, expected="values", got="shapes only")
        if (size := math.prod(shape)) > MAX_SIZE:
            message = f"output {name} would have {size} elements"
            raise wrong(("inputs",), message, expected=f"at most {MAX_SIZE}", got=str(size))
        resolved[name] = shape
    return resolved


def decode_inputs(op: Op, values: Mapping[str, Any], dtypes: Mapping[str, str], decode: Decode) -> dict[str, Array]:
    """Return the arrays of an op's inputs; raise ``Unprocessable`` as ``decode_named``, and for an optional null."""
    try:
        return decode_named(values, dtypes, decode, "inputs")
    except Unprocessable:
        for slot in op.inputs:
            if slot.optional and slot.name in values and values[slot.name] is None:
                expected = f"a tensor, or no {slot.name}: leave out an optional input"
                raise wrong(("inputs", slot.name), "expected a tensor", expected=expected, got="null") from None
        raise


def decode_named(values: Mapping[str, Any], dtypes: Mapping[str, str], decode: Decode, field: str) -> dict[str, Array]:
    """Return the arrays of a field that maps names to tensors.

    Raises ``Unprocessable`` for names that are not in ``dtypes``, and for tensors that cannot be decoded.
    """
    faults, arrays = Faults(), dict[str, Array]()
    for name, value in values.items():
        if name not in dtypes:
            faults.add((field, name), "unknown name", expected=near(name, dtypes), got=name)
            continue
        try:
            arrays[name] = decode(value, dtypes[name], (field, name))
        except Unprocessable as error:
            faults.entries.extend(error.entries)
    faults.check()
    return arrays


def bind_wrt(op: Op, names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of inputs and parameters that a request selects; ``None`` selects all inputs.

    Raises ``Unprocessable`` for any other name.
    """
    every = op.general
    return bind_names(names, every.inputs if names is None else every.every_input, "wrt")


def bind_names(names: Sequence[str] | None, slots: Sequence[Input | Output], field: str) -> tuple[str, ...]:
    """Return the names of inputs or outputs that a request selects; ``None`` selects all of them."""
    known = [slot.name for slot in slots]
    if names is None:
        return tuple(known)
    faults, seen = Faults(), set[str]()
    for i, name in enumerate(names):
        if name not in known:
            faults.add((field, i), "unknown name", expected=near(name, known), got=name)
        elif name in seen:
            faults.add((field, i), "duplicate name", expected="each name once", got=name)
        seen.add(name)
    if not names:
        faults.add((field,), "nothing selected", expected=f"some of {', '.join(known)}", got="[]")
    faults.check()
    # In the op's order, so that another order in the request needs no new trace.
    return tuple(name for name in known if name in names)


def bind_directions(values: Mapping[str, Any], side: Side, decode: Decode, field: str) -> dict[str, Array]:
    """Return the cotangents, tangents or vectors of a request in slot order; their slots must be differentiable."""
    for name in values:  # before decoding, whose error about an integer or a bool would mislead
        if name in side.absent:
            raise wrong((field, name), f"input {name} is not sent", expected=f"{name} among the inputs", got="nothing")
        if name in side.dtypes and name not in side.differentiable:
            some, none = f"some of {', '.join(side.differentiable)}", f"none: nothing is differentiable in {side.dtype}"
            expected = some if side.differentiable else none
            raise wrong((field, name), "not differentiable", expected=expected, got=name)
    arrays = decode_named(values, side.shown, decode, field)
    if not arrays:
        raise wrong(
            (field,), f"no {field} given", expected=f"at least one of {', '.join(side.differentiable)}", got="{}"
        )
    return arrays if len(arrays) == 1 else {name: arrays[name] for name in side.dtypes if name in arrays}
