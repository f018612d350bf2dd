"""The vocabulary of an op's page: ``from pullback.ops import Op, ...``, or ``from ops import ...`` in the service."""

from pullback.ops import _environment as _environment  # before anything imports TensorFlow
from pullback.ops._attrs import Attrs
from pullback.ops._claims import Array, Arrays, Claim, Derivative, Formula, Surrogate
from pullback.ops._faults import InvalidInput, OpFault, located
from pullback.ops._mechanisms import (
    additive,
    custom_gradient,
    multiplicative,
    override,
    register_gradient,
    symbolic_gradient,
)
from pullback.ops._native import bounded_kernels, left_out, load, native_libraries
from pullback.ops._op import MODES, UNCOMPILED, Mode, Op
from pullback.ops._pages import load_page
from pullback.ops._parameters import NO_PARAMETERS, Parameter, ParameterSet
from pullback.ops._paths import replace_paths
from pullback.ops._recompute import recompute
from pullback.ops._registry import Registry, RegistryError, Unavailable, discover, pages_of, register
from pullback.ops._rules import Function, Tensor, many, rules_of, shown_kind
from pullback.ops._slots import (
    ANY_SHAPE,
    BOOL,
    COMPLEX,
    COMPLEX_OF,
    FLOATS,
    INTEGERS,
    Batching,
    Example,
    Input,
    Output,
    unbound_symbols,
)
from pullback.ops._variants import choices_of_inputs, closed, variant

__all__ = [
    "ANY_SHAPE",
    "BOOL",
    "COMPLEX",
    "COMPLEX_OF",
    "FLOATS",
    "INTEGERS",
    "MODES",
    "NO_PARAMETERS",
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
    "Parameter",
    "ParameterSet",
    "Registry",
    "RegistryError",
    "Surrogate",
    "Tensor",
    "Unavailable",
    "additive",
    "bounded_kernels",
    "choices_of_inputs",
    "closed",
    "custom_gradient",
    "discover",
    "left_out",
    "load",
    "load_page",
    "located",
    "many",
    "multiplicative",
    "native_libraries",
    "override",
    "pages_of",
    "recompute",
    "register",
    "register_gradient",
    "replace_paths",
    "rules_of",
    "shown_kind",
    "symbolic_gradient",
    "unbound_symbols",
    "variant",
]
