"""The public keys of an identity provider (a JWKS, RFC 7517), from a file or a URL, which a thread reads again.

No request waits for them. While they cannot be read, the last ones stay valid.
"""

import json
import logging
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import jwt

from app.errors import CannotStart

logger = logging.getLogger("pullback")

# How often the keys are read again, and how long after the last time at the earliest, for a token with an unknown key.
EVERY_S, AFTER_S = 300.0, 30.0
# How long a read may take, and one step of it; the most bytes and keys.
READ_S, STEP_S = 10.0, 5.0
MAX_BYTES, MAX_KEYS = 1 << 20, 100
LEAST_RSA_BITS = 2048
# What a key of a type, or on a curve, may verify: never a shared secret, and no key by the algorithm of another type.
ALGORITHMS: Mapping[str, Sequence[str]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("EdDSA",),
    "Ed448": ("EdDSA",),
}
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class TokenKey(NamedTuple):
    """A public key, and the algorithms that it may verify."""

    key: Any
    algorithms: Sequence[str]


class TokenKeys:
    """The keys by their ids; ``is_known`` once they have been read. ``on_change`` is called with other ones."""

    def __init__(self, source: str) -> None:
        """Read a file now, and a URL soon; raises ``CannotStart`` for a file without a valid key."""
        self.on_change: Callable[[], None] = lambda: None
        self.by_id: Mapping[str, TokenKey] = {}
        self.is_known, self._source, self._wanted, self._reported = False, source, threading.Event(), ""
        self._is_url = "://" in source
        if self._is_url:
            url = urlsplit(source)
            if url.scheme != "https" and not (url.scheme == "http" and url.hostname in LOOPBACK):
                raise CannotStart(f"PULLBACK_OIDC_JWKS: expected a file or an https URL, got {source}")
        else:
            try:
                self._keep(read_keys(_content_of_file(Path(source))))
            except (OSError, ValueError) as error:
                raise CannotStart(f"PULLBACK_OIDC_JWKS: {_reason(source, error)}") from error
        threading.Thread(target=self._run, name="jwks", daemon=True).start()

    def want(self) -> None:
        """Have the keys read again soon, because a token names an unknown one."""
        self._wanted.set()

    def _run(self) -> None:
        is_first = self._is_url
        while True:
            if not is_first:
                began = time.monotonic()
                self._wanted.wait(EVERY_S)
                # Whatever tokens come, the keys are read twice in a minute at most.
                time.sleep(max(0.0, AFTER_S - (time.monotonic() - began)))
                self._wanted.clear()
            is_first = False
            try:
                self._keep(read_keys((_content_of_url if self._is_url else _content_of_file)(self._place)))
            except (OSError, ValueError, HTTPException) as error:
                self._report(_reason(self._source, error))
            except Exception:
                logger.exception("PULLBACK_OIDC_JWKS: the keys cannot be read; the previous ones stay valid")

    @property
    def _place(self) -> Any:
        return self._source if self._is_url else Path(self._source)

    def _keep(self, keys: Mapping[str, TokenKey]) -> None:
        if not self.is_known or self._reported:
            logger.info("PULLBACK_OIDC_JWKS: read %d keys of the identity provider", len(keys))
        has_changed = self.is_known and keys != self.by_id
        self.by_id, self.is_known, self._reported = keys, True, ""
        if has_changed:
            self.on_change()

    def _report(self, why: str) -> None:
        """Log why the keys cannot be read, once for each reason."""
        if why != self._reported:
            self._reported = why
            rest = "the previous keys stay valid" if self.is_known else "until they can be, no token is accepted"
            logger.error("PULLBACK_OIDC_JWKS: %s; %s", why, rest)


def read_keys(content: bytes) -> Mapping[str, TokenKey]:
    """Return the keys of a document by their ids; those that cannot verify a token are left out.

    Raises ``ValueError`` if there is none.
    """
    try:
        document: Any = json.loads(content)
    except RecursionError:
        raise ValueError("expected a JWKS, got a document that is nested too deep") from None
    listed: Any = cast("dict[str, Any]", document).get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list) or len(cast("list[Any]", listed)) > MAX_KEYS:
        raise ValueError(f"expected a JWKS with at most {MAX_KEYS} keys")
    found: dict[str, TokenKey] = {}
    for each in cast("list[Any]", listed):
        if isinstance(each, dict) and (key := _key_of(cast("dict[str, Any]", each))) is not None:
            found[str(cast("dict[str, Any]", each).get("kid", ""))] = key
    if not found:
        raise ValueError(
            "expected a JWKS with a public key for signatures (RSA from 2048 bits, EC or Ed25519), got none"
        )
    return found


def _key_of(document: dict[str, Any]) -> TokenKey | None:
    kind, curve, own = document.get("kty"), document.get("crv"), document.get("alg")
    allowed = ALGORITHMS.get(str(kind if kind == "RSA" else curve), ())
    algorithms = tuple(name for name in allowed if own in (None, name))
    if kind not in ("RSA", "EC", "OKP") or not algorithms or document.get("use", "sig") != "sig":
        return None
    public = {name: value for name, value in document.items() if name in ("kty", "crv", "n", "e", "x", "y")}
    try:
        key: Any = jwt.PyJWK(public, algorithms[0]).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if kind == "RSA" and key.key_size < LEAST_RSA_BITS:
        return None
    return TokenKey(key, algorithms)


def _content_of_file(path: Path) -> bytes:
    with path.open("rb") as file:
        return _bounded(file.read(MAX_BYTES + 1))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: it could lead away from TLS, or into the network of the service."""

    def redirect_request(  # noqa: PLR0917 - as in the base class
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        """Return nothing: the redirection becomes an error."""
        del req, fp, code, msg, headers, newurl


def _content_of_url(url: str) -> bytes:
    until, content = time.monotonic() + READ_S, b""
    opener = urllib.request.build_opener(_NoRedirect)
    with opener.open(urllib.request.Request(url, headers={"Accept": "application/json"}), timeout=STEP_S) as response:
        while piece := response.read1(1 << 16):
            content = _bounded(content + piece)
            if time.monotonic() > until:
                raise TimeoutError(f"expected the keys in {READ_S:g} s")
    return content


def _bounded(content: bytes) -> bytes:
    if len(content) > MAX_BYTES:
        raise ValueError(f"expected at most {MAX_BYTES} bytes, got more")
    return content


def _reason(source: str, error: Exception) -> str:
    return f"cannot read the keys of {source}: {error}"
