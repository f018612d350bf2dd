"""Files for results: that one cannot be written is an error before the work starts, and an old one stays until then."""

import errno
import os
import shutil
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

from pullback.errors import BadArgument

STDOUT = Path("-")


class OutputFile:
    """A file that is written at most once, and whole: a new file beside it replaces it."""

    def __init__(self, option: str, path: Path) -> None:
        """Create the new file; raise ``BadArgument`` if the file cannot be written. ``option`` names it in errors."""
        self._option, self._path = option, path
        try:
            self._new = None if path == STDOUT else _new_beside(path)
        except OSError as error:
            raise self._error(error) from error

    def write(self, save: Callable[[BinaryIO], object]) -> None:
        """Call ``save`` with the open file; raise ``BadArgument`` if that fails."""
        try:
            if self._path == STDOUT:
                save(sys.stdout.buffer)
                return
            with (self._new or self._path).open("wb") as file:
                save(file)
            if self._new is not None:
                _replace(self._path, self._new)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise self._error(error) from error

    def close(self) -> None:
        """Remove the new file, if nothing was written."""
        if self._new is not None:
            with suppress(OSError):
                self._new.unlink()

    def _error(self, error: OSError) -> BadArgument:
        return BadArgument(f"{self._option}: cannot write {self._path}: {error.strerror}")


def _new_beside(path: Path) -> Path | None:
    """Create a file beside another, with its permissions; ``None`` if that one can only be written in place.

    So are devices and pipes, and files in folders that cannot be written. Raises ``OSError`` if nothing can.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if path.exists() and not path.is_file():
        return None
    # A link stays a link.
    target = path.resolve()
    new = target.with_name(f".pullback-{token_hex(8)}")
    try:
        new.touch(exist_ok=False)
    except PermissionError:
        if target.exists():
            return None
        raise
    if target.exists():
        shutil.copymode(target, new)
    return new


def _replace(path: Path, new: Path) -> None:
    """Replace a file by a new one."""
    try:
        new.replace(path.resolve())
    except OSError:
        # In a container, a mounted file cannot be replaced.
        shutil.copyfile(new, path)


@contextmanager
def output_files(paths: Mapping[str, Path | None]) -> Generator[Mapping[str, OutputFile]]:
    """Open the files of these options, except where there is no path; raise ``BadArgument`` if two are the same."""
    given = {option: path for option, path in paths.items() if path is not None}
    first: dict[Path, str] = {}
    for option, path in given.items():
        if (other := first.setdefault(path if path == STDOUT else path.resolve(), option)) != option:
            raise BadArgument(f"{option}: expected another file than that of {other}, got {path} for both")
    with ExitStack() as stack:
        files: dict[str, OutputFile] = {}
        for option, path in given.items():
            files[option] = OutputFile(option, path)
            stack.callback(files[option].close)
        yield files
