"""``tf.errors``: one class for each status code."""

from typing import Any

from tensorflow import Operation

class OpError(Exception):
    def __init__(
        self, node_def: Any, op: Operation | None, message: str, error_code: int, *args: dict[str, Any]
    ) -> None: ...
    @property
    def message(self) -> str: ...
    @property
    def op(self) -> Operation | None: ...
    @property
    def error_code(self) -> int: ...
    @property
    def node_def(self) -> Any: ...

class OperatorNotAllowedInGraphError(TypeError): ...

class CancelledError(OpError):
    def __init__(self, node_def: Any, op: Operation | None, message: str, *args: dict[str, Any]) -> None: ...

class InvalidArgumentError(OpError):
    def __init__(self, node_def: Any, op: Operation | None, message: str, *args: dict[str, Any]) -> None: ...

class DeadlineExceededError(OpError):
    def __init__(self, node_def: Any, op: Operation | None, message: str, *args: dict[str, Any]) -> None: ...

class NotFoundError(OpError):
    def __init__(self, node_def: Any, op: Operation | None, message: str, *args: dict[str, Any]) -> None: ...

class AlreadyExistsError(OpError):
    def __init__(self, node_def: Any, op: Operation | None, message: str, *args: dict[str, Any]) -> None: ...

class PermissionDeniedError(OpError):
    def __init__(self, node_def: Any, op: Operation | None, message: str, *args: dict[str, Any]) -> None: ...

class UnauthenticatedError(OpError):
    def __init__(self, node_def: Any, op: Operation | None, message: str, *args: dict[str, Any]) -> None: ...

class ResourceExhaustedError(OpError):
    def __init__(self, node_def: Any, op: Operation | None, message: str, *args: dict[str, Any]) -> None: ...

class FailedPreconditionError(OpError):
    def __init__(self, node_def: Any, op: Operation | None, message: str, *args: dict[str, Any]) -> None: ...

class AbortedError(OpError):
    def __init__(self, node_def: Any, op: Operation | None, message: str, *args: dict[str, Any]) -> None: ...

class OutOfRangeError(OpError):
    def __init__(self, node_def: Any, op: Operation | None, message: str, *args: dict[str, Any]) -> None: ...

class UnimplementedError(OpError):
    def __init__(self, node_def: Any, op: Operation | None, message: str, *args: dict[str, Any]) -> None: ...

class InternalError(OpError):
    def __init__(self, node_def: Any, op: Operation | None, message: str, *args: dict[str, Any]) -> None: ...

class UnknownError(OpError):
    def __init__(self, node_def: Any, op: Operation | None, message: str, *args: dict[str, Any]) -> None: ...

class UnavailableError(OpError):
    def __init__(self, node_def: Any, op: Operation | None, message: str, *args: dict[str, Any]) -> None: ...

class DataLossError(OpError):
    def __init__(self, node_def: Any, op: Operation | None, message: str, *args: dict[str, Any]) -> None: ...

OK: int
CANCELLED: int
UNKNOWN: int
INVALID_ARGUMENT: int
DEADLINE_EXCEEDED: int
NOT_FOUND: int
ALREADY_EXISTS: int
PERMISSION_DENIED: int
UNAUTHENTICATED: int
RESOURCE_EXHAUSTED: int
FAILED_PRECONDITION: int
ABORTED: int
OUT_OF_RANGE: int
UNIMPLEMENTED: int
INTERNAL: int
UNAVAILABLE: int
DATA_LOSS: int
