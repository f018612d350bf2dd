"""The findings on a check that does not come to its end: by a fault of the op, or of the checker."""

from collections.abc import Sequence

from app.errors import MAX_TEXT, OpFailed, Unprocessable, clip
from app.runtime.messages import text_of, without_paths
from app.runtime.source_lines import author_line, own_line
from ops import Op
from pullback import __version__
from pullback.gradcheck.verdict import Finding, Subject

MAX_MESSAGE, MOST_CHANGES = 160, 3


def changes(changed: Sequence[str], subject: Subject, op: Op) -> Finding:
    """Return the finding on an op whose functions have changed what all code shares, such as ``tf.sigmoid``."""
    names = ", ".join(changed[:MOST_CHANGES]) + (", ..." if len(changed) > MOST_CHANGES else "")
    return Finding(subject, "fail", f"op {op.name} changes {names} for all ops; define another name instead")


def failure(error: BaseException, subject: Subject, op: Op, seed: int) -> Finding:
    """Return the finding on a check that an exception ends.

    It is a fail with the author's line if the op is at fault, else an error with all that a report of it needs.
    """
    if isinstance(error, OpFailed | Unprocessable):
        return Finding(subject, "fail", error.located if isinstance(error, OpFailed) else error.detail)
    text = f"{type(error).__name__}: {clip(without_paths(text_of(error)), MAX_MESSAGE)}".removesuffix(": ")
    if line := author_line(error):
        return Finding(subject, "fail", clip(f"op {op.name} raised {text} ({line})", MAX_TEXT))
    sentence = (
        f"the check broke off with {text} ({own_line(error)}), a fault of the checker, not of the op; please report "
        f"it with op {op.name}, check {subject.check}, seed {seed}, Pullback {__version__}"
    )
    return Finding(subject, "error", sentence)
