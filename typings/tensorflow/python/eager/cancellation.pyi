"""``tensorflow.python.eager.cancellation``, private: cancels eager calls and graph functions between two kernels."""

from collections.abc import Callable

from tensorflow.types.experimental import ConcreteFunction

class CancellationManager:
    _impl: object
    def __init__(self) -> None: ...
    @property
    def is_cancelled(self) -> bool: ...
    def start_cancel(self) -> None: ...
    def get_cancelable_function(self, concrete_function: ConcreteFunction) -> ConcreteFunction: ...

context: Callable[[], CancellationManager | None]
