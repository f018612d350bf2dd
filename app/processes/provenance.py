"""Which versions and files compute the answers of an op, and whether these have changed."""

import hashlib
import os
import stat
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import tensorflow as tf

from app.autodiff.derived import origin
from ops import Op, Registry
from pullback import __version__
from pullback.page_files import SAVED_MODEL, is_of_saved_model
from pullback.service_process import PACKAGE, SERVICE

CODE = (SERVICE / "app", SERVICE / "ops", PACKAGE)
# Files over this size are compared by their size and the time of their last change.
MAX_CONTENT = 1 << 24
# How many files and folders of a plug-in folder are looked at.
MAX_ENTRIES = 10_000
DISTRIBUTION = ".dist-info"
BESIDE = ("_*.py", SAVED_MODEL, f"*/{SAVED_MODEL}")

Origin = Mapping[str, str]
"""What computes an op: versions, and digests of files and of parameters, each by its name."""


# A worker reads them once, when it starts. A worker that starts later than its siblings, and reads other files, would
# answer equal requests differently.
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


class Provenance:
    """What computes each registered op, as it was loaded. ``pages`` reads no file."""

    def __init__(self, registry: Registry) -> None:
        """Read the files of the ops that have just been loaded; the page of a stale op is not what is served."""
        self._pages, self._lock = registry.pages, threading.Lock()
        self._known = dict[Path, tuple[tuple[int, ...], str]]()
        served = {name: page for name, page in registry.pages.items() if name not in registry.stale}
        self._loaded = {name: dict(self._files(page)) for name, page in served.items()}

    @property
    def pages(self) -> str:
        """The digest of the files of all ops, as they were loaded: replicas with the same pages have the same."""
        return _digest(f"{op} {sorted(files.items())}" for op, files in sorted(self._loaded.items()))

    def of(self, op: Op) -> Origin:
        """Return what computes an op, registered, posted or derived, as it was loaded."""
        return self._origin(op, self._loaded)

    def changed(self, op: Op, recorded: Origin) -> list[str]:
        """Return the names of what differs from a recorded origin: in what was loaded, or in the files as they are."""
        names = [each.name for each in _family(origin(op)[0])]
        now = {name: dict(self._files(self._pages[name])) for name in names if name in self._pages}
        versions = self._origin(op, self._loaded), self._origin(op, now)
        things = dict.fromkeys([*recorded, *versions[0], *versions[1]])
        return [thing for thing in things if any(each.get(thing) != recorded.get(thing) for each in versions)]

    def _origin(self, op: Op, files: Mapping[str, Mapping[str, str]]) -> Origin:
        base = origin(op)[0]
        found = {**_VERSIONS, **files.get(base.name, {})}
        if base.own_parameters.arrays:
            found["parameters"] = base.own_parameters.digest
        if base.parts:
            found["nodes"] = _digest(f"{each.name} {sorted(self._origin(each, files).items())}" for each in base.parts)
        return found

    def _files(self, page: Path) -> Iterator[tuple[str, str]]:
        """Yield the digests of a page, of its library, and of what is beside it and no page: modules, SavedModels."""
        yield "page", _page_digest(page)
        libraries = [folder / f"{page.stem}.so" for folder in (page.parent / "build", SERVICE / "build")]
        if found := [f"{path.name} {self._digest(path)}" for path in libraries if path.is_file()]:
            yield "library", _digest(found)
        beside = sorted(path for pattern in BESIDE for path in page.parent.glob(pattern))
        if found := [f"{path.relative_to(page.parent)} {self._digest(path)}" for path in beside]:
            yield "modules", _digest(found)

    def _digest(self, path: Path) -> str:
        """Return the digest of a file, which is read again when it has changed."""
        status = path.stat()
        state = status.st_mtime_ns, status.st_size, status.st_ino
        with self._lock:
            known = self._known.get(path)
        if known is None or known[0] != state:
            known = state, (digest_of(path) or b"").hex()
            with self._lock:
                self._known[path] = known
        return known[1]


_VERSIONS = {"version": __version__, "tensorflow": tf.__version__}


def _family(op: Op) -> Iterator[Op]:
    """Yield an op and the ops of its nodes, at any depth."""
    yield op
    for part in op.parts:
        yield from _family(origin(part)[0])


def _page_digest(page: Path) -> str:
    """Return the digest of a page and of its C++ source; a missing file counts as empty."""
    digest = hashlib.sha256()
    for path in (page, page.with_suffix(".cc")):
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
