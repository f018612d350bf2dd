"""``tensorflow.python.eager.context``, private: what every call of a function passes to the runtime."""

from collections.abc import Mapping
from typing import Any

from tensorflow.compat.v1 import ConfigProto

class FunctionCallOptions:
    def __init__(self, executor_type: str | None = None, config_proto: ConfigProto | str | None = None) -> None: ...
    def as_attrs(self) -> Mapping[str, object]: ...

class _EagerContextThreadLocalData:
    is_eager: bool

class Context:
    _handle: object
    _thread_local_data: _EagerContextThreadLocalData
    def add_function_def(self, fdef: Any) -> None: ...
    def remove_function(self, name: str) -> None: ...
    @property
    def device_name(self) -> str | None: ...
    @property
    def function_call_options(self) -> FunctionCallOptions: ...
    @function_call_options.setter
    def function_call_options(self, options: FunctionCallOptions) -> None: ...

EAGER_MODE: int
default_execution_mode: int

def context() -> Context: ...
