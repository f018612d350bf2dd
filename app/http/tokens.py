"""Tokens of an identity provider (JWT, RFC 7519, as OpenID Connect and OAuth 2 give them) in place of keys."""

import hashlib
import re
import time
from collections import OrderedDict
from typing import Any, cast

import jwt

from app.errors import Overloaded, Unauthorized, clip
from app.http.token_keys import TokenKey, TokenKeys
from app.settings import Settings
from pullback.keys import SCOPES, Grant

# By how much the clocks of the provider and of the service may differ.
LEEWAY_S = 30
# How many verified tokens are kept, and how long: a verification takes a hundred microseconds.
KEPT, KEPT_S = 4096, 300.0
REQUIRED = ("exp", "iss", "aud", "sub")
# A scope of a token counts with or without one of these before it.
PREFIXES = ("pullback:", "pullback.")
NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
RETRY_S = 5


class Tokens:
    """Verifies tokens, and keeps those that it has verified until they expire or the provider's keys change."""

    def __init__(self, settings: Settings) -> None:
        """Read the keys of the provider; raises ``CannotStart`` if they are in a file that is invalid."""
        self._issuer, self._audience = settings.oidc_issuer, settings.oidc_audience
        self._keys, self._verified = TokenKeys(settings.oidc_jwks), OrderedDict[bytes, tuple[Grant, float]]()
        self._keys.on_change = self._forget

    def grant_of(self, token: bytes) -> Grant:
        """Return what a token allows; raises ``Unauthorized`` for an invalid one, ``Overloaded`` before keys are known.

        The caller looks at the time that the token is valid.
        """
        digest, now = hashlib.sha256(token).digest(), time.monotonic()
        verified = self._verified
        if (kept := verified.get(digest)) is not None and now < kept[1]:
            return kept[0]
        grant = self._verify(token)
        verified[digest] = grant, now + KEPT_S
        if len(verified) > KEPT:
            verified.popitem(last=False)
        return grant

    def _forget(self) -> None:
        """Verify all tokens anew, because the keys have changed."""
        self._verified = OrderedDict[bytes, tuple[Grant, float]]()

    def _verify(self, token: bytes) -> Grant:
        if not self._keys.is_known:
            raise Overloaded("the keys of the identity provider are not known yet: try again", retry_after_s=RETRY_S)
        try:
            header = jwt.get_unverified_header(token)
            key = self._key_of(header)
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[*key.algorithms],
                issuer=self._issuer,
                audience=self._audience,
                leeway=LEEWAY_S,
                options={"require": [*REQUIRED]},
            )
            name, until = _name_of(claims["sub"]), float(claims["exp"]) + LEEWAY_S
        except jwt.ExpiredSignatureError:
            raise Unauthorized("expected a valid token, got an expired one; get a new one", refusal="expired") from None
        except jwt.InvalidAudienceError:
            raise _invalid(f"one for the audience {self._audience}", "one for another") from None
        except jwt.InvalidIssuerError:
            raise _invalid(f"one of {self._issuer}", "one of another issuer") from None
        except jwt.ImmatureSignatureError:
            raise _invalid("one that is valid now", "one for later: compare the clocks") from None
        except jwt.MissingRequiredClaimError as error:
            raise _invalid(f"one with the claims {', '.join(REQUIRED)}", f"none with {error.claim}") from None
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
            raise _invalid("one that the identity provider has signed", "another") from None
        return Grant("", name, b"", until=until, may=_scopes_of(claims))

    def _key_of(self, header: dict[str, Any]) -> TokenKey:
        """Return the key that a token names; raises ``Unauthorized`` for another one."""
        keys, name = self._keys.by_id, header.get("kid")
        key = keys.get(name) if isinstance(name, str) else next(iter(keys.values())) if len(keys) == 1 else None
        if key is None:
            self._keys.want()
            got = f"one with the key {clip(name, 80)!r}" if isinstance(name, str) else "one without a key id"
            raise _invalid("one with a key of the identity provider", f"{got}; new keys are read within a minute")
        if header.get("alg") not in key.algorithms:
            raise _invalid(f"one signed by {' or '.join(key.algorithms)}", "one by another algorithm")
        return key


def _invalid(expected: str, got: str) -> Unauthorized:
    return Unauthorized(f"invalid token: expected {expected}, got {got}")


def _name_of(subject: object) -> str:
    """Return the name of a subject for logs and metrics; no key of the file has such a name."""
    if isinstance(subject, str) and NAME.fullmatch(subject):
        return f"oidc:{subject}"
    return f"oidc:{hashlib.blake2b(str(subject).encode(errors='replace'), digest_size=8).hexdigest()}"


def _scopes_of(claims: dict[str, Any]) -> frozenset[str]:
    """Return the scopes of a token among ours: those of ``scope``, a text, or of ``scp``, a list or a text."""
    given: Any = claims.get("scope", claims.get("scp", ""))
    names = cast("list[Any]", given.split() if isinstance(given, str) else given if isinstance(given, list) else [])
    bare = [_without_prefix(name) for name in names if isinstance(name, str)]
    return frozenset(bare) & SCOPES.keys()


def _without_prefix(name: str) -> str:
    return next((name.removeprefix(prefix) for prefix in PREFIXES if name.startswith(prefix)), name)
