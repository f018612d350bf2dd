"""Send recorded requests, in their order, and read the answers."""

import base64
import json
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

# A request is a line of a table: method, path, body, and what else there is. ``{id}`` in a path
# is the last id of a job, or name of a graph, of an answer.
Entry = dict[str, Any]
# Headers of an answer that are promised.
HEADERS = ("allow", "location", "preference-applied", "www-authenticate")
JSON = "application/json"


def replay(client: httpx.Client, entries: Iterable[Entry]) -> Iterator[tuple[Entry, Entry]]:
    """Yield each request with its answer: status, kind, promised headers and body."""
    last = ""
    for entry in entries:
        response = client.request(
            entry["method"],
            entry["path"].replace("{id}", last),
            content=_content(entry),
            headers={"content-type": JSON, **entry.get("headers", {})} if "body" in entry else entry.get("headers"),
        )
        answer = answer_of(response)
        if "depth" in entry:
            answer["body"] = pruned(answer["body"], entry["depth"])
        if entry["path"] == "/v1/graphs" and answer["status"] == httpx.codes.CREATED:
            # Another test may have posted it.
            answer |= {"status": 200, "headers": []}
        last = _id_of(answer["body"]) or last
        yield entry, answer


def _content(entry: Entry) -> bytes | None:
    body = entry.get("body")
    if isinstance(body, str):
        return base64.b64decode(body)
    return None if body is None else json.dumps(body).encode()


def _id_of(body: Any) -> str | None:
    """Return the id of a job, or the name of a graph."""
    return body.get("id", body.get("name") if "nodes" in body else None) if isinstance(body, dict) else None


def answer_of(response: httpx.Response) -> Entry:
    """Return what is compared of an answer."""
    kind = response.headers.get("content-type", "").partition(";")[0]
    return {
        "status": response.status_code,
        "kind": kind,
        "headers": sorted(name for name in HEADERS if name in response.headers),
        "body": body_of(kind, response.content),
    }


def body_of(kind: str, content: bytes) -> Any:
    """Return a body as a document: tensors in safetensors, metrics and events too."""
    if kind.endswith("json"):
        return json.loads(content)
    if kind == "application/vnd.safetensors":
        start = 8 + struct.unpack("<Q", content[:8])[0]
        header = json.loads(content[8:start])
        header.pop("__metadata__", None)
        return {
            name: {**tensor, "bytes": base64.b64encode(content[start:][slice(*tensor["data_offsets"])]).decode()}
            for name, tensor in header.items()
        }
    if kind == "text/event-stream":
        events = (block.splitlines() for block in content.decode().split("\n\n") if block.strip())
        names = ({line.partition(": ")[0]: line.partition(": ")[2] for line in lines}["event"] for lines in events)
        return list(dict.fromkeys(names))
    if kind == "text/plain" and content.startswith(b"# HELP"):
        families = text_string_to_metric_families(content.decode())
        return {family.name: {"type": family.type} for family in families}
    return None


def pruned(document: Any, depth: int) -> Any:
    """Return a document with only its first levels: deeper ones are empty."""
    if isinstance(document, dict):
        return {name: pruned(value, depth - 1) for name, value in document.items()} if depth else {}
    if isinstance(document, list):
        return [pruned(value, depth - 1) for value in document] if depth else []
    return document
