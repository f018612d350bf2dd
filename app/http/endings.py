"""How a connection ends: idle, refused, half closed, or when the server stops."""

import asyncio
import time
from enum import Enum, auto
from functools import partial

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from app.errors import BodyTooSlow, Overloaded, PullbackError
from app.http.fast_path import HeldRequest
from app.http.problems import render
from app.http.transport import HeadCoalescing, Link, has_unread

# How long the headers of a request may take.
HEAD_S = 20.0
# How long a connection whose request is refused takes what the client still sends: a close would reset it, and the
# client could lose the answer.
LINGER_S = 1.0
# How long a client that sends no more has waited when it is first asked whether it is still there.
FIRST_PROBE_S = 0.05
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# How long a connection may still be idle once the server stops.
IDLE_AT_STOP_S = 1


class State(Enum):
    """What a connection does.

    ``IDLE``: it waits for a request. ``HEAD`` and ``BODY``: it reads that part of one; earlier ones may be in progress.
    ``ANSWERING``: it has read all requests that began, and not answered all of them. ``REFUSED``: it reads no more.
    """

    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    ANSWERING = auto()
    REFUSED = auto()


# A look-up in an enumeration takes a tenth of a microsecond.
IDLE, HEAD, BODY, ANSWERING, REFUSED = State


class EndingProtocol(HttpToolsProtocol):
    """The part of a connection that ends it."""

    _state = IDLE
    _running: RequestResponseCycle | None = None
    _head_timer: asyncio.TimerHandle | None = None
    _coalescing: HeadCoalescing
    link: Link
    # The request that may be answered on the fast path.
    held: HeldRequest | None = None

    def _leave_fast_path(self) -> None:
        """Pass the request that is held for the fast path, if any, to the general path."""
        raise NotImplementedError

    def eof_received(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride] - uvicorn's always closes
        """Answer what has arrived whole, then close: the client sends no more, but may still read.

        In TLS, the transport closes at once, whatever is returned.
        """
        self._leave_fast_path()
        has_refusal = self._state is REFUSED
        last = None if self.scheme == "https" else self._stop_reading()
        if last is not None:
            # A refusal closes the connection itself.
            last.keep_alive = last.keep_alive and has_refusal
            self.loop.call_later(FIRST_PROBE_S, self._probe, FIRST_PROBE_S)
        return last is not None

    def _probe(self, waited_s: float) -> None:
        """Find out whether the client has closed the connection: only then its system refuses what it receives.

        An interim answer changes nothing: clients skip it.
        """
        running = self._running
        if self.transport.is_closing() or running is None:
            return
        if not running.response_started and running.scope["http_version"] == "1.1":
            self._coalescing.write_response(CONTINUE)
        self.loop.call_later(waited_s, self._probe, 2 * waited_s)

    def shutdown(self) -> None:
        """Close the connection when it has been idle for ``IDLE_AT_STOP_S``; answer what arrives until then."""
        self.timeout_keep_alive = IDLE_AT_STOP_S
        self._leave_fast_path()
        if self._state is IDLE or (self._state is BODY and self.cycle.response_complete):
            self._start_keep_alive_timer(IDLE_AT_STOP_S)

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection, unless a request has arrived that is not read yet, or it has not been idle so long.

        The fast path does not stop the timer for each request.
        """
        if self.transport.is_closing():
            return
        idle_s = time.perf_counter() - self.link.answered_at
        if self._state is not IDLE or self.held is not None or has_unread(self.transport):
            self._start_keep_alive_timer(self.timeout_keep_alive)
        elif idle_s < self.timeout_keep_alive:
            self._start_keep_alive_timer(self.timeout_keep_alive - idle_s)
        else:
            super().timeout_keep_alive_handler()

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_S, self._on_head_timeout)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _on_head_timeout(self) -> None:
        self._refuse(BodyTooSlow(f"expected the request headers within {HEAD_S:g} s"))

    def _start_keep_alive_timer(self, seconds: float) -> None:
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _refuse(self, error: PullbackError) -> None:
        """Read no more requests; send the error after the answers to those that have arrived, and close."""
        self.logger.warning("closing a connection: %s", error.detail)
        last = self._stop_reading()
        if last is None:
            self._send_refusal(error)
        else:
            last.on_response = partial(self._send_refusal, error)

    def _stop_reading(self) -> RequestResponseCycle | None:
        """Read no more; return the last request that has arrived whole, ``None`` if it has been answered."""
        self._leave_fast_path()
        self._state = REFUSED
        self._stop_head_timer()
        last: RequestResponseCycle | None = self.cycle
        if self.pipeline and self.cycle.more_body:
            # This request has not begun, and the rest of its body is wrong or missing.
            self.pipeline.popleft()
            last = self.pipeline[0][0] if self.pipeline else self._running
        return None if last is None or last.response_complete or last.more_body else last

    def _send_refusal(self, error: PullbackError) -> None:
        if self.transport.is_closing():
            return
        running = self._running
        is_answering = False
        if running is not None and not running.response_complete:
            is_answering, running.disconnected = running.response_started, True
        if not is_answering:
            status, headers, body = render(error, "")
            lines = [*self.server_state.default_headers, *headers, (b"connection", b"close")]
            head = b"".join(name + b": " + value + b"\r\n" for name, value in lines)
            self.transport.write(STATUS_LINE.get(status, b"HTTP/1.1 %d \r\n" % status) + head + b"\r\n" + body)
        if is_answering or isinstance(error, Overloaded):
            self.transport.close()
        else:
            self.loop.call_later(LINGER_S, self.transport.close)
