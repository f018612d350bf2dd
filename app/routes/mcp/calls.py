"""The calls of the tools: each becomes the request of a native route, which is read, run and limited as such."""

import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import orjson

from app.errors import clip, near, wrong
from app.execution.calls import Call
from app.execution.engine import Engine
from app.http.keys import need_scope
from app.http.request import Request
from app.requests.answering import Reply, answer, send_reply
from app.requests.answers import JSON
from app.requests.digits import Tree
from app.requests.operations import OPERATIONS
from app.requests.plans import Plans
from app.routes.mcp.messages import Document, Envelope
from app.routes.mcp.summaries import fitting, result_of, tensors_document
from app.routes.mcp.tools import KINDS, TOOLS, contract_of, page_of
from app.routes.native.catalogue import Listing
from app.routes.native.checks import CheckHandler
from app.routes.native.derivatives import FORMATS, Format, OperationHandler
from app.routes.native.points import spell_nonfinite
from app.routes.protocol import described, find_op
from app.tensors.casting import describe
from app.tensors.layouts import Encoding
from app.tensors.strict_json import Body

# What was checked, with what, and how much.
SETTING = ("origin", "modes", "devices", "seed", "points", "evaluations", "seconds")
# The findings that are shown, the worst first; those that pass are only counted.
ORDER = ("fail", "error", "inconclusive")
# How many findings are shown, and how much of a sentence, until the document is short enough.
SHOWN = ((10, 600), (5, 400), (3, 200), (1, 100))


def verdict_document(report: Mapping[str, Any], rest: Mapping[str, Any]) -> bytes:
    """Return the document with the verdict of a report; ``rest`` says how to get all of it."""
    entries: list[Mapping[str, Any]] = [*report["checks"]]
    bad = [entry for kind in ORDER for entry in entries if entry["verdict"] == kind]
    notes = [entry for entry in entries if entry["note"] and entry["verdict"] not in ORDER]

    def document(level: tuple[int, int]) -> dict[str, Any]:
        most, length = level
        shown = [_finding(entry, length) for entry in (*bad, *notes)[:most]]
        return spell_nonfinite(
            {
                "op": report["op"],
                "verdict": report["verdict"],
                "sentence": clip(report["sentence"], 600),
                "counts": Counter(entry["verdict"] for entry in entries),
                "unfinished": report["unfinished"],
                "findings": shown,
                "left_off": len(bad) + len(notes) - len(shown),
                **{name: report[name] for name in SETTING},
                "whole": rest,
            }
        )

    return fitting(SHOWN, document)


def _finding(entry: Mapping[str, Any], length: int) -> dict[str, Any]:
    names = ("check", "verdict", "order", "output", "input", "mode", "dtype")
    finding = {name: entry[name] for name in names if entry.get(name) is not None}
    finding["sentence"] = clip(entry["sentence"], length)
    # A part of a command would be another one.
    command = entry["reproduce"]
    return finding | ({"reproduce": command} if command and len(command) <= length else {})


# The most bytes of a native request that a result repeats.
MAX_REPEATED = 1000


@dataclass(frozen=True)
class Native:
    """The native request of a call: its path and its body. ``url`` is that of the service."""

    path: str
    body: bytes
    url: str
    has_key: bool

    def document(self) -> dict[str, Any]:
        """Return how to send it: with the body, or with how the arguments become the body if that is long."""
        is_short = len(self.body) <= MAX_REPEATED
        body = shlex.quote(self.body.decode()) if is_short else "@arguments.json"
        key = ' -H "Authorization: Bearer $PULLBACK_KEY"' if self.has_key else ""
        made: dict[str, Any] = {"method": "POST", "path": self.path}
        if not is_short:
            made["body"] = "arguments.json: the arguments of this call as one object, without op and kind"
        return made | {"curl": f"curl -s -H 'Content-Type: {JSON}'{key} -d {body} {shlex.quote(self.url + self.path)}"}


class Calls:
    """The calls of the tools of a service."""

    def __init__(self, engine: Engine, plans: Plans) -> None:
        """Take the ops of an engine."""
        self._engine, self._plans, self._listing = engine, plans, Listing(engine)

    async def answer(self, request: Request, envelope: Envelope, name: str, arguments: Document) -> None:
        """Answer the call of a tool; raises the ``PullbackError`` for invalid arguments, and those of the native route.

        The key of the request must have the scope of the tool.
        """
        if request.grant is not None:
            need_scope(request.grant, TOOLS[name].scope)
        _check_names(name, arguments)
        match name:
            case "list":
                document = await self._page(arguments)
            case "show":
                op = await find_op(self._engine, request, _op(arguments))
                document = await described(self._engine, request, op, partial(contract_of, self._engine, op))
            case "check":
                return await self._check(request, envelope, arguments)
            case _:
                return await self._operate(request, envelope, arguments, "forward" if name == "evaluate" else "")
        await send_reply(_reply(envelope, document), request)
        return None

    async def _page(self, arguments: Document) -> bytes:
        contains, offset = arguments.get("contains", ""), arguments.get("offset", 0)
        if not isinstance(contains, str):
            raise wrong(("contains",), "expected a string", expected="a string", got=describe(contains))
        if type(offset) is not int or offset < 0:
            raise wrong(("offset",), "expected a whole number", expected="a whole number from 0", got=describe(offset))
        return page_of(await self._listing.now(), contains, offset)

    async def _operate(self, request: Request, envelope: Envelope, arguments: Document, operation_name: str) -> None:
        """Answer evaluate, whose operation is forward, or derivative."""
        kind = operation_name or arguments.get("kind")
        if kind not in ("forward", *KINDS) or (kind == "forward" and not operation_name):
            raise wrong(("kind",), "unknown kind", expected=f"one of {', '.join(KINDS)}", got=describe(kind))
        operation = OPERATIONS[cast("str", kind)]
        op = await find_op(self._engine, request, _op(arguments))
        native = _native(request, envelope, op.name, operation.name, arguments)
        counters = self._engine.counters(op.owner, operation.name)
        others = {"op": op.name, "operation": operation.name}

        def write(found: Mapping[str, Tree], encoding: Encoding, more: Mapping[str, Any]) -> Reply:
            del encoding
            return _reply(envelope, tensors_document(found, {**others, **more}, native.document()))

        # Without a media type: no layout of an answer is kept for the next one.
        target = Format("", FORMATS[JSON].read, write)
        handler = OperationHandler(self._engine, counters, op.owner, self._plans, op, operation)
        request.counters = counters
        await answer(
            self._engine, request, partial(handler.call, FORMATS[JSON], target, request), native.body, op.owner
        )

    async def _check(self, request: Request, envelope: Envelope, arguments: Document) -> None:
        op = await find_op(self._engine, request, _op(arguments))
        native = _native(request, envelope, op.name, "check", arguments)
        request.counters = self._engine.counters(op.owner, "check")
        handler = CheckHandler(self._engine, op, request.counters)

        def read(body: Body) -> Call:
            call = handler.call(body)
            call.write = lambda report: _reply(envelope, verdict_document(report, native.document()))
            return call

        await answer(self._engine, request, read, native.body, op.owner)


def _check_names(tool: str, arguments: Document) -> None:
    """Raise ``Unprocessable`` for an argument that a tool does not have."""
    known = TOOLS[tool].arguments["properties"]
    for name in arguments:
        if name not in known:
            raise wrong((name,), f"unknown argument of {tool}", expected=near(name, known), got=name)


def _op(arguments: Document) -> str:
    """Return the name of the op; raises ``Unprocessable`` if it is missing."""
    op = arguments.get("op")
    if not isinstance(op, str):
        got = describe(op) if "op" in arguments else "nothing"
        raise wrong(("op",), "expected the name of an op", expected="the name of an op, as list gives it", got=got)
    return op


def _native(request: Request, envelope: Envelope, op: str, operation: str, arguments: Document) -> Native:
    """Return the native request; raises ``Unprocessable`` for arguments that are nested too deep."""
    fields = {name: value for name, value in arguments.items() if name not in ("op", "kind")}
    try:
        body = orjson.dumps(fields)
    except TypeError:
        raise wrong((), "the arguments are nested too deep", expected="tensors of few axes", got="more") from None
    return Native(f"/v1/ops/{op}/{operation}", body, envelope.url, bool(request.key))


def _reply(envelope: Envelope, document: bytes) -> Reply:
    return Reply(JSON, [envelope.wrap(result_of(document))])
