"""The options that several commands share, and groups of commands that suggest one for a misspelt name."""

from math import inf
from typing import Annotated, Any, TypeAlias

import typer
from typer.core import TyperGroup

from pullback.addresses import DEFAULT_TIMEOUT
from pullback.cli.names import did_you_mean
from pullback.cli.values import number
from pullback.client import Client
from pullback.errors import BadArgument


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


class Suggesting(TyperGroup):
    """A group of commands that suggests one for a misspelt name, or lists them."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command of the arguments; raise ``BadArgument`` for an unknown one."""
        name, known = args[0], self.list_commands(ctx)
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            hint = did_you_mean(name, known) or f"; the commands are {', '.join(known)}"
            raise BadArgument(f"no command {name!r}{hint}")
        return super().resolve_command(ctx, args)
