"""``pullback call``: evaluate an op or a derivative."""

from pathlib import Path
from typing import Annotated, Any

import typer

from pullback.addresses import DEFAULT_TIMEOUT
from pullback.cli.console import console
from pullback.cli.names import TENSOR_FIELDS, arguments, did_you_mean
from pullback.cli.options import Assignments, Device, Dtype, Mode, Names, OpName, Timeout, Url, client
from pullback.cli.output_files import output_files
from pullback.cli.results import as_json, entries, print_entries, save
from pullback.errors import BadArgument

OPTIONS = {
    "forward": (),
    "gradients": ("order", "wrt"),
    "vjp": ("wrt", "outputs", "batched"),
    "jvp": ("batched",),
    "jacobian": ("of", "wrt"),
    "hvp": ("wrt", "batched"),
    "hessian": ("wrt", "diagonal"),
}
"""The options of each operation."""


def call(
    ctx: typer.Context,
    op: OpName,
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help=", ".join(OPTIONS))],
    assignments: Assignments = None,
    *,
    dtype: Dtype = None,
    mode: Mode = None,
    device: Device = None,
    order: Annotated[int | None, typer.Option(help="gradients: the highest order, 1 to 4.")] = None,
    wrt: Annotated[Names, typer.Option(help="An input to differentiate by; repeatable.")] = None,
    of: Annotated[Names, typer.Option(help="jacobian: an output; repeatable.")] = None,
    diagonal: Annotated[bool, typer.Option("--diagonal", help="hessian: only its diagonal.")] = False,
    outputs: Annotated[bool, typer.Option("--outputs", help="vjp: return the outputs too.")] = False,
    batched: Annotated[bool, typer.Option("--batched", help="vjp, jvp, hvp: many directions at once.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the arrays to this .npz file.")] = None,
    as_text: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    url: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Evaluate an op or a derivative: pullback call square vjp x=1,2,3 dy=@dy.npy.

    NAME is an input (x), an attribute, the cotangent of an output (dy), the tangent of an input (tx) or a vector for it
    (vx or ddx). With its field, a name is never ambiguous: inputs.x, attrs.scale, cotangents.y, tangents.x, vectors.x.

    VALUE is @file.npy, @file.json, 1,2,3, true,false, [[1,2],[3,4]] or a number; for an attribute, also a word.
    """
    options = {"order": order, "wrt": wrt, "of": of, "diagonal": diagonal, "outputs": outputs, "batched": batched}
    options = {name: value for name, value in options.items() if value not in (None, []) and value is not False}
    _check_options(operation, options)
    with output_files({"--out": out}) as files, client(ctx, url, timeout) as service:
        handle = service.op(op)
        args = arguments(handle.contract(), operation, assignments or [])
        directions = {field: getattr(args, field) or None for field in TENSOR_FIELDS[operation]}
        common = {"attrs": args.attrs or None, "dtype": dtype, "mode": mode, "device": device}
        answer = getattr(handle, operation)(args.inputs, **directions, **options, **common)
        arrays = entries(answer)
        if out is not None:
            save(files["--out"], arrays)
    if as_text:
        print(as_json(arrays))
    elif out is None:
        print_entries(console(), arrays)


def _check_options(operation: str, options: dict[str, Any]) -> None:
    """Raise ``BadArgument`` for an unknown operation, or an option that it does not have."""
    if operation not in OPTIONS:
        raise BadArgument(f"expected one of {', '.join(OPTIONS)}, got {operation!r}{did_you_mean(operation, OPTIONS)}")
    for name in options:
        if name not in OPTIONS[operation]:
            operations = [key for key, names in OPTIONS.items() if name in names]
            raise BadArgument(f"--{name}: expected operation {' or '.join(operations)}, got {operation}")
