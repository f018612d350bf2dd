"""``tensorflow.python.eager.context``, private: calls a function by its name, without a look at tapes."""

from collections.abc import Sequence

from tensorflow import Tensor
from tensorflow.python.framework.ops import EagerTensor

class Context:
    @property
    def device_name(self) -> str | None: ...
    def call_function(
        self, name: bytes, tensor_inputs: Sequence[Tensor], num_outputs: int
    ) -> Sequence[EagerTensor] | None: ...

def context() -> Context: ...
