"""Equal numbers have equal answers at every position of arrays of every length, up to rounding.

Kernels compute several numbers at a time, and those at the end of an array one by one, by formulas of their own.
"""

from collections.abc import Sequence

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

import app.runtime.modes  # noqa: F401 - it installs the corrections
from app.runtime.calculus import Graph

OF_ONE = """
Abs Acos Acosh Angle Asin Asinh Atan Atanh BesselI0 BesselI0e BesselI1 BesselI1e BesselJ0 BesselJ1 BesselK0 BesselK0e
BesselK1 BesselK1e BesselY0 BesselY1 Ceil ComplexAbs Conj Cos Cosh Dawsn Digamma Elu Erf Erfc Erfinv Exp Expint Expm1
Floor FresnelCos FresnelSin Imag Inv Lgamma Log Log1p Ndtri Neg Real Reciprocal Relu Relu6 Rint Round Rsqrt Selu
Sigmoid Sign Sin Sinh Softplus Softsign Spence Sqrt Square Tan Tanh LeakyRelu
"""
OF_TWO = """
Add AddV2 Atan2 Complex Div DivNoNan EluGrad FloorDiv FloorMod Igamma IgammaGradA Igammac InvGrad LeakyReluGrad
Maximum Minimum Mod Mul MulNoNan NextAfter Polygamma Pow RealDiv ReciprocalGrad Relu6Grad ReluGrad RsqrtGrad SeluGrad
SigmoidGrad SoftplusGrad SoftsignGrad SqrtGrad SquaredDifference Sub TanhGrad TruncateDiv TruncateMod Xdivy Xlog1py
Xlogy Zeta
"""
UNARY, BINARY = OF_ONE.split(), OF_TWO.split()
DTYPES = {"float16": 1e-2, "bfloat16": 1e-1, "float32": 1e-5, "float64": 1e-13, "complex64": 1e-4, "complex128": 1e-12}
REAL = {"complex64": "float32", "complex128": "float64"}
PARTS = (0.0, -0.0, 1.0, -1.0, 2.0, -3.0, 0.5, 1e-3, -30.0)
MORE = (0.1, -0.5, 1.25, 3.14159265, 1.5707963, -20.0)
LENGTHS = (*range(1, 10), 15, 17, 31, 33, 63, 65, 70)
WITH_PARTS = ("Angle", "ComplexAbs", "Imag", "Real")


def numbers(dtype: str) -> np.ndarray:
    """Return signed zeros, and numbers on the axes, on both sides of the cuts and elsewhere."""
    if dtype not in REAL:
        return np.array([*PARTS, *MORE]).astype(tf.as_dtype(dtype).as_numpy_dtype)
    found = np.empty((len(PARTS), len(PARTS)), dtype)
    found.real, found.imag = np.array(PARTS)[:, None], np.array(PARTS)
    return found.reshape(-1)


def computed(kernel: str, arrays: Sequence[np.ndarray]) -> np.ndarray:
    names = [each.name for each in op_def_registry.get(kernel).input_arg]
    of_parts = {"Tout": REAL[arrays[0].dtype.name]} if kernel in WITH_PARTS else {}
    call = getattr(tf.raw_ops, kernel)
    return np.asarray(call(**dict(zip(names, map(tf.constant, arrays), strict=True)), **of_parts))


def arguments(kernel: str, dtype: str) -> list[np.ndarray]:
    """Return numbers, and of those of two arguments a part of all pairs."""
    x = numbers(dtype)
    if kernel in UNARY:
        return [x]
    pairs = np.random.default_rng(0).permutation(len(x) ** 2)[:300]
    return [x[pairs // len(x)], x[pairs % len(x)]]


def assert_close(found: np.ndarray, expected: np.ndarray, rtol: float, text: str) -> None:
    if found.dtype == bool:
        np.testing.assert_array_equal(found, expected, err_msg=text)
        return
    wide = np.complex128 if found.dtype.kind == "c" else np.float64
    a, b = found.astype(wide), expected.astype(wide)
    assert (np.isfinite(a) == np.isfinite(b)).all(), text
    finite = np.isfinite(a)
    a, b = a[finite], b[finite]
    assert (np.abs(a - b) <= rtol * np.maximum(np.abs(a), np.abs(b))).all(), (text, a, b)


def kinds() -> list[tuple[str, str]]:
    found = list[tuple[str, str]]()
    for kernel in (*UNARY, *BINARY):
        definition = op_def_registry.get(kernel)
        name = definition.input_arg[0].type_attr
        allowed = next(attr.allowed_values.list.type for attr in definition.attr if attr.name == name)
        found += [(kernel, dtype) for dtype in DTYPES if not allowed or tf.as_dtype(dtype).as_datatype_enum in allowed]
    return found


@pytest.mark.share(8)
@pytest.mark.parametrize(("kernel", "dtype"), kinds())
def test_numbers_are_the_same_at_every_position(kernel: str, dtype: str) -> None:
    given = arguments(kernel, dtype)
    try:
        in_body = computed(kernel, [np.repeat(x, 64) for x in given])[::64]
    except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError) as error:
        pytest.skip(f"no kernel: {str(error)[:60]}")
    for length in LENGTHS:
        for first in range(0, len(in_body), length):
            places = np.arange(first, first + length) % len(in_body)
            found = computed(kernel, [x[places] for x in given])
            assert_close(found, in_body[places], DTYPES[dtype], f"{kernel} of {length} from {first}")


ROOTS = {
    "sqrt": tf.sqrt,
    "raw": lambda z: tf.raw_ops.Sqrt(x=z),
    "power": lambda z: z**0.5,
    "constant": lambda z: tf.pow(z, tf.constant([0.5], z.dtype)),
}


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("root", ROOTS.values(), ids=ROOTS)
def test_complex_roots_are_on_one_side_of_the_cut(root, dtype: str) -> None:
    """NumPy's answer below the cut is -2i, and so is that of each length, with its derivative."""

    def both(z):
        w = root(z)
        return w, Graph().pullback([w], [z])([tf.ones_like(w)])[0]

    traced = tf.function(both, input_signature=[tf.TensorSpec([None], dtype)], autograph=False)
    for length in (*range(1, 71), 1001, 70_001):
        z = np.full(length, complex(-4, -0.0), dtype)
        w, dz = traced(z)
        for found in (w, root(tf.constant(z))):
            np.testing.assert_allclose(found, np.sqrt(z), atol=1e-6)
        np.testing.assert_allclose(dz, np.conj(0.5 / np.sqrt(z)), atol=1e-6)


@pytest.mark.parametrize("shape", [(), (0,), (3, 1), (2, 0, 3)])
def test_complex_roots_keep_shapes(shape: tuple[int, ...]) -> None:
    z = tf.zeros(shape, tf.complex64)
    assert tf.sqrt(z).shape == shape
    assert tf.function(tf.sqrt, autograph=False).get_concrete_function(z).outputs[0].shape == shape
