"""The registered ops, one page each, and the vocabulary to write one: ``from ops import ...``."""

from ops import _environment as _environment  # before anything imports TensorFlow
from ops._attrs import Attrs
from ops._batching import Batching
from ops._claims import Array, Arrays, Claim, Derivative, Formula, Surrogate
from ops._faults import InvalidInput, OpFault, located
from ops._mechanisms import (
    additive,
    custom_gradient,
    many,
    multiplicative,
    override,
    register_gradient,
    rules_of,
    symbolic_gradient,
)
from ops._native import bounded_kernels, load, native_libraries
from ops._op import MODES, UNCOMPILED, Function, Mode, Op, Tensor
from ops._paths import replace_paths
from ops._registry import Registry, RegistryError, Unavailable, discover
from ops._slots import ANY_SHAPE, BOOL, FLOATS, INTEGERS, Example, Input, Output, unbound_symbols

__all__ = [
    "ANY_SHAPE",
    "BOOL",
    "FLOATS",
    "INTEGERS",
    "MODES",
    "UNCOMPILED",
    "Array",
    "Arrays",
    "Attrs",
    "Batching",
    "Claim",
    "Derivative",
    "Example",
    "Formula",
    "Function",
    "Input",
    "InvalidInput",
    "Mode",
    "Op",
    "OpFault",
    "Output",
    "Registry",
    "RegistryError",
    "Surrogate",
    "Tensor",
    "Unavailable",
    "additive",
    "bounded_kernels",
    "custom_gradient",
    "discover",
    "load",
    "located",
    "many",
    "multiplicative",
    "native_libraries",
    "override",
    "register_gradient",
    "replace_paths",
    "rules_of",
    "symbolic_gradient",
    "unbound_symbols",
]
