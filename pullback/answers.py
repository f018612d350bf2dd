"""The results of the operations, as NumPy arrays by name.

An entry without a gradient is ``None``, not zero, and ``absent`` has the reason under the same name:
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
    """The outputs, and the gradients by order: ``gradients[0]["x"]`` is the first order."""

    outputs: Named
    gradients: list[Partial]
    absent: list[Reasons]


@dataclass(frozen=True, eq=False)
class Gradients:
    """Cotangents pulled back to the inputs, by name; the outputs too, if requested."""

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
    """The derivatives of outputs by inputs: ``jacobian["y"]["x"]`` has the shape of y followed by that of x."""

    jacobian: dict[str, Partial]
    absent: Reasons


@dataclass(frozen=True, eq=False)
class Products:
    """Hessian-vector products, by input."""

    products: Partial
    absent: Reasons


@dataclass(frozen=True, eq=False)
class Hessian:
    """The derivative of the vjp, ``hessian["a"]["b"]``; if requested, only its ``diagonal["a"]``."""

    absent: Reasons
    hessian: dict[str, Partial] = field(default_factory=dict[str, Partial])
    diagonal: Partial = field(default_factory=dict[str, Array | None])


def forward(document: Mapping[str, Any]) -> Forward:
    """Read the result of ``forward``."""
    return Forward(arrays(document["outputs"]))


def orders(document: Mapping[str, Any]) -> Orders:
    """Read the result of ``gradients``."""
    gradients = arrays(document["gradients"])
    absent: list[Reasons] = document.get("absent") or [{} for _ in gradients]
    return Orders(arrays(document["outputs"]), gradients, absent)


def vjp(document: Mapping[str, Any]) -> Gradients:
    """Read the result of ``vjp``."""
    return Gradients(arrays(document["gradients"]), _absent(document), arrays(document.get("outputs")))


def jvp(document: Mapping[str, Any]) -> Tangents:
    """Read the result of ``jvp``."""
    return Tangents(arrays(document["tangents"]), _absent(document))


def jacobian(document: Mapping[str, Any]) -> Jacobian:
    """Read the result of ``jacobian``."""
    return Jacobian(arrays(document["jacobian"]), _absent(document))


def hvp(document: Mapping[str, Any]) -> Products:
    """Read the result of ``hvp``."""
    return Products(arrays(document["products"]), _absent(document))


def hessian(document: Mapping[str, Any]) -> Hessian:
    """Read the result of ``hessian``."""
    if "diagonal" in document:
        return Hessian(_absent(document), diagonal=arrays(document["diagonal"]))
    return Hessian(_absent(document), hessian=arrays(document["hessian"]))


def arrays(tree: Any) -> Any:
    """Return nested objects and lists with each tensor replaced by an array; ``None`` stays ``None``."""
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
