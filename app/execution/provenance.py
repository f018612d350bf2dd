"""Provenance: which versions and files compute the answers of an op."""

import hashlib
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import tensorflow as tf

from app.autodiff.derived import origin
from app.execution.sources import digest_of
from ops import Op, Registry
from pullback import __version__
from pullback.page_files import SAVED_MODEL
from pullback.service_folder import SERVICE

BESIDE = ("_*.py", SAVED_MODEL, f"*/{SAVED_MODEL}")

Origin = Mapping[str, str]
"""What computes an op: versions, and digests of files and of parameters, each by its name."""


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
