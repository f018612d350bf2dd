"""Conversion of arguments to arrays, and of arrays to JSON and back."""

import binascii
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias, cast

import numpy as np

from pullback.dtypes import COMPLEX, DTYPES, FLOATS, Array
from pullback.errors import BadArgument

ArrayLike: TypeAlias = Any
"""Numbers (also complex), bools, lists of them, or what ``numpy.asarray`` takes: arrays of NumPy, JAX, PyTorch, ..."""
Arrays: TypeAlias = Mapping[str, ArrayLike]


def array_or_json(value: ArrayLike, name: str = "the array") -> Any:
    """Return a value with a dtype as an array, and numbers, bools and lists of them as JSON values.

    Lists take the dtype that the op expects; everything else keeps its dtype. Raises ``BadArgument``.
    """
    if type(value) is np.ndarray and name_of(value.dtype) in DTYPES:
        return value
    try:
        return plain(value) if _has_no_dtype(value) else _array(value, name)
    except RecursionError:
        raise BadArgument(f"{name}: expected at most 8 dimensions, got lists nested far deeper") from None
    except BadArgument:
        raise
    except (TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        got = f"{type(value).__name__} ({reason})"
        raise BadArgument(f"{name}: expected a value that numpy.asarray accepts, got {got}") from error


def encode(array: Array) -> dict[str, Any]:
    """Return an array as JSON: its dtype, its shape, and its data in base64, little-endian and row-major."""
    return {"dtype": name_of(array.dtype), "shape": list(array.shape), "base64": base64(array).decode("ascii")}


def base64(array: Array) -> bytes:
    """Return the data of an array in base64, little-endian and row-major."""
    return binascii.b2a_base64(np.asarray(array, little_endian(array.dtype)).tobytes(), newline=False)


def plain(value: Any) -> Any:
    """Return numbers, bools and lists of them as JSON values.

    NaN and the infinities become strings, and a complex number the pair of its parts, as do real ones beside it.
    """
    if isinstance(value, np.ndarray | np.generic):
        value = cast(Any, value).tolist()
    if isinstance(value, list | tuple | range):
        items = cast("list[Any]", value)
        if any(isinstance(item, complex) for item in items):
            items = [complex(item) if isinstance(item, int | float) else item for item in items]
        return [plain(item) for item in items]
    if isinstance(value, complex):
        return [plain(value.real), plain(value.imag)]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def decode(tensor: Mapping[str, Any]) -> Array:
    """Return a tensor of a response as an array that owns its data; see ``native``."""
    raw = bytearray(binascii.a2b_base64(tensor["base64"], strict_mode=True))
    return native(np.ndarray(tensor["shape"], wire(tensor["dtype"]), raw), tensor["dtype"])


def native(bits: Array, name: str) -> Array:
    """Return little-endian data as an array of the dtype ``name``; of one that NumPy lacks, the data are its bits.

    Without the package ml_dtypes, such an array is widened to float32, which is exact. Raises ``ValueError`` for bytes
    other than 0 and 1 of a bool.
    """
    if (extension := DTYPES[name]).bits is not None:
        bits = bits.astype(extension.bits, copy=False)
        try:
            import ml_dtypes  # noqa: PLC0415 - an optional dependency
        except ImportError:
            if extension.widen is None:
                raise ValueError(f"{name} requires the package ml_dtypes: install it") from None
            return extension.widen(bits)
        return bits.view(getattr(ml_dtypes, name))
    if name == "bool" and (largest := int(bits.view(np.uint8).max(initial=0))) > 1:
        raise ValueError(f"expected bytes of 0 or 1 in a tensor of bools, got {largest}")
    return bits.astype(name, copy=False)


@lru_cache(maxsize=64)
def name_of(dtype: np.dtype[Any]) -> str:
    """Return the name of a dtype, which NumPy puts together anew each time."""
    return dtype.name


@lru_cache(maxsize=64)
def little_endian(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in the byte order of the wire."""
    return dtype.newbyteorder("<")


@lru_cache(maxsize=64)
def wire(name: str) -> np.dtype[Any]:
    """Return the dtype of the data on the wire; raise ``ValueError`` for an unknown name."""
    if name not in DTYPES:
        raise ValueError(f"unknown dtype {name}")
    return little_endian(np.dtype(DTYPES[name].bits or name))


def shared_float(tensors: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the float or complex dtype of the arrays that have one; ``None`` if there is none or they differ.

    Complex numbers do not differ from those of their parts.
    """
    names = {name_of(cast(Array, x).dtype) for named in tensors for x in named.values() if isinstance(x, np.ndarray)}
    floats = {COMPLEX.get(name, name): name for name in sorted(names.intersection((*FLOATS, *COMPLEX)), reverse=True)}
    return next(iter(floats.values())) if len(floats) == 1 else None


def _has_no_dtype(value: ArrayLike) -> bool:
    """Report whether to send a value without a dtype: numbers, lists, and what only the service can diagnose."""
    if isinstance(value, np.ndarray | np.generic):
        return False
    return value is None or isinstance(value, int | float | complex | str | list | tuple | range | Mapping)


def _array(value: ArrayLike, name: str) -> Array:
    if isinstance(value, np.ma.MaskedArray):
        raise BadArgument(f"{name}: expected an array without a mask, got a masked array: fill it, as by x.filled(0.0)")
    array = np.asarray(value)
    if name_of(array.dtype) not in DTYPES:
        raise BadArgument(f"{name}: expected an array of {', '.join(DTYPES)}, got {array.dtype.name}")
    return array
