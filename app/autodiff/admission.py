"""The conditions for serving an op: every one of its examples is a valid request."""

from app.autodiff.binding import bind
from app.errors import OpFailed, PullbackError
from app.tensors.json import decode
from ops import Op

# Limits are those of a service, and no property of the op.
UNLIMITED = 1 << 62


def admit(op: Op) -> None:
    """Raise ``ValueError`` if an example of the op is not a valid request, or if a function that it calls raises."""
    for example in op.examples:
        try:
            bind(op, example.inputs, example.attrs, None, decode, mode="graph", device="", max_elements=UNLIMITED)
        except PullbackError as error:
            more = [f": expected {entry.expected}, got {entry.got}" for entry in error.entries[:1]]
            detail = error.detail if isinstance(error, OpFailed) else error.detail + "".join(more)
            raise ValueError(f"example {example.name!r}: {detail}") from error
