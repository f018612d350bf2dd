"""Other people's models: ``umbridge+http://host:4242/model``, ``ase+module:factory``, ``ipi+unix:name``, ..."""

import re
import typing
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Literal, NamedTuple, TypeAlias, cast
from urllib.parse import unquote

from pullback.addresses import public
from pullback.errors import BadArgument
from pullback.gradcheck.function import Function
from pullback.gradcheck.of.ase import AseModel
from pullback.gradcheck.of.called import LIBRARIES
from pullback.gradcheck.of.ipi import IpiModel
from pullback.gradcheck.of.json_server import JsonServer
from pullback.gradcheck.of.local import Given
from pullback.gradcheck.of.named import named_function
from pullback.gradcheck.of.openinference import OpenInferenceModel
from pullback.gradcheck.of.tesseract import TesseractModel
from pullback.gradcheck.of.umbridge import UmBridgeModel
from pullback.wording import near_names

Protocol: TypeAlias = Literal["umbridge", "tesseract", "oip", "ase", "ipi", "pullback", "numpy", "torch", "jax", "tf"]
"""``pullback`` is that of a service of ops, which checks itself; ``pullback record`` asks it to."""
TARGET = re.compile(r"([a-z][a-z0-9]*)\+(https?://.*)|(ase|ipi|numpy|torch|jax|tf)\+(.*)")
UNKNOWN = re.compile(r"(\w+)\+([^/]*:.*)")
UNPREFIXED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
FUNCTIONS = ("numpy", "torch", "jax", "tf")
NOTHING = Given()
PROTOCOLS: tuple[Protocol, ...] = ("umbridge", "tesseract", "oip")


class Checkable(typing.Protocol):
    """What can be checked, by its name: that is its text."""

    @property
    def protocol(self) -> Protocol:
        """The protocol of a server, or the library of a function."""
        ...

    def connect(self, opened: ExitStack, timeout: float, config: Mapping[str, Any], given: Given) -> Function:
        """Return the function; ``opened`` closes its connections. Raises ``PullbackError`` if there is none."""
        ...


class Target(NamedTuple):
    """A protocol, and the URL that follows it; of i-PI an address, of ASE and libraries a module and its function."""

    protocol: Protocol
    url: str

    def __str__(self) -> str:
        return f"{self.protocol}+{public(self.url)}"

    @property
    def parts(self) -> tuple[str, str]:
        """The URL of the server, and the name of its model, "" without one."""
        url = self.url.rstrip("/")
        root, _, name = url.rpartition("/")
        if self.protocol == "tesseract" or root.endswith("/"):  # a URL without a path
            return url, ""
        return root, unquote(name)

    def connect(self, opened: ExitStack, timeout: float, config: Mapping[str, Any], given: Given = NOTHING) -> Function:
        """Return the model there; ``opened`` closes its connections. Raises ``PullbackError`` if there is none."""
        if self.protocol in FUNCTIONS:
            return named_function(self.protocol, self.url, given, timeout)
        if config and self.protocol in ("tesseract", "ase"):
            what = "a Tesseract" if self.protocol == "tesseract" else "a calculator"
            raise BadArgument(f"--config: expected none, since {what} has only inputs: give all with --inputs")
        if self.protocol == "ase":
            return AseModel(self.url)
        if self.protocol == "ipi":
            return IpiModel(self.url, opened, timeout, config)
        root, name = self.parts
        server = opened.enter_context(JsonServer(root, timeout))
        if self.protocol == "tesseract":
            return TesseractModel(server)
        if self.protocol == "umbridge":
            return UmBridgeModel(server, name, config)
        return OpenInferenceModel(server, name, config)


def server_target(text: str) -> Target | None:
    """Return a server that a target of ``pullback check`` names, ``None`` if it names none.

    Raises ``BadArgument`` for a protocol that is unknown, for a function without one, and for a file of functions.
    """
    if (found := TARGET.fullmatch(text)) is None:
        if UNPREFIXED.fullmatch(text):
            choices = ", ".join(f"{library}+{_in_module(text)}" for library in FUNCTIONS)
            raise BadArgument(f"expected the library of a function, got {text!r}: write one of {choices}")
        if unknown := UNKNOWN.fullmatch(text):
            raise _unknown_protocol(text, unknown[1], unknown[2])
        return None
    if found[3]:
        if found[3] != "ipi" and found[4] != _in_module(found[4]):
            raise BadArgument(f"expected a module, got a file in {text}: write {found[3]}+{_in_module(found[4])}")
        return Target(cast(Protocol, found[3]), found[4])
    if found[1] not in PROTOCOLS:
        raise _unknown_protocol(text, found[1], found[2])
    return Target(cast(Protocol, found[1]), found[2])


def _in_module(text: str) -> str:
    """Return ``MODULE:NAME`` for ``MODULE.py:NAME``."""
    where, colon, name = text.partition(":")
    if not where.endswith(".py"):
        return text
    return f"{where.removesuffix('.py').removeprefix('./').replace('/', '.')}{colon}{name}"


def _unknown_protocol(text: str, protocol: str, rest: str) -> BadArgument:
    expected = ", ".join(f"{known}+http" for known in PROTOCOLS)
    near = near_names(protocol, [*PROTOCOLS, *FUNCTIONS, "ase", "ipi", *LIBRARIES], 1)
    hint = f"; did you mean {LIBRARIES.get(near[0], near[0])}+{_in_module(rest)}?" if near else ""
    return BadArgument(
        f"expected a URL that begins with one of {expected}, ase+MODULE:FACTORY, ipi+unix:NAME or ipi+HOST:PORT, "
        f"{'+, '.join(FUNCTIONS)}+MODULE:FUNCTION, got {public(text)!r}{hint}"
    )
