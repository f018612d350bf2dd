"""A client that posts a graph again when the service no longer has it."""

from typing import TypeVar

from pullback.calls import Call
from pullback.client import Client
from pullback.compose import Document, post
from pullback.errors import NotFound
from pullback.limits import Limit

T = TypeVar("T")


class RepostingClient(Client):
    """A client of the op of a document, with the connections of another client."""

    def __init__(self, client: Client, document: Document) -> None:
        """Take the client and the document."""
        vars(self).update(vars(client))
        self.document = document

    def send(self, call: Call[T], limit: Limit | None = None) -> T:
        """Send a call and return its result, after the document if the service has no such graph."""
        try:
            return super().send(call, limit)
        except NotFound:
            super().send(post(self.document), limit)
            return super().send(call, limit)
