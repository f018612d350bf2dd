"""``tf.autodiff``. Beware: in some places the forward accumulator silently ignores custom gradients."""

from types import TracebackType
from typing import Any, Self

from tensorflow import GradientTape as GradientTape
from tensorflow import UnconnectedGradients

class ForwardAccumulator:
    def __init__(self, primals: Any, tangents: Any) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, typ: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None: ...
    def jvp(self, primals: Any, unconnected_gradients: UnconnectedGradients = ...) -> Any: ...
