"""``pullback call``: evaluate an op or a derivative."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from pullback.addresses import DEFAULT_TIMEOUT
from pullback.cli.console import console
from pullback.cli.local_service import local_service
from pullback.cli.names import arguments, did_you_mean
from pullback.cli.options import Assignments, Device, Dtype, Mode, OpName, Timeout, Url, client
from pullback.cli.output_files import output_files
from pullback.cli.parameters import Parameters, digest_of
from pullback.cli.results import as_json, entries, print_entries, save
from pullback.errors import BadArgument
from pullback.op import OPERATIONS, OPTIONS


def with_options_of_operations(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of all operations in place of its parameter ``options``."""
    own = [p for p in signature(command).parameters.values() if p.name != "options"]
    kinds = {name: kind for operation in OPERATIONS.values() for name, kind in operation.options.items()}
    added = [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=False if kind is bool else None,
            annotation=Annotated[_type(kind), typer.Option(_flag(name), help=_help(name))],
        )
        for name, kind in kinds.items()
    ]
    vars(command)["__signature__"] = signature(command).replace(parameters=[*own, *added])
    return command


def _type(kind: Any) -> Any:
    """Return the type of an option on the command line, for its type in Python."""
    if kind is bool:
        return bool
    return list[str] | None if kind == Sequence[str] | None else kind | None


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def _help(option: str) -> str:
    return f"{', '.join(_operations_with(option))}: {OPTIONS.get(option, 'see its documentation')}."


def _operations_with(option: str) -> list[str]:
    return [name for name, operation in OPERATIONS.items() if option in operation.options]


@with_options_of_operations
def call(
    ctx: typer.Context,
    op: OpName,
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help=", ".join(OPERATIONS))],
    assignments: Assignments = None,
    *,
    dtype: Dtype = None,
    mode: Mode = None,
    device: Device = None,
    parameters: Parameters = None,
    points: Annotated[bool, typer.Option("--points", help="Each array has a leading axis of points.")] = False,
    digits: Annotated[bool, typer.Option("--digits", help="Estimate the rounding error of each number.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the arrays to this .npz file.")] = None,
    as_text: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    pages: Annotated[
        list[Path] | None,
        typer.Option("--from", help="Call an op of this page, graph or folder, without a service; repeatable."),
    ] = None,
    local: Annotated[bool, typer.Option("--local", help="Call without a service an op that one here has.")] = False,
    url: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    **options: Any,
) -> None:
    """Evaluate an op or a derivative: pullback call square vjp x=1,2,3 dy=@dy.npy.

    NAME is an input (x), an attribute, the cotangent of an output (dy), the tangent of an input (tx) or a vector for it
    (vx or ddx). With its field, a name is never ambiguous: inputs.x, attrs.scale, cotangents.y, tangents.x, vectors.x.

    With --from my_ops or --local, no service is needed: this command starts one for itself, which takes seconds.

    VALUE is @file.npy, @file.json, 1,2,3, true,false, [[1,2],[3,4]] or a number; for an attribute, also a word.
    """
    given = {name: value for name, value in options.items() if value not in (None, []) and value is not False}
    _check_options(operation, given)
    with ExitStack() as opened:
        files = opened.enter_context(output_files({"--out": out}))
        if pages or local:
            url = opened.enter_context(local_service(pages or []))
        service = opened.enter_context(client(ctx, url, timeout))
        found = service.op(op)
        args = arguments(found.contract(), operation, assignments or [])
        directions = {field.name: args.get(field.name) for field in OPERATIONS[operation].tensors}
        common = {"attrs": args.get("attrs"), "dtype": dtype, "mode": mode, "device": device}
        common["parameters"] = digest_of(found, parameters)
        common |= ({"points": True} if points else {}) | ({"digits": True} if digits else {})
        result = getattr(found, operation)(args.get("inputs", {}), **directions, **given, **common)
        arrays = entries(result)
        if out is not None:
            save(files["--out"], arrays)
    if as_text:
        print(as_json(arrays))
    elif out is None:
        print_entries(console(), arrays)


def _check_options(operation: str, given: Mapping[str, Any]) -> None:
    """Raise ``BadArgument`` for an unknown operation, or an option that it does not have."""
    if operation not in OPERATIONS:
        known = ", ".join(OPERATIONS)
        raise BadArgument(f"expected one of {known}, got {operation!r}{did_you_mean(operation, OPERATIONS)}")
    for name in given:
        if name not in OPERATIONS[operation].options:
            raise BadArgument(
                f"{_flag(name)}: expected operation {' or '.join(_operations_with(name))}, got {operation}"
            )
