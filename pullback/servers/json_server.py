"""JSON over HTTP with a server that is not ours: its answers are bounded in size and time, and may be nonsense."""

import json
import time
from contextlib import closing
from typing import Any, Self

import httpx

from pullback.addresses import CONNECT_S, is_this_machine, public
from pullback.errors import BadAnswer, BadArgument, CannotConnect, ConnectionLost, ModelFailed, TimedOut

MAX_BYTES = 1 << 26
MAX_SHOWN = 200
FIRST_ERROR = 400


class JsonServer:
    """A server at a URL, which answers JSON. ``timeout`` limits each answer as a whole, in seconds."""

    def __init__(self, url: str, timeout: float) -> None:
        """Raise ``BadArgument`` for a URL that no request can be sent to."""
        self.url, self._timeout = url.rstrip("/"), timeout
        try:
            parsed = httpx.URL(self.url)
        except httpx.InvalidURL as error:
            raise BadArgument(f"expected a URL such as http://localhost:4242, got {public(url)!r} ({error})") from error
        if not parsed.host or parsed.scheme not in ("http", "https"):
            raise BadArgument(f"expected a URL such as http://localhost:4242, got {public(url)!r}")
        # The environment may name a proxy, but never for this machine.
        self._client = httpx.Client(
            timeout=httpx.Timeout(timeout, connect=min(timeout, CONNECT_S)),
            trust_env=not is_this_machine(parsed.host),
            headers={"User-Agent": "python-pullback", "Accept-Encoding": "identity"},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, path: str) -> Any:
        """Return the JSON at a path; raise as ``post`` does."""
        return self._answer("GET", path, None, {})

    def post(self, path: str, body: Any, accept: str = "application/json") -> Any:
        """Send JSON to a path, and return the JSON that is answered.

        Raises ``ModelFailed`` for an answer with an error, ``BadAnswer`` for one that is no JSON or too large,
        ``CannotConnect``, ``TimedOut`` or ``ConnectionLost``.
        """
        content = json.dumps(body, allow_nan=False).encode()
        return self._answer("POST", path, content, {"Content-Type": "application/json", "Accept": accept})

    def _answer(self, method: str, path: str, content: bytes | None, headers: dict[str, str]) -> Any:
        where = f"{method} {public(self.url)}{path}"
        try:
            status, body = self._exchange(method, path, content, headers, where)
        except httpx.ConnectError as error:
            reason = f"cannot connect to {public(self.url)} ({error})"
            raise CannotConnect(f"{reason}: start the server there, or correct the URL") from error
        except httpx.TimeoutException as error:
            raise self._timed_out(where) from error
        except httpx.TransportError as error:
            raise ConnectionLost(f"{where}: the connection closed before an answer ({error})") from error
        if status >= FIRST_ERROR:
            raise ModelFailed(f"{where}: expected an answer, got status {status}: {_shown(body)}")
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise BadAnswer(f"{where}: expected JSON, got {_shown(body)}") from error

    def _exchange(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str], where: str
    ) -> tuple[int, bytes]:
        """Return the status and the body of an answer, which arrives in time as a whole."""
        end, parts, size = time.monotonic() + self._timeout, list[bytes](), 0
        request = self._client.build_request(method, self.url + path, content=content, headers=headers)
        with closing(self._client.send(request, stream=True)) as response:
            for part in response.iter_raw():
                parts.append(part)
                size += len(part)
                if size > MAX_BYTES:
                    raise BadAnswer(f"{where}: expected at most {MAX_BYTES >> 20} MiB, got more")
                if time.monotonic() > end:
                    raise self._timed_out(where)
        return response.status_code, b"".join(parts)

    def _timed_out(self, where: str) -> TimedOut:
        return TimedOut(f"{where}: no answer within {self._timeout:g} s: allow more with --timeout")


def _shown(body: bytes) -> str:
    text = " ".join(body[: 4 * MAX_SHOWN].decode(errors="replace").split())
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
