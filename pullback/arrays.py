"""Conversion of arrays to JSON and back."""

import base64
import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from pullback.errors import BadArgument

Array: TypeAlias = NDArray[Any]
ArrayLike: TypeAlias = Any
"""Numbers, bools, lists of them, or what ``numpy.asarray`` accepts: arrays of NumPy, JAX, PyTorch, TensorFlow, ..."""
Arrays: TypeAlias = Mapping[str, ArrayLike]

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = (*FLOATS, *INTEGERS, "bool")


def encode(value: ArrayLike, name: str = "the array") -> Any:
    """Return an array as JSON.

    Numbers, bools and lists of them take the dtype that the op expects; everything else keeps its dtype and is sent as
    base64, little-endian and row-major. Raises ``BadArgument``.
    """
    try:
        return plain(value) if _has_no_dtype(value) else _typed(np.asarray(value), name)
    except RecursionError:
        raise BadArgument(f"{name}: expected at most 8 dimensions, got lists nested far deeper") from None
    except BadArgument:
        raise
    except (TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        got = f"{type(value).__name__} ({reason})"
        raise BadArgument(f"{name}: expected a value that numpy.asarray accepts, got {got}") from error


def plain(value: Any) -> Any:
    """Return numbers, bools and lists of them as JSON values; NaN and the infinities become strings."""
    if isinstance(value, np.ndarray | np.generic):
        value = cast(Any, value).tolist()
    if isinstance(value, list | tuple | range):
        return [plain(item) for item in cast("list[Any]", value)]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def decode(tensor: Mapping[str, Any]) -> Array:
    """Return a tensor of a response as an array that owns its data.

    bfloat16 requires the package ml_dtypes; without it the array is widened to float32, which is exact.
    """
    name, shape = tensor["dtype"], tuple(tensor["shape"])
    raw = bytearray(base64.b64decode(tensor["base64"], validate=True))
    if name == "bfloat16":
        return _bfloat16(np.ndarray(shape, "<u2", raw))
    if name not in DTYPES:
        raise ValueError(f"unknown dtype {name}")
    if name == "bool" and (largest := int(np.frombuffer(raw, np.uint8).max(initial=0))) > 1:
        raise ValueError(f"expected bytes of 0 or 1 in a tensor of bools, got {largest}")
    return np.ndarray(shape, np.dtype(name).newbyteorder("<"), raw).astype(name, copy=False)


def shared_float(encoded: Iterable[Any]) -> str | None:
    """Return the float dtype of the encoded tensors that have one; ``None`` if there is none or they differ."""
    typed = (cast("Mapping[str, Any]", tensor) for tensor in encoded if isinstance(tensor, Mapping))
    names = {tensor.get("dtype") for tensor in typed} & set(FLOATS)
    return names.pop() if len(names) == 1 else None


def _has_no_dtype(value: ArrayLike) -> bool:
    """Report whether to send a value without a dtype: numbers, lists, and what only the service can diagnose."""
    if isinstance(value, np.generic):
        return False
    return value is None or isinstance(value, int | float | str | list | tuple | range | Mapping)


def _typed(array: Array, name: str) -> dict[str, Any]:
    if array.dtype.name not in DTYPES:
        raise BadArgument(f"{name}: expected an array of {', '.join(DTYPES)}, got {array.dtype.name}")
    little_endian = array.astype(array.dtype.newbyteorder("<"), copy=False)
    data = base64.b64encode(little_endian.tobytes()).decode("ascii")
    return {"dtype": array.dtype.name, "shape": list(array.shape), "base64": data}


def _bfloat16(bits: NDArray[np.uint16]) -> Array:
    native = bits.astype(np.uint16, copy=False)
    try:
        from ml_dtypes import bfloat16  # noqa: PLC0415 - an optional dependency
    except ImportError:
        return (native.astype(np.uint32) << 16).view(np.float32)
    return native.view(bfloat16)
