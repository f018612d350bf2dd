"""``pullback verify``: compare your gradients with an op's own."""

from typing import Annotated

import typer

from pullback.addresses import DEFAULT_TIMEOUT
from pullback.cli.catalogue import print_document
from pullback.cli.console import console
from pullback.cli.follow import print_verification
from pullback.cli.names import arguments, split
from pullback.cli.options import (
    Absolute,
    Assignments,
    Device,
    Dtype,
    Json,
    Mode,
    Names,
    OpName,
    Relative,
    Timeout,
    Url,
    client,
)
from pullback.cli.values import Parameters, digest_of
from pullback.errors import BadArgument


def verify(
    ctx: typer.Context,
    op: OpName,
    assignments: Assignments = None,
    *,
    gradient: Annotated[Names, typer.Option(metavar="NAME=VALUE", help="Your gradient of an input.")] = None,
    dtype: Dtype = None,
    mode: Mode = None,
    device: Device = None,
    parameters: Parameters = None,
    absolute: Absolute = 0.0,
    relative: Relative = 0.0,
    as_json: Json = False,
    url: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Compare your gradients with those of an op: pullback verify square x=@x.npy dy=@dy.npy gx=@mine.npy.

    NAME is an input (x), an attribute, the cotangent of an output (dy) or your gradient of an input (gx; --gradient
    x=... is the same). VALUE is @file.npy, @file.json, 1,2,3, true,false, [[1,2],[3,4]] or a number.

    Exits with 1 if a gradient is wrong.
    """
    named = [f"gradients.{name}={value}" for name, value in map(split, gradient or [])]
    with client(ctx, url, timeout) as service:
        found = service.op(op)
        args = arguments(found.contract(), "verify", [*(assignments or []), *named])
        gradients = args.get("gradients")
        if gradients is None:
            raise BadArgument("expected a gradient, such as gx=@mine.npy or --gradient x=@mine.npy, got none")
        verification = found.verify(
            args.get("inputs", {}),
            gradients,
            cotangents=args.get("cotangents"),
            tolerances={"absolute": absolute, "relative": relative},
            attrs=args.get("attrs"),
            dtype=dtype,
            mode=mode,
            device=device,
            parameters=digest_of(found, parameters),
        )
    if as_json:
        print_document(verification.document)
    else:
        print_verification(console(), verification)
    raise typer.Exit(int(verification.verdict == "fail"))
