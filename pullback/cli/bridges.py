"""``pullback ipi`` and ``pullback philote``: an op for other programs, by their protocols."""

import asyncio
import ipaddress
from collections.abc import Iterable
from contextlib import closing
from typing import Annotated

import typer

from pullback.addresses import DEFAULT_TIMEOUT
from pullback.cli.names import arguments, split
from pullback.cli.options import Assignments, Mode, Names, OpName, Timeout, Url, client
from pullback.errors import BadArgument
from pullback.ipi_driver import drive
from pullback.ipi_driver import species as species_of
from pullback.ipi_socket import Channel, ipi_address
from pullback.remotes import Jacobians, Remote
from pullback.structures import Potential
from pullback.wording import counted

DEFAULT_WAIT = 60.0
DEFAULT_LISTEN, LAST_PORT = "127.0.0.1:50051", 65535


def ipi(
    ctx: typer.Context,
    op: OpName,
    attrs: Assignments = None,
    *,
    species: Annotated[str, typer.Option(help="An element for all atoms, a formula (Ar4Kr2), or @init.xyz.")],
    unix: Annotated[str | None, typer.Option(metavar="NAME", help="The Unix socket of i-PI: its name or path.")] = None,
    host: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="The address and port of i-PI.")] = None,
    mode: Mode = None,
    wait: Annotated[float, typer.Option(help="Seconds to wait until i-PI is there.", min=0, max=86400)] = DEFAULT_WAIT,
    url: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Compute forces for i-PI: pullback ipi pair_energy cutoff=8 --unix argon --species Ar.

    The op is an energy of positions, cell, species and strain, such as docs/examples/forces/pair_energy.py. i-PI sends
    no species: --species has them in the order of the atoms. A batch of i-PI is one request.

    Runs until i-PI ends; exits with 2 if a request fails or the connection closes before.
    """
    if (unix is None) == (host is None):
        raise BadArgument("expected --unix NAME or --host HOST:PORT, one of them")
    address, atoms = ipi_address(f"unix:{unix}" if host is None else host), species_of(species)
    with client(ctx, url, timeout) as service:
        found = service.op(op)
        given = arguments(found.contract(), "forward", attrs or [])
        if inputs := [name for field in given.keys() - {"attrs"} for name in given[field]]:
            raise BadArgument(f"{inputs[0]}: expected only attributes, since i-PI sends the inputs")
        potential = Potential(found, given.get("attrs"), mode)
        with closing(Channel(address.connect(wait), f"the i-PI server at {address}", timeout)) as channel:
            done = drive(channel, potential, atoms)
    print(f"i-PI ended after {counted(done, 'structure')}")


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
