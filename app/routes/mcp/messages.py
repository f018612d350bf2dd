"""JSON-RPC 2.0 as MCP has it over HTTP: the versions of the protocol, its messages, its errors and its answers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, cast

from app.errors import MAX_GOT, BodyTooLarge, Malformed, PullbackError, clip
from app.http.problems import RenderedError
from app.requests.answers import JSON
from app.tensors.casting import describe
from app.tensors.strict_json import Body, dumps, parse

Id: TypeAlias = str | int | float
Document: TypeAlias = dict[str, Any]

# Each request of STATELESS names its version; the others begin with initialize. Only the first has batches.
HANDSHAKE = ("2025-03-26", "2025-06-18", "2025-11-25")
STATELESS = "2026-07-28"
VERSIONS = (*HANDSHAKE, STATELESS)
WITH_BATCHES = HANDSHAKE[0]

NOT_JSON, INVALID, UNKNOWN_METHOD, INVALID_PARAMS, MISMATCH, UNKNOWN_VERSION = (
    *(-32700, -32600, -32601, -32602),
    *(-32020, -32022),
)
SERVER_ERROR = -32000
MAX_BATCH, MAX_ID = 16, 128
# What is shown of the errors in the arguments of a tool.
SHOWN_ENTRIES = 5
_META = "io.modelcontextprotocol/"


class Refused(Malformed):
    """A message that is refused before a tool is called: an error of JSON-RPC, with its code."""

    def __init__(self, code: int, detail: str, *, of: Id | None = None, data: Any = None) -> None:
        """Take the code, the error and its cure, and the id of the message ``of`` which it is, if that has one."""
        super().__init__(clip(detail, 2 * MAX_GOT))
        self.code, self.id, self.data = code, of, data

    def message(self) -> Document:
        """Return the answer to the message."""
        error = {"code": self.code, "message": self.detail}
        return {
            "jsonrpc": "2.0",
            "id": self.id,
            "error": error if self.data is None else {**error, "data": self.data},
        }


class Message(NamedTuple):
    """A request: its id, its method and its parameters."""

    id: Id
    method: str
    params: Document


@dataclass(frozen=True)
class Envelope:
    """What is around the result of a tool in a response: the id of its message, and the answers to others of a batch.

    ``url`` is that of the service, as the client sees it.
    """

    id: Id
    others: Sequence[Document] | None
    is_stateless: bool
    url: str

    def wrap(self, result: bytes) -> bytes:
        """Return the response with a result, which is the text of an object."""
        mark = b'"resultType":"complete",' if self.is_stateless else b""
        message = b'{"jsonrpc":"2.0","id":%b,"result":{%b%b}\n' % (dumps(self.id).rstrip(), mark, result.strip()[1:])
        if self.others is None:
            return message
        return b"[%b]\n" % b",".join([*map(dumps, self.others), message])

    def failed(self, error: PullbackError, instance: str) -> RenderedError:
        """Render the error of a tool as its result, so that the model reads it: what was expected, and what came."""
        del instance
        detail = "" if error.entries else f" {clip(error.detail, 2 * MAX_GOT)}"
        lines = [f"{error.title} ({error.status}):{detail}"]
        for entry in error.entries[:SHOWN_ENTRIES]:
            place = ".".join(map(str, entry.document()["loc"]))
            lines.append(f"{clip(place, MAX_GOT) or 'arguments'}: {entry.sentence()}")
        if (left := len(error.entries) - SHOWN_ENTRIES) > 0:
            lines.append(f"{left} more errors are not shown")
        if wait_s := error.headers.get("Retry-After"):
            lines.append(f"Try again after {wait_s} s.")
        result = {"content": [{"type": "text", "text": "\n".join(lines)}], "isError": True}
        message = answered(self.id, result, is_stateless=self.is_stateless)
        return RenderedError(200, JSON, message if self.others is None else [*self.others, message])


def answered(of: Id, result: Document, *, is_stateless: bool) -> Document:
    """Return the answer to a message, with its result."""
    return {"jsonrpc": "2.0", "id": of, "result": {"resultType": "complete", **result} if is_stateless else result}


def dialect(error: PullbackError, instance: str) -> RenderedError:
    """Render the error of a request whose message could not be read."""
    if isinstance(error, Refused):
        return RenderedError(error.status, JSON, error.message())
    code, detail = NOT_JSON if isinstance(error, Malformed) else SERVER_ERROR, error.detail
    if isinstance(error, BodyTooLarge):
        detail += ": send large tensors to the route of the operation, POST /v1/ops/{op}/{operation}"
    return RenderedError(error.status, JSON, Refused(code, detail, data=error.document(instance)).message())


def version_of(headers: Mapping[bytes, bytes]) -> str:
    """Return the version that a request names, by default the first; raises ``Refused`` for an unknown one."""
    version = headers.get(b"mcp-protocol-version", WITH_BATCHES.encode()).decode("latin-1")
    if version not in VERSIONS:
        data = {"supported": VERSIONS, "requested": clip(version, MAX_GOT)}
        expected = f"MCP-Protocol-Version: expected one of {', '.join(VERSIONS)}, got {clip(version, MAX_GOT)!r}"
        raise Refused(UNKNOWN_VERSION, expected, data=data)
    return version


def read_messages(body: Body, version: str) -> tuple[list[Any], bool]:
    """Return the messages in a body, unread, and whether they are a batch; raises ``Malformed`` or ``Refused``."""
    document = parse(body)
    if not isinstance(document, list):
        return [document], False
    batch = cast("list[Any]", document)
    if version != WITH_BATCHES:
        raise Refused(INVALID, f"expected one message, got a batch, which version {version} does not have")
    if not 0 < len(batch) <= MAX_BATCH:
        raise Refused(INVALID, f"expected a batch of 1 to {MAX_BATCH} messages, got {len(batch)}")
    return batch, True


def read_message(document: Any, headers: Mapping[bytes, bytes], version: str) -> Message | None:
    """Return a message, ``None`` if it wants no answer: a notification, or an answer to what was never asked.

    Raises ``Refused`` for an invalid one.
    """
    if not isinstance(document, dict):
        raise Refused(INVALID, f"expected a message, which is an object, got {describe(document)}")
    fields = cast("Document", document)
    of = _id(fields)
    if fields.get("jsonrpc") != "2.0":
        raise Refused(INVALID, f'expected "jsonrpc": "2.0", got {describe(fields.get("jsonrpc"))}', of=of)
    if "method" not in fields and ("result" in fields or "error" in fields):
        return None
    method = fields.get("method")
    if not isinstance(method, str):
        raise Refused(INVALID, f"expected a method, which is a string, got {describe(method)}", of=of)
    if of is None:
        return None
    params = fields.get("params", {})
    if not isinstance(params, dict):
        raise Refused(INVALID_PARAMS, f"expected params, which are an object, got {describe(params)}", of=of)
    message = Message(of, method, cast("Document", params))
    if version == STATELESS:
        _check_stateless(message, headers)
    return message


def _id(fields: Document) -> Id | None:
    """Return the id of a message, ``None`` if it has none; raises ``Refused`` for an invalid one."""
    if "id" not in fields:
        return None
    of = fields["id"]
    if isinstance(of, bool) or not isinstance(of, str | int | float):
        raise Refused(INVALID, f"expected an id, which is a string or a number, got {describe(of)}")
    if (isinstance(of, str) and len(of) > MAX_ID) or (isinstance(of, float) and not math.isfinite(of)):
        raise Refused(INVALID, f"expected an id of at most {MAX_ID} characters, got {describe(of)}")
    return of


def _check_stateless(message: Message, headers: Mapping[bytes, bytes]) -> None:
    """Raise ``Refused`` for a message without its version and capabilities, or whose headers are those of another."""
    meta = message.params.get("_meta")
    fields = cast("Document", meta) if isinstance(meta, dict) else {}
    for name in ("protocolVersion", "clientCapabilities"):
        if _META + name not in fields:
            raise Refused(INVALID_PARAMS, f"expected {_META}{name} in params._meta, got none", of=message.id)
    expected = {"mcp-protocol-version": fields[f"{_META}protocolVersion"], "mcp-method": message.method}
    if message.method == "tools/call":
        expected["mcp-name"] = message.params.get("name")
    for name, value in expected.items():
        if (got := headers.get(name.encode(), b"").decode("latin-1")) != value:
            detail = f"header {name}: expected {describe(value)}, as in the message, got {clip(got, MAX_GOT)!r}"
            raise Refused(MISMATCH, detail, of=message.id)
