"""How ``pullback call`` writes arrays: to read, as JSON, or into a file of NumPy."""

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from rich.console import Console

from pullback.arrays import Array, plain
from pullback.cli.console import styled
from pullback.errors import BadArgument


class Entry(NamedTuple):
    """One array of an answer, under names such as ``gradients.x``; where there is none, the reason."""

    path: str
    array: Array | None
    reason: str


def entries(answer: Any) -> list[Entry]:
    """Return every array of an answer; orders of gradients are counted from 1."""
    absent = getattr(answer, "absent", {})
    found: list[Entry] = []
    for field in fields(answer):
        value = getattr(answer, field.name)
        if field.name != "absent" and value is not None:
            reasons = {} if field.name == "outputs" else absent
            found += _walk(field.name, value, reasons)
    return found


def print_entries(out: Console, found: list[Entry]) -> None:
    """Print each array below a line with its name, dtype and shape."""
    for path, array, reason in found:
        if array is None:
            out.print(styled(f"{path}: none ({reason})", "yellow"))
            continue
        out.print(styled(f"{path}  {array.dtype.name} {list(array.shape)}", "bold"))
        out.print(styled(np.array2string(array, max_line_width=100, threshold=1000)))


def as_json(found: list[Entry]) -> str:
    """Return all arrays as one JSON object; the strings NaN, Infinity and -Infinity are numbers."""
    tree = {path: None if array is None else _document(array) for path, array, _ in found}
    return json.dumps(tree, ensure_ascii=False, allow_nan=False)


def save(path: Path, found: list[Entry]) -> None:
    """Write all arrays into an ``.npz`` file; those that are missing are missing there."""
    arrays = {entry.path: _storable(entry.array) for entry in found if entry.array is not None}
    try:
        with path.open("wb") as file:
            np.savez(file, **cast("dict[str, Any]", arrays))
    except OSError as error:
        raise BadArgument(f"--out: {path} cannot be written: {error.strerror}") from error


def _walk(path: str, value: Any, reasons: Any) -> Iterator[Entry]:
    if isinstance(value, list):
        for i, item in enumerate(cast("list[Any]", value)):
            yield from _walk(f"{path}.{i + 1}", item, reasons[i] if i < len(reasons) else {})
    elif isinstance(value, dict):
        for name, item in cast("dict[str, Any]", value).items():
            yield from _walk(f"{path}.{name}", item, _below(reasons, name))
    else:
        yield Entry(path, value, str(reasons or "no gradient").replace("_", " "))


def _below(reasons: Any, name: str) -> Any:
    """Return the reasons under a name; one reason is for all that is below it."""
    return cast("dict[str, Any]", reasons).get(name, {}) if isinstance(reasons, dict) else reasons


def _document(array: Array) -> dict[str, Any]:
    data = plain(array.astype(np.float64) if array.dtype.name == "bfloat16" else array)
    return {"dtype": array.dtype.name, "shape": list(array.shape), "data": data}


def _storable(array: Array) -> Array:
    """Return an array that NumPy's files can hold: bfloat16 is widened to float32, which loses nothing."""
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array
