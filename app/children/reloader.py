"""A service that loads its plug-in ops again when a file of their folders is saved, without interruption.

This process imports TensorFlow and runs nothing with it. A fork of it serves each version of the ops, and is ready in
about a second; a new interpreter takes several. The versions share the listener: the old one serves until the new one
does, and then finishes its requests. A version that ends frees all its memory. In one process, TensorFlow would keep
the traces and the registered gradients of all versions.
"""

import json
import logging
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import FrameType

from uvicorn import Config
from watchfiles import watch

from app.autodiff.admission import admit
from app.children.serving import serve
from app.http.server import OneServer
from app.processes.forks import start_copy
from app.settings import Settings
from ops import Registry, RegistryError, pages_of, register
from pullback.page_files import is_of_saved_model
from pullback.service_process import SERVICE

log = logging.getLogger("pullback")

# Editors write a file in several steps; these are one save. How often this process looks at the others.
DEBOUNCE_MS, STEP_MS, TICK_MS = 100, 20, 100
SOURCES = (".py", ".so")
STOPS = (signal.SIGINT, signal.SIGTERM)


# This process imports TensorFlow and runs nothing with it. A fork of it serves each version of the ops, and is ready
# in about a second; a new interpreter takes several. The versions share the listener: the old one serves until the
# new one does, and then finishes its requests. A version that ends frees all its memory. In one process, TensorFlow
# would keep the traces and the registered gradients of all versions.
class Version:
    """A fork of this process, which serves the ops as they are now."""

    def __init__(self, config: Config, listener: socket.socket, settings: Settings, good: dict[Path, bytes]) -> None:
        """Start the fork. ``good`` has the last good text of each page."""
        self.texts = _texts(settings)
        self._reading, writing = os.pipe()
        self._process = start_copy("pullback pages", partial(_serve, config, listener, settings, good, writing))
        os.close(writing)
        self.is_ready, self.began = False, time.monotonic()
        self.good_pages: list[Path] = []

    def look(self) -> None:
        """Set ``is_ready`` and ``good_pages`` once it serves."""
        if self.is_ready or not select.select([self._reading], [], [], 0)[0]:
            return
        if text := os.read(self._reading, 1 << 20):
            self.is_ready, self.good_pages = True, [Path(page) for page in json.loads(text)]

    def has_ended(self) -> bool:
        """Return whether it has ended; call it no more after that."""
        if self._process.poll() is None:
            return False
        os.close(self._reading)
        return True

    def send(self, number: int) -> None:
        """Send a signal to it."""
        self._process.send_signal(number)


class Reloader:
    """The process that starts a version for each save."""

    def __init__(
        self, settings: Settings, config: Config, listener: socket.socket, announce: Callable[[], None]
    ) -> None:
        """Store the parts; ``announce`` is called once the first version serves."""
        self._settings, self._config, self._listener, self._announce = settings, config, listener, announce
        self._good: dict[Path, bytes] = {}
        self._serving: Version | None = None
        self._next: Version | None = None
        self._ending: list[Version] = []
        self._signals: list[int] = []

    def run(self) -> bool:
        """Serve until a signal stops the service; return ``False`` if the first version cannot start."""
        for number in STOPS:
            signal.signal(number, self._on_signal)
        folders = [SERVICE / "ops", *self._settings.ops_path]
        self._start()
        saves = watch(
            *folders,
            watch_filter=_is_source,
            debounce=DEBOUNCE_MS,
            step=STEP_MS,
            rust_timeout=TICK_MS,
            yield_on_timeout=True,
        )
        for changes in saves:
            if changes:
                self._start()
            if self._signals or not self._look():
                break
        has_served = self._serving is not None
        self._stop()
        return has_served

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._signals.append(number)

    def _start(self) -> None:
        """Start a version, in place of one that is not known to serve yet."""
        if self._next:
            # It may have accepted requests meanwhile, and answers them before it ends.
            self._next.send(signal.SIGINT)
            self._ending.append(self._next)
        self._next = Version(self._config, self._listener, self._settings, self._good)

    def _look(self) -> bool:
        """Look at all versions; return ``False`` if none is left."""
        self._ending = [version for version in self._ending if not version.has_ended()]
        if self._next:
            self._next.look()
            if self._next.is_ready:
                self._switch(self._next)
            elif self._next.has_ended():
                self._next = None
                log.error("the saved ops cannot be served%s", "; the last good ones still are" if self._serving else "")
        if self._serving and self._serving.has_ended():
            log.error("the serving process has ended; starting another")
            self._serving = None
            self._start()
        return bool(self._next or self._serving)

    def _switch(self, version: Version) -> None:
        """Replace the old version by one that serves."""
        self._good |= {page: version.texts[page] for page in version.good_pages if page in version.texts}
        if self._serving:
            # Its listener closes at once, and requests in flight are answered.
            self._serving.send(signal.SIGINT)
            self._ending.append(self._serving)
            log.info("reloaded: the saved ops are served, %.1f s after the save", time.monotonic() - version.began)
        else:
            self._announce()
        self._serving, self._next = version, None

    def _stop(self) -> None:
        """Stop all versions, and wait until they have ended; a second signal ends the draining."""
        self._listener.close()
        running = [*filter(None, (self._serving, self._next)), *self._ending]
        number, self._signals = (self._signals or [signal.SIGTERM])[0], self._signals[1:]
        for version in running:
            version.send(number)
        while running := [version for version in running if not version.has_ended()]:
            time.sleep(TICK_MS / 1000)
            for number in self._signals:
                for version in running:
                    version.send(number)
            self._signals = []


def _serve(config: Config, listener: socket.socket, settings: Settings, good: dict[Path, bytes], writing: int) -> int:
    """Serve in this copy; return the exit code."""
    registries: list[Registry] = []

    def ops(settings: Settings) -> Registry:
        found = register(_pages(settings), admit, good)
        registries.append(found)
        return found

    def report() -> None:
        found = registries[0]
        pages = [str(page) for name, page in found.pages.items() if name not in found.stale]
        os.write(writing, json.dumps(pages).encode())

    # Checks run in the serving process: others would read what is saved, and not the last good text of a page.
    alone = settings.model_copy(update={"check_processes": 0, "jobs": 0, "workers": 1})
    return serve(OneServer(config, report), alone, listener, ops)


def _pages(settings: Settings) -> Sequence[Path]:
    return pages_of([SERVICE / "ops", *settings.ops_path])


def _texts(settings: Settings) -> dict[Path, bytes]:
    """Return the texts of the plug-in pages that can be read."""
    try:
        return {page: page.read_bytes() for page in _pages(settings) if page.parent != SERVICE / "ops"}
    except (OSError, RegistryError):
        return {}  # the version that reads them next reports it


def _is_source(change: object, path: str) -> bool:
    del change
    return path.endswith(SOURCES) or is_of_saved_model(path)
