"""A group of commands that suggests one for a misspelt name."""

from typing import Any

from typer.core import TyperGroup

from pullback.cli.names import did_you_mean
from pullback.errors import BadArgument


class Suggesting(TyperGroup):
    """A group of commands that suggests one for a misspelt name, or lists them."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command of the arguments; raise ``BadArgument`` for an unknown one."""
        name, known = args[0], self.list_commands(ctx)
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            hint = did_you_mean(name, known) or f"; the commands are {', '.join(known)}"
            raise BadArgument(f"no command {name!r}{hint}")
        return super().resolve_command(ctx, args)
