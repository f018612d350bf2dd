"""What the service answers, as NumPy arrays under names.

Where no gradient exists an entry is ``None``, which is not zero, and ``absent`` has the reason under the same names:
``not_differentiable`` or ``disconnected``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from pullback.arrays import Array, decode

Named: TypeAlias = dict[str, Array]
Partial: TypeAlias = dict[str, Array | None]
Reasons: TypeAlias = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Forward:
    """The outputs of an op, by name."""

    outputs: Named


@dataclass(frozen=True, eq=False)
class Orders:
    """The outputs, and gradients by order: ``gradients[0]["x"]`` is the first."""

    outputs: Named
    gradients: list[Partial]
    absent: list[Reasons]


@dataclass(frozen=True, eq=False)
class Gradients:
    """Cotangents pulled back to the inputs, by name; the outputs where they were asked for."""

    gradients: Partial
    absent: Reasons
    outputs: Named | None = None


@dataclass(frozen=True, eq=False)
class Tangents:
    """Tangents pushed forward to the outputs, by name."""

    tangents: Partial
    absent: Reasons


@dataclass(frozen=True, eq=False)
class Jacobian:
    """Every output by every input: ``jacobian["y"]["x"]`` has the shape of y followed by that of x."""

    jacobian: dict[str, Partial]
    absent: Reasons


@dataclass(frozen=True, eq=False)
class Products:
    """Products of the Hessian and the vectors, by input."""

    products: Partial
    absent: Reasons


@dataclass(frozen=True, eq=False)
class Hessian:
    """The derivative of the vjp, ``hessian["a"]["b"]``; where it was asked for, its ``diagonal["a"]`` instead."""

    absent: Reasons
    hessian: dict[str, Partial] = field(default_factory=dict[str, Partial])
    diagonal: Partial = field(default_factory=dict[str, Array | None])


def forward(document: Mapping[str, Any]) -> Forward:
    """Read an answer of ``forward``."""
    return Forward(arrays(document["outputs"]))


def orders(document: Mapping[str, Any]) -> Orders:
    """Read an answer of ``gradients``."""
    gradients = arrays(document["gradients"])
    absent: list[Reasons] = document.get("absent") or [{} for _ in gradients]
    return Orders(arrays(document["outputs"]), gradients, absent)


def vjp(document: Mapping[str, Any]) -> Gradients:
    """Read an answer of ``vjp``."""
    outputs = document.get("outputs")
    found = None if outputs is None else arrays(outputs)
    return Gradients(arrays(document["gradients"]), _absent(document), found)


def jvp(document: Mapping[str, Any]) -> Tangents:
    """Read an answer of ``jvp``."""
    return Tangents(arrays(document["tangents"]), _absent(document))


def jacobian(document: Mapping[str, Any]) -> Jacobian:
    """Read an answer of ``jacobian``."""
    return Jacobian(arrays(document["jacobian"]), _absent(document))


def hvp(document: Mapping[str, Any]) -> Products:
    """Read an answer of ``hvp``."""
    return Products(arrays(document["products"]), _absent(document))


def hessian(document: Mapping[str, Any]) -> Hessian:
    """Read an answer of ``hessian``."""
    if "diagonal" in document:
        return Hessian(_absent(document), diagonal=arrays(document["diagonal"]))
    return Hessian(_absent(document), hessian=arrays(document["hessian"]))


def arrays(tree: Any) -> Any:
    """Return objects and lists of tensors with arrays in their place."""
    if tree is None:
        return None
    if isinstance(tree, list):
        return [arrays(item) for item in cast("list[Any]", tree)]
    fields = cast("dict[str, Any]", tree)
    if "base64" in fields and isinstance(fields["base64"], str):
        return decode(fields)
    return {name: arrays(value) for name, value in fields.items()}


def _absent(document: Mapping[str, Any]) -> Reasons:
    return document.get("absent") or {}
