"""``pullback philote``: serve an op as an explicit discipline of Philote."""

import asyncio
import ipaddress
from collections.abc import Iterable
from typing import Annotated

import typer

from pullback.addresses import DEFAULT_TIMEOUT
from pullback.cli.names import arguments, split
from pullback.cli.options import Assignments, Mode, Names, OpName, Timeout, Url
from pullback.errors import BadArgument
from pullback.remotes import Jacobians, Remote

DEFAULT_LISTEN, LAST_PORT = "127.0.0.1:50051", 65535


def philote(
    ctx: typer.Context,
    op: OpName,
    attrs: Assignments = None,
    *,
    shape: Annotated[Names, typer.Option(metavar="NAME=2,3", help="The shape of an input; repeatable.")] = None,
    unit: Annotated[Names, typer.Option(metavar="NAME=UNIT", help="The unit of a variable; repeatable.")] = None,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="A port of this machine, or 0.")] = DEFAULT_LISTEN,
    mode: Mode = None,
    url: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Serve an op to clients of Philote (MDO-Standards): pullback philote safe_norm --shape x=2.

    The op is an explicit discipline, with its Jacobian. Attributes, shapes and units are fixed here: clients share the
    server. It listens on this machine only, because Philote has no keys.

    Runs until Ctrl-C or SIGTERM; exits with 2 if the op does not fit.
    """
    address = _address(listen)
    try:
        from pullback.philote import Discipline, serve  # noqa: PLC0415 - only this command needs gRPC
    except ImportError as error:
        raise BadArgument(f"expected philote-mdo: pip install 'pullback[philote]' ({error})") from error
    remote = Remote(op, url or ctx.obj, None, mode, timeout=timeout)
    given = arguments(remote.contract(), "forward", attrs or [])
    if inputs := [name for field in given.keys() - {"attrs"} for name in given[field]]:
        raise BadArgument(f"{inputs[0]}: expected only attributes, since clients send the inputs")
    if "attrs" in given:
        remote = remote.with_attrs(given["attrs"])
    shapes = {name: _shape(name, text) for name, text in map(split, shape or ())}
    discipline = Discipline(Jacobians.of(remote, shapes), dict(map(split, unit or ())), timeout)
    host = listen.rpartition(":")[0]
    asyncio.run(serve(discipline, address, lambda port: print(f"{op} for Philote on {host}:{port}", flush=True)))


def _address(text: str) -> str:
    """Return an address of this machine; raise ``BadArgument`` for any other."""
    host, _, port = text.rpartition(":")
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        is_loopback = False
    if not (is_loopback and port.isascii() and port.isdigit() and int(port) <= LAST_PORT):
        raise BadArgument(f"--listen: expected HOST:PORT of this machine, such as {DEFAULT_LISTEN}, got {text[:80]!r}")
    return text


def _shape(name: str, text: str) -> Iterable[int]:
    sizes = text.split(",")
    if not all(size.isascii() and size.isdigit() for size in sizes):
        raise BadArgument(f"--shape {name}: expected sizes such as 2,3, got {text[:80]!r}")
    return tuple(map(int, sizes))
