"""Output of ``pullback ops`` and ``pullback show``."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from rich.console import Console

from pullback.calls import Call
from pullback.catalogue import Contract, InputSlot, OpSummary, Slot
from pullback.cli.console import Table, print_table, styled
from pullback.client import Client


def print_ops(out: Console, ops: Iterable[OpSummary]) -> None:
    """Print a line for each op; unavailable ops in red, with the reason."""
    table = Table(("name", "mechanism", "claim", "summary"))
    for op in ops:
        if op.stale:
            table.add(op.name, op.mechanism, "stale", op.reason or "", styles=["bold", "", *["yellow"] * 2])
        elif op.available:
            table.add(op.name, op.mechanism, claim_of(op), op.summary, styles=["bold"])
        else:
            table.add(op.name, "unavailable", "", op.reason or "", styles=["red"] * 4)
    print_table(out, table)


def print_json(service: Client, call: Call[Any]) -> None:
    """Print the response of a call as the service sent it, indented."""
    print_document(service.send(Call(call.path, dict)))


def print_document(document: Mapping[str, Any]) -> None:
    """Print a document of the service, indented."""
    print(json.dumps(document, ensure_ascii=False, indent=1))


def claim_of(op: OpSummary) -> str:
    """Return the claim in a few words, by order if the orders differ."""
    if op.claim is None:
        return ""
    first, second = op.claim.first, op.claim.second
    text = first if first == second else f"{first}, then {second or 'no second order'}"
    return text if op.claim.linear else f"{text}; not linear"


def print_contract(out: Console, op: Contract) -> None:
    """Print the full contract of an op."""
    out.print(styled(f"{op.name}: {op.summary}", "bold"))
    facts = {"claim": claim_of(op), "mechanism": op.mechanism, "batching": op.batching}
    facts |= {"dtypes": ", ".join(op.dtypes), "modes": ", ".join(op.modes), "source": op.source}
    table = Table(("", ""))
    for name, value in facts.items():
        if value:
            table.add(name, value, styles=["bold"])
    print_table(out, table)
    _section(out, "Inputs")
    print_table(out, _slots(op.inputs))
    _section(out, "Outputs")
    print_table(out, _slots(op.outputs))
    if op.attr_schemas:
        _section(out, "Attributes")
        _print_attrs(out, op.attr_schemas)
    _section(out, "Formulas")
    # Docstrings quote code as reStructuredText does.
    out.print(styled(op.doc.replace("``", "")))
    _section(out, "Examples")
    for example in op.examples:
        # In one piece, so that it can be copied: the terminal folds it.
        out.print(styled(f"{example.name}: {_request(example.inputs, example.attrs)}"), soft_wrap=True)


def _section(out: Console, title: str) -> None:
    out.print()
    out.print(styled(title, "bold underline"))


def _slots(slots: Sequence[Slot]) -> Table:
    table = Table(("name", "shape", "dtypes", "gradient", "kinks", "poles", "doc"))
    for slot in slots:
        kinks, poles = (slot.kinks, slot.poles) if isinstance(slot, InputSlot) else ([], [])
        shape = f"[{', '.join(map(str, slot.shape))}]"
        has_gradient = "yes" if slot.differentiable else "none"
        points = (", ".join(f"{x:g}" for x in xs) for xs in (kinks, poles))
        name = f"{slot.name} (optional)" if slot.optional else slot.name
        table.add(name, shape, ", ".join(slot.dtypes), has_gradient, *points, slot.doc, styles=["bold"])
    return table


def _print_attrs(out: Console, schemas: Mapping[str, Any]) -> None:
    table = Table(("name", "default", "values", "doc"))
    for name, schema in schemas.items():
        default = json.dumps(schema["default"], ensure_ascii=False) if "default" in schema else "required"
        table.add(name, default, _values(schema), schema.get("description", ""), styles=["bold"])
    print_table(out, table)


def _values(schema: Mapping[str, Any]) -> str:
    """Return the values that a JSON Schema allows, in a few words."""
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    if "anyOf" in schema:
        return " or ".join(_values(option) for option in cast("list[Mapping[str, Any]]", schema["anyOf"]))
    signs = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {schema[key]:g}" for key, sign in signs.items() if key in schema]
    return " ".join([str(schema.get("type", "any")), *bounds])


def _request(inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> str:
    """Return inputs and attributes as arguments of ``pullback call``."""
    tensors = [f"{name}={json.dumps(value, separators=(',', ':'))}" for name, value in inputs.items()]
    return " ".join([*tensors, *(f"{name}={value}" for name, value in attrs.items())])
