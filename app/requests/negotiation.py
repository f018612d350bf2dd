"""Content negotiation: the media types of the body of a request and of its response."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from app.errors import NotAcceptable, UnsupportedMediaType

JSON = "application/json"
EVENTS, LINES = "text/event-stream", "application/x-ndjson"
SHORT_ACCEPT = 256
QUALITY = re.compile(r"q=(0(?:\.[0-9]*)?|1(?:\.0*)?)")

Headers = Mapping[bytes, bytes]


def content_type(headers: Headers, supported: Sequence[str] = (JSON,), default: str = "") -> str:
    """Return the media type of the body, ``default`` if the client does not name it.

    Raises ``UnsupportedMediaType`` for a media type that is not ``supported``.
    """
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1") or default
    if kind not in supported:
        raise UnsupportedMediaType(f"expected Content-Type: {' or '.join(supported)}, got {kind or 'none'}")
    return kind


def accepted(headers: Headers, offered: tuple[str, ...] = (JSON,)) -> str:
    """Return the media type of the response: the client's preferred one, the first offered if it has no preference.

    Raises ``NotAcceptable`` if the client accepts none of those offered.
    """
    accept = headers.get(b"accept", b"")
    return (_known_choice if len(accept) <= SHORT_ACCEPT else _choice)(accept, offered)


def _choice(header: bytes, offered: tuple[str, ...]) -> str:
    accept = header.decode("latin-1").lower()
    if accept.strip() in ("", "*/*"):
        return offered[0]
    parts = list[tuple[str, float]]()
    for part in "".join(accept.split()).split(","):
        kind, *parameters = part.split(";")
        qualities = [float(match[1]) for each in parameters if (match := QUALITY.fullmatch(each))]
        parts.append((kind, qualities[0] if qualities else 1.0))
    preferences = {media_type: _preference(media_type, parts) for media_type in offered}
    best = max(offered, key=preferences.__getitem__)
    if not preferences[best][0]:
        raise NotAcceptable(f"expected Accept: {' or '.join(offered)}, got {accept}")
    return best


# There are few different headers, and a client sends the same one each time.
_known_choice = lru_cache(maxsize=256)(_choice)


def _preference(media_type: str, parts: Sequence[tuple[str, float]]) -> tuple[float, int, int]:
    """Return the client's preference for a type: its quality, then how specific and how early its range is."""
    for breadth, name in enumerate((media_type, f"{media_type.partition('/')[0]}/*", "*/*")):
        for position, (kind, quality) in enumerate(parts):
            if kind == name:
                return quality, -breadth, -position
    return 0.0, 0, 0
