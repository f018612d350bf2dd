"""The command line: ``pullback serve | new | doctor | key | ops | show | graph | call | check | record | ...``.

Exit codes: 0; 1 if a gradient is wrong; 2 if the command failed, after one line with the reason, or could not finish
a check; 130 after Ctrl-C.
"""

import io
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from pullback import __version__, calls
from pullback.addresses import DEFAULT_TIMEOUT
from pullback.cli.bridges import ipi, philote
from pullback.cli.call import call
from pullback.cli.catalogue import print_contract, print_json, print_ops
from pullback.cli.check import check
from pullback.cli.console import INTERRUPTED, clean, console
from pullback.cli.graph import graph
from pullback.cli.jobs import jobs
from pullback.cli.native import native
from pullback.cli.new_page import new_page, skill
from pullback.cli.options import Json, OpName, Suggesting, Timeout, Url, client
from pullback.cli.record import record
from pullback.cli.serve import new, run_doctor, run_service
from pullback.cli.verify import verify
from pullback.cli.watch import watch
from pullback.errors import BadArgument, PullbackError, Unauthorized

FAILED, PIPE_CLOSED = 2, 141
MIN_WIDTH, MAX_WIDTH = 20, 80


class Commands(Suggesting):
    """The commands; an error in one of them is reported in one line."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Return a context for help that is as wide as the terminal, which click takes for 50 columns at least."""
        width = min(max(shutil.get_terminal_size().columns, MIN_WIDTH), MAX_WIDTH)
        return super().make_context(info_name, args, parent, **{"terminal_width": width, **extra})

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        return with_exit_codes(lambda: super(Commands, self).invoke(ctx))


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Gradients over HTTP: run the service, call it, and check the gradients of its ops.",
)


def main() -> int:
    """Run the command line; return the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        return with_exit_codes(_run)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else FAILED
    except Exception:  # noqa: BLE001 - Python would exit with 1, the code of a wrong gradient
        traceback.print_exc()
        return FAILED


def with_exit_codes(work: Callable[[], Any]) -> Any:
    """Call ``work``; report an error in one line and exit with its code."""
    try:
        return work()
    except PullbackError as error:
        sys.stdout.flush()
        cure = "; set PULLBACK_KEY to the key" if isinstance(error, Unauthorized) else ""
        print(f"pullback: {clean(' '.join(str(error).split()))}{cure}", file=sys.stderr)
        raise SystemExit(FAILED) from None
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:
        _drop_output()
        raise SystemExit(PIPE_CLOSED) from None
    except OSError as error:
        _drop_output()
        print(f"pullback: cannot write the output: {error.strerror}", file=sys.stderr)
        raise SystemExit(FAILED) from None


def _drop_output() -> None:
    """Discard buffered output, which would fail a second time at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run() -> int:
    try:
        app(prog_name="pullback")
    except SystemExit as end:
        # Flush here, where a closed pipe is still handled.
        sys.stdout.flush()
        return end.code if isinstance(end.code, int) else 0
    return 0


def _print_version(value: bool) -> None:
    if value:
        print(f"pullback {__version__}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")]


@app.callback()
def store_options(ctx: typer.Context, url: Url = None, version: Version = False) -> None:
    """Store the options before the command."""
    del version
    ctx.obj = url


@app.command(short_help="Run the service.")
def serve(
    folders: Annotated[list[Path] | None, typer.Argument(metavar="FOLDER", help="Folders with pages of ops.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 picks a free one.", min=0, max=65535)] = None,
    reload: Annotated[bool, typer.Option("--reload", help="Serve a page anew when it is saved.")] = False,
) -> None:
    """Run the service, with the ops of folders beside its own; PULLBACK_* environment variables configure it.

    Options and folders take the place of PULLBACK_HOST, PULLBACK_PORT and PULLBACK_OPS_PATH.
    """
    if wrong := [folder for folder in folders or () if os.pathsep in str(folder.absolute())]:
        raise BadArgument(
            f"expected folders without {os.pathsep!r} in their path, which separates them, got {wrong[0]}"
        )
    options = {
        "PULLBACK_HOST": host,
        "PULLBACK_PORT": None if port is None else str(port),
        "PULLBACK_RELOAD": "1" if reload else None,
        "PULLBACK_OPS_PATH": os.pathsep.join(str(folder.absolute()) for folder in folders) if folders else None,
    }
    raise typer.Exit(run_service({name: value for name, value in options.items() if value is not None}))


@app.command(short_help="Report what this machine has.")
def doctor() -> None:
    """Report what this machine has for the service: TensorFlow, CUDA, GPUs, ops.

    Exits with 1 if something is missing.
    """
    raise typer.Exit(run_doctor())


@app.command(short_help="List all ops.")
def ops(ctx: typer.Context, as_json: Json = False, url: Url = None, timeout: Timeout = DEFAULT_TIMEOUT) -> None:
    """List all ops, one per line."""
    with client(ctx, url, timeout) as service:
        if as_json:
            print_json(service, calls.ops())
        else:
            print_ops(console(), service.ops())


@app.command(short_help="Show the contract of an op.")
def show(
    ctx: typer.Context, op: OpName, as_json: Json = False, url: Url = None, timeout: Timeout = DEFAULT_TIMEOUT
) -> None:
    """Show the contract of an op: formulas, shapes, dtypes, attributes, examples."""
    with client(ctx, url, timeout) as service:
        if as_json:
            print_json(service, calls.contract(op))
        else:
            print_contract(console(), service.op(op).contract())


key = typer.Typer(
    cls=Suggesting, no_args_is_help=True, help="Make keys for a service that lets in only requests with a key."
)
key.command(short_help="Make a key.")(new)
app.add_typer(key, name="key", short_help="Make keys.")
app.add_typer(jobs, name="jobs", short_help="List, wait for and cancel jobs.")
app.add_typer(graph, name="graph", short_help="Post and show graphs of ops.")
app.command("new", short_help="Write the page of a new op.")(new_page)
app.command(short_help="Print a skill for agents.")(skill)
app.command(short_help="Build C++ ops.")(native)
app.command(short_help="Evaluate an op or a derivative.")(call)
app.command(short_help="Check the gradients of ops.")(check)
app.command(short_help="Check a server at an application's inputs.")(record)
app.command(short_help="Compute forces for i-PI.")(ipi)
app.command(short_help="Serve an op to clients of Philote.")(philote)
app.command(short_help="Check pages at every save.")(watch)
app.command(short_help="Compare your gradients with an op's.")(verify)
