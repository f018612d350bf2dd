"""Arrays as they go over the wire, both ways."""

import base64
import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from pullback.errors import BadArgument

Array: TypeAlias = NDArray[Any]
ArrayLike: TypeAlias = Any
"""Numbers, bools, lists of them, or what ``numpy.asarray`` takes: arrays of NumPy, JAX, PyTorch, TensorFlow, ..."""
Arrays: TypeAlias = Mapping[str, ArrayLike]

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = (*FLOATS, *INTEGERS, "bool")


def encode(value: ArrayLike, name: str = "the array") -> Any:
    """Return an array as JSON has it.

    Numbers, bools and lists of them take the dtype that the op wants; everything else keeps its own, and goes as
    base64, little-endian and row-major. Raises ``BadArgument``.
    """
    try:
        return plain(value) if _has_no_dtype(value) else _typed(np.asarray(value), name)
    except RecursionError:
        raise BadArgument(f"{name}: expected at most 8 dimensions, got lists that are nested far deeper") from None
    except BadArgument:
        raise
    except (TypeError, ValueError, RuntimeError) as error:
        told = " ".join(str(error).split())
        raise BadArgument(f"{name}: expected what numpy.asarray takes, got {type(value).__name__} ({told})") from error


def plain(value: Any) -> Any:
    """Return numbers, bools and lists of them as JSON has them: NaN and the infinities are strings."""
    if isinstance(value, np.ndarray | np.generic):
        value = cast(Any, value).tolist()
    if isinstance(value, list | tuple | range):
        return [plain(item) for item in cast("list[Any]", value)]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def decode(tensor: Mapping[str, Any]) -> Array:
    """Return a tensor of an answer as an array of its own.

    bfloat16 needs the package ml_dtypes; where that is not installed, the array is widened to float32, which loses
    nothing.
    """
    name, shape = tensor["dtype"], tuple(tensor["shape"])
    raw = bytearray(base64.b64decode(tensor["base64"], validate=True))
    if name == "bfloat16":
        return _bfloat16(np.ndarray(shape, "<u2", raw))
    if name not in DTYPES:
        raise ValueError(f"unknown dtype {name}")
    if name == "bool" and (most := int(np.frombuffer(raw, np.uint8).max(initial=0))) > 1:
        raise ValueError(f"expected bytes of 0 or 1 in a tensor of bools, got {most}")
    return np.ndarray(shape, np.dtype(name).newbyteorder("<"), raw).astype(name, copy=False)


def shared_float(encoded: Iterable[Any]) -> str | None:
    """Return the float dtype on which all tensors agree that have one, as they were encoded, else nothing."""
    typed = (cast("Mapping[str, Any]", tensor) for tensor in encoded if isinstance(tensor, Mapping))
    names = {tensor.get("dtype") for tensor in typed} & set(FLOATS)
    return names.pop() if len(names) == 1 else None


def _has_no_dtype(value: ArrayLike) -> bool:
    """Tell whether these are numbers of Python, or what a service can say better than we what is wrong with."""
    if isinstance(value, np.generic):
        return False
    return value is None or isinstance(value, int | float | str | list | tuple | range | Mapping)


def _typed(array: Array, name: str) -> dict[str, Any]:
    if array.dtype.name not in DTYPES:
        raise BadArgument(f"{name}: expected an array of {', '.join(DTYPES)}, got {array.dtype.name}")
    wire = array.astype(array.dtype.newbyteorder("<"), copy=False)
    data = base64.b64encode(wire.tobytes()).decode("ascii")
    return {"dtype": array.dtype.name, "shape": list(array.shape), "base64": data}


def _bfloat16(bits: NDArray[np.uint16]) -> Array:
    native = bits.astype(np.uint16, copy=False)
    try:
        from ml_dtypes import bfloat16  # noqa: PLC0415 - not everybody has it, and few need it
    except ImportError:
        return (native.astype(np.uint32) << 16).view(np.float32)
    return native.view(bfloat16)
