"""JSON over HTTP with a server that is not ours: its answers are bounded in size and time, and may be nonsense."""

import json
import time
from typing import Any

from pullback.addresses import Address, Url, basic, environment_proxy, public
from pullback.blocking_connection import new_transport
from pullback.bodies import JSON, Body
from pullback.calls import Call, nothing
from pullback.closing import Closing
from pullback.coroutines import run
from pullback.errors import (
    BadAnswer,
    BadArgument,
    CannotConnect,
    ConnectionLost,
    ModelFailed,
    NotPullback,
    TimedOut,
)
from pullback.limits import Limit
from pullback.responses import Response, retry_after

MAX_BYTES = 1 << 26
MAX_VALUES, MAX_CONTAINERS = 5 << 20, 1 << 20
"""The most values, and the most lists and objects, of an answer: each takes far more memory than its text."""
MAX_SHOWN = 200
FIRST_ERROR = 400
BUSY = (429, 502, 503, 504)
"""The statuses of a server, or a proxy before it, that has no capacity now: they say nothing of the model."""
PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)
"""The pauses before another try, where the answer has no ``Retry-After``, and how many there are."""
LONGEST_PAUSE_S = 30.0


class Unannounced(Limit):
    """The time that is left for an answer, which the request does not tell."""

    def headers(self) -> dict[str, str]:
        """Return no header."""
        return {}


class JsonServer(Closing):
    """A server at a URL, which answers JSON. ``timeout`` limits each answer as a whole, in seconds."""

    def __init__(self, url: str, timeout: float) -> None:
        """Raise ``BadArgument`` for a URL that no request can be sent to."""
        self.url, self._timeout = url.rstrip("/"), timeout
        expected = f"expected a URL such as http://localhost:4242, got {public(url)!r}"
        try:
            parsed = Url.parse(self.url)
        except ValueError as error:
            raise BadArgument(f"{expected} ({error})") from error
        if not parsed.host or parsed.scheme not in ("http", "https"):
            raise BadArgument(expected)
        headers = {"User-Agent": "python-pullback", "Accept-Encoding": "identity"}
        if parsed.userinfo:
            headers["Authorization"] = basic(parsed.userinfo)
        # The environment may name a proxy, but never for this machine.
        self._transport = new_transport(Address(self.url, timeout, headers, environment_proxy(parsed)))

    def close(self) -> None:
        """Close the connections."""
        run(self._transport.close())

    def get(self, path: str) -> Any:
        """Return the JSON at a path; raise as ``post`` does."""
        return self._answer(Call(path, nothing, accept="*/*"))

    def post(self, path: str, body: Any, accept: str = JSON) -> Any:
        """Send JSON to a path, and return the JSON that is answered.

        Raises ``ModelFailed`` for an answer with an error, ``BadAnswer`` for one that is no JSON or too large,
        ``CannotConnect``, ``TimedOut`` or ``ConnectionLost``. A server that is busy is asked again.
        """
        content = json.dumps(body, allow_nan=False).encode()
        return self._answer(Call(path, nothing, Body(JSON, (content,)), accept))

    def _answer(self, call: Call[None]) -> Any:
        where = f"{call.method} {public(self.url)}{call.path}"
        try:
            response = run(self._exchange(call, where))
            for pause in PAUSES_S:
                if response.status not in BUSY:
                    break
                wait = retry_after(response)
                time.sleep(pause if wait is None else min(wait, LONGEST_PAUSE_S))
                response = run(self._exchange(call, where))
        except CannotConnect as error:
            reason = f"cannot connect to {public(self.url)} ({error.__cause__})"
            raise CannotConnect(f"{reason}: start the server there, or correct the URL") from error
        except ConnectionLost as error:
            raise ConnectionLost(f"{where}: the connection closed before an answer ({error.__cause__})") from error
        except NotPullback as error:
            raise ConnectionLost(f"{where}: expected an answer in HTTP, got another one ({error.__cause__})") from error
        body = bytes(response.content)
        if response.status in BUSY:
            raise TimedOut(f"{where}: the server stays busy, with status {response.status}: try again later")
        if response.status >= FIRST_ERROR:
            raise ModelFailed(f"{where}: expected an answer, got status {response.status}: {_shown(body)}")
        if body.count(b",") > MAX_VALUES or body.count(b"[") + body.count(b"{") > MAX_CONTAINERS:
            raise BadAnswer(
                f"{where}: expected at most {MAX_VALUES} values, in {MAX_CONTAINERS} lists and objects, got more"
            )
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise BadAnswer(f"{where}: expected JSON, got {_shown(body)}") from error

    async def _exchange(self, call: Call[None], where: str) -> Response:
        """Return an answer, which arrives in time as a whole."""
        limit, parts, size = Unannounced(self._timeout), list[bytes](), 0
        try:
            async with self._transport.stream(call, limit) as (start, next_part):
                while (part := await next_part()) is not None:
                    parts.append(part)
                    size += len(part)
                    if size > MAX_BYTES:
                        raise BadAnswer(f"{where}: expected at most {MAX_BYTES >> 20} MiB, got more")
                    if limit.has_passed:
                        raise self._timed_out(where)
        except TimedOut as error:
            raise self._timed_out(where) from error
        return start._replace(content=b"".join(parts))

    def _timed_out(self, where: str) -> TimedOut:
        return TimedOut(f"{where}: no answer within {self._timeout:g} s: allow more with --timeout")


def _shown(body: bytes) -> str:
    text = " ".join(body[: 4 * MAX_SHOWN].decode(errors="replace").split())
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
