"""``pullback record umbridge+http://host:4242/model``: check gradients at the inputs of an application."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from pullback.addresses import DEFAULT_TIMEOUT
from pullback.cli.console import INTERRUPTED, console, styled
from pullback.cli.follow import follow
from pullback.cli.functions import print_scopes
from pullback.cli.options import Absolute, Relative, Timeout
from pullback.cli.output_files import STDOUT, output_files
from pullback.cli.report_files import write_reports
from pullback.errors import BadArgument
from pullback.recorder.evaluations import recorded_target
from pullback.recorder.recording import VARIABLE, Recording, RecordOptions


def record(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The server, as for check.")],
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND]", help="The application; its end ends the recording.")
    ] = None,
    *,
    port: Annotated[int, typer.Option(help="Port for the application; 0 picks a free one.", min=0, max=65535)] = 0,
    seconds: Annotated[
        float | None, typer.Option("--for", help="Seconds to record; by default until Ctrl-C.", min=0.001)
    ] = None,
    sample: Annotated[int, typer.Option(help="The most inputs of a model to check.", min=1, max=1000)] = 8,
    calls: Annotated[int, typer.Option(help="The most evaluations of the checks in all.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the random draws.", min=0)] = 0,
    absolute: Absolute = 0.0,
    relative: Relative = 0.0,
    json: Annotated[Path | None, typer.Option(help="Write the reports to this file; - is standard output.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write the reports as JUnit XML; - is standard output.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the reports as one page, for a browser.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only failures.")] = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Check the gradients of a server at the inputs of an application, while it runs.

    pullback record umbridge+http://host:4242/model -- python application.py

    The application calls the URL that this command prints, and that the environment variable PULLBACK_RECORDED_URL has
    for the command: all requests pass to the server, and all answers back. A random sample of the inputs is kept, and
    checked there with a small share of the server's time; what is left is checked when the application ends, or after
    Ctrl-C. Without a name of a model, all models of a server are recorded. With pullback+http://host:8000/op, the
    server is a service of ops, which checks them itself.

    Exits with 1 if a gradient is wrong, or the server answers a request otherwise than before; with 2 if no input could
    be checked, a check breaks off or is inconclusive, or the application fails; else with 0. A second Ctrl-C prints and
    writes what was checked so far, and exits with 130.
    """
    out = console(sys.stderr if STDOUT in (json, junit, html) or command else None)
    server = recorded_target(target)
    if server is None:
        raise BadArgument(f"expected a server, such as umbridge+http://localhost:4242/model, got {target!r}")
    options = RecordOptions(port, sample, calls, seed, absolute, relative, timeout, seconds)

    def announce(url: str) -> None:
        if not quiet:
            out.print(styled(f"recording {server}: call {url} ({VARIABLE}) in its place", "bold"))

    recording = Recording(server, options, command or (), announce)
    with output_files({"--json": json, "--junit": junit, "--html": html}) as files:
        asyncio.run(recording.run())
        outcome = follow(out, recording.events(), quiet=quiet)
        outcome.is_interrupted = recording.is_interrupted
        if not quiet:
            print_scopes(out, outcome.reports)
        write_reports(files, outcome)
    if recording.status:
        out.print(styled(f"the application ended with status {recording.status}", "bold yellow"))
    if outcome.is_interrupted:
        raise typer.Exit(INTERRUPTED)
    if outcome.has_failed:
        raise typer.Exit(1)
    raise typer.Exit(0 if outcome.is_complete and not recording.status else 2)
