"""``pullback jobs``: list jobs, wait for them, and cancel them."""

from typing import Annotated

import typer

from pullback.addresses import DEFAULT_TIMEOUT
from pullback.cli.console import clean
from pullback.cli.options import Suggesting, Timeout, Url, client
from pullback.jobs import JobState

FAILED = 1
Ids = Annotated[list[str], typer.Argument(metavar="ID", help="Ids of jobs.")]

jobs = typer.Typer(cls=Suggesting, no_args_is_help=True, help="Jobs of the service: list, wait for and cancel them.")


@jobs.command("list", short_help="List the latest jobs.")
def list_jobs(ctx: typer.Context, url: Url = None, timeout: Timeout = DEFAULT_TIMEOUT) -> None:
    """List the latest jobs of your key, the newest first."""
    with client(ctx, url, timeout) as service:
        for state in service.jobs():
            _print(state)


@jobs.command(short_help="Wait for jobs.")
def wait(ctx: typer.Context, ids: Ids, url: Url = None, timeout: Timeout = DEFAULT_TIMEOUT) -> None:
    """Wait until all these jobs have ended; exit with 1 if one has failed or was cancelled."""
    with client(ctx, url, timeout) as service:
        states = [service.job(name).wait() for name in ids]
    for state in states:
        _print(state)
    if any(state.state != "done" for state in states):
        raise typer.Exit(FAILED)


@jobs.command(short_help="Cancel jobs.")
def cancel(ctx: typer.Context, ids: Ids, url: Url = None, timeout: Timeout = DEFAULT_TIMEOUT) -> None:
    """End these jobs with their computation; free the answers of those that have ended."""
    with client(ctx, url, timeout) as service:
        for name in ids:
            service.job(name).cancel()


def _print(state: JobState) -> None:
    more = f"number {state.position} in the line" if state.position else state.error or ""
    more = f"{state.progress.done} of {state.progress.total} done" if state.progress else more
    print(f"{state.id}  {state.state:9}  {clean(more)}".rstrip())
