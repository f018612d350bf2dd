"""``pullback call``: evaluate an op or a derivative, and show arrays as text, as JSON, or in a NumPy file."""

import json
import os
import subprocess
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from inspect import Parameter, signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple, cast
from urllib.parse import quote

import numpy as np
import typer
from rich.console import Console

from pullback.addresses import DEFAULT_TIMEOUT
from pullback.arrays import plain
from pullback.cli.console import console, styled
from pullback.cli.names import arguments, did_you_mean
from pullback.cli.options import Assignments, Device, Dtype, Mode, OpName, Timeout, Url, client
from pullback.cli.output_files import OutputFile, output_files
from pullback.cli.pages import pages_at
from pullback.cli.values import Parameters, digest_of
from pullback.dtypes import Array, needs_ml_dtypes
from pullback.errors import BadArgument
from pullback.op import OPERATIONS, OPTIONS
from pullback.service_process import NOT_INSTALLED, command, environment, is_installed
from pullback.sparse import parts_of

# The kernel ends it, even where this process is killed.
CODE = (
    "import runpy, signal; from app.processes.forks import signal_at_parents_death; "
    "signal_at_parents_death(signal.SIGKILL); runpy.run_module('app', run_name='__main__')"
)
# What an op computes may depend on these; the others are for a service that others use.
INHERITED = ("PULLBACK_DEVICE", "PULLBACK_GPU_MEMORY_MB", "PULLBACK_OPS_PATH")

# The largest set of parameters that this process puts.
LOCAL_MB = "4096"
MAX_WIDTH = 100


@contextmanager
def local_service(paths: Sequence[Path]) -> Generator[str]:
    """Yield the URL of a service with the ops of the folders of these pages, by default with those of a service here.

    Raises ``BadArgument`` for a path without a page, and if the service is not installed or does not start.
    """
    if not is_installed():
        raise BadArgument(NOT_INSTALLED)
    folders = dict.fromkeys(str(page.absolute().parent) for path in paths for page in pages_at(path))
    with TemporaryDirectory() as own, open(Path(own) / "log", "w+", encoding="utf-8", errors="replace") as log:
        settings = {"PULLBACK_HOST": f"unix:{own}/socket", "PULLBACK_WARM_UP": "0", "PULLBACK_DRAIN_S": "0"}
        settings |= {"PULLBACK_CHECK_PROCESSES": "0", "PULLBACK_PARAMETERS_MB": LOCAL_MB}
        if folders:
            settings["PULLBACK_OPS_PATH"] = os.pathsep.join(folders)
        own_names = {name for name in os.environ if name.startswith("PULLBACK_")} - {*INHERITED}
        inherited = {name: value for name, value in environment({}).items() if name not in own_names}
        process = subprocess.Popen(
            command("-c", CODE),
            env=inherited | settings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
        try:
            assert process.stdout
            if not process.stdout.readline():
                log.seek(0)
                lines = log.read().split("\n")
                raise BadArgument(f"the service cannot start: {' '.join(filter(None, lines[-4:]))}")
            yield f"http+unix://{quote(own, safe='')}%2Fsocket"
        finally:
            process.kill()
            process.communicate()


class Entry(NamedTuple):
    """An array of a result, under a path such as ``gradients.x``, or the reason why there is none."""

    path: str
    array: Array | None
    reason: str


def entries(result: Any) -> list[Entry]:
    """Return every array of a result; orders of gradients count from 1."""
    absent = getattr(result, "absent", {})
    found: list[Entry] = []
    for field in sorted(fields(result), key=lambda field: field.name == "uncertainty"):
        value = getattr(result, field.name)
        if field.name not in ("absent", "no_uncertainty", "sparsity") and value is not None:
            given: dict[str, Any] = {"outputs": {}, "uncertainty": getattr(result, "no_uncertainty", {})}
            reasons = given.get(field.name, absent)
            found += _walk(field.name, value, reasons)
    return found


def print_entries(out: Console, arrays: list[Entry]) -> None:
    """Print each array below a line with its name, dtype and shape."""
    width = min(out.width, MAX_WIDTH)
    for path, array, reason in arrays:
        if array is None:
            out.print(styled(f"{path}: none ({reason})", "yellow"))
            continue
        out.print(styled(f"{path}  {array.dtype.name} {list(array.shape)}", "bold"))
        out.print(styled(np.array2string(array, max_line_width=width, threshold=1000, floatmode="unique")))


def as_json(arrays: list[Entry]) -> str:
    """Return all arrays as one JSON object, with the strings NaN, Infinity and -Infinity for those numbers."""
    tree = {path: None if array is None else _document(array) for path, array, _ in arrays}
    return json.dumps(tree, ensure_ascii=False, allow_nan=False)


def save(file: OutputFile, arrays: list[Entry]) -> None:
    """Write all arrays to an ``.npz`` file; entries without an array are left out."""
    # NumPy's files cannot hold a dtype that it lacks; float32 has the same numbers.
    stored = {
        path: array.astype(np.float32) if needs_ml_dtypes(array.dtype.name) else array
        for path, array, _ in arrays
        if array is not None
    }
    file.write(lambda stream: np.savez(stream, **cast("dict[str, Any]", stored)))


def _walk(path: str, value: Any, reasons: Any) -> Iterator[Entry]:
    if (parts := parts_of(value)) is not None:
        value = parts
    if isinstance(value, list):
        for i, item in enumerate(cast("list[Any]", value)):
            yield from _walk(f"{path}.{i + 1}", item, reasons[i] if i < len(reasons) else {})
    elif isinstance(value, dict):
        for name, item in cast("dict[str, Any]", value).items():
            yield from _walk(f"{path}.{name}", item, _below(reasons, name))
    else:
        yield Entry(path, value, str(reasons or "no gradient").replace("_", " "))


def _below(reasons: Any, name: str) -> Any:
    """Return the reasons under a name; a single reason applies to all names below it."""
    return cast("dict[str, Any]", reasons).get(name, {}) if isinstance(reasons, dict) else reasons


def _document(array: Array) -> dict[str, Any]:
    data = plain(array.astype(np.float64) if needs_ml_dtypes(array.dtype.name) else array)
    return {"dtype": array.dtype.name, "shape": list(array.shape), "data": data}


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
