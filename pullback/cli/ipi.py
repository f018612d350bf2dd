"""``pullback ipi``: compute forces for i-PI with an op of a service."""

from contextlib import closing
from typing import Annotated

import typer

from pullback.addresses import DEFAULT_TIMEOUT
from pullback.cli.names import arguments
from pullback.cli.options import Assignments, Mode, OpName, Timeout, Url, client
from pullback.counted import counted
from pullback.errors import BadArgument
from pullback.ipi_driver import drive
from pullback.ipi_driver import species as species_of
from pullback.ipi_socket import Channel, ipi_address
from pullback.structures import Potential

DEFAULT_WAIT = 60.0


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
