"""Values on the command line: ``@file.npy``, ``@file.json``, ``1,2,3``, ``true,false``, ``[[1,2],[3,4]]``, ``0.5``.

No number changes silently: one that no float64 holds is an error, and so is a spelling that only Python reads, such as
1_000.
"""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
import typer

from pullback import safetensors
from pullback.dtypes import Array
from pullback.errors import BadArgument
from pullback.op import Op

FORMS = "@file.npy, @file.json, 1,2,3, nan,-inf, true,false or [[1,2],[3,4]]"
WORDS = {"true": True, "false": False}
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)
INTEGER = re.compile(r"[+-]?[0-9]+")
# The largest integer of a dtype has 20 digits; longer ones are floats.
MAX_DIGITS = 32
MAX_SHOWN = 80
DIGEST = re.compile(r"[0-9a-f]{64}")
ENDING = ".safetensors"

Parameters: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="DIGEST|FILE", help="Values of the op's parameters; a .safetensors file is put first."),
]


def tensor(name: str, text: str) -> Any:
    """Return the array in a file, or the numbers or bools in a text; raise ``BadArgument``."""
    if text.startswith("@"):
        return _file(name, Path(text[1:]))
    try:
        return _json(text) if text.lstrip().startswith("[") else _numbers(text)
    except OverflowError as error:
        raise BadArgument(f"{name}: {error}") from None
    except (ValueError, RecursionError):
        raise BadArgument(f"{name}: expected {FORMS}, got {shown(text)}") from None


def attribute(name: str, text: str, schema: Any) -> Any:
    """Return the value of an attribute: JSON, or the text if it is not JSON or the schema is a string."""
    if isinstance(schema, dict) and schema.get("type") == "string":  # pyright: ignore[reportUnknownMemberType]
        return text
    if text.startswith("@"):
        return _file(name, Path(text[1:]))
    try:
        return _json(text)
    except OverflowError as error:
        raise BadArgument(f"{name}: {error}") from None
    except (ValueError, RecursionError):
        return text


def number(text: str) -> int | float:
    """Return the number in a text; raise ``ValueError``, or ``OverflowError`` for one that no float64 holds."""
    if not NUMBER.fullmatch(text.strip()):
        raise ValueError(f"expected a number, got {shown(text)}")
    return _integer(text) if INTEGER.fullmatch(text.strip()) else _float(text)


def shown(text: str) -> str:
    """Return a text for an error."""
    return repr(text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…")


def _integer(text: str) -> int | float:
    return int(text) if len(text) <= MAX_DIGITS else _float(text)


def _float(text: str) -> float:
    """Return a float; raise ``OverflowError`` for a number that becomes infinite, or 0 without being 0."""
    value = float(text)
    is_infinite = math.isinf(value) and "n" not in text.lower()
    is_lost = value == 0 and any(digit in "123456789" for digit in text.lower().partition("e")[0])
    if is_infinite or is_lost:
        expected = "a magnitude below 1.8e308, or Infinity" if is_infinite else "0, or a magnitude of at least 5e-324"
        raise OverflowError(f"expected {expected}, got {shown(text.strip())}")
    return value


def _json(text: str | bytes) -> Any:
    return json.loads(text, parse_float=_float, parse_int=_integer, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"duplicate key {shown(key)}")
        result[key] = value
    return result


def _file(name: str, path: Path) -> Any:
    read = READERS.get(path.suffix)
    if read is None:
        raise BadArgument(f"{name}: expected a file that ends in .npy or .json, got {path}")
    try:
        return read(path)
    except (OSError, ValueError, OverflowError, EOFError, MemoryError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BadArgument(f"{name}: cannot read {path}: {reason}") from error


def _read_npy(path: Path) -> Any:
    with path.open("rb") as file:
        return np.lib.format.read_array(file, allow_pickle=False)


READERS: dict[str, Callable[[Path], Any]] = {".npy": _read_npy, ".json": lambda path: _json(path.read_bytes())}


def _numbers(text: str) -> Any:
    """Return one number or bool, or a list if there is a comma; ``nan`` and ``inf`` are numbers."""
    if "," not in text:
        return _scalar(text)
    return [_scalar(part) for part in text.removesuffix(",").split(",")]


def _scalar(text: str) -> int | float:
    word = text.strip()
    return WORDS[word] if word in WORDS else number(text)


def digest_of(op: Op, given: str | None) -> str | None:
    """Return the digest that was given, or that of the values in the file, which this puts on the service.

    Raises ``BadArgument`` for anything else, and for a file that cannot be read.
    """
    if given is None or DIGEST.fullmatch(given):
        return given
    if not given.endswith(ENDING):
        expected = f"a digest of 64 hexadecimal digits, or a file that ends in {ENDING}"
        raise BadArgument(f"--parameters: expected {expected}, got {given!r}")
    return op.put_parameters(_read(Path(given)))


def _read(path: Path) -> dict[str, Array]:
    try:
        values = safetensors.read(path.read_bytes())
    except OSError as error:
        raise BadArgument(f"--parameters: cannot read {path}: {error.strerror}") from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise BadArgument(f"--parameters: {path} is not safetensors: {error}") from None
    if wrong := [name for name, value in values.items() if not isinstance(value, np.ndarray)]:
        raise BadArgument(f"--parameters: expected names of parameters in {path}, got {wrong[0]!r}")
    return values
