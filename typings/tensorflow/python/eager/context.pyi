"""``tensorflow.python.eager.context``, private: what every call of a function passes to the runtime."""

from collections.abc import Mapping

class FunctionCallOptions:
    def as_attrs(self) -> Mapping[str, object]: ...

class _EagerContextThreadLocalData:
    is_eager: bool

class Context:
    _handle: object
    _thread_local_data: _EagerContextThreadLocalData
    @property
    def device_name(self) -> str | None: ...
    @property
    def function_call_options(self) -> FunctionCallOptions: ...

EAGER_MODE: int
default_execution_mode: int

def context() -> Context: ...
