"""The dtypes of tensors, one line each; everything else that the client knows of them derives from this table."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]


class Dtype(NamedTuple):
    """A dtype: its kind, and its code in safetensors, "" for one that this format lacks.

    One that NumPy lacks has the dtype of its ``bits``, which are unsigned integers; the package ml_dtypes has it, and
    without that ``widen`` returns the same numbers as float32.
    """

    kind: Literal["float", "complex", "integer", "bool"]
    code: str
    bits: str | None = None
    widen: Callable[[Array], Array] | None = None


def _widen_bfloat16(bits: Array) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


DTYPES: Mapping[str, Dtype] = {
    "float16": Dtype("float", "F16"),
    "bfloat16": Dtype("float", "BF16", "uint16", _widen_bfloat16),
    "float32": Dtype("float", "F32"),
    "float64": Dtype("float", "F64"),
    "complex64": Dtype("complex", "C64"),
    "complex128": Dtype("complex", ""),
    "int8": Dtype("integer", "I8"),
    "int16": Dtype("integer", "I16"),
    "int32": Dtype("integer", "I32"),
    "int64": Dtype("integer", "I64"),
    "uint8": Dtype("integer", "U8"),
    "uint16": Dtype("integer", "U16"),
    "uint32": Dtype("integer", "U32"),
    "uint64": Dtype("integer", "U64"),
    "bool": Dtype("bool", "BOOL"),
}
FLOATS = tuple(name for name, dtype in DTYPES.items() if dtype.kind == "float")
COMPLEX: Mapping[str, str] = {"complex64": "float32", "complex128": "float64"}
"""The complex dtypes, each with the dtype of its two parts."""
INTEGERS = tuple(name for name, dtype in DTYPES.items() if dtype.kind == "integer")


def needs_ml_dtypes(name: str) -> bool:
    """Report whether NumPy lacks a dtype."""
    return name in DTYPES and DTYPES[name].bits is not None
