"""Output of ``pullback call``: arrays as text, as JSON, or in a NumPy file."""

import json
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, NamedTuple, cast

import numpy as np
from rich.console import Console

from pullback.arrays import plain
from pullback.cli.console import styled
from pullback.cli.output_files import OutputFile
from pullback.dtypes import Array, needs_ml_dtypes
from pullback.sparse import parts_of

MAX_WIDTH = 100


class Entry(NamedTuple):
    """An array of a result, under a path such as ``gradients.x``, or the reason why there is none."""

    path: str
    array: Array | None
    reason: str


def entries(result: Any) -> list[Entry]:
    """Return every array of a result; orders of gradients count from 1."""
    absent = getattr(result, "absent", {})
    found: list[Entry] = []
    for field in sorted(fields(result), key=lambda field: field.name == "uncertainty"):
        value = getattr(result, field.name)
        if field.name not in ("absent", "no_uncertainty", "sparsity") and value is not None:
            given: dict[str, Any] = {"outputs": {}, "uncertainty": getattr(result, "no_uncertainty", {})}
            reasons = given.get(field.name, absent)
            found += _walk(field.name, value, reasons)
    return found


def print_entries(out: Console, arrays: list[Entry]) -> None:
    """Print each array below a line with its name, dtype and shape."""
    width = min(out.width, MAX_WIDTH)
    for path, array, reason in arrays:
        if array is None:
            out.print(styled(f"{path}: none ({reason})", "yellow"))
            continue
        out.print(styled(f"{path}  {array.dtype.name} {list(array.shape)}", "bold"))
        out.print(styled(np.array2string(array, max_line_width=width, threshold=1000, floatmode="unique")))


def as_json(arrays: list[Entry]) -> str:
    """Return all arrays as one JSON object, with the strings NaN, Infinity and -Infinity for those numbers."""
    tree = {path: None if array is None else _document(array) for path, array, _ in arrays}
    return json.dumps(tree, ensure_ascii=False, allow_nan=False)


def save(file: OutputFile, arrays: list[Entry]) -> None:
    """Write all arrays to an ``.npz`` file; entries without an array are left out."""
    # NumPy's files cannot hold a dtype that it lacks; float32 has the same numbers.
    stored = {
        path: array.astype(np.float32) if needs_ml_dtypes(array.dtype.name) else array
        for path, array, _ in arrays
        if array is not None
    }
    file.write(lambda stream: np.savez(stream, **cast("dict[str, Any]", stored)))


def _walk(path: str, value: Any, reasons: Any) -> Iterator[Entry]:
    if (parts := parts_of(value)) is not None:
        value = parts
    if isinstance(value, list):
        for i, item in enumerate(cast("list[Any]", value)):
            yield from _walk(f"{path}.{i + 1}", item, reasons[i] if i < len(reasons) else {})
    elif isinstance(value, dict):
        for name, item in cast("dict[str, Any]", value).items():
            yield from _walk(f"{path}.{name}", item, _below(reasons, name))
    else:
        yield Entry(path, value, str(reasons or "no gradient").replace("_", " "))


def _below(reasons: Any, name: str) -> Any:
    """Return the reasons under a name; a single reason applies to all names below it."""
    return cast("dict[str, Any]", reasons).get(name, {}) if isinstance(reasons, dict) else reasons


def _document(array: Array) -> dict[str, Any]:
    data = plain(array.astype(np.float64) if needs_ml_dtypes(array.dtype.name) else array)
    return {"dtype": array.dtype.name, "shape": list(array.shape), "data": data}
