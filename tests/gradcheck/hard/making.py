"""Constructors of ops for the tests: an op is one call, and says only what matters about it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ops import Array, Example, Function, Input, InvalidInput, Op, Output

SINGLE = ("float32",)
WIDE = ("float64",)
BOTH = ("float32", "float64")


def elementwise(
    name: str,
    function: Function,
    reference: Function,
    at: Mapping[str, Sequence[Any]],
    *,
    dtypes: tuple[str, ...] = WIDE,
    slots: Mapping[str, Mapping[str, Any]] | None = None,
    outputs: Sequence[str] = ("y",),
    **changes: Any,
) -> Op:
    """Return an elementwise op of the inputs that ``at``, its example, names.

    ``slots`` holds further fields of the inputs, such as the domain, by input; ``changes`` further fields of the op.
    """
    more = slots or {}

    def slot(name: str) -> Input:
        given: dict[str, Any] = {"dtypes": dtypes, **more.get(name, {})}
        return Input(name, **given)

    fields: dict[str, Any] = {
        "batching": "elementwise",
        "inputs": tuple(map(slot, at)),
        "outputs": tuple(Output(y, dtypes) for y in outputs),
    }
    return structured(name, function, reference, at, **(fields | changes))


def structured(name: str, function: Function, reference: Function | None, at: Mapping[str, Any], **changes: Any) -> Op:
    """Return an op with an example, ``at``; ``changes`` are its other fields, ``inputs`` and ``outputs`` among them."""
    fields: dict[str, Any] = {
        "summary": name.replace("_", " "),
        "doc": None,
        "mechanism": "custom_gradient",
        "source": "a test",
        "examples": (Example("first", at),),
    }
    return Op(name=name, function=function, reference=reference, **(fields | changes))


def within(**bounds: tuple[float, float]) -> Function:
    """Return a ``validate`` that refuses numbers outside these bounds, by input, and NaN."""

    def validate(inputs: Mapping[str, Array], attrs: Any) -> None:
        for name, (low, high) in bounds.items():
            x = np.asarray(inputs[name], np.float64)
            if not ((x >= low) & (x <= high)).all():
                expected = f"numbers from {low} to {high}"
                raise InvalidInput(name, f"{name} is outside the domain", expected=expected, got="another number")

    return validate
