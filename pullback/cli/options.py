"""The options that several commands share."""

from typing import Annotated, TypeAlias

import typer

from pullback.client import Client
from pullback.transport import DEFAULT_TIMEOUT

Url: TypeAlias = Annotated[str | None, typer.Option(help="The service; else PULLBACK_URL, else port 8000 here.")]
Timeout: TypeAlias = Annotated[float, typer.Option(help="Seconds to wait for an answer.", min=0.001)]
OpName: TypeAlias = Annotated[str, typer.Argument(metavar="OP", help="The name of an op.")]
Given: TypeAlias = Annotated[list[str] | None, typer.Argument(metavar="NAME=VALUE", help="Tensors and attributes.")]
Names: TypeAlias = list[str] | None
Device: TypeAlias = Annotated[str | None, typer.Option(help="cpu, gpu:0, ...; else the service's choice.")]
Mode: TypeAlias = Annotated[str | None, typer.Option(help="graph, eager, xla or v1; else the op's default.")]
Dtype: TypeAlias = Annotated[str | None, typer.Option(help="Else that of the arrays, else the op's first.")]
Absolute: TypeAlias = Annotated[float, typer.Option(help="Allow this much beyond rounding.", min=0)]
Relative: TypeAlias = Annotated[float, typer.Option(help="The same, as a part of what is expected.", min=0)]


def client(ctx: typer.Context, url: str | None, timeout: float = DEFAULT_TIMEOUT) -> Client:
    """Return the client that the options ask for; the URL may stand before the command as well."""
    return Client(url or ctx.obj, timeout=timeout)
