"""``pullback call``: ask for a value or a derivative."""

from pathlib import Path
from typing import Annotated, Any

import typer

from pullback.cli.console import console
from pullback.cli.names import TAKES, arguments
from pullback.cli.options import Device, Dtype, Given, Mode, Names, OpName, Timeout, Url, client
from pullback.cli.results import Entry, as_json, entries, print_entries, save
from pullback.errors import BadArgument
from pullback.transport import DEFAULT_TIMEOUT

OPTIONS = {
    "forward": (),
    "gradients": ("order", "wrt"),
    "vjp": ("wrt", "outputs", "batched"),
    "jvp": ("batched",),
    "jacobian": ("of", "wrt"),
    "hvp": ("wrt", "batched"),
    "hessian": ("wrt", "diagonal"),
}
"""The operations, and the options that each takes."""


def call(
    ctx: typer.Context,
    op: OpName,
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help=", ".join(OPTIONS))],
    given: Given = None,
    *,
    dtype: Dtype = None,
    mode: Mode = None,
    device: Device = None,
    order: Annotated[int | None, typer.Option(help="gradients: the highest order, 1 to 4.")] = None,
    wrt: Annotated[Names, typer.Option(help="An input to differentiate by; may be repeated.")] = None,
    of: Annotated[Names, typer.Option(help="jacobian: an output; may be repeated.")] = None,
    diagonal: Annotated[bool, typer.Option("--diagonal", help="hessian: its diagonal alone.")] = False,
    outputs: Annotated[bool, typer.Option("--outputs", help="vjp: the outputs as well.")] = False,
    batched: Annotated[bool, typer.Option("--batched", help="vjp, jvp, hvp: many directions at once.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the arrays into this .npz file.")] = None,
    as_text: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    url: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Ask for a value or a derivative: pullback call square vjp x=1,2,3 dy=@dy.npy.

    NAME is an input (x), an attribute, the cotangent of an output (dy), the tangent of an input (tx) or a vector for it
    (vx or ddx). A field before it leaves no doubt: inputs.x, attrs.scale, cotangents.y, tangents.x, vectors.x.

    VALUE is @file.npy, @file.json, 1,2,3, true,false, [[1,2],[3,4]] or a number; of an attribute, also a word.
    """
    asked = {"order": order, "wrt": wrt, "of": of, "diagonal": diagonal, "outputs": outputs, "batched": batched}
    chosen = _checked(operation, {name: value for name, value in asked.items() if value})
    with client(ctx, url, timeout) as service:
        handle = service.op(op)
        found = arguments(handle.contract(), operation, given or [])
        directions = {place: getattr(found, place) or None for place in TAKES[operation]}
        common = {"attrs": found.attrs or None, "dtype": dtype, "mode": mode, "device": device}
        answer = getattr(handle, operation)(found.inputs, **directions, **chosen, **common)
    _show(entries(answer), out, as_text)


def _checked(operation: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options; raise ``BadArgument`` for an operation or an option of it that does not exist."""
    if operation not in OPTIONS:
        raise BadArgument(f"expected one of {', '.join(OPTIONS)}, got {operation!r}")
    for name in options:
        if name not in OPTIONS[operation]:
            takers = [one for one, taken in OPTIONS.items() if name in taken]
            raise BadArgument(f"--{name}: expected with {', '.join(takers)}, got {operation}")
    return options


def _show(found: list[Entry], out: Path | None, as_text: bool) -> None:
    if out is not None:
        save(out, found)
    if as_text:
        print(as_json(found))
    elif out is None:
        print_entries(console(), found)
