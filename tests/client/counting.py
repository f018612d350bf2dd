"""Senders that record: a transport that counts requests, and a client that only keeps calls."""

from collections.abc import Callable
from typing import Any

import httpx

import pullback
from pullback.calls import Call


class Counting(httpx.BaseTransport):
    """A transport that records the paths of the POST requests."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self._transport = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            self.sent.append(request.url.path.removeprefix("/v1/ops/"))
        return self._transport.handle_request(request)

    def close(self) -> None:
        self._transport.close()

    def new(self) -> list[str]:
        """Return what was sent since the last time."""
        found, self.sent = self.sent, []
        return found


class Keeping:
    """A client of an op that keeps its call, and sends nothing."""

    call: Call[Any]

    def send(self, call: Call[Any], limit: object = None) -> Any:
        self.call = call


def sent_by(work: Callable[[pullback.Op], object]) -> Call[Any]:
    """Return the call that a method of an op sends."""
    client = Keeping()
    work(pullback.Op(client, "op"))
    return client.call
