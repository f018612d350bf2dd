"""``pullback serve``, ``pullback doctor``, which need the service, and ``pullback key new``."""

import os
import sys
from collections.abc import Mapping
from typing import Annotated

import typer

from pullback.errors import BadArgument
from pullback.keys import line_for, new_key
from pullback.service_process import NOT_INSTALLED, command, environment, is_installed

ANSWER = """\
The key, shown only now; its user sets it as PULLBACK_KEY:
{key}
The line for the service's file, PULLBACK_KEYS_FILE:
{line}"""


def run_service(settings: Mapping[str, str]) -> int:
    """Replace this process by the service with these settings; return 2 if it is not installed."""
    return _execute("app", settings)


def run_doctor() -> int:
    """Replace this process by the service's doctor; return 2 if it is not installed."""
    return _execute("app.runtime.doctor", {})


def _execute(module: str, settings: Mapping[str, str]) -> int:
    if is_installed():
        os.execve(sys.executable, command("-m", module), environment(settings))
    print(f"pullback: {NOT_INSTALLED}", file=sys.stderr)
    return 2


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the key in logs and metrics.")],
    terms: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TERM]...", help="What limits it: until=2027-06-30, may=call,check, rate=100/s, compute=60/min."
        ),
    ] = None,
) -> None:
    """Make a key, and print it with its line for the service's file of keys."""
    key = new_key()
    try:
        line = line_for(name, key, terms or ())
    except ValueError as error:
        raise BadArgument(str(error)) from None
    print(ANSWER.format(key=key, line=line))
