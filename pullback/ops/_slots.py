"""The signature of an op: its inputs and outputs, with dtypes and symbolic shapes, and its examples."""

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from pullback.ops._fields import check_fields, check_text, shown

Shape: TypeAlias = tuple[str | int, ...]

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int32", "int64", "int8", "int16", "uint8", "uint16", "uint32", "uint64")
BOOL = "bool"
COMPLEX: Mapping[str, str] = {"complex64": "float32", "complex128": "float64"}
"""The complex dtypes, each with the dtype of its two parts."""
COMPLEX_OF: Mapping[str, str] = {part: name for name, part in COMPLEX.items()}
Batching = Literal["elementwise", "leading_axis", "leading_axes", "none"]
"""What is independent: each number, each row of the leading axis, each row of the leading axes ``...``, or nothing."""
BATCHINGS: tuple[Batching, ...] = get_args(Batching)
BatchingOf: TypeAlias = Callable[[Any], Batching]
"""Returns the batching of an op for its validated attributes."""


class Pair(int):
    """The length of the axis of the real and the imaginary part."""


PAIR = Pair(2)

ANY: str = "..."
ANY_SHAPE: Shape = (ANY,)
UNDECLARED = (-3.0, 3.0)
"""The domain of an input that declares none: checks sample there, and expect finite derivatives everywhere."""
# The limits of a tensor in a request.
MAX_RANK, MAX_SIZE = 8, 1 << 31
MAX_OPTIONAL = 4
"""The most optional inputs of an op: each choice of them is traced and checked by itself."""


class _Shown:
    """How requests and answers show a slot.

    A page declares complex dtypes; then the op has a slot of pairs (``_pairs.py``), whose last axis is a ``PAIR``.
    """

    dtypes: tuple[str, ...]
    shape: Shape

    @property
    def is_complex(self) -> bool:
        """Whether it has pairs of real numbers, for complex ones."""
        return bool(self.shape) and isinstance(self.shape[-1], Pair)

    @property
    def shown_dtypes(self) -> tuple[str, ...]:
        """The dtypes of the numbers."""
        return tuple([COMPLEX_OF[dtype] for dtype in self.dtypes]) if self.is_complex else self.dtypes

    @property
    def shown_shape(self) -> Shape:
        """The symbolic shape of the numbers."""
        return self.shape[:-1] if self.is_complex else self.shape


@dataclass(frozen=True)
class Input(_Shown):
    """An input: its name, its dtypes (several: the type variable's), its symbolic shape.

    A symbol in ``shape`` stands for one dimension, the same wherever it appears in the op; ``"..."`` for any number of
    them; an int for itself. ``domain`` is where checks sample; at ``kinks`` and ``poles`` derivatives are one-sided
    or infinite, and checks keep away. An input of ``("bool",)``, such as a mask, has none of these and no derivative.
    Requests may leave out an ``optional`` input; the functions of the page get ``None`` in its place.
    """

    name: str
    dtypes: tuple[str, ...] = FLOATS
    shape: Shape = ANY_SHAPE
    differentiable: bool = True
    doc: str = ""
    domain: tuple[float, float] = UNDECLARED
    kinks: tuple[float, ...] = ()
    poles: tuple[float, ...] = ()
    optional: bool = False

    def __post_init__(self) -> None:
        """Raise an error for wrong types, dtypes, shapes and domains."""
        what = f"input {shown(self.name)}"
        check_fields(Input, self, what)
        _check_slot(self, what)
        if not all(map(math.isfinite, (*self.domain, *self.kinks, *self.poles))):
            raise ValueError(f"{what}: expected a finite domain, kinks and poles")
        low, high = self.domain
        if not 0 < high - low < math.inf:
            cure = f"; write {(high, low)}" if 0 < low - high < math.inf else ""
            raise ValueError(f"{what}: expected a domain (low, high) with low < high, got {self.domain}{cure}")

    @property
    def has_domain(self) -> bool:
        """Whether a domain is declared."""
        return self.domain is not UNDECLARED


@dataclass(frozen=True)
class Output(_Shown):
    """An output: like an input, without a domain."""

    name: str
    dtypes: tuple[str, ...] = FLOATS
    shape: Shape = ANY_SHAPE
    differentiable: bool = True
    doc: str = ""

    def __post_init__(self) -> None:
        """Raise an error for wrong types, dtypes and shapes."""
        what = f"output {shown(self.name)}"
        check_fields(Output, self, what)
        _check_slot(self, what)


@dataclass(frozen=True)
class Example:
    """An example input of an op, as nested lists, for the tests, the OpenAPI document, the docs and the checks."""

    name: str
    inputs: Mapping[str, Any]
    attrs: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        """Raise an error for wrong types, and for values that are not JSON."""
        what = f"example {shown(self.name)}"
        check_fields(Example, self, what)
        check_text(self.name, what)
        try:
            json.dumps([dict(self.inputs), dict(self.attrs)], allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            cure = (
                'write arrays as nested lists (x.tolist()), and NaN and infinity as "NaN", "Infinity" and "-Infinity"'
            )
            if "complex" in str(error):
                cure = "write a complex number as the pair [re, im]"
            raise ValueError(f"{what}: expected values that JSON can represent, got {error}; {cure}") from None


def _check_slot(slot: Input | Output, what: str) -> None:
    check_text(slot.doc, what)
    known = (*FLOATS, *COMPLEX, *INTEGERS, BOOL)
    if not slot.dtypes or len(set(slot.dtypes)) < len(slot.dtypes):
        raise ValueError(f"{what}: expected at least one dtype, each once, got {slot.dtypes}")
    if unknown := [dtype for dtype in slot.dtypes if dtype not in known]:
        raise ValueError(
            f"{what}: expected dtypes among {', '.join(known)}, got {shown(unknown[0])}{_instead(unknown[0])}"
        )
    if (have := [dtype for dtype in slot.dtypes if dtype in COMPLEX]) and len(have) < len(slot.dtypes):
        other = next(dtype for dtype in slot.dtypes if dtype not in COMPLEX)
        raise ValueError(f"{what}: expected complex dtypes alone, got {other} beside {have[0]}; declare two ops")
    if BOOL in slot.dtypes and (len(slot.dtypes) > 1 or slot.differentiable):
        expected = "bool alone, and differentiable=False beside it"
        raise ValueError(f"{what}: expected {expected}, got {slot.dtypes}")
    if wrong := [size for size in slot.shape if not _is_dimension(size)]:
        expected = 'names such as "N", sizes such as 3, and "..."'
        raise ValueError(f"{what}: expected a shape of {expected}, got {shown(wrong[0])}")
    most = MAX_RANK - bool(have)  # a complex tensor has the axis of its pairs besides
    if slot.shape.count(ANY) > 1 or len(slot.shape) - slot.shape.count(ANY) > most:
        raise ValueError(f'{what}: expected a shape with "..." at most once and up to {most} sizes, got {slot.shape}')


def check_variables(
    first: tuple[str, ...], second: tuple[str, ...], inputs: Sequence[Input], outputs: Sequence[Output]
) -> None:
    """Raise ``ValueError`` unless the inputs that are always sent, and ``dtype`` of a request, determine all dtypes.

    ``first`` and ``second`` are the dtypes of the type variables; there are none of a second that is not declared.
    """
    always = [slot for slot in inputs if not slot.optional]
    if not always or len(always) + MAX_OPTIONAL < len(inputs):
        got = len(inputs) - len(always)
        raise ValueError(f"expected an input that is not optional, and at most {MAX_OPTIONAL} that are, got {got}")
    slots = (*inputs, *outputs)
    several = {slot.dtypes for slot in slots if len(slot.dtypes) > 1}
    cure = "list one dtype in the others, and convert with tf.cast"
    of_complex = {slot.dtypes for slot in slots if slot.is_complex and len(slot.dtypes) > 1}
    if of_complex and (other := [each for each in several - of_complex if each[0] in FLOATS]):
        expected = f"real slots beside complex ones with one float dtype, or {(*of_complex,)[0]}"
        raise ValueError(f"{expected}, got {other[0]}; {cure}")
    if len(set(map(frozenset, several))) < len(several) or several - {first, second}:
        expected = "the same dtypes in the same order, or those of a second type variable, which an input lists"
        raise ValueError(f"inputs and outputs with several dtypes must list {expected}; {cure}")
    floats = [{dtype for dtype in dtypes if dtype in FLOATS} for dtypes in (first, second)]
    if second and floats[0] == floats[1]:
        raise ValueError(f"expected type variables with different floats, got {first} and {second}; {cure}")
    if second and second not in [slot.dtypes for slot in always]:
        raise ValueError(f"expected an input that is not optional with the dtypes {second}, got none; {cure}")


def _instead(dtype: str) -> str:
    """Return what to declare in place of a dtype that has no numbers of one part; "" for a misspelt one."""
    return "; declare integers, such as codes" if dtype in ("string", "str", "object", "resource", "variant") else ""


def _is_dimension(size: str | int) -> bool:
    return 0 <= size < MAX_SIZE if isinstance(size, int) else size == ANY or (size.isidentifier() and size.isascii())


def unbound_symbols(inputs: Sequence[Input], outputs: Sequence[Output], known: Collection[str]) -> dict[str, str]:
    """Return the symbols of outputs that are in no input and not ``known``, each with the name of an output.

    Inputs do not determine these sizes: they depend on values, or on sizes by a formula. ``"..."`` is not among them.
    """
    of_inputs = {size for slot in inputs for size in slot.shape}
    return {
        size: slot.name
        for slot in reversed(outputs)
        for size in slot.shape
        if isinstance(size, str) and size != ANY and size not in of_inputs and size not in known
    }


def duplicate_names(slots: Sequence[Input] | Sequence[Output] | Sequence[Example]) -> list[str]:
    """Return the names that more than one of these have."""
    names = [slot.name for slot in slots]
    return [name for name in dict.fromkeys(names) if names.count(name) > 1]


def check_batching(
    batching: object, shared: Sequence[str], inputs: Sequence[Input], outputs: Sequence[Output], *, varies: bool
) -> None:
    """Raise ``ValueError`` if the slots of an op do not have the rows that ``batching`` and ``shared`` declare.

    ``shared`` names the inputs that all rows use. If the batching ``varies`` with the attributes, there may be shared
    inputs beside a batching without rows.
    """
    if batching not in BATCHINGS:
        raise ValueError(f"batching: expected one of {', '.join(map(repr, BATCHINGS))}, got {shown(batching)}")
    names = [slot.name for slot in inputs]
    if unknown := [name for name in shared if name not in names]:
        raise ValueError(f"shared: expected names of inputs ({', '.join(names)}), got {shown(unknown[0])}")
    has_rows = batching in ("leading_axis", "leading_axes")
    if shared and not has_rows and not varies:
        cure = 'leave shared out, or declare batching="leading_axis" or "leading_axes"'
        raise ValueError(f"shared: expected no names with batching={batching!r}, got {shared}; {cure}")
    if len(set(shared)) == len(names):
        raise ValueError("shared: expected at least one input with rows, got all inputs")
    slots = [*(slot for slot in inputs if slot.name not in shared), *outputs]
    if batching == "elementwise" and any(slot.shape != ANY_SHAPE for slot in (*inputs, *outputs)):
        raise ValueError(f"an elementwise op has inputs and outputs of one shape, {ANY_SHAPE}")
    if batching == "leading_axes" and (wrong := [slot for slot in slots if slot.shape[:1] != ANY_SHAPE]):
        cure = 'write shape=("...", ...), or name the input in shared'
        raise ValueError(f"{_expected(batching, ANY_SHAPE)}, got {wrong[0].shape} of {wrong[0].name!r}; {cure}")
    if batching == "leading_axis":
        _check_leading_axis(slots)
    rows = slots[0].shape[0] if has_rows else None
    if wrong := [slot for slot in inputs if slot.name in shared and rows in slot.shape]:
        expected = f"shared inputs without the axis of rows, {rows!r}"
        raise ValueError(f"shared: expected {expected}, got {wrong[0].shape} of {wrong[0].name!r}; leave it out")


def _check_leading_axis(slots: Sequence[Input | Output]) -> None:
    """Raise ``ValueError`` unless all slots begin with the same symbol, which is in no other place."""
    for slot in slots:
        if not slot.shape:
            raise ValueError("an op with batching='leading_axis' has inputs and outputs with a leading axis, got ()")
        first, *others = slot.shape
        if first == ANY:
            cure = 'declare batching="leading_axes" if all of them are independent'
            raise ValueError(f"{_expected('leading_axis', ('N',))}, got {slot.shape} of {slot.name!r}; {cure}")
        if isinstance(first, int) or first != slots[0].shape[0] or first in others:
            cure = "write the same symbol for the rows of all, and only there, or name the input in shared"
            raise ValueError(f"{_expected('leading_axis', ('N',))}, got {slot.shape} of {slot.name!r}; {cure}")


def _expected(batching: Batching, begin: Shape) -> str:
    return f"an op with batching={batching!r} has inputs and outputs whose shapes begin with {begin[0]!r}"
