"""A client that posts a graph again when the service no longer has it."""

from typing import TypeVar

from pullback.calls import Call
from pullback.client import Client
from pullback.compose import put
from pullback.errors import NotFound
from pullback.graph_values import Document
from pullback.limits import Limit

T = TypeVar("T")


class RepostingClient(Client):
    """A client of the op of a document, with the connections of another client."""

    def __init__(self, client: Client, name: str, document: Document) -> None:
        """Take the client, the name of the graph and the document that has it."""
        vars(self).update(vars(client))
        self.name, self.document = name, document

    def send(self, call: Call[T], limit: Limit | None = None) -> T:
        """Send a call and return its result, after the document if the service has no such graph."""
        try:
            return super().send(call, limit)
        except NotFound:
            super().send(put(self.document, self.name), limit)
            return super().send(call, limit)
