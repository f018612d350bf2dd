"""``pullback key new``: make a key."""

from typing import Annotated

import typer

from pullback.errors import BadArgument
from pullback.keys import line_for, new_key

ANSWER = """\
The key, shown only now; its user sets it as PULLBACK_KEY:
{key}
The line for the service's file, PULLBACK_KEYS_FILE:
{line}"""


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
