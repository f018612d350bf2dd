"""The target of a request: a path, or the whole URL that a client sends to a proxy."""

import httptools

from app.errors import Malformed, clip


def path_of(target: bytes) -> bytes:
    """Return the path and the query of a target that is a whole URL; raise ``Malformed`` for other targets."""
    try:
        url = httptools.parse_url(target)
    except httptools.HttpParserInvalidURLError:
        url = None
    if url is None or not url.host:
        got = clip(repr(target.decode("latin-1")), 80)
        raise Malformed(f"expected a path that begins with '/', or a URL, as the target of the request, got {got}")
    return (url.path or b"/") + (b"?" + url.query if url.query else b"")
