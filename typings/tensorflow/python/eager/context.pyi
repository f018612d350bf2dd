"""``tensorflow.python.eager.context``, private: what every call of a function passes to the runtime."""

from collections.abc import Mapping

class FunctionCallOptions:
    def as_attrs(self) -> Mapping[str, object]: ...

class Context:
    _handle: object
    @property
    def device_name(self) -> str | None: ...
    @property
    def function_call_options(self) -> FunctionCallOptions: ...

def context() -> Context: ...
