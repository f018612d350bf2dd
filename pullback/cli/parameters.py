"""``--parameters``: values of an op's parameters on the command line, by their digest or from a file."""

import re
from pathlib import Path
from typing import Annotated, TypeAlias

import numpy as np
import typer

from pullback import safetensors
from pullback.dtypes import Array
from pullback.errors import BadArgument
from pullback.op import Op

DIGEST = re.compile(r"[0-9a-f]{64}")
ENDING = ".safetensors"

Parameters: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="DIGEST|FILE", help="Values of the op's parameters; a .safetensors file is put first."),
]


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
