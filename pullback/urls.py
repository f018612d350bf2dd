"""URLs of servers: their parts, in the form in which requests send them."""

import ipaddress
import re
from typing import NamedTuple, Self
from urllib.parse import quote, urlsplit

DEFAULT_PORTS = {"http": 80, "https": 443}
IPV4 = re.compile(r"[0-9]+(\.[0-9]+){3}")
PLAIN = "!$&'()*+,;=:@/%"
"""What a path may have besides letters and digits; "%" begins what is encoded already."""


class Url(NamedTuple):
    """A URL of a server, without query and fragment. ``userinfo`` is percent-encoded and may be secret."""

    scheme: str
    userinfo: str
    host: str
    port: int
    path: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the parts of a URL; raise ``ValueError``, or ``UnicodeError`` for a host that no DNS can have."""
        if any(c <= " " or c == "\x7f" for c in text):
            raise ValueError("it has a space or a control character")
        text.encode()  # raises for half of a surrogate pair
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
        host = host.encode("idna").decode()
        if IPV4.fullmatch(host):
            ipaddress.IPv4Address(host)
        userinfo = parts.netloc.rpartition("@")[0]
        path = re.sub(r"%(?![0-9A-Fa-f]{2})", "%25", quote(parts.path, safe=PLAIN))
        return cls(parts.scheme, userinfo, host, DEFAULT_PORTS.get(parts.scheme, 0) if port is None else port, path)

    @property
    def netloc(self) -> str:
        """The host, with the port unless it is that of the scheme."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS.get(self.scheme) else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.netloc}{self.path}"
