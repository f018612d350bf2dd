"""What a client prefers, by the header ``Prefer`` (RFC 7240)."""

import re

RESPOND_ASYNC, PROVENANCE = b"respond-async", b"provenance"
_KNOWN = re.compile(rb"(?:^|,)[ \t]*(respond-async|provenance)[ \t]*(?=[;,]|$)", re.IGNORECASE)
_NONE = frozenset[bytes]()


def preferences(header: bytes) -> frozenset[bytes]:
    """Return the known preferences in a header."""
    return frozenset(map(bytes.lower, _KNOWN.findall(header))) if header else _NONE
