"""The verdict on each op as it is now, requests that require one, and which versions and files compute its answers."""

import asyncio
import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf

from app.autodiff.derived import origin
from app.autodiff.point import Spec
from app.errors import Unverified
from app.kept.last_checks import LastCheck, LastChecks
from app.processes.sources import digest_of
from ops import Op, Registry
from pullback import __version__
from pullback.gradcheck.verdict import Verdict
from pullback.page_files import SAVED_MODEL
from pullback.service_process import SERVICE

BESIDE = ("_*.py", SAVED_MODEL, f"*/{SAVED_MODEL}")

Origin = Mapping[str, str]
"""What computes an op: versions, and digests of files and of parameters, each by its name."""
REQUIRED: Verdict = "pass"
"""The verdict that a request may require."""
# How long requests use what was found, and for how many ops it is known.
FRESH_S, KNOWN = 0.5, 1024


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


class Standing(NamedTuple):
    """The last whole check of an op, if there is one, and the names of what has changed since, as in ``Origin``."""

    check: LastCheck | None
    changed: Sequence[str]

    @property
    def why_not(self) -> str:
        """Why it is not the required verdict, "" if it is."""
        if self.check is None:
            return "no check of the whole op has ended"
        if self.changed:
            return f"{', '.join(self.changed)} changed after the last check"
        return "" if self.check.verdict == REQUIRED else f"the last check ended with {self.check.verdict}"


class Verdicts:
    """The verdicts on the ops of a service. With ``are_required``, every request needs one."""

    def __init__(self, checks: LastChecks, provenance: Provenance, *, are_required: bool = False) -> None:
        """Take where the last checks are kept."""
        self.checks, self.are_required = checks, are_required
        self._provenance, self._found = provenance, OrderedDict[str, tuple[float, Standing]]()

    def note(self, op: Op, verdict: Verdict, seed: int, devices: Sequence[str]) -> None:
        """Keep the verdict of a whole check that has ended; this may write a file."""
        kept = LastCheck(verdict, time.time(), seed, list(devices), dict(self._provenance.of(op)))
        self.checks.note(op.name, kept)

    def standing(self, op: Op, check: LastCheck | None) -> Standing:
        """Return the standing of a check of an op; this reads files."""
        return Standing(check, self._provenance.changed(op, check.origin) if check else ())

    def look(self, op: Op) -> Standing:
        """Return the verdict on an op, or on the one that it is derived from; this reads files."""
        base = origin(op)[0]
        return self.standing(base, self.checks.by_op().get(base.name))

    async def need(self, spec: Spec) -> None:
        """Raise ``Unverified`` unless an op has the required verdict, with these values of its parameters."""
        base = origin(spec.op)[0]
        until, found = self._found.get(base.name, (0.0, Standing(None, ())))
        if time.monotonic() >= until:
            found = await asyncio.to_thread(self.look, base)
            self._found[base.name] = time.monotonic() + FRESH_S, found
            if len(self._found) > KNOWN:
                self._found.popitem(last=False)
        cure = f"POST /v1/ops/{base.name}/check checks it"
        if why := found.why_not:
            raise Unverified(f"op {base.name} has no current verdict {REQUIRED}: {why}; {cure}")
        if spec.parameters.digest != base.own_parameters.digest:
            own = base.own_parameters.digest
            raise Unverified(
                f"the verdict on op {base.name} is one on the parameters {own}, not on those of the request"
            )
