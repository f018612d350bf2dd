"""What a client prefers, by the header ``Prefer`` (RFC 7240)."""

from collections.abc import Mapping


def prefers(headers: Mapping[bytes, bytes], preference: bytes) -> bool:
    """Return whether the headers of a request have a preference, given in lower case."""
    preferences = headers.get(b"prefer")
    return preferences is not None and any(
        each.partition(b";")[0].strip() == preference for each in preferences.lower().split(b",")
    )
