"""Provenance: which versions of the service, of TensorFlow and of an op's page computed an answer."""

import tensorflow as tf

from app.gradcheck.record import page_digest
from ops import Registry
from pullback import __version__

NAME = b"pullback-provenance"


class Provenance:
    """The provenance of the answers of each op, as a header."""

    def __init__(self, registry: Registry) -> None:
        """Read the pages of the ops that have just been loaded; the page of a stale op is not what is served."""
        pages = {name: page for name, page in registry.pages.items() if name not in registry.stale}
        self._digests = {name: page_digest(page) for name, page in pages.items()}

    def header(self, op: str) -> tuple[bytes, bytes]:
        """Return the header of an answer of a registered op. A posted graph has no page; its name has its digest."""
        found = {"version": __version__, "tensorflow": tf.__version__, "page": self._digests.get(op)}
        return NAME, ", ".join(f'{name}="{value}"' for name, value in found.items() if value).encode()
