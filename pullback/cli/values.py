"""Values on the command line: ``@file.npy``, ``@file.json``, ``1,2,3``, ``true,false``, ``[[1,2],[3,4]]``, ``0.5``."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from pullback.errors import BadArgument

FORMS = "@file.npy, @file.json, 1,2,3, true,false or [[1,2],[3,4]]"
WORDS = {"true": True, "false": False}


def tensor(name: str, text: str) -> Any:
    """Return the array in a file, or the numbers or bools in a text; raise ``BadArgument``."""
    if text.startswith("@"):
        return _file(name, Path(text[1:]))
    try:
        return json.loads(text) if text.lstrip().startswith("[") else _numbers(text)
    except (ValueError, RecursionError):
        raise BadArgument(f"{name}: expected {FORMS}, got {text!r}") from None


def attribute(text: str, schema: Any) -> Any:
    """Return the value of an attribute: JSON, or the text if it is not JSON or the schema is a string."""
    if isinstance(schema, dict) and schema.get("type") == "string":  # pyright: ignore[reportUnknownMemberType]
        return text
    if text.startswith("@"):
        return _file("attribute", Path(text[1:]))
    try:
        return json.loads(text)
    except ValueError:
        return text


def _file(name: str, path: Path) -> Any:
    try:
        if path.suffix == ".npy":
            with path.open("rb") as file:
                return np.lib.format.read_array(file, allow_pickle=False)
        if path.suffix == ".json":
            return json.loads(path.read_bytes())
    except (OSError, ValueError, EOFError, MemoryError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BadArgument(f"{name}: cannot read {path}: {reason}") from error
    raise BadArgument(f"{name}: expected a file that ends in .npy or .json, got {path}")


def _numbers(text: str) -> Any:
    """Return one number or bool, or a list if there is a comma; ``nan`` and ``inf`` are numbers."""
    if "," not in text:
        return _number(text)
    return [_number(part) for part in text.removesuffix(",").split(",")]


def _number(text: str) -> int | float:
    if text.strip() in WORDS:
        return WORDS[text.strip()]
    try:
        return int(text)
    except ValueError:
        return float(text)
