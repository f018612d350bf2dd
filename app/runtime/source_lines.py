"""The file and line that an exception comes from: in the code of an op's author, or in ours."""

import sysconfig
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import tensorflow as tf

from pullback.service_process import PACKAGE, SERVICE

_LIBRARIES = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_NOTE = "raised in "


def author_line(error: BaseException) -> str:
    """Return the innermost line of an author's file in the traceback, as ``folder/file.py:12``; "" if there is none."""
    if found := _author_line(_lines_of(error)):
        return found
    notes: list[str] = getattr(error, "__notes__", [])
    return next((note.removeprefix(_NOTE) for note in notes if note.startswith(_NOTE)), "")


def calling_line() -> str:
    """Return the innermost line of an author's file among the calls that led here; "" if there is none."""
    return _author_line([(frame.f_code.co_filename, line) for frame, line in traceback.walk_stack(None)][::-1])


def node_line(node: tf.Operation) -> str:
    """Return the innermost line of an author's file that made a node of a graph; "" if there is none."""
    return _author_line([(frame.filename, frame.lineno) for frame in node.traceback])


def is_raised_by_author(error: BaseException) -> bool:
    """Report whether a line of an author's file has raised the error, not a function that it calls."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and is_author(Path(frames[-1].f_code.co_filename))


def own_line(error: BaseException) -> str:
    """Return the innermost line of ours in the traceback, as ``app/folder/file.py:12``; "" if there is none."""
    if found := _innermost(_lines_of(error), is_own):
        path, line = found
        return f"{path.relative_to(SERVICE if path.is_relative_to(SERVICE) else PACKAGE.parent)}:{line}"
    return ""


def keep_author_line(error: BaseException) -> None:
    """Note the author's line in an exception that is kept without its traceback."""
    notes: list[str] = getattr(error, "__notes__", [])
    if not any(note.startswith(_NOTE) for note in notes) and (line := author_line(error)):
        error.add_note(f"{_NOTE}{line}")


def is_own(path: Path) -> bool:
    """Report whether a file belongs to the service: the pages of built-in ops do not."""
    if path.is_relative_to(SERVICE / "ops"):
        return path.name.startswith("_")
    return path.is_relative_to(SERVICE / "app") or path.is_relative_to(PACKAGE)


def is_author(path: Path) -> bool:
    """Report whether a file is an author's: neither ours nor a library's."""
    is_library = any(path.is_relative_to(library) for library in _LIBRARIES) or "site-packages" in path.parts
    return path.suffix == ".py" and not (is_library or is_own(path))


def _author_line(lines: Sequence[tuple[str, int]]) -> str:
    found = _innermost(lines, is_author)
    return f"{found[0].parent.name}/{found[0].name}:{found[1]}" if found else ""


def _lines_of(error: BaseException) -> list[tuple[str, int]]:
    return [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]


def _innermost(lines: Sequence[tuple[str, int]], wanted: Callable[[Path], bool]) -> tuple[Path, int] | None:
    """Return the file and line of the innermost call, which is the last one, in a file that is ``wanted``."""
    paths = ((Path(file), line) for file, line in reversed(lines))
    return next(((path, line) for path, line in paths if wanted(path)), None)
