"""The files that decide what a worker computes, and whether they have changed.

A worker reads them once, when it starts. A worker that starts later than its siblings, and reads other files, would
answer equal requests differently.
"""

import hashlib
import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pullback.page_files import is_of_saved_model
from pullback.service_process import PACKAGE, SERVICE

CODE = (SERVICE / "app", SERVICE / "ops", PACKAGE)
# Files over this size are compared by their size and the time of their last change.
MAX_CONTENT = 1 << 24
# How many files and folders of a plug-in folder are looked at.
MAX_ENTRIES = 10_000
DISTRIBUTION = ".dist-info"


class Sources:
    """The files at one time: the code of the service, the ops with their libraries, and the installed packages."""

    def __init__(self, plug_in_folders: Sequence[Path]) -> None:
        """Read the files now."""
        self._folders = plug_in_folders
        self._digests = digests(plug_in_folders)

    def changed(self) -> list[str]:
        """Return the paths of the files that have changed since, sorted; a package that was only added is no change."""
        now = digests(self._folders)
        names = {
            name
            for name in self._digests.keys() | now.keys()
            if self._digests.get(name) != now.get(name)
            and not (name.endswith(DISTRIBUTION) and name not in self._digests)
        }
        return sorted(names)


def is_code(name: str) -> bool:
    """Return whether a file or a package is code; others may be what an op writes while it runs, such as a cache."""
    return name.endswith((".py", ".so", ".graph.json", DISTRIBUTION)) or is_of_saved_model(name)


def digests(plug_in_folders: Sequence[Path]) -> Mapping[str, bytes]:
    """Return the digest of each file by its path; an installed package has an empty one, as its version is its name."""
    paths = [path for folder in CODE for path in folder.rglob("*.py")]
    for folder in plug_in_folders:
        paths += _files_of(folder)
    # The other libraries there are those of pages that this service does not serve.
    pages = {path.stem for path in paths if path.suffix == ".py"}
    paths += [path for path in (SERVICE / "build").glob("*.so") if path.stem in pages]
    paths.append(SERVICE / "build" / "tensorflow.flags")
    found = {str(path): digest for path in paths if (digest := digest_of(path)) is not None}
    return found | dict.fromkeys(_distributions(), b"")


def _files_of(folder: Path) -> Iterator[Path]:
    """Yield the visible files of a plug-in folder and of its ``build``, and code and models of its subfolders."""
    entries = 0
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__pycache__")))
        entries += len(folders) + len(names)
        if entries > MAX_ENTRIES:
            return
        for name in names:
            # ``pullback native`` writes libraries into build/.
            is_read = name.endswith(".py") or is_of_saved_model(name)
            if not name.startswith(".") and (is_read or Path(parent) in (folder, folder / "build")):
                yield Path(parent, name)


def digest_of(path: Path) -> bytes | None:
    """Return the digest of a regular file, ``None`` for anything else; never wait, as for the writer of a pipe."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return None
        if status.st_size > MAX_CONTENT:
            return b"%d %d" % (status.st_size, status.st_mtime_ns)
        return hashlib.blake2b(path.read_bytes()).digest()
    except FileNotFoundError:
        return None
    except OSError as error:
        return os.strerror(error.errno or 0).encode()


def _distributions() -> Iterator[str]:
    """Yield the folders that state the name and the version of an installed package."""
    for folder in sys.path:
        try:
            yield from (entry.path for entry in os.scandir(folder or ".") if entry.name.endswith(DISTRIBUTION))
        except OSError:
            continue  # an archive, or a folder that does not exist
