"""A Fourier transform of length 0 is refused, in every mode; one of no numbers is not."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import gen_spectral_ops
from tensorflow.python.ops.signal import fft_ops

import app.runtime.modes  # noqa: F401 - it installs the correction
from app.runtime.repairs.empty_transforms import WHY, guarded

INVERSE = {1: tf.signal.irfft, 2: tf.signal.irfft2d, 3: tf.signal.irfft3d}
SHAPE = (2, 3, 4, 3)
Call = Callable[[Any], Any]


def in_mode(call: Call, mode: str, x: np.ndarray) -> np.ndarray:
    """Return what a call returns; in a graph without known sizes and in v1, TensorFlow learns them when it runs."""
    spec = tf.TensorSpec([None] * x.ndim, x.dtype)
    if mode == "eager":
        return call(tf.constant(x)).numpy()
    if mode == "graph":
        return tf.function(call, autograph=False, input_signature=[spec])(tf.constant(x)).numpy()
    if mode == "xla":
        return tf.function(call, autograph=False, jit_compile=True)(tf.constant(x)).numpy()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        holder = tf.compat.v1.placeholder(x.dtype, spec.shape)
        return session.run(call(holder), {holder: x})


MODES = ("eager", "graph", "v1", "xla")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rank", INVERSE)
def test_transforms_are_as_before(rank: int, mode: str) -> None:
    real = np.random.default_rng(0).normal(size=(*SHAPE[:-1], 4))
    axes = tuple(range(-rank, 0))
    found = in_mode(INVERSE[rank], mode, np.fft.rfftn(real, axes=axes))
    np.testing.assert_allclose(found, real, atol=1e-12)


@pytest.mark.parametrize("mode", ["eager", "graph", "v1"])
@pytest.mark.parametrize("rank", INVERSE)
def test_no_numbers_have_no_transform(rank: int, mode: str) -> None:
    found = in_mode(INVERSE[rank], mode, np.zeros((0, *SHAPE[1:]), complex))
    assert found.shape == (0, *SHAPE[1:-1], 4)


@pytest.mark.parametrize(
    ("length", "mode"),
    [(length, mode) for length in ([0], [0, 3], [3, 0], None) for mode in MODES if length or mode != "xla"],
)
def test_a_length_of_0_is_refused(length: list[int] | None, mode: str) -> None:
    """The kernel is a stand-in: where a length of 0 reached the real one, it would end this process."""

    def call(x: Any) -> Any:
        wanted = tf.maximum(tf.shape(x)[-1:] - 1, 0) if length is None else length
        return guarded(lambda x, fft_length: x + tf.cast(tf.size(fft_length), x.dtype))(x, wanted)

    with pytest.raises(tf.errors.InvalidArgumentError, match=WHY):
        in_mode(call, mode, np.ones((3, 1)))


def test_no_module_has_the_kernels_of_before() -> None:
    names = [prefix + suffix for prefix in ("rfft", "irfft") for suffix in ("", "2d", "3d")]
    before = {id(getattr(owner, name).__wrapped__) for name in names for owner in (gen_spectral_ops, fft_ops)}
    modules = [module for name, module in sys.modules.items() if name.startswith("tensorflow")]
    assert not [module for module in modules for value in vars(module).values() if id(value) in before]
    assert all(getattr(tf.raw_ops, name.upper()) is getattr(gen_spectral_ops, name) for name in names)
