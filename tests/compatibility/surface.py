"""The names that others use: of ``pullback.ops``, the client, the commands and the settings."""

import inspect
from typing import Any

import typer.main
from typer.core import TyperGroup

import pullback
import pullback.ops
from app.settings import Settings
from pullback.cli.commands import app


def surface() -> dict[str, dict[str, list[str]]]:
    """Return all names that docs/compatibility.md promises, with those of their arguments."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return {
        "settings": {f"PULLBACK_{name.upper()}": [] for name in Settings.model_fields},
        "pages": _of_module(pullback.ops),
        "client": _of_module(pullback),
        "commands": _of_commands("pullback", group),
    }


def _of_module(module: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in module.__all__:
        value = getattr(module, name)
        found[name] = _arguments(value)
        if inspect.isclass(value):
            found |= {f"{name}.{member}": _arguments(getattr(value, member)) for member in _members(value)}
    return found


def _members(value: type) -> list[str]:
    """Return the public names in a class that are ours: those of Python differ between its versions."""
    ours = [each for each in value.__mro__ if each.__module__.startswith("pullback")]
    return sorted({name for each in ours for name in vars(each) if not name.startswith("_")})


def _arguments(value: Any) -> list[str]:
    """Return the names of the arguments of a function or class of ours; a constant, or a type of others, has none."""
    is_ours = str(getattr(value, "__module__", "")).startswith("pullback")
    if not (is_ours and (inspect.isroutine(value) or inspect.isclass(value))):
        return []
    try:
        return [name for name in inspect.signature(value).parameters if not name.startswith("_")]
    except ValueError:  # an exception that takes what those of Python take
        return []


def _of_commands(path: str, group: TyperGroup) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, command in group.commands.items():
        options = [option for parameter in command.params for option in parameter.opts if option.startswith("-")]
        found[f"{path} {name}"] = sorted(options)
        if isinstance(command, TyperGroup):
            found |= _of_commands(f"{path} {name}", command)
    return found
