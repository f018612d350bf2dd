"""The tools that language models see: their names, descriptions, and the JSON Schemas of arguments and results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from app.errors import NotFound, clip
from app.execution.engine import Engine
from app.gradcheck.checks import CHECKS
from app.requests.operations import OPERATIONS
from app.routes.mcp.summaries import fitting
from app.routes.native.catalogue import contract_text, verdict_on
from app.routes.native.catalogue_models import ListedOp
from ops import MODES, Op

KINDS = tuple(name for name in OPERATIONS if name != "forward")

Schema = dict[str, Any]

INSTRUCTIONS = """\
Pullback evaluates ops (functions of tensors) and their derivatives, and checks whether a gradient is right.
Find an op with list, read its contract and its example with show, then call evaluate or derivative with the inputs by
name. Large arrays come back as summaries; `whole` in a result says how to get all numbers. An error says what was
expected and what came: correct the arguments and call again. check judges the gradient of an op; its verdict is pass,
fail, error (the checker failed) or inconclusive (too little could be compared)."""
# How many ops a page of the list has, and how much of a summary.
PAGE, SUMMARY = 40, 120
# How much of the texts of an op is shown, and of its inputs and outputs, until the document is short enough.
SHOWN = ((1500, 200, 64), (600, 80, 64), (300, 0, 24), (100, 0, 4))
# The most bytes of an example, and of the schema of the attributes.
MAX_EXAMPLE, MAX_ATTRS = 1500, 2500


def _object(properties: Schema, required: tuple[str, ...] = (), *, is_open: bool = False) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": is_open,
    }


def _text(description: str, **more: Any) -> Schema:
    return {"type": "string", "description": description, **more}


def _tensors(description: str) -> Schema:
    return {"type": "object", "description": description}


def _names(description: str) -> Schema:
    return {"type": "array", "items": {"type": "string"}, "description": description}


_OP = {"op": _text("The name of the op, as list gives it, or of one of its derivations.")}
_POINT: Schema = {
    **_OP,
    "inputs": _tensors('The inputs by name: nested lists of numbers, or {"dtype", "shape", "data"}.'),
    "attrs": {"type": "object", "description": "The attributes; omitted ones have their defaults."},
    "dtype": _text("The dtype of the op's type variable; omitted: its first."),
    "mode": _text("How TensorFlow runs it; omitted: the default.", enum=[*MODES]),
    "parameters": _text("The digest of the values of the op's parameters; omitted: those of its page."),
}
_DERIVATIVE: Schema = {
    "kind": _text(
        "vjp: cotangents times the Jacobian; jvp: the Jacobian times tangents; hvp: the Hessian times vectors; "
        "jacobian and hessian: whole blocks; gradients: orders 1 to 4 of the sum.",
        enum=[*KINDS],
    ),
    "wrt": _names("The inputs to differentiate with respect to; omitted: all. Not for jvp."),
    "cotangents": _tensors("vjp, hvp, hessian, gradients: a cotangent for outputs by name; omitted: ones."),
    "tangents": _tensors("jvp: a tangent for inputs by name; the rest are zeros."),
    "vectors": _tensors("hvp: a vector for inputs by name; the rest are zeros."),
    "of": _names("jacobian: the outputs to differentiate; omitted: all."),
    "outputs": {"type": "boolean", "description": "vjp: return the outputs as well."},
    "diagonal": {"type": "boolean", "description": "hessian: only the diagonal, for elementwise ops."},
    "order": {"type": "integer", "minimum": 1, "maximum": 4, "description": "gradients: the highest order."},
}
_TENSORS: Schema = _object(
    {
        "op": {"type": "string"},
        "operation": {"type": "string"},
        "tensors": {
            "type": "object",
            "description": "By path, such as gradients/x: an array in its typed form, or a summary with its first "
            "numbers.",
            "additionalProperties": {
                "type": "object",
                "properties": {"dtype": {"type": "string"}, "shape": {"type": "array"}},
                "required": ["dtype", "shape"],
            },
        },
        "absent": {"type": "object", "description": "The derivatives that do not exist, by path, with reasons."},
        "left_off": {"type": "integer", "description": "How many tensors are not shown."},
        "whole": {"type": "object", "description": "How to get all numbers: a request, and the same as a command."},
    },
    ("op", "operation", "tensors", "absent", "left_off"),
)


@dataclass(frozen=True)
class Tool:
    """A tool: its texts, its schemas, and the scope that a key needs for it."""

    name: str
    title: str
    description: str
    arguments: Schema
    result: Schema
    scope: str = "call"

    def document(self) -> Schema:
        """Return the tool as tools/list has it."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.arguments,
            "outputSchema": self.result,
            "annotations": {"title": self.title, "readOnlyHint": True, "openWorldHint": False},
        }


TOOLS: Mapping[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool(
            "list",
            "List ops",
            "List the ops that the service has, with one line each. Filter them by a part of the name or the summary.",
            _object(
                {
                    "contains": _text("A part of the name or of the summary, in any case."),
                    "offset": {"type": "integer", "minimum": 0, "description": "How many ops to skip."},
                }
            ),
            _object(
                {
                    "ops": {"type": "array", "items": {"type": "object"}},
                    "found": {"type": "integer", "description": "How many ops match."},
                    "next": {"type": ["integer", "null"], "description": "The offset of those left; null: none left."},
                },
                ("ops", "found", "next"),
            ),
        ),
        Tool(
            "show",
            "Show an op",
            "Show the contract of an op: inputs, outputs, attributes, dtypes, what its gradient claims to be, its last "
            "verdict, and arguments for evaluate that work.",
            _object(_OP, ("op",)),
            _object(
                {
                    "op": {"type": "string"},
                    "example": {"type": ["object", "null"], "description": "Arguments for evaluate."},
                    "whole": _text("The path with all of it."),
                },
                ("op", "example", "whole"),
                is_open=True,
            ),
        ),
        Tool(
            "evaluate",
            "Evaluate an op",
            "Compute the outputs of an op at a point.",
            _object(_POINT, ("op", "inputs")),
            _TENSORS,
        ),
        Tool(
            "derivative",
            "Differentiate an op",
            "Compute a derivative of an op at a point: a product with its Jacobian or Hessian, or these themselves.",
            _object(_POINT | _DERIVATIVE, ("op", "kind", "inputs")),
            _TENSORS,
        ),
        Tool(
            "check",
            "Check a gradient",
            "Compare the gradient of an op with numeric derivatives that have error bars, in all modes and dtypes. "
            "It takes seconds; budget_s bounds it, and what was not run is counted.",
            _object(
                {
                    **_OP,
                    "checks": {"type": "array", "items": {"type": "string", "enum": [*CHECKS]}},
                    "orders": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 4}},
                    "dtypes": _names("Float dtypes to check; omitted: all."),
                    "modes": _names("Modes to check; omitted: all."),
                    "inputs": _tensors("The point; omitted: the op's examples, and points of its domain."),
                    "attrs": {"type": "object", "description": "The attributes; omitted: those of the examples."},
                    "seed": {"type": "integer", "minimum": 0, "description": "The seed of random draws."},
                    "budget_s": {"type": "number", "exclusiveMinimum": 0, "description": "Seconds for the checks."},
                },
                ("op",),
            ),
            _object(
                {
                    "op": {"type": "string"},
                    "verdict": {"type": "string", "enum": ["pass", "fail", "error", "inconclusive"]},
                    "sentence": {"type": "string"},
                    "unfinished": {"type": "integer", "description": "Checks not run, because the time was over."},
                    "findings": {"type": "array", "items": {"type": "object"}, "description": "The worst first."},
                    "left_off": {"type": "integer", "description": "How many findings are not shown."},
                },
                ("op", "verdict", "sentence", "unfinished", "findings", "left_off"),
                is_open=True,
            ),
            scope="check",
        ),
    )
}


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
