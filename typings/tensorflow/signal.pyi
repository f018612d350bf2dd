"""The part of ``tf.signal`` in use."""

from tensorflow import Tensor
from tensorflow._aliases import TensorLike

def rfft(input_tensor: TensorLike, fft_length: TensorLike | None = None, name: str | None = None) -> Tensor: ...
