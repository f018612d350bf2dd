"""Keys, passwords and headers: requests have them, and nothing that is written or printed does."""

import os
import secrets
from collections.abc import Mapping
from typing import NamedTuple

from pullback import addresses
from pullback.addresses import Url
from pullback.client import Client


class Credentials(NamedTuple):
    """The user name and password of a URL, the key, and the headers. Nothing here is for files, graphs or messages."""

    userinfo: str = ""
    api_key: str | None = None
    headers: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return "Credentials(...)"

    def client(self, url: str, timeout: float | None) -> Client:
        """Return a client whose requests have them."""
        if self.userinfo:
            url = url.replace("//", f"//{self.userinfo}@", 1)
        return Client(url, api_key=self.api_key, headers=dict(self.headers), timeout=timeout)


class Address(NamedTuple):
    """The URL of a service without user name and password, and what goes with its requests.

    ``handle`` is "" for credentials that the environment gave; others have a name, which says nothing.
    """

    url: str
    credentials: Credentials
    handle: str


_handles: dict[Credentials, str] = {}
_known: dict[str, Credentials] = {}


def given(url: str | None, api_key: str | None, headers: Mapping[str, str] | None) -> Address:
    """Return the address for ``url``, else for ``PULLBACK_URL``, else the default; raise ``BadArgument``.

    The key is ``api_key``, else ``PULLBACK_KEY``. A URL without user name takes that of ``PULLBACK_URL``, and its
    password, if scheme, host and port are the same.
    """
    environment = os.environ.get("PULLBACK_URL") or addresses.DEFAULT_URL
    public_url = addresses.address(url or environment, headers=headers).public_url
    origin, own = _split(url or environment)
    common, shared = _split(environment)
    inherited = shared if origin == common else ""
    items = {name.lower(): value for name, value in (headers or {}).items()}
    key = api_key or os.environ.get("PULLBACK_KEY") or None
    credentials = Credentials(own or inherited, key, tuple(sorted(items.items())))
    is_given = bool(api_key or headers or (own and own != inherited))
    return Address(public_url, credentials, handle(credentials) if is_given else "")


def handle(credentials: Credentials) -> str:
    """Return the name of credentials, which stands for them in this process and its forks alone."""
    # Threads that name the same credentials at a time agree: dict.setdefault is atomic.
    name = _handles.setdefault(credentials, secrets.token_hex(8))
    _known[name] = credentials
    return name


def restored(url: str | None, name: str) -> Address:
    """Return the address that was saved with a handle; in another process, with the credentials of the environment."""
    credentials, found = _known.get(name), given(url, None, None)
    return found if credentials is None else Address(found.url, credentials, name)


def _split(url: str) -> tuple[object, str]:
    """Return what two URLs of one service share, and the user name and password."""
    if addresses.UNIX_URL.fullmatch(url):
        return url, ""
    try:
        parsed = Url.parse(url)
    except ValueError:
        return None, ""
    return (parsed.scheme, parsed.host, parsed.port), parsed.userinfo
