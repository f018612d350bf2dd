"""POST /mcp: the Model Context Protocol, over streamable HTTP without sessions; each request is answered by itself.

A batch, which only the first version has, may call one tool: its other messages are answered at once, and a limit of
requests by key counts each call.
"""

from functools import partial
from typing import Any, NamedTuple, cast

from fastapi import APIRouter

from app.errors import clip, near
from app.execution.engine import Engine
from app.http.key_file import TOOLS as PATH
from app.http.request import Request
from app.http.route import RawRoute, admit, always
from app.requests.answering import SMALL_BODY, Reply, send_reply
from app.requests.answers import JSON, accepted, content_type
from app.requests.plans import Plans
from app.routes.mcp.calls import Calls
from app.routes.mcp.messages import (
    HANDSHAKE,
    INVALID_PARAMS,
    STATELESS,
    UNKNOWN_METHOD,
    VERSIONS,
    Document,
    Envelope,
    Message,
    Refused,
    answered,
    dialect,
    read_message,
    read_messages,
    version_of,
)
from app.routes.mcp.tools import INSTRUCTIONS, TOOLS
from app.tensors.casting import describe
from app.tensors.strict_json import dumps
from pullback import __version__

INFO = {"name": "pullback", "title": "Pullback", "version": __version__}
ABOUT: Document = {"capabilities": {"tools": {"listChanged": False}}, "instructions": INSTRUCTIONS}
# For how long a client may keep the list of tools, which changes with the version of the service only.
KEEP: Document = {"ttlMs": 3_600_000, "cacheScope": "public"}


class ToolCall(NamedTuple):
    """A message that calls a tool: its id, the name of the tool and the arguments."""

    id: Any
    name: str
    arguments: Document


def routes(engine: Engine, plans: Plans) -> APIRouter:
    """Return the route of the protocol."""
    answer = always(partial(_answer, Calls(engine, plans)), engine.counters("", "mcp"))
    router = APIRouter()
    options: dict[str, Any] = {"dialect": dialect, "admit": _admit, "may_be_job": False, "include_in_schema": False}
    router.routes.append(RawRoute(PATH, answer, methods=["POST"], **options))
    return router


def _admit(request: Request) -> None:
    """Reserve memory for the body, which is parsed on the event loop, and so is small; raises a ``PullbackError``."""
    request.json_limit = min(request.json_limit, SMALL_BODY)
    admit(request)


async def _answer(calls: Calls, request: Request) -> None:
    content_type(request.headers)
    accepted(request.headers)
    version = version_of(request.headers)
    documents, is_batch = read_messages(await request.read(), version)
    request.candidate = None  # no template fits the answers
    answers, call = list[Document](), None
    for document in documents:
        try:
            message = read_message(document, request.headers, version)
            found = None if message is None else _answer_of(message, version)
            if isinstance(found, ToolCall) and call is not None:
                raise Refused(
                    INVALID_PARAMS, "expected one tools/call in a batch, got more: send each alone", of=found.id
                )
        except Refused as error:
            if not is_batch:
                reply = Reply(JSON, [dumps(error.message())], status=_status(error, version))
                return await send_reply(reply, request)
            found = error.message()
        if isinstance(found, ToolCall):
            call = found
        elif found is not None:
            answers.append(found)
    if call is not None:
        host = request.headers.get(b"host", b"").decode("latin-1")
        url = f"{request.scope.get('scheme', 'http')}://{host}"
        envelope = Envelope(call.id, answers if is_batch else None, version == STATELESS, url)
        request.dialect = envelope.failed
        await calls.answer(request, envelope, call.name, call.arguments)
    elif answers:
        await send_reply(Reply(JSON, [dumps(answers if is_batch else answers[0])]), request)
    else:
        await send_reply(Reply(JSON, [], status=202), request)
    return None


def _status(error: Refused, version: str) -> int:
    """Return the HTTP status of an error of one message: an answer, in the versions before each message stood alone."""
    if error.code == UNKNOWN_METHOD:
        return 404 if version == STATELESS else 200
    return 200 if error.code == INVALID_PARAMS and version != STATELESS else 400


def _answer_of(message: Message, version: str) -> Document | ToolCall:
    """Return the answer to a message, or the tool that it calls; raises ``Refused``."""
    is_stateless, result = version == STATELESS, dict[str, Any]()
    match message.method:
        case "initialize" if not is_stateless:
            wanted = message.params.get("protocolVersion")
            if not isinstance(wanted, str):
                raise _wrong(message, "protocolVersion, which is a string", wanted)
            result = {"protocolVersion": wanted if wanted in HANDSHAKE else HANDSHAKE[-1], **ABOUT, "serverInfo": INFO}
        case "server/discover" if is_stateless:
            meta = {"io.modelcontextprotocol/serverInfo": INFO}
            result = {"supportedVersions": VERSIONS, **ABOUT, **KEEP, "_meta": meta}
        case "ping":
            pass
        case "tools/list":
            if message.params.get("cursor") is not None:
                raise _wrong(message, "no cursor: the list has one page", message.params["cursor"])
            result = {"tools": [tool.document() for tool in TOOLS.values()], **(KEEP if is_stateless else {})}
        case "tools/call":
            return _call_of(message)
        case _:
            known = ("server/discover" if is_stateless else "initialize", "ping", "tools/list", "tools/call")
            detail = f"unknown method {clip(message.method, 100)!r}: expected {near(message.method, known)}"
            raise Refused(UNKNOWN_METHOD, detail, of=message.id)
    return answered(message.id, result, is_stateless=is_stateless)


def _call_of(message: Message) -> ToolCall:
    name, arguments = message.params.get("name"), message.params.get("arguments", {})
    if not isinstance(name, str) or name not in TOOLS:
        raise _wrong(message, f"the name of a tool, one of {', '.join(TOOLS)}", name)
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise _wrong(message, "arguments, which are an object", arguments)
    return ToolCall(message.id, name, cast("Document", arguments))


def _wrong(message: Message, expected: str, got: object) -> Refused:
    return Refused(INVALID_PARAMS, f"{message.method}: expected {expected}, got {describe(got)}", of=message.id)
