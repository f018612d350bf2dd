"""A request in parts, which the attacks change, and as bytes."""

import json
from dataclasses import dataclass, replace
from typing import Any

JSON = "application/json"
SAFETENSORS = "application/vnd.safetensors"
OCTETS = "application/octet-stream"


@dataclass(frozen=True)
class Request:
    """A request. ``headers`` does not have ``Host`` and ``Content-Length``; ``document`` is the JSON of its body."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    document: Any = None

    def encode(self, *more: str) -> bytes:
        """Return the bytes, with further header lines."""
        return self.head(*more, f"content-length: {len(self.body)}") + self.body

    def head(self, *more: str) -> bytes:
        """Return the request line and the headers, without a length."""
        lines = [f"{self.method} {self.path} HTTP/1.1", "host: localhost"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        return "\r\n".join([*lines, *more, "", ""]).encode("latin-1", "replace")

    def with_body(self, body: bytes) -> "Request":
        """Return the request with other bytes in its body."""
        return replace(self, body=body, document=None)


def post(path: str, document: Any, **headers: str) -> Request:
    """Return a POST of a JSON document; header names have ``_`` in place of ``-``."""
    named = {"content_type": JSON} | headers
    fields = tuple((name.replace("_", "-"), value) for name, value in named.items())
    return Request("POST", path, fields, json.dumps(document).encode(), document)
