"""Discovery of the ops: every module of ``ops`` without a leading underscore, then the plug-in folders."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from pullback.ops._native import NotBuilt, is_left_out
from pullback.ops._op import Op
from pullback.ops._pages import OWN, load_page, noting_stop_signals, reason, stem
from pullback.page_files import pages_in

log = logging.getLogger("pullback")


class RegistryError(Exception):
    """The ops cannot be registered: a plug-in folder is missing, or cannot be read."""


@dataclass(frozen=True)
class Unavailable:
    """An op (or a file that should define one) that cannot be served, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True)
class Registry:
    """The ops by name, and those that could not be loaded.

    ``pages`` are the files of the ops; those of ``stale`` ops could not be loaded, for the reason there, and the op is
    that of the page's last good version.
    """

    ops: Mapping[str, Op]
    unavailable: tuple[Unavailable, ...] = ()
    pages: Mapping[str, Path] = field(default_factory=dict[str, Path])
    stale: Mapping[str, str] = field(default_factory=dict[str, str])


def accept_all(op: Op) -> None:
    """Accept an op as its declaration is."""
    del op


def discover(plug_in_folders: Sequence[Path] = (), admit: Callable[[Op], None] = accept_all) -> Registry:
    """Import every op module and return the registry, with the ops sorted by name.

    A file that is wrong in any way is listed as unavailable with its error, and so is an op for which ``admit`` raises,
    and one whose name an earlier file has. The others are served.

    Raises ``RegistryError`` when a plug-in folder does not exist or cannot be read.
    """
    return register(pages_of([OWN, *plug_in_folders]), admit)


def register(
    pages: Iterable[Path], admit: Callable[[Op], None] = accept_all, last_good: Mapping[Path, bytes] | None = None
) -> Registry:
    """Import these pages and return the registry of their ops: see ``discover``.

    Where a page cannot be loaded and ``last_good`` has the text of an earlier version, that one is.
    """
    found: dict[str, tuple[Op, Path]] = {}
    broken: list[tuple[Path, str]] = []
    stale: dict[str, str] = {}

    def add(path: Path, text: bytes | None = None) -> str:
        op = load_page(path, text)
        if op.name in found:
            other = found[op.name][1]
            raise ValueError(f"{other.parent.name}/{other.name} defines the op {op.name!r} too; rename one")
        admit(op)
        found[op.name] = op, path
        return op.name

    with noting_stop_signals() as stop_signals:
        for path in pages:
            try:
                add(path)
            except BaseException as error:
                if stop_signals:
                    raise
                why = reason(error, path)
                # ``NotBuilt`` needs no stack trace; for other errors the author of the op does.
                text = (last_good or {}).get(path)
                state = "is unavailable" if text is None else "is stale, since its last good version is served"
                log.warning("op %s %s: %s", stem(path), state, why, exc_info=not isinstance(error, NotBuilt))
                try:
                    if text is None:
                        broken.append((path, why))
                    else:
                        stale[add(path, text)] = why
                except BaseException:
                    if stop_signals:
                        raise
                    broken.append((path, why))
    ops = MappingProxyType({name: found[name][0] for name in sorted(found)})
    return Registry(ops, tuple(_named(broken, ops)), {name: page for name, (_, page) in found.items()}, stale)


def pages_of(folders: Sequence[Path]) -> list[Path]:
    """Return the pages in these folders, each folder once, those of a folder in order of name.

    C++ ops of the service that a wheel has the source of, and nobody has built, are left out.

    Raises ``RegistryError`` when one does not exist or cannot be read.
    """
    pages: list[Path] = []
    for folder in dict.fromkeys(folder.absolute() for folder in folders):
        if not folder.is_dir():
            raise RegistryError(f"plug-in ops (PULLBACK_OPS_PATH): expected a folder, got {folder}")
        try:
            pages += [path for path in pages_in(folder) if not is_left_out(path)]
        except OSError as error:
            expected = f"expected a folder that may be read, got {folder}: {error.strerror}"
            raise RegistryError(f"plug-in ops (PULLBACK_OPS_PATH): {expected}") from None
    return pages


def _named(broken: Sequence[tuple[Path, str]], ops: Mapping[str, Op]) -> list[Unavailable]:
    """Return the unavailable ops by the names of their files, after their folders where another op has the name."""
    named: dict[str, Unavailable] = {}
    for path, why in broken:
        name = stem(path)
        if name in ops or name in named:
            name = f"{path.parent.name}/{name}"
        named[name] = Unavailable(name, why)
    return list(named.values())
