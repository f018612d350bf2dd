"""``tensorflow.python.pywrap_tfe``, private: runs a function by its name, without a look at tapes."""

from collections.abc import Sequence

from tensorflow import Tensor
from tensorflow.python.framework.ops import EagerTensor

def TFE_Py_Execute(
    handle: object, device: str | None, name: str, inputs: Sequence[Tensor], attrs: Sequence[object], outputs: int
) -> Sequence[EagerTensor]: ...
def TFE_Py_ExecuteCancelable(
    handle: object,
    device: str | None,
    name: str,
    inputs: Sequence[Tensor],
    attrs: Sequence[object],
    manager: object,
    outputs: int,
) -> Sequence[EagerTensor]: ...
