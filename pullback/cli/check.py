"""``pullback check``: compare gradients with numeric ones, and run the other checks."""

import shlex
import sys
from contextlib import ExitStack, closing, nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from pullback.addresses import DEFAULT_TIMEOUT
from pullback.calls import CheckOptions
from pullback.cli.console import INTERRUPTED, console
from pullback.cli.follow import follow
from pullback.cli.functions import events_of, given, print_scopes, server_targets
from pullback.cli.options import Absolute, Device, Names, Relative, Timeout, Url, client
from pullback.cli.output_files import STDOUT, output_files
from pullback.cli.pages import misspelt_paths, pages_and_names
from pullback.cli.report_files import write_reports
from pullback.cli.reproduction import PointFiles, executable, runnable, runnable_without_service
from pullback.errors import BadArgument
from pullback.findings import Counting
from pullback.gradcheck.number_comparison import Tolerances
from pullback.gradcheck.of.local import Given
from pullback.local_checks import LocalChecks


def check(
    ctx: typer.Context,
    ops: Annotated[
        Names,
        typer.Argument(metavar="OP", help="Names, pages, graphs, folders, or URLs of servers; by default all ops."),
    ] = None,
    *,
    dtype: Annotated[Names, typer.Option(help="A float dtype to check; repeatable.")] = None,
    mode: Annotated[
        Names, typer.Option(help="graph, eager, xla or v1; repeatable; compile for a PyTorch function.")
    ] = None,
    order: Annotated[list[int] | None, typer.Option(help="1 to 4; repeatable; by default 1 and 2.")] = None,
    check: Annotated[Names, typer.Option(help="derivative, adjoint, ...; repeatable.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random draws: same seed, same report.", min=0)] = 0,
    seconds: Annotated[
        float | None, typer.Option(help="Seconds after which no further check of an op runs.", min=0.001)
    ] = None,
    budget: Annotated[
        int | None, typer.Option(help="The most evaluations of a server's model, by default 1000.")
    ] = None,
    device: Device = None,
    absolute: Absolute = 0.0,
    relative: Relative = 0.0,
    json: Annotated[Path | None, typer.Option(help="Write the reports to this file; - is standard output.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write the reports as JUnit XML; - is standard output.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the reports as one page, for a browser.")] = None,
    save_point: Annotated[
        Path | None, typer.Option(help="Write a finding's point to this .json, if it is long.", metavar="<file>")
    ] = None,
    local: Annotated[bool, typer.Option("--local", help="Check without a service, as pages and folders are.")] = False,
    inputs: Annotated[
        Names, typer.Option(help="A point of a server's model: JSON or @file.json; repeatable; by default random.")
    ] = None,
    config: Annotated[str | None, typer.Option(help="The config of a server's model, or a structure, as JSON.")] = None,
    input: Annotated[
        Names, typer.Option(help="A function's argument: NAME=1,2, NAME=[[1,2]] or NAME=@file.npy; repeatable.")
    ] = None,
    shape: Annotated[Names, typer.Option(help="The shape of a function's argument: NAME=3,4; repeatable.")] = None,
    domain: Annotated[Names, typer.Option(help="Where its numbers lie: NAME=0..inf; repeatable.")] = None,
    vjp: Annotated[str | None, typer.Option(help="The gradient of a function of NumPy, in its module.")] = None,
    strict_claims: Annotated[
        bool, typer.Option("--strict-claims", help="Fail for doubtful declarations, which are notes otherwise.")
    ] = False,
    inconclusive: Annotated[
        Counting, typer.Option(help="As what an inconclusive op counts: pass or fail.", metavar="<how>")
    ] = "fail",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only failures.")] = False,
    url: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Check the gradients of the named ops, by default of all those of the service.

    A page (my_ops/cube.py), a graph (my_ops/loss.graph.json) or a folder of these is checked without a service, in a
    process of this machine, with the same checks and the same report. With --local, so are names of the ops that a
    service here would have.

    With torch+MODULE:FUNCTION, jax+, numpy+ or tf+, check a function of this environment, whose arguments are those of
    --input and --shape, or what FUNCTION_inputs() beside it returns.

    With umbridge+http://host:4242/model, tesseract+http://host:8000 or oip+http://host:8000/model, check those of
    another server's model, in up to 1000 evaluations of it, or as many as --budget allows. With ase+MODULE:FACTORY,
    check the forces and the stress of the calculator that the function returns; with ipi+unix:NAME or ipi+HOST:PORT,
    those of the driver of i-PI that connects there, for the structure in --config @structure.json.

    Exits with 1 if a gradient is wrong, with 2 if an op is unavailable, or inconclusive without --inconclusive pass, or
    a check cannot run, breaks off or runs out of time, else with 0. Ctrl-C prints and writes what was checked so far,
    and exits with 130.
    """
    out = console(sys.stderr if STDOUT in (json, junit, html) else None)
    servers = server_targets(ops or ())
    if (inputs or config or budget is not None) and not servers:
        options_of_servers = "--inputs, --config and --budget"
        raise BadArgument(f"{options_of_servers}: expected a server, such as umbridge+http://localhost:4242/model")
    arguments = given(
        inputs=input,
        shapes=shape,
        domains=domain,
        dtypes=dtype if servers else None,
        vjp=vjp,
        modes=mode if servers else None,
    )
    if not servers and arguments != Given():
        raise BadArgument("--input, --shape, --domain and --vjp: expected a function, such as torch+MODULE:FUNCTION")
    pages, names = ([], []) if servers else pages_and_names(ops or [])
    options: CheckOptions = {
        "dtypes": dtype or None,
        "modes": mode or None,
        "orders": order or None,
        "checks": check or None,
        "seed": seed,
        "device": device,
        "tolerances": {"absolute": absolute, "relative": relative},
        "budget_s": seconds,
        "strict_claims": strict_claims or None,
    }
    with (
        output_files({"--json": json, "--junit": junit, "--html": html}) as files,
        ExitStack() as opened,
    ):
        if servers:
            events = events_of(
                servers,
                of_ops={
                    **{"--order": order, "--device": device, "--seconds": seconds},
                    "--strict-claims": strict_claims,
                },
                inputs=inputs or (),
                config=config,
                budget=budget,
                checks=check,
                seed=seed,
                tolerances=Tolerances(absolute, relative),
                timeout=timeout,
                given=arguments,
            )
        elif pages or local:
            events = opened.enter_context(LocalChecks()).checks(pages, names or None, options)
        else:
            events = opened.enter_context(client(ctx, url, timeout)).checks(names or None, **options)
        points = PointFiles(save_point, f"{executable()} {shlex.join(sys.argv[1:])}")
        pasted = (
            runnable_without_service(events, points, pages)
            if not servers and (pages or local)
            else runnable(events, points, None if servers else url or ctx.obj)
        )
        # A function of the user may print.
        printed = redirect_stdout(sys.stderr) if STDOUT in (json, junit, html) else nullcontext()
        with closing(pasted) as found, printed, misspelt_paths(names):
            outcome = follow(out, found, quiet=quiet, inconclusive=inconclusive)
        if outcome.lost is not None:
            raise outcome.lost
        if not quiet:
            print_scopes(out, outcome.reports)
        write_reports(files, outcome)
    if outcome.is_interrupted:
        raise typer.Exit(INTERRUPTED)
    if outcome.has_failed:
        raise typer.Exit(1)
    raise typer.Exit(0 if outcome.is_complete else 2)
