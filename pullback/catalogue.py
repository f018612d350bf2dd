"""What the service says of its ops: a line of each, and the whole contract of one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Claim:
    """What a gradient means to be, with the default attributes.

    ``first`` and ``second`` are each ``derivative``, ``surrogate`` (the derivative of another function) or ``formula``
    (of no function); ``linear`` tells whether there is a jvp.
    """

    first: str
    second: str
    linear: bool


@dataclass(frozen=True)
class OpSummary:
    """One op in a line; one that could not be loaded has a ``reason`` and no claim."""

    name: str
    summary: str
    mechanism: str
    claim: Claim | None
    available: bool
    reason: str | None = None


@dataclass(frozen=True)
class Slot:
    """An input or an output; several ``dtypes`` are the op's type variable.

    A symbol in ``shape`` stands for one dimension, "..." for any number of them.
    """

    name: str
    dtypes: list[str]
    shape: list[str | int]
    differentiable: bool
    doc: str


@dataclass(frozen=True)
class InputSlot(Slot):
    """An input: as an output, and where checks sample it, and what they avoid."""

    domain: tuple[float, float]
    kinks: list[float]
    poles: list[float]


@dataclass(frozen=True)
class Example:
    """Inputs, as lists, and attributes that the op is made for."""

    name: str
    inputs: dict[str, Any]
    attrs: dict[str, Any]


@dataclass(frozen=True)
class Contract(OpSummary):
    """The whole contract of an op; ``attrs`` is a JSON Schema, ``default_mode`` is by operation and dtype."""

    doc: str = ""
    source: str = ""
    batching: str = ""
    dtypes: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    default_mode: Mapping[str, Mapping[str, str]] | None = None
    inputs: tuple[InputSlot, ...] = ()
    outputs: tuple[Slot, ...] = ()
    attrs: Mapping[str, Any] | None = None
    examples: tuple[Example, ...] = ()

    @property
    def attr_schemas(self) -> Mapping[str, Any]:
        """The JSON Schema of each attribute, by name."""
        return (self.attrs or {}).get("properties", {})


def summaries(document: Mapping[str, Any]) -> list[OpSummary]:
    """Read an answer of ``GET /v1/ops``."""
    return [OpSummary(**_line(op)) for op in document["ops"]]


def contract(document: Mapping[str, Any]) -> Contract:
    """Read an answer of ``GET /v1/ops/{op}``."""
    return Contract(
        **_line(document),
        doc=document["doc"],
        source=document["source"],
        batching=document["batching"],
        dtypes=tuple(document["dtypes"]),
        modes=tuple(document["modes"]),
        default_mode=document["default_mode"],
        inputs=tuple(map(_input, document["inputs"])),
        outputs=tuple(Slot(**_slot(slot)) for slot in document["outputs"]),
        attrs=document["attrs"],
        examples=tuple(Example(e["name"], e["inputs"], e["attrs"]) for e in document["examples"]),
    )


def _line(op: Mapping[str, Any]) -> dict[str, Any]:
    said = op["claim"]
    claim = None if said is None else Claim(said["first"], said["second"], said["linear"])
    kept = {key: op[key] for key in ("name", "summary", "mechanism", "available")}
    return {**kept, "claim": claim, "reason": op.get("reason")}


def _slot(slot: Mapping[str, Any]) -> dict[str, Any]:
    return {key: slot[key] for key in ("name", "dtypes", "shape", "differentiable", "doc")}


def _input(slot: Mapping[str, Any]) -> InputSlot:
    low, high = slot["domain"]
    return InputSlot(**_slot(slot), domain=(float(low), float(high)), kinks=slot["kinks"], poles=slot["poles"])
