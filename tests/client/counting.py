"""A transport that counts requests."""

import httpx


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
