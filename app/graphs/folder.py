"""The folder of posted graphs: a file for each, with its document behind the line of the owner."""

import logging
import re
from pathlib import Path

import orjson

from app.errors import PullbackError
from app.graphs.document import DIGITS, MAX_DOCUMENT, PREFIX, GraphDocument
from app.stored.folder import Bounds, SharedFolder

log = logging.getLogger("pullback")

ENDING = ".json"
# All files together.
MAX_BYTES = 1 << 24


class GraphFolder(SharedFolder):
    """A folder of graphs, at most ``kept``; without a ``path``, one of this process, which ``close`` removes."""

    def __init__(self, path: Path | None, kept: int) -> None:
        """Take a folder; it is made for the first graph."""
        named, bounds = rf"[0-9a-f]{{{DIGITS}}}{re.escape(ENDING)}", Bounds(kept, MAX_DOCUMENT, MAX_BYTES, MAX_BYTES)
        super().__init__(path, "graphs", named, bounds)

    def use(self, name: str) -> bool:
        """Note that a graph is used; return whether it is still there."""
        return self.use_file(_file(name))

    def read(self, name: str) -> tuple[GraphDocument, str] | None:
        """Return the document of a graph and its owner, ``None`` if there is none with this digest."""
        try:
            file, owner = self.open_file(_file(name))
            with file:
                document = GraphDocument.read(file.read())
        except FileNotFoundError:
            return None
        except (OSError, PullbackError, orjson.JSONDecodeError) as error:
            log.warning("the file of %s cannot be read: %s", name, error)
            return None
        return (document, owner) if document.name == name else None

    def write(self, document: GraphDocument, owner: str) -> None:
        """Keep a document; raises ``Overloaded`` if it cannot be written."""
        name, content = _file(document.name), document.canonical
        try:
            new = self.begin(name, owner, len(content))
            try:
                new.file.write(content)
                self.keep(new, name)
            finally:
                new.drop()
        except OSError as error:
            raise self.refused(error) from None


def _file(name: str) -> str:
    return f"{name.removeprefix(f'{PREFIX}.')}{ENDING}"
