"""Ops of matrices, vectors and signals, one in each row, that depend on no other row."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from ops import UNCOMPILED, Array, Attrs, Example, Input, Tensor, custom_gradient
from tests.gradcheck.wrong.making import BOTH, MATRIX
from tests.rows.making import SQUARE, rows_of


def row_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention inside each row: softmax(q kᵀ) v, each of shape (N, T, D)."""
    return tf.matmul(tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / 4), v)


def attention_reference(q: Array, k: Array, v: Array) -> Array:
    e = np.exp(q @ np.swapaxes(k, -1, -2) / 4)
    return e / e.sum(-1, keepdims=True) @ v


INPUTS = [Input(name, BOTH, ("N", "T", "D")) for name in ("q", "k", "v")]


def row_cholesky(a: Tensor) -> Tensor:
    """The Cholesky factor of AAᵀ + I for a matrix A of each row."""
    return tf.linalg.cholesky(tf.matmul(a, a, transpose_b=True) + tf.eye(tf.shape(a)[-1], dtype=a.dtype))


def cholesky_reference(a: Array) -> Array:
    return np.linalg.cholesky(a @ np.swapaxes(a, -1, -2) + np.eye(a.shape[-1]))


KERNEL = np.cos(np.arange(3.0 * 2 * 3)).reshape(3, 2, 3)


def row_conv(x: Tensor) -> Tensor:
    """A convolution over the time of each row, with the same kernel for all rows: shapes (N, T, 2) to (N, T, 3)."""
    return tf.nn.conv1d(x, tf.constant(KERNEL, x.dtype), stride=1, padding="SAME")


def conv_reference(x: Array) -> Array:
    padded = np.pad(x, [(0, 0), (1, 1), (0, 0)])
    return np.sum([padded[:, k : k + x.shape[1]] @ KERNEL[k] for k in range(3)], axis=0)


def row_cosine(x: Tensor, z: Tensor) -> Tensor:
    """The cosine of the angle between two vectors of each row, softened where they are short."""
    lengths = (1 + tf.reduce_sum(x * x, axis=-1)) * (1 + tf.reduce_sum(z * z, axis=-1))
    return tf.reduce_sum(x * z, axis=-1) / tf.sqrt(lengths)


def cosine_reference(x: Array, z: Array) -> Array:
    return (x * z).sum(-1) / np.sqrt((1 + (x * x).sum(-1)) * (1 + (z * z).sum(-1)))


def row_eigenvalues(a: Tensor) -> Tensor:
    """The eigenvalues of A + Aᵀ for a matrix A of each row."""
    return tf.linalg.eigvalsh(a + tf.linalg.matrix_transpose(a))


def eigenvalues_reference(a: Array) -> Array:
    return np.linalg.eigvalsh(a + np.swapaxes(a, -1, -2))


def eigenvalues_singular(inputs: Mapping[str, Array], attrs: Attrs) -> bool:
    return bool((np.diff(eigenvalues_reference(inputs["a"])) < 1e-3).any())


def eigenvalues_sample(rng: np.random.Generator, dtype: str, attrs: Attrs) -> dict[str, Array]:
    """Draw matrices whose eigenvalues are apart."""
    small = rng.uniform(-0.25, 0.25, (3, 3, 3))
    return {"a": (small + np.diag([-2.0, 0.5, 3.0])).astype(dtype)}


def row_einsum(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """The product of two matrices of each row and a vector of each row, as one sum over all indices."""
    return tf.einsum("nij,njk,nk->ni", a, b, x)


def einsum_reference(a: Array, b: Array, x: Array) -> Array:
    return (a @ b @ x[..., None])[..., 0]


def row_expm(a: Tensor) -> Tensor:
    """The exponential of a matrix of each row, whose number of squarings depends on the norm of the matrix."""
    return tf.linalg.expm(a)


def expm_reference(a: Array) -> Array:
    term = total = np.broadcast_to(np.eye(a.shape[-1]), a.shape)
    for k in range(1, 40):
        term = term @ a / k
        total = total + term
    return total


A = Input("a", BOTH, SQUARE, domain=(-1.0, 1.0))


def row_fft(x: Tensor) -> Tensor:
    """The power of each frequency of each row."""
    spectrum = tf.signal.rfft(x)
    return tf.square(tf.math.real(spectrum)) + tf.square(tf.math.imag(spectrum))


def fft_reference(x: Array) -> Array:
    return np.abs(np.fft.rfft(x)) ** 2


W = np.cos(np.arange(16.0 * 24)).reshape(16, 24)


def row_linear(x: Tensor) -> Tensor:
    """A product with the same wide matrix for all rows, x W, whose kernel works in blocks of rows."""
    return tf.matmul(x, tf.constant(W, x.dtype))


def linear_reference(x: Array) -> Array:
    return x @ W


def row_logdet(a: Tensor) -> Tensor:
    """The logarithm of |det(A + 4I)| for a matrix A of each row."""
    return tf.linalg.slogdet(a + 4 * tf.eye(tf.shape(a)[-1], dtype=a.dtype))[1]


def logdet_reference(a: Array) -> Array:
    return np.linalg.slogdet(a + 4 * np.eye(a.shape[-1]))[1]


LOGDET_A = Input("a", BOTH, SQUARE, domain=(-0.5, 0.5))


def row_matvec(a: Tensor, x: Tensor) -> Tensor:
    """A matrix of each row times a vector of each row."""
    return tf.linalg.matvec(a, x)


def matvec_reference(a: Array, x: Array) -> Array:
    return (a @ x[..., None])[..., 0]


MLP_A = np.cos(np.arange(4.0 * 9)).reshape(4, 9)


B = np.sin(np.arange(9.0 * 3)).reshape(9, 3)


def row_mlp(x: Tensor) -> Tensor:
    """Two layers, with the same weights for all rows: tanh(x A) B. Rows meet in one product of matrices."""
    return tf.matmul(tf.tanh(tf.matmul(x, tf.constant(MLP_A, x.dtype))), tf.constant(B, x.dtype))


def mlp_reference(x: Array) -> Array:
    return np.tanh(x @ MLP_A) @ B


def row_pool(x: Tensor) -> Tensor:
    """The mean of each square of four pixels of an image (N, 4, 4, C)."""
    return tf.nn.avg_pool(tf.sin(x), ksize=2, strides=2, padding="VALID")


def pool_reference(x: Array) -> Array:
    n, _, _, c = x.shape
    return np.sin(x).reshape(n, 2, 2, 2, 2, c).mean((2, 4))


def row_qr(a: Tensor) -> Tensor:
    """The magnitudes on the diagonal of R, with A + 4I = QR, for a 3 by 3 matrix A of each row."""
    # TensorFlow's gradient of qr needs a known shape.
    a = tf.ensure_shape(a, [None, 3, 3])
    _, r = tf.linalg.qr(a + 4 * tf.eye(3, dtype=a.dtype))
    return tf.abs(tf.linalg.diag_part(r))


def qr_reference(a: Array) -> Array:
    shifted = a + 4 * np.eye(3)
    return np.abs(np.diagonal(np.stack([np.linalg.qr(one)[1] for one in shifted]), axis1=-2, axis2=-1))


QR_A = Input("a", BOTH, ("N", 3, 3), domain=(-0.5, 0.5))


def row_solve(a: Tensor, b: Tensor) -> Tensor:
    """The solution of (A + 4I) x = b for a matrix and a vector of each row."""
    shifted = a + 4 * tf.eye(tf.shape(a)[-1], dtype=a.dtype)
    return tf.squeeze(tf.linalg.solve(shifted, tf.expand_dims(b, -1)), axis=-1)


def solve_reference(a: Array, b: Array) -> Array:
    return np.linalg.solve(a + 4 * np.eye(a.shape[-1]), b[..., None])[..., 0]


SOLVE_A = Input("a", BOTH, SQUARE, domain=(-0.5, 0.5))


def row_trace_cubed(a: Tensor) -> Tensor:
    """The trace of A³ for a matrix of each row, with a gradient written by hand."""
    return tf.linalg.trace(tf.matmul(a, tf.matmul(a, a)))


def trace_cubed_vjp(a: Tensor, dy: Tensor) -> Tensor:
    return 3 * tf.linalg.matrix_transpose(tf.matmul(a, a)) * dy[:, tf.newaxis, tf.newaxis]


def trace_cubed_reference(a: Array) -> Array:
    return np.trace(a @ a @ a, axis1=-2, axis2=-1)


OPS = (
    rows_of(row_attention, attention_reference, inputs=INPUTS, out=("N", "T", "D")),
    rows_of(row_cholesky, cholesky_reference, inputs=[Input("a", BOTH, SQUARE)], out=SQUARE),
    rows_of(row_conv, conv_reference, inputs=[Input("x", BOTH, ("N", "T", 2))], out=("N", "T", 3)),
    rows_of(row_cosine, cosine_reference, inputs=[Input(name, BOTH, MATRIX) for name in ("x", "z")], out=("N",)),
    rows_of(
        row_eigenvalues,
        eigenvalues_reference,
        inputs=[Input("a", BOTH, SQUARE)],
        out=MATRIX,
        modes=UNCOMPILED,
        singular=eigenvalues_singular,
        sample=eigenvalues_sample,
        examples=(Example("apart", {"a": [[[1.0, 0.25], [0.5, -2.0]], [[3.0, -0.5], [0.0, 1.0]]]}),),
    ),
    rows_of(
        row_einsum,
        einsum_reference,
        inputs=[Input("a", BOTH, ("N", "I", "J")), Input("b", BOTH, ("N", "J", "K")), Input("x", BOTH, ("N", "K"))],
        out=("N", "I"),
    ),
    rows_of(row_expm, expm_reference, inputs=[A], out=SQUARE, modes=UNCOMPILED),
    rows_of(row_fft, fft_reference, inputs=[Input("x", BOTH, ("N", 8))], out=("N", 5)),
    rows_of(row_linear, linear_reference, inputs=[Input("x", BOTH, ("N", 16))], out=("N", 24)),
    rows_of(row_logdet, logdet_reference, inputs=[LOGDET_A], out=("N",), modes=UNCOMPILED),
    rows_of(
        row_matvec,
        matvec_reference,
        inputs=[Input("a", BOTH, ("N", "M", "K")), Input("x", BOTH, ("N", "K"))],
    ),
    rows_of(row_mlp, mlp_reference, inputs=[Input("x", BOTH, ("N", 4))], out=("N", 3)),
    rows_of(row_pool, pool_reference, inputs=[Input("x", BOTH, ("N", 4, 4, "C"))], out=("N", 2, 2, "C")),
    rows_of(row_qr, qr_reference, inputs=[QR_A], out=("N", 3)),
    rows_of(row_solve, solve_reference, inputs=[SOLVE_A, Input("b", BOTH, MATRIX)], out=MATRIX),
    rows_of(
        custom_gradient(row_trace_cubed, trace_cubed_vjp),
        trace_cubed_reference,
        inputs=[Input("a", BOTH, SQUARE)],
        out=("N",),
    ),
)
