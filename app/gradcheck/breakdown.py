"""The finding on a check that breaks off with an exception: a fault of the checker, or of the op's author."""

from app.errors import MAX_TEXT, clip
from app.gradcheck.verdict import Finding, Place
from app.runtime.messages import text_of, without_paths
from app.runtime.source_lines import author_line, own_line
from pullback import __version__

MAX_MESSAGE = 160


def breakdown(error: Exception, place: Place, op: str, seed: int) -> Finding:
    """Return the finding: a fail with the author's line, or an error with all that a report of the fault needs."""
    text = f"{type(error).__name__}: {clip(without_paths(text_of(error)), MAX_MESSAGE)}".removesuffix(": ")
    if line := author_line(error):
        return Finding(place, "fail", clip(f"op {op} raised {text} ({line})", MAX_TEXT))
    sentence = (
        f"the check broke off with {text} ({own_line(error)}), a fault of the checker, not of the op; please report "
        f"it with op {op}, check {place.check}, seed {seed}, Pullback {__version__}"
    )
    return Finding(place, "error", sentence)
