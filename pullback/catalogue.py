"""The catalogue of ops: a summary of each, and the full contract of one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pullback.documents import read
from pullback.html.tree import STYLE, element, header, markup, row

TITLES = ("", "name", "shape", "gradient", "meaning")


@dataclass(frozen=True)
class Claim:
    """What a gradient claims to be, with the default attributes.

    ``first`` and ``second`` are each ``derivative``, ``surrogate`` (the derivative of another function) or ``formula``
    (not the derivative of any function). ``second`` is ``None`` if there is no second order. ``linear`` is true if
    there is a jvp.
    """

    first: str
    second: str | None
    linear: bool


@dataclass(frozen=True)
class OpSummary:
    """A summary of an op; an op that could not be loaded has a ``reason``. One without derivatives has no claim.

    An op is ``stale`` if its file has been saved with an error, the ``reason``, and its last good version is served.
    """

    name: str
    summary: str
    mechanism: str
    claim: Claim | None
    available: bool
    reason: str | None = None
    stale: bool = False


@dataclass(frozen=True)
class LastCheck:
    """The verdict of the last check of a whole op, the seconds since it ended, and what has changed since."""

    verdict: str
    age_s: float
    changed: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class OpVerdict:
    """The last check of the whole of ``op``, which is the op itself, or the one that it is derived from.

    ``is_current`` if nothing has ``changed`` since: of ``origin``, which has versions, and digests of the page and of
    what belongs to it. The check ended ``at`` a time (ISO 8601), ``age_s`` seconds ago.
    """

    op: str
    verdict: str
    is_current: bool
    changed: list[str]
    at: str
    age_s: float
    seed: int
    devices: list[str]
    modes: list[str]
    origin: dict[str, str]


@dataclass(frozen=True)
class ListedOp(OpSummary):
    """A summary in the list of all ops; ``last_check`` is ``None`` if there was none since the service started.

    ``group`` is ``yours`` (of a plug-in folder), ``surrogate``, ``numerics``, ``native`` or ``glue``.
    """

    group: str = ""
    last_check: LastCheck | None = None


@dataclass(frozen=True)
class Slot:
    """An input or an output; one with several ``dtypes`` has a type variable, the op's if they are those of the op.

    A symbol in ``shape`` stands for one dimension, "..." for any number of them. An ``optional`` input may be left out,
    and an output of a derived op that belongs to it is ``None`` then.
    """

    name: str
    dtypes: list[str]
    shape: list[str | int]
    differentiable: bool
    doc: str
    optional: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class InputSlot(Slot):
    """An input, with the domain where checks sample it and the points that they avoid."""

    domain: tuple[float, float]
    kinks: list[float]
    poles: list[float]


@dataclass(frozen=True)
class Example:
    """Example inputs, as lists, and attributes of an op."""

    name: str
    inputs: dict[str, Any]
    attrs: dict[str, Any]


@dataclass(frozen=True)
class ParameterSlot:
    """An input whose values the server has."""

    name: str
    dtype: str
    shape: list[int]


@dataclass(frozen=True, repr=False)
class Contract(OpSummary):
    """The full contract of an op; ``attrs`` is a JSON Schema, ``default_mode`` is by operation and dtype.

    If ``batching_varies`` with the attributes, ``batching`` is that of the defaults. ``shared`` names the inputs
    without rows. ``row_calls`` has shapes of rows, and how many of each share a call, or why none do. ``nodes`` are the
    ops that a graph composes. ``parameters`` are the inputs whose values the server has, and ``parameters_digest``
    names those of the page.
    """

    doc: str = ""
    source: str = ""
    batching: str = ""
    batching_varies: bool = False
    shared: tuple[str, ...] = ()
    row_calls: tuple[Mapping[str, Any], ...] = ()
    dtypes: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    default_mode: Mapping[str, Mapping[str, str]] | None = None
    inputs: tuple[InputSlot, ...] = ()
    outputs: tuple[Slot, ...] = ()
    attrs: Mapping[str, Any] | None = None
    examples: tuple[Example, ...] = ()
    nodes: tuple[str, ...] = ()
    parameters: tuple[ParameterSlot, ...] = ()
    parameters_digest: str | None = None

    def __repr__(self) -> str:
        return f"Contract({signature(self)}: {self.summary})"

    def _repr_html_(self) -> str:
        return html_of(self)

    @property
    def attr_schemas(self) -> Mapping[str, Any]:
        """The JSON Schema of each attribute, by name."""
        return (self.attrs or {}).get("properties", {})


def signature(contract: Contract) -> str:
    """Return an op with its inputs, attributes and outputs: ``f(x[...], optional?[M]) -> y[...]``."""
    inputs = [*map(_slot, contract.inputs), *(f"{name}=" for name in contract.attr_schemas)]
    return f"{contract.name}({', '.join(inputs)}) -> {', '.join(map(_slot, contract.outputs))}"


def html_of(contract: Contract) -> str:
    """Return a contract as HTML: what the op computes, and its inputs, outputs and attributes."""
    sides: list[tuple[str, Sequence[Slot]]] = [("input", contract.inputs), ("output", contract.outputs)]
    rows = [
        row((kind, slot.name, _shape(slot), "yes" if slot.differentiable else "none", slot.doc))
        for kind, slots in sides
        for slot in slots
    ]
    rows += [
        row(("attribute", name, "", "", str(schema.get("description", ""))))
        for name, schema in contract.attr_schemas.items()
    ]
    facts = f"{contract.mechanism}; dtypes {', '.join(contract.dtypes)}; modes {', '.join(contract.modes)}"
    parts = [
        element("h3", signature(contract)),
        element("p", contract.summary),
        element("p", contract.doc.replace("``", ""), class_="dim"),
        element("table", header(TITLES, len(TITLES)), element("tbody", *rows)),
        element("p", facts, class_="dim"),
    ]
    return markup(element("div", element("style", STYLE), *parts, class_="pullback"))


def listed(document: Mapping[str, Any]) -> list[ListedOp]:
    """Read the response of ``GET /v1/ops``."""
    return [read(ListedOp, op) for op in document["ops"]]


def verdict(document: Mapping[str, Any]) -> OpVerdict:
    """Read the response of ``GET /v1/ops/{op}/verdict``."""
    return read(OpVerdict, document)


def contract(document: Mapping[str, Any]) -> Contract:
    """Read the response of ``GET /v1/ops/{op}``."""
    return read(Contract, document)


def _slot(slot: Slot) -> str:
    return slot.name + ("?" if slot.optional else "") + _shape(slot)


def _shape(slot: Slot) -> str:
    return f"[{', '.join(map(str, slot.shape))}]"
