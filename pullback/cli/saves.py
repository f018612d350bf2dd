"""The files that are saved in some folders, as they are saved."""

import queue
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from pullback.cli.pages import GRAPH
from pullback.errors import BadArgument
from pullback.page_files import is_of_saved_model
from pullback.service_process import NOT_INSTALLED

# Editors write a file in several steps; these are one save.
DEBOUNCE_MS, STEP_MS, POLL_S = 200, 20, 0.5
SOURCES = (".py", ".cc", ".so", GRAPH)


class Saves:
    """Watches folders on a thread, until it is closed."""

    def __init__(self, folders: Iterable[Path]) -> None:
        """Start to watch. Raises ``BadArgument`` if the service is not installed, which brings ``watchfiles``."""
        try:
            from watchfiles import watch  # noqa: PLC0415 - the client does without it
        except ImportError:
            raise BadArgument(NOT_INSTALLED) from None
        self._saves, self._stop = queue.SimpleQueue[Path](), threading.Event()

        def follow() -> None:
            saves = watch(*folders, debounce=DEBOUNCE_MS, step=STEP_MS, stop_event=self._stop, watch_filter=_is_source)
            for changes in saves:
                for _, path in sorted(changes):
                    self._saves.put(Path(path))

        threading.Thread(target=follow, name="saves", daemon=True).start()

    @property
    def is_empty(self) -> bool:
        """Whether all saves have been taken."""
        return self._saves.empty()

    def take(self) -> list[Path]:
        """Wait for a save; return the files that have been saved since the last call."""
        saved: list[Path] = []
        while not saved or not self._saves.empty():
            try:
                # A wait without an end would not see Ctrl-C.
                saved.append(self._saves.get(timeout=POLL_S))
            except queue.Empty:
                continue
        return list(dict.fromkeys(saved))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()


def _is_source(change: object, path: str) -> bool:
    del change
    return path.endswith(SOURCES) or is_of_saved_model(path)
