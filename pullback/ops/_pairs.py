"""Complex numbers as pairs of real ones: an op with complex slots becomes an op of real tensors.

The pair (re, im) is a last axis of length 2. TensorFlow's gradient of a real loss L in a complex z is
∂L/∂re + i ∂L/∂im (``docs/derivatives.md``), which is the pair of the gradients in the two parts. So every derivative
of the real op, at any order, is that of the complex one in TensorFlow's convention, and nothing that evaluates or
checks ops knows of complex numbers. The functions of a page get complex tensors, or complex NumPy arrays.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from pullback.ops._claims import Array, Arrays, Claim, Formula, Surrogate
from pullback.ops._faults import OpFault, located
from pullback.ops._parameters import Parameter
from pullback.ops._rules import Function, many, shown_kind
from pullback.ops._slots import COMPLEX, PAIR, Input, Output

Slot = TypeVar("Slot", Input, Output)
Slots = Sequence[Input] | Sequence[Output]


def as_pairs(op: Any) -> dict[str, Any]:
    """Return the fields of a declaration with complex slots that differ in the op of pairs."""
    declared = next((slot.dtypes for slot in op.inputs if len(slot.dtypes) > 1), op.inputs[0].dtypes)
    inputs: tuple[Input, ...] = tuple(map(_of_pairs, op.inputs))
    outputs: tuple[Output, ...] = tuple(map(_of_pairs, op.outputs))
    parameters: tuple[Parameter, ...] = op.parameters
    every = (*inputs, *(each.slot for each in parameters))
    numpy = {
        "reference": _reference(op.reference, every, outputs),
        "validate": _of_names(op.validate, inputs),
        "singular": _of_names(op.singular, every),
        "sample": _sample(op.sample, inputs, {COMPLEX.get(name, name): name for name in declared}),
        "sparsity": _sparsity(op.sparsity, every, outputs),
    }
    batching = op.batching
    if not callable(batching) and batching == "elementwise":
        batching = "leading_axes"  # each pair is a row
    return {
        "inputs": inputs,
        "outputs": outputs,
        "function": _tensors(op.function, every, outputs),
        "claim": _claim(op.claim, every, outputs),
        "batching": batching,
        **{name: made for name, made in numpy.items() if made is not None},
    }


def to_complex(x: tf.Tensor) -> tf.Tensor:
    """Return a tensor of pairs as complex numbers."""
    real, imag = tf.unstack(x, 2, axis=-1)
    return tf.complex(real, imag)


def to_pairs(z: tf.Tensor) -> tf.Tensor:
    """Return a tensor of complex numbers as pairs."""
    return tf.stack([tf.math.real(z), tf.math.imag(z)], axis=-1)


def _of_pairs(slot: Slot) -> Slot:
    if slot.dtypes[0] not in COMPLEX:
        return slot
    return replace(slot, dtypes=tuple([COMPLEX[dtype] for dtype in slot.dtypes]), shape=(*slot.shape, PAIR))


def _complex(x: Any) -> Any:
    """Return an array of pairs as complex numbers; other subclasses of arrays than NumPy's keep their class."""
    return x[..., 0] + 1j * x[..., 1]


def _exact(x: Array) -> Array:
    """Return an array of pairs as complex numbers of the same width."""
    z = np.empty(x.shape[:-1], np.result_type(x.dtype, np.complex64))
    z.real, z.imag = x[..., 0], x[..., 1]
    return z


def _pairs(z: Any) -> Any:
    """Return an array as pairs; a real one has imaginary parts of zero."""
    parts: list[Array] = [np.real(z), np.imag(z)]
    return np.stack(parts, axis=-1)


def _tensors(function: Function, inputs: Slots, outputs: Slots) -> Function:
    @functools.wraps(function)
    def of_pairs(*xs: tf.Tensor | None, **attrs: Any) -> Any:
        pairs = zip(xs, inputs, strict=True)
        result: Any = function(*(to_complex(x) if x is not None and s.is_complex else x for x, s in pairs), **attrs)
        ys = many(result)
        if len(ys) != len(outputs) or shown_kind(result).startswith("a dict"):
            return result  # the caller reports it
        for i, slot in enumerate(outputs):
            if slot.is_complex:
                y, names = ys[i], slot.shown_dtypes
                if not isinstance(y, tf.Tensor) or y.dtype.name not in names:
                    got = y.dtype.name if isinstance(y, tf.Tensor) else shown_kind(y)
                    expected = f"a {' or '.join(names)} tensor"
                    raise OpFault("forward", slot.name, expected=expected, got=got, where=located(function))
                ys[i] = to_pairs(y)
        return ys[0] if len(ys) == 1 else tuple(ys)

    return of_pairs


def _reference(function: Function | None, slots: Slots, results: Slots) -> Function | None:
    if function is None:
        return None

    @functools.wraps(function)
    def of_pairs(*xs: Any, **attrs: Any) -> Any:
        return _returned(function(*_each(_complex, xs, slots), **attrs), results)

    return of_pairs


def _each(convert: Callable[[Any], Any], xs: Sequence[Any], slots: Slots) -> list[Any]:
    pairs = zip(xs, slots, strict=True)
    return [convert(x) if slot.is_complex and x is not None else x for x, slot in pairs]


def _returned(result: Any, slots: Slots) -> Any:
    """Return the results of a NumPy function, one for each slot, in pairs; others as they are, for the caller."""
    values = many(result)
    if len(values) != len(slots):
        return result
    return _each(_pairs, [_real(value, slot) for value, slot in zip(values, slots, strict=True)], slots)


def _real(value: Any, slot: Input | Output) -> Any:
    """Return a result; raise ``OpFault`` for complex numbers in a real slot, which NumPy would cut to real ones."""
    if slot.is_complex or not np.iscomplexobj(value):
        return value
    imaginary: Any = np.imag(value)
    if np.any(imaginary):
        expected = f"real numbers, {' or '.join(slot.dtypes)}"
        raise OpFault("a NumPy function of the page", slot.name, expected=expected, got="complex numbers")
    return np.real(value)


def _of_names(function: Function | None, slots: Slots) -> Function | None:
    if function is None:
        return None
    are_complex = {slot.name for slot in slots if slot.is_complex}

    @functools.wraps(function)
    def of_pairs(inputs: Mapping[str, Array], attrs: Any) -> Any:
        return function({name: _exact(x) if name in are_complex else x for name, x in inputs.items()}, attrs)

    return of_pairs


def _sample(sample: Function | None, slots: Slots, names: Mapping[str, str]) -> Function | None:
    if sample is None:
        return None

    @functools.wraps(sample)
    def of_pairs(rng: np.random.Generator, dtype: str, attrs: Any) -> dict[str, Any]:
        drawn = dict(sample(rng, names.get(dtype, dtype), attrs))
        for slot in slots:
            if slot.name in drawn:
                value = _real(drawn[slot.name], slot)
                drawn[slot.name] = _pairs(value) if slot.is_complex else value
        return drawn

    return of_pairs


def _sparsity(sparsity: Function | None, inputs: Slots, outputs: Slots) -> Function | None:
    if sparsity is None:
        return None
    parts = {slot.name: 2 if slot.is_complex else 1 for slot in (*inputs, *outputs)}

    @functools.wraps(sparsity)
    def of_pairs(dims: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        found = sparsity(dims)
        return {y: {x: _blocks(places, parts[y], parts[x]) for x, places in of.items()} for y, of in found.items()}

    return of_pairs


def _blocks(places: tuple[Any, Any], down: int, across: int) -> tuple[Array, Array]:
    """Return the places of blocks of so many rows and columns in place of those of single numbers."""
    rows, columns = (np.asarray(each)[:, None, None] for each in places)
    i, j = np.arange(down)[:, None], np.arange(across)
    rows, columns = np.broadcast_arrays(rows * down + i, columns * across + j)
    return rows.ravel(), columns.ravel()


def _claim(claim: Callable[[Any], Any], inputs: Slots, outputs: Slots) -> Callable[[Any], Claim]:
    def converted(function: Callable[..., Any], results: Slots, arguments: Sequence[Slots]) -> Callable[..., Any]:
        @functools.wraps(function)
        def of_pairs(*sequences: Arrays) -> Any:
            given = zip(sequences, arguments, strict=True)
            return _returned(function(*(_each(_complex, xs, slots) for xs, slots in given)), results)

        return of_pairs

    @functools.wraps(claim)
    def of_pairs(attrs: Any) -> Any:
        whole: object = claim(attrs)
        if not isinstance(whole, Claim):
            return whole  # the caller reports it
        first, second = whole.first, whole.second
        if isinstance(first, Surrogate):
            first = Surrogate(converted(first.of, outputs, (inputs, inputs)))
        elif isinstance(first, Formula):
            first = Formula(converted(first.vjp, inputs, (inputs, outputs)))
        if isinstance(second, Surrogate):
            second = Surrogate(converted(second.of, inputs, (inputs, outputs, inputs)))
        elif isinstance(second, Formula):
            second = Formula(converted(second.vjp, inputs, (inputs, outputs, inputs)))
        return replace(whole, first=first, second=second)

    return of_pairs
