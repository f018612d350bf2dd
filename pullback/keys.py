"""Keys: how they are made, and how the service's file of keys names them."""

import hashlib
import re
import secrets

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
PREFIX = "pullback_"
"""The start of every key made here, so that scanners for leaked secrets can find them."""
RANDOM_BYTES = 32


def new_key() -> str:
    """Return a new random key of 256 bits."""
    return PREFIX + secrets.token_urlsafe(RANDOM_BYTES)


def line_for(name: str, key: str) -> str:
    """Return the line of the file of keys, ``name:sha256``; raise ``ValueError`` for an invalid name."""
    if not NAME.fullmatch(name):
        expected = "expected a name of at most 64 letters, digits, '.', '_' and '-', a letter or a digit first"
        raise ValueError(f"{expected}, got {name[:80]!r}")
    return f"{name}:{hashlib.sha256(key.encode()).hexdigest()}"
