"""The options that several commands share."""

from math import inf
from typing import Annotated, TypeAlias

import typer

from pullback.addresses import DEFAULT_TIMEOUT
from pullback.cli.values import number
from pullback.client import Client


def _tolerance(value: str | float) -> float:
    """Return a tolerance, which the default already is."""
    try:
        tolerance = number(str(value))
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(str(error)) from None
    if not 0 <= tolerance < inf:
        raise typer.BadParameter(f"expected a finite number, at least 0, got {value}")
    return float(tolerance)


Url: TypeAlias = Annotated[str | None, typer.Option(help="Service URL; else PULLBACK_URL, else port 8000 here.")]
Timeout: TypeAlias = Annotated[float, typer.Option(help="Seconds to wait for a response.", min=0.001)]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, as the service sent it.")]
OpName: TypeAlias = Annotated[str, typer.Argument(metavar="OP", help="Name of the op.")]
Assignments: TypeAlias = Annotated[
    list[str] | None, typer.Argument(metavar="NAME=VALUE", help="Tensors and attributes.")
]
Names: TypeAlias = list[str] | None
Device: TypeAlias = Annotated[str | None, typer.Option(help="cpu, gpu:0, ...; else the service's choice.")]
Mode: TypeAlias = Annotated[str | None, typer.Option(help="graph, eager, xla or v1; else the op's default.")]
Dtype: TypeAlias = Annotated[str | None, typer.Option(help="A dtype; else that of the arrays, else the op's first.")]
Absolute: TypeAlias = Annotated[
    float, typer.Option(help="Absolute error to allow beyond rounding.", parser=_tolerance, metavar="<float>")
]
Relative: TypeAlias = Annotated[
    float, typer.Option(help="Relative error to allow beyond rounding.", parser=_tolerance, metavar="<float>")
]


def client(ctx: typer.Context, url: str | None, timeout: float = DEFAULT_TIMEOUT) -> Client:
    """Return a client for the options; the URL may also stand before the command."""
    return Client(url or ctx.obj, timeout=timeout)
