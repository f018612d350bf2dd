"""The results of the operations, as NumPy arrays by name.

An entry without a gradient is ``None``, not zero, and ``absent`` has the reason under the same name:
``not_differentiable`` or ``disconnected``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from inspect import signature
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

from pullback import sparse
from pullback.arrays import decode
from pullback.dtypes import Array
from pullback.errors import ProblemError, problem
from pullback.html.answer import html_of, text_of

__all__ = ["Forward", "Gradients", "Hessian", "Jacobian", "Numeric", "Orders", "Products", "Tangents"]

T = TypeVar("T")
Named: TypeAlias = dict[str, Array]
Partial: TypeAlias = dict[str, Any]
"""Arrays by name, or ``None``; not typed as optional, because who asks for a gradient knows that the input has one."""
Reasons: TypeAlias = dict[str, Any]
Reader: TypeAlias = Callable[[Mapping[str, Any]], T]
"""Reads the document of a response."""


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """An answer, as Python and notebooks show it: a line for each array, with its dtype, shape and numbers.

    ``failed`` has the error of each point that failed, if it was requested with ``partial``. In its rows, floats are
    NaN, integers the least number, and bools false. ``uncertainty`` has the estimated rounding error of each number, if
    ``digits`` were requested: ``uncertainty["gradients"]["x"]`` is that of ``gradients["x"]``. Where it is ``None``,
    ``no_uncertainty`` has the reason in the same place.
    """

    failed: dict[int, ProblemError] = field(default_factory=dict[int, ProblemError], kw_only=True)
    uncertainty: dict[str, Any] = field(default_factory=dict[str, Any], kw_only=True)
    no_uncertainty: dict[str, Any] = field(default_factory=dict[str, Any], kw_only=True)

    @property
    def digits(self) -> dict[str, Any]:
        """The number of right decimal digits of each number, in the places of ``uncertainty``: 0 if none is right."""
        return {name: _together(_digits, getattr(self, name), each) for name, each in self.uncertainty.items()}

    def __getitem__(self, name: str) -> Any:
        """Raise ``TypeError``, which says where the array is: an answer may have several of one name."""
        named = {each.name: getattr(self, each.name) for each in fields(self) if not each.kw_only}
        places = [key for key, value in named.items() if key != "absent" and isinstance(value, dict | list)]
        cure = next((f": write .{key}[{name!r}]" for key in places if name in named[key]), "")
        raise TypeError(f"expected one of {', '.join(f'.{key}' for key in places)} before a name{cure}")

    def __repr__(self) -> str:
        return text_of(self)

    def _repr_html_(self) -> str:
        return html_of(self)


@dataclass(frozen=True, eq=False, repr=False)
class Forward(Answer):
    """The outputs of an op, by name: ``found["y"]`` is ``found.outputs["y"]``."""

    outputs: Named

    def __getitem__(self, output: str) -> Array:
        """Return an output; raises ``KeyError``."""
        if output not in self.outputs:
            raise KeyError(f"expected an output ({', '.join(self.outputs)}), got {output!r}")
        return self.outputs[output]


@dataclass(frozen=True, eq=False, repr=False)
class Orders(Answer):
    """The outputs, and the gradients by order: ``gradients[0]["x"]`` is the first order."""

    outputs: Named
    gradients: list[Partial]
    absent: list[Reasons]


@dataclass(frozen=True, eq=False, repr=False)
class Gradients(Answer):
    """Cotangents pulled back to the inputs, by name; ``outputs`` is empty if they were not requested."""

    gradients: Partial
    absent: Reasons
    outputs: Named = field(default_factory=dict[str, Array])


@dataclass(frozen=True, eq=False, repr=False)
class Tangents(Answer):
    """Tangents pushed forward to the outputs, by name."""

    tangents: Partial
    absent: Reasons


@dataclass(frozen=True, eq=False, repr=False)
class Jacobian(Answer):
    """The derivatives of outputs by inputs: ``jacobian["y"]["x"]`` has the shape of y followed by that of x.

    With ``sparse``, it is a matrix of SciPy with a row for each number of y, and ``sparsity`` the id for other points.
    """

    jacobian: dict[str, Partial]
    absent: Reasons
    sparsity: str | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Products(Answer):
    """Hessian-vector products, by input."""

    products: Partial
    absent: Reasons


@dataclass(frozen=True, eq=False, repr=False)
class Hessian(Answer):
    """The derivative of the vjp, ``hessian["a"]["b"]``; if requested, only its ``diagonal["a"]``.

    With ``sparse``, a block is a matrix of SciPy, and ``sparsity`` the id for other points.
    """

    absent: Reasons
    hessian: dict[str, Partial] = field(default_factory=dict[str, Partial])
    diagonal: Partial = field(default_factory=dict[str, Any])
    sparsity: str | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Numeric(Answer):
    """Numeric derivatives by input or, with tangents, the one under ``along``; ``None`` for an input without any.

    ``error_bars`` are the largest differences of right derivatives from them, and ``statuses`` say ``ok``, or why one
    cannot be determined, such as ``kink``.
    """

    derivatives: Partial
    error_bars: Partial
    statuses: Partial
    absent: Reasons


@dataclass(frozen=True, eq=False, repr=False)
class Linearized(Answer):
    """The outputs at a point, and the ``id`` of its linearization, ``None`` for the ``reason``."""

    outputs: Named
    id: str | None
    reason: str


def numeric(document: Mapping[str, Any]) -> Numeric:
    """Read the result of ``numeric``; ``float`` also reads the strings NaN and Infinity."""
    given: dict[str, Any] = document.get("derivatives") or {"along": document["along"]}
    fields = (("derivative", np.float64), ("error_bar", np.float64), ("status", np.str_))
    columns = [
        {name: None if each is None else np.asarray(each[field], dtype) for name, each in given.items()}
        for field, dtype in fields
    ]
    absent = {name: "not_differentiable" for name, each in given.items() if each is None}
    return Numeric(*columns, absent=absent)


def reader(kind: Callable[..., T], field: str) -> Reader[T]:
    """Return the function that reads a result from a response, whose main field is ``field``."""
    others = set(signature(kind).parameters) - {field}

    def read(document: Mapping[str, Any]) -> T:
        absent: Reasons = document.get("absent") or {}
        # Safetensors has no field that is empty.
        found: dict[str, Any] = {field: _arrays(document.get(field, {}) if absent else document[field], absent)}
        if "absent" in others:
            found["absent"] = absent
        if "outputs" in others:
            found["outputs"] = _arrays(document.get("outputs", {}), {})
        if "failed" in document:
            found["failed"] = _failed(document)
        if "uncertainty" in others:
            found |= _uncertainties(document, found)
        return kind(**found)

    return read


def sparse_reader(kind: Callable[..., T], field: str) -> Reader[T]:
    """Return the function that reads a result with sparse matrices, whose main field is ``field``."""

    def read(document: Mapping[str, Any]) -> T:
        absent: Reasons = document.get("absent") or {}
        given: Mapping[str, Any] = document.get(field, {})
        blocks: dict[str, Partial] = {y: dict.fromkeys(named) for y, named in absent.items()}
        for y, named in given.items():
            found = {x: None if parts is None else sparse.block(parts) for x, parts in named.items()}
            blocks[y] = {**blocks.get(y, {}), **found}
        return kind(**{field: blocks}, absent=absent, sparsity=document["sparsity"])

    return read


def orders(document: Mapping[str, Any]) -> Orders:
    """Read the result of ``gradients``; in safetensors the orders have numbers, from 1, in place of a list."""
    given: Any = document["gradients"]
    absent: list[Reasons] = document.get("absent") or []
    if isinstance(given, dict):
        numbered = cast("dict[str, Any]", given)
        given = [numbered.get(str(order), {}) for order in range(1, max(len(numbered), len(absent)) + 1)]
    absent = absent or [{} for _ in given]
    gradients = [_arrays(level, reasons) for level, reasons in zip(given, absent, strict=True)]
    outputs = _arrays(document["outputs"], {})
    uncertainties = _uncertainties(document, {"outputs": outputs, "gradients": gradients})
    return Orders(outputs, gradients, absent, failed=_failed(document), **uncertainties)


def _failed(document: Mapping[str, Any]) -> dict[int, ProblemError]:
    """Return the errors of a response by point."""
    return {each["point"]: problem(each["error"]) for each in document.get("failed", ())}


def _uncertainties(document: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the uncertainties of a response in the places of the arrays that were found in it, and the reasons."""
    given: Mapping[str, Any] = document.get("uncertainty") or {}
    reasons: dict[str, Any] = document.get("no_uncertainty") or {}
    # Safetensors leaves out what is null in JSON.
    trees = {name: _together(_tensor, found[name], given.get(name, {})) for name in {**given, **reasons}}
    return {"uncertainty": trees, "no_uncertainty": reasons}


def _together(join: Callable[[Array, Any], Any], tree: Any, other: Any) -> Any:
    """Return what ``join`` makes of each array in a tree and of what is in its place in another, unless it is absent.

    In safetensors, what is absent is left out, and the items of a list have numbers from 1.
    """
    if tree is None or other is None:
        return None
    if isinstance(tree, dict):
        named = cast("dict[str, Any]", tree)
        return {name: _together(join, value, other.get(name)) for name, value in named.items()}
    if isinstance(tree, list):
        listed = cast("list[Any]", tree)
        if isinstance(other, dict):
            numbered = cast("dict[str, Any]", other)
            other = [numbered.get(str(i), {}) for i in range(1, len(listed) + 1)]
        return [_together(join, value, each) for value, each in zip(listed, other, strict=True)]
    return join(tree, other)


def _tensor(found: Array, given: Any) -> Array:
    del found
    return cast(Array, given) if isinstance(given, np.ndarray) else decode(given)


def _digits(values: Array, uncertainty: Array) -> Array:
    """Return log10(|value| / uncertainty), from 0 to what the dtype has."""
    if values.dtype.kind == "c":
        values = np.stack([np.real(values), np.imag(values)], axis=-1)
    size, off = np.abs(np.asarray(values, np.float64)), np.asarray(uncertainty, np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        found = np.log10(size / off)
    most = -np.log10(float(np.spacing(np.ones((), values.dtype))))
    return np.clip(np.where(off == 0, most, np.nan_to_num(found, posinf=most)), 0, most)


def _arrays(tree: Mapping[str, Any], absent: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested objects with an array in place of each tensor, and ``None`` where there is none for a reason."""
    found = {name: _leaf_or_tree(value, absent.get(name, {})) for name, value in tree.items()}
    # Safetensors leaves out what is null in JSON.
    for name, reasons in absent.items():
        if name not in tree:
            found[name] = _leaf_or_tree({}, reasons)
    return found


def _leaf_or_tree(value: Any, absent: Any) -> Any:
    if value is None or isinstance(absent, str):
        return None
    if isinstance(value, np.ndarray):
        return cast(Array, value)
    if isinstance(value.get("base64"), str):
        return decode(value)
    return _arrays(value, absent)


def linearized(document: Mapping[str, Any]) -> Linearized:
    """Read the result of ``linearize``."""
    kept: Mapping[str, Any] = document.get("linearization") or {}
    return Linearized(forward(document).outputs, kept.get("id"), document.get("reason", ""))


forward = reader(Forward, "outputs")
vjp = reader(Gradients, "gradients")
jvp = reader(Tangents, "tangents")
jacobian = reader(Jacobian, "jacobian")
hvp = reader(Products, "products")
sparse_jacobian, sparse_hessian = sparse_reader(Jacobian, "jacobian"), sparse_reader(Hessian, "hessian")
hessian, diagonal = reader(Hessian, "hessian"), reader(Hessian, "diagonal")
