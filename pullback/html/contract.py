"""What Python and notebooks show of the contract of an op."""

from collections.abc import Sequence

from pullback.catalogue import Contract, Slot
from pullback.html.style import STYLE
from pullback.html.tree import element, header, markup, row

TITLES = ("", "name", "shape", "gradient", "meaning")


def signature(contract: Contract) -> str:
    """Return an op with its inputs, attributes and outputs: ``f(x[...], optional?[M]) -> y[...]``."""
    inputs = [*map(_slot, contract.inputs), *(f"{name}=" for name in contract.attr_schemas)]
    return f"{contract.name}({', '.join(inputs)}) -> {', '.join(map(_slot, contract.outputs))}"


def html_of(contract: Contract) -> str:
    """Return a contract: what the op computes, and its inputs, outputs and attributes."""
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


def _slot(slot: Slot) -> str:
    return slot.name + ("?" if slot.optional else "") + _shape(slot)


def _shape(slot: Slot) -> str:
    return f"[{', '.join(map(str, slot.shape))}]"
