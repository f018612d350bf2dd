"""Complex ops, from one table: their pages, the same functions in NumPy, and points to try."""

import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

COMPLEX, REAL = ("complex64", "complex128"), ("float32", "float64")
ANY = ("...",)
EACH, ROWS_OF_AXES = {"batching": "elementwise"}, {"batching": "leading_axes"}
HOLOMORPHIC = {"holomorphic": True}
NO_XLA = {"modes": ("graph", "eager", "v1")}


class Slot(NamedTuple):
    """An input or output: its dtypes, its symbolic shape, and in the point that is tried its shape and least part."""

    dtypes: tuple[str, ...] = COMPLEX
    shape: tuple[str | int, ...] = ANY
    sizes: tuple[int, ...] = (3,)
    low: float = -1.5

    def draw(self, rng: np.random.Generator) -> Any:
        if self.dtypes[0] == "int32":
            return rng.integers(0, 3, self.sizes, np.int32)
        if self.dtypes[0] == "bool":
            return rng.random(self.sizes) < 0.7
        return np.asarray(draw(rng, *self.sizes, low=self.low, real=self.dtypes[0] in REAL))

    def declared(self, kind: str, name: str) -> str:
        domain = f", domain=({self.low}, 1.5)" if self.low > 0 else ""
        fixed = ", differentiable=False" if self.dtypes[0] in ("int32", "bool") else ""
        return f"{kind}({name!r}, {self.dtypes!r}, {self.shape!r}{domain}{fixed})"


class Row(NamedTuple):
    """An op: its forward in TensorFlow and in NumPy, its inputs and its output ``w``, and other fields of the page.

    ``function`` is the expression of the op's function, if it is not ``forward``; ``code`` stands before it.
    """

    forward: str
    reference: str
    inputs: Mapping[str, Slot]
    output: Slot = Slot()
    fields: Mapping[str, Any] = {}
    attrs: Mapping[str, float] = {}
    function: str = "forward"
    code: str = ""

    @property
    def of(self) -> Callable[..., Any]:
        """The function in NumPy, of the inputs and then the attributes."""
        return eval(f"lambda {', '.join((*self.inputs, *self.attrs))}: {self.reference}", {"np": np})

    def page(self, name: str) -> str:
        """Return the text of the page."""
        arguments = ", ".join((*self.inputs, *(("*", *self.attrs) if self.attrs else ())))
        fields = "".join(f"    {field}={value!r},\n" for field, value in self.fields.items())
        numbers = "".join(f"    {attr}: float = 1.0\n" for attr in self.attrs) or "    pass\n"
        example = {slot: pairs(x) for slot, x in point(name, self).items()}
        return (
            f'"""w = {self.reference}"""\n\nimport numpy as np\nimport tensorflow as tf\n\n'
            "from pullback.ops import Attrs, Example, Input, Op, Output, custom_gradient\n\n\n"
            f"class Numbers(Attrs):\n{numbers}\n\n"
            f"def forward({arguments}):\n    return {self.forward}\n\n\n"
            f"def reference({arguments}):\n    return {self.reference}\n\n\n{self.code}"
            f"OP = Op(\n    name={name!r},\n    summary={self.reference!r},\n    doc=__doc__,\n    source=__file__,\n"
            f"    function={self.function},\n    reference=reference,\n    attrs=Numbers,\n"
            f"    inputs=({', '.join(slot.declared('Input', of) for of, slot in self.inputs.items())},),\n"
            f"    outputs=({self.output.declared('Output', 'w')},),\n"
            f"    examples=(Example('one', {example!r}, {dict(self.attrs)!r}),),\n{fields})\n"
        )


def draw(rng: np.random.Generator, *shape: int, low: float = -1.5, real: bool = False) -> Any:
    parts = rng.uniform(low, 1.5, shape)
    return parts if real else parts + 1j * rng.uniform(low, 1.5, shape)


def pairs(x: Any) -> Any:
    """Return an array as nested lists, complex numbers as pairs."""
    return (np.stack([x.real, x.imag], -1) if np.iscomplexobj(x) else np.asarray(x)).tolist()


def point(name: str, row: Row) -> dict[str, Any]:
    """Return inputs, the same each time; all functions are analytic in the parts of their inputs there."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return {slot: of.draw(rng) for slot, of in row.inputs.items()}


def write_pages(folder: Path) -> Path:
    """Write the pages of all ops to a folder, and of those that claim what is wrong."""
    for name, row in (ROWS | WRONG).items():
        (folder / f"{name}.py").write_text(row.page(name))
    (folder / "cx_hermitian.py").write_text(HERMITIAN)
    return folder


SQUARE = """\
def vjp(z, dw):
    return 2 * tf.math.conj(z) * dw


def vjp_vjp(z, dw, ddz):
    return 2 * dw * tf.math.conj(ddz), 2 * z * ddz


"""
CROSS = """\
def vjp(a, b, dw):
    return b * dw, a * tf.math.conj(dw)


def vjp_vjp(a, b, dw, dda, ddb):
    return ddb * dw, dda * tf.math.conj(dw), dda * tf.math.conj(b) + a * tf.math.conj(ddb)


"""
DET = """\
def vjp(a, dw):
    return tf.math.conj(DET(a)) * tf.linalg.inv(a, adjoint=True) * dw


DET = custom_gradient(forward, vjp)  # TensorFlow's is wrong for complex numbers


"""
Z, R = {"z": Slot()}, {"x": Slot(REAL)}
AWAY = {"z": Slot(low=0.5)}
VECTOR, MATRIX = Slot(shape=("N",)), Slot(shape=("N", "N"), sizes=(2, 2))
NUMBER, REAL_NUMBER = Slot(shape=(), sizes=()), Slot(REAL, (), ())
POSITIVE = "a @ np.conj(a).T + 3 * np.eye(len(a))"  # and Hermitian
TF_POSITIVE = "tf.matmul(a, a, adjoint_b=True) + 3 * tf.eye(tf.shape(a)[0], dtype=a.dtype)"
ROWS = {
    # Elementwise, holomorphic.
    "cx_square": Row("z * z", "z**2", Z, fields=EACH | HOLOMORPHIC, code=SQUARE,
                     function="custom_gradient(forward, vjp, vjp_vjp)"),
    "cx_exp": Row("tf.exp(z)", "np.exp(z)", Z, fields=EACH | HOLOMORPHIC),
    "cx_sqrt": Row("tf.sqrt(z)", "np.sqrt(z)", AWAY, fields=EACH | HOLOMORPHIC | NO_XLA),
    "cx_poly": Row("z**3 * tf.cast(s, z.dtype) - 2j * z", "s * z**3 - 2j * z", Z, fields=EACH | HOLOMORPHIC,
                   attrs={"s": 0.75}),
    "cx_quotient": Row("a / b", "a / b", {"a": Slot(), "b": Slot(low=0.5)}, fields=EACH | HOLOMORPHIC),
    # Elementwise, not holomorphic.
    "cx_conj": Row("tf.math.conj(z)", "np.conj(z)", Z, fields=EACH),
    "cx_cubic": Row("tf.math.conj(z) * z * z", "np.conj(z) * z**2", Z, fields=EACH),
    "cx_cross": Row("a * tf.math.conj(b)", "a * np.conj(b)", {"a": Slot(), "b": Slot()}, fields=EACH, code=CROSS,
                    function="custom_gradient(forward, vjp, vjp_vjp)"),
    "cx_parts": Row("tf.complex(tf.math.real(z) * tf.math.imag(z), tf.exp(tf.math.imag(z)))",
                    "z.real * z.imag + 1j * np.exp(z.imag)", Z, fields=EACH),
    # Between real and complex numbers.
    "cx_abs2": Row("tf.math.real(z * tf.math.conj(z))", "np.abs(z) ** 2", Z, Slot(REAL), EACH),
    "cx_angle": Row("tf.math.angle(z)", "np.angle(z)", AWAY, Slot(REAL), EACH),
    "cx_phase": Row("tf.complex(r * tf.cos(t), r * tf.sin(t))", "r * np.exp(1j * t)",
                    {"r": Slot(REAL), "t": Slot(REAL)}, fields=EACH),
    "cx_and_back": Row("tf.math.imag(tf.exp(tf.complex(0 * x, x)) * tf.complex(x, 0 * x + 2))",
                       "np.imag(np.exp(1j * x) * (x + 2j))", R, Slot(REAL), EACH),
    "cx_scale": Row("tf.complex(a * s, tf.zeros_like(a)) * z", "a * s * z", {"a": Slot(REAL), "z": Slot()},
                    fields=EACH | HOLOMORPHIC, attrs={"s": 1.5}),
    "cx_pick": Row("tf.where(m, tf.gather(z * z, n) * tf.complex(a, 0 * a), tf.complex(a, a))",
                   "np.where(m, np.take(z * z, n) * a, a + 1j * a)",
                   {"z": Slot(shape=("K",)), "a": Slot(REAL, ("N",)), "n": Slot(("int32",), ("N",)),
                    "m": Slot(("bool",), ("N",))}, VECTOR, HOLOMORPHIC),
    # Scalars, sums and rows.
    "cx_number": Row("z * z * tf.math.conj(z)", "z**2 * np.conj(z)", {"z": NUMBER}, NUMBER),
    "cx_sum": Row("tf.reduce_sum(z * z)", "np.sum(z**2)", {"z": VECTOR}, NUMBER, HOLOMORPHIC),
    "cx_mean": Row("tf.reduce_mean(z * tf.math.conj(z) + z, axis=-1)", "np.mean(z * np.conj(z) + z, axis=-1)",
                   {"z": Slot(shape=("N", 3), sizes=(2, 3))}, VECTOR, {"batching": "leading_axis"}),
    "cx_rows": Row("tf.einsum('...i,ij->...j', z, a * tf.math.conj(a))", "z @ (a * np.conj(a))",
                   {"z": Slot(shape=("...", "N"), sizes=(2, 2)), "a": MATRIX}, Slot(shape=("...", "N")),
                   ROWS_OF_AXES | {"shared": ("a",)}),
    # Fourier transforms.
    "cx_fft": Row("tf.signal.fft(z)", "np.fft.fft(z)", {"z": Slot(shape=("...", "N"))}, Slot(shape=("...", "N")),
                  ROWS_OF_AXES | HOLOMORPHIC),
    "cx_ifft": Row("tf.signal.ifft(z * tf.math.conj(z))", "np.fft.ifft(z * np.conj(z))", {"z": VECTOR}, VECTOR),
    "cx_rfft": Row("tf.signal.rfft(x)", "np.fft.rfft(x)", {"x": Slot(REAL, (4,), (4,))}, Slot(shape=(3,))),
    "cx_irfft": Row("tf.signal.irfft(z, [4])", "np.fft.irfft(z, 4)", {"z": Slot(shape=(3,))}, Slot(REAL, (4,))),
    # Matrices.
    "cx_matmul": Row("a @ b", "a @ b", {"a": Slot(shape=("N", "K"), sizes=(2, 3)),
                     "b": Slot(shape=("K", "M"), sizes=(3, 2))}, Slot(shape=("N", "M")), HOLOMORPHIC),
    "cx_solve": Row("tf.linalg.solve(a + 4 * tf.eye(tf.shape(a)[0], dtype=a.dtype), b)",
                    "np.linalg.solve(a + 4 * np.eye(len(a)), b)",
                    {"a": MATRIX, "b": Slot(shape=("N", "M"), sizes=(2, 1))}, Slot(shape=("N", "M")),
                    HOLOMORPHIC | NO_XLA),
    "cx_det": Row("tf.linalg.det(a)", "np.linalg.det(a)", {"a": MATRIX}, NUMBER, HOLOMORPHIC | NO_XLA,
                  function="DET", code=DET),
    "cx_cholesky": Row(f"tf.linalg.cholesky({TF_POSITIVE})", f"np.linalg.cholesky({POSITIVE})", {"a": MATRIX}, MATRIX),
    "cx_eigh": Row(f"tf.reduce_sum(tf.exp(tf.math.real(tf.linalg.eigvalsh({TF_POSITIVE})) / 4))",
                   f"np.sum(np.exp(np.linalg.eigvalsh({POSITIVE}) / 4))", {"a": MATRIX}, REAL_NUMBER, NO_XLA),
    # A sum over the eigenvalues, which have no order.
    "cx_eig": Row("tf.reduce_sum(tf.linalg.eigvals(tf.complex(x, 0 * x)) ** 3) / 3",
                  "np.sum(np.linalg.eigvals(x).astype(complex) ** 3) / 3",
                  {"x": Slot(REAL, ("N", "N"), (3, 3))}, NUMBER, NO_XLA),
}  # fmt: skip
WRONG = {
    "cx_claim": Row("z + 1e-3 * tf.math.conj(z)", "z + 1e-3 * np.conj(z)", Z, fields=EACH | HOLOMORPHIC),
}
HERMITIAN = """\
import numpy as np
import tensorflow as tf

from pullback.ops import Example, Input, InvalidInput, Op, Output


def forward(a):
    return tf.math.real(tf.reduce_sum(tf.linalg.eigvalsh(a) ** 3))


def reference(a):
    return np.real(np.trace(a @ a @ a))


def validate(inputs, attrs):
    a = inputs["a"]
    for i, j in np.argwhere(np.abs(a - np.conj(a).T) > 1e-5 * np.abs(a).max(initial=0)):
        expected, got = "a[i, j] = conj(a[j, i])", f"{a[i, j]} and {a[j, i]}"
        raise InvalidInput("a", "the matrix is not Hermitian", expected=expected, got=got, index=(int(i), int(j)))


def sample(rng, dtype, attrs):
    a = rng.normal(size=(3, 3)) + 1j * rng.normal(size=(3, 3))
    return {"a": (a + np.conj(a).T) / 2}


OP = Op(
    name="cx_hermitian",
    summary="the sum of the cubes of the eigenvalues of a Hermitian matrix",
    doc=__doc__,
    source=__file__,
    function=forward,
    reference=reference,
    validate=validate,
    sample=sample,
    inputs=(Input("a", ("complex64", "complex128"), ("N", "N")),),
    outputs=(Output("w", ("float32", "float64"), ()),),
    examples=(Example("one", {"a": [[[2, 0], [0.5, 1]], [[0.5, -1], [3, 0]]]}),),
    modes=("graph", "eager", "v1"),
)
"""
