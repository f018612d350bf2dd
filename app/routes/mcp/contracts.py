"""What the tools list and show say of the ops."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from app.errors import NotFound, clip
from app.execution.engine import Engine
from app.routes.mcp.summaries import fitting
from app.routes.native.catalogue import contract_text, verdict_on
from app.routes.native.catalogue_models import ListedOp
from ops import Op

# How many ops a page of the list has, and how much of a summary.
PAGE, SUMMARY = 40, 120
# How much of the texts of an op is shown, and of its inputs and outputs, until the document is short enough.
SHOWN = ((1500, 200, 64), (600, 80, 64), (300, 0, 24), (100, 0, 4))
# The most bytes of an example, and of the schema of the attributes.
MAX_EXAMPLE, MAX_ATTRS = 1500, 2500


def page_of(ops: Sequence[ListedOp], contains: str, offset: int) -> bytes:
    """Return the document with the ops that have a text in their name or summary, from ``offset`` on."""
    wanted = contains.casefold()
    found = [op for op in ops if wanted in op.name.casefold() or wanted in op.summary.casefold()]

    def document(most: int) -> dict[str, Any]:
        shown = found[offset : offset + most]
        end = offset + len(shown)
        return {"ops": list(map(_line, shown)), "found": len(found), "next": end if end < len(found) else None}

    return fitting((PAGE, PAGE // 2, PAGE // 4, PAGE // 10), document)


def _line(op: ListedOp) -> dict[str, Any]:
    line: dict[str, Any] = {"name": op.name, "summary": clip(op.summary, SUMMARY)}
    if op.claim is not None:
        line["gradient"] = op.claim.first
    if op.last_check is not None:
        line["verdict"] = f"{op.last_check.verdict}, lapsed" if op.last_check.changed else op.last_check.verdict
    if op.reason:
        line |= {"available": op.available, "reason": clip(op.reason, SUMMARY)}
    return line


def contract_of(engine: Engine, op: Op) -> bytes:
    """Return the document with the contract of an op, and an example; it may read files."""
    contract: dict[str, Any] = orjson.loads(contract_text(engine, op))
    example = next((found for each in contract["examples"] if (found := _arguments(op.name, each))), None)
    attrs = contract["attrs"]
    if len(orjson.dumps(attrs)) > MAX_ATTRS:
        attrs = {"properties": sorted(attrs.get("properties", ()))[:40]}  # their names
    try:
        verdict: dict[str, Any] | None = verdict_on(engine, op).model_dump(include={"verdict", "is_current", "age_s"})
    except NotFound:
        verdict = None

    def document(level: tuple[int, int, int]) -> dict[str, Any]:
        doc, line, most = level
        return {
            "op": op.name,
            "summary": clip(contract["summary"], 2 * SUMMARY),
            "doc": contract["doc"][:doc],
            "available": contract["available"],
            **({"reason": clip(contract["reason"], 2 * SUMMARY)} if contract.get("reason") else {}),
            "gradient": contract["claim"],
            "dtypes": contract["dtypes"],
            "modes": contract["modes"],
            "inputs": [_slot(slot, line) for slot in contract["inputs"][:most]],
            "outputs": [_slot(slot, line) for slot in contract["outputs"][:most]],
            "parameters": [each["name"] for each in contract.get("parameters", ())][:most],
            "attrs": attrs if line else {"properties": sorted(attrs.get("properties", ()))[:most]},
            "derivations": contract["derivations"][:most],
            "verdict": verdict,
            "example": example,
            "whole": f"/v1/ops/{op.name}",
        }

    return fitting(SHOWN, document)


def _slot(slot: Mapping[str, Any], line: int) -> dict[str, Any]:
    shown = {name: slot[name] for name in ("name", "dtypes", "shape", "differentiable", "optional") if name in slot}
    return shown | ({"doc": clip(slot["doc"], line)} if line and slot.get("doc") else {})


def _arguments(op: str, example: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return an example as arguments of evaluate, ``None`` if it is long, or has a number that JSON lacks."""
    arguments = {"op": op, "inputs": example["inputs"], **({"attrs": example["attrs"]} if example["attrs"] else {})}
    text = orjson.dumps(arguments)
    return arguments if len(text) <= MAX_EXAMPLE and b"null" not in text else None
