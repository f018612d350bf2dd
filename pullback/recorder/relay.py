"""Passes the bytes between an application and a server, in both directions, as they come.

Each connection has a thread, which waits in the kernel: it wakes faster than an event loop does.
"""

import contextlib
import logging
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import responses
from typing import Any

from pullback.addresses import Url
from pullback.recorder.messages import Content, Exchange, IsHttp2, RequestReader, ResponseReader, Room
from pullback.recorder.streams import Lost, Pump, Stream, connected

MAX_IN_FLIGHT = 64 << 20
"""The most bytes of bodies that are kept until their response has come."""
CONNECT_S = 10.0
LINGER_S = 2.0
"""How long an error of the relay waits for the application to read it."""
MAX_REFUSED = 8
"""How many connections are told at a time that there are too many."""
BACKLOG = 256
WAITING = 4
"""How many threads wait for connections at first, and at most after one has ended."""
FAULTS = select.POLLERR | select.POLLHUP | select.POLLNVAL

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Traffic:
    """The connections of an application to a server at ``url``, at most ``most`` at a time.

    ``is_wanted(method, target)`` says which bodies to keep; ``seen(exchange)`` is called with each exchange that has
    ended, by one thread at a time, and its bodies are dropped afterwards.
    """

    url: Url
    shown: str
    tls: ssl.SSLContext | None
    is_wanted: Callable[[str, str], bool]
    seen: Callable[[Exchange], None]
    most: int
    port: int = 0
    in_flight: int = 0
    requests: int = 0
    refused: int = 0
    unread: int = 0
    """The connections whose bytes could not be read as HTTP/1.1."""
    lost: int = 0
    """The requests that the server did not answer."""
    active: float = 0.0
    """When a request began or ended the last time."""
    links: "set[Link]" = field(default_factory=set["Link"])
    lock: threading.Lock = field(default_factory=threading.Lock)
    room: Room = field(default_factory=lambda: Room(MAX_IN_FLIGHT))
    _listener: socket.socket | None = None
    _address: tuple[int, Any] | None = None
    _threads: int = 0
    _waiting: int = 0

    def listen(self, port: int) -> None:
        """Accept connections on a port of this machine, 0 for a free one, in threads; raise ``OSError``."""
        self._listener = socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
        self.port = self._listener.getsockname()[1]
        for _ in range(WAITING):
            self._start(self._listener)

    def close(self) -> None:
        """Close all connections."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        with self.lock:
            links = list(self.links)
        for link in links:
            link.stop()
        end = time.monotonic() + LINGER_S
        while self._threads and time.monotonic() < end:
            time.sleep(0.001)
        listener.close()

    def _start(self, listener: socket.socket) -> None:
        with self.lock:
            self._threads += 1
            self._waiting += 1
        try:
            threading.Thread(target=self._accept, args=(listener,), name="relay", daemon=True).start()
        except RuntimeError:  # the process has no further thread: connections wait for one that ends
            with self.lock:
                self._threads -= 1
                self._waiting -= 1

    def _accept(self, listener: socket.socket) -> None:
        """Serve one connection after the other, while others wait for the next."""
        while self._listener is not None:
            try:
                link = Link(self, Stream(listener.accept()[0]))
            except OSError:
                time.sleep(LINGER_S / 100)  # closed, or out of descriptors
                continue
            with self.lock:
                self._waiting -= 1
                is_full = len(self.links) >= self.most
                self.refused += is_full
                if not is_full:
                    self.links.add(link)
                is_alone = not self._waiting and self._threads < self.most + MAX_REFUSED
            if is_alone:
                self._start(listener)
            try:
                if is_full:
                    link.refuse(503, f"expected at most {self.most} connections at a time, got more: close some")
                else:
                    link.run()
            except Exception:
                log.exception("a connection of the relay has failed")
            with self.lock:
                self.links.discard(link)
                if self._waiting >= WAITING:
                    break
                self._waiting += 1
        with self.lock:
            self._threads -= 1

    @property
    def idle_s(self) -> float:
        """How long nothing has been in flight, in seconds."""
        return 0.0 if self.in_flight else time.monotonic() - self.active

    def begin(self, method: str, target: str) -> Exchange:
        """Return the exchange of a request that begins."""
        with self.lock:
            self.in_flight += 1
            self.requests += 1
            self.active = time.monotonic()
        is_wanted = self.is_wanted(method, target)
        return Exchange(method, target, Content(self.room, is_wanted), Content(self.room, is_wanted))

    def end(self, exchange: Exchange) -> None:
        """Count the end of an exchange that has its response."""
        try:
            with self.lock:
                self.seen(exchange)
        finally:
            exchange.drop()
            self.leave(1)

    def leave(self, count: int) -> None:
        """Count requests that are no longer in flight."""
        with self.lock:
            self.in_flight -= count
            self.active = time.monotonic()

    def connect(self) -> Stream:
        """Return a connection to the server; raise ``OSError``.

        The address that a name leads to is kept until a connection there fails.
        """
        if self._address is not None:
            try:
                return connected(*self._address, self.tls, self.url.host, CONNECT_S)
            except OSError:
                self._address = None
        failed: OSError = OSError("no address")
        for family, *_, address in socket.getaddrinfo(self.url.host, self.url.port, type=socket.SOCK_STREAM):
            try:
                found = connected(family, address, self.tls, self.url.host, CONNECT_S)
            except OSError as error:
                failed = error
            else:
                self._address = family, address
                return found
        raise failed


class Link:
    """A connection of the application, and the one to the server that belongs to it."""

    def __init__(self, traffic: Traffic, application: Stream) -> None:
        """Connect to nothing yet."""
        self._traffic, self._application = traffic, application
        self._server: Stream | None = None
        self._pending = deque[Exchange]()
        self._requests = RequestReader(traffic.port, traffic.url.netloc, self._begin)
        self._responses = ResponseReader(self._pending, traffic.end)
        self._is_unread = False

    def run(self) -> None:
        """Pass bytes until one of the connections has ended."""
        traffic = self._traffic
        try:
            server = self._server = traffic.connect()
        except OSError as error:
            self.refuse(502, f"cannot connect to {traffic.shown} ({error}): start the server there")
            return
        try:
            self._pass(server)
        finally:
            self._drop_pending()
            self._responses.close()
            server.close()
            self._application.close()

    def stop(self) -> None:
        """End both connections."""
        self._application.stop()
        if self._server is not None:
            self._server.stop()

    def refuse(self, status: int, text: str) -> None:
        """Answer in place of the server, and close the connection."""
        content = f"pullback record: {text}\n".encode()
        head = f"HTTP/1.1 {status} {responses[status]}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        head += f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
        self._application.finish(head.encode("ascii") + content, LINGER_S)
        self._application.close()

    def _pass(self, server: Stream) -> None:
        application, reason = self._application, ""
        # A server that takes no more may have answered already.
        requests = Pump(application, server, self._requests.feed, self._see_request, outlives=True)
        replies = Pump(server, application, _unchanged, self._see_reply, outlives=False)
        try:
            self._pump(requests, replies)
        except IsHttp2:
            is_first = not self._pending
            self._give_up_reading()
            if is_first:
                self.refuse(505, "expected HTTP/1.1, got HTTP/2: curl has --http1.1 for that")
            return
        except Lost as lost:
            if lost.stream is application:
                server.close(is_reset=True)
                return
            reason = f" ({lost})"
        if self._pending and not self._responses.has_begun:
            self._traffic.lost += len(self._pending)
            text = f"{self._traffic.shown} closed the connection before it answered{reason}: see its log"
            self._drop_pending()
            self.refuse(502, text)
        elif reason:
            application.close(is_reset=True)
        else:
            application.finish(replies.rest, None)

    def _pump(self, requests: Pump, replies: Pump) -> None:
        """Pass bytes until the server ends, or all requests of an application that has ended are answered."""
        pumps = {requests.source.number: (requests, replies), replies.source.number: (replies, requests)}
        poll, wanted = select.poll(), dict.fromkeys(pumps, select.POLLIN)
        for number, events in wanted.items():
            poll.register(number, events)
        while not replies.has_ended and (not requests.has_ended or self._pending or self._is_unread or replies.rest):
            for number, event in poll.poll():
                inward, outward = pumps[number]
                if event & FAULTS and not inward.is_ready:
                    raise Lost(inward.source, OSError("the connection was reset"))
                if outward.rest:
                    outward.push()
                    outward.pull()  # TLS may have bytes that poll does not show
                inward.pull()
                if inward.has_ended and inward is requests:
                    replies.source.end()
            for number, (inward, outward) in pumps.items():
                now = (select.POLLIN if inward.is_ready else 0) | (select.POLLOUT if outward.rest else 0)
                if now != wanted[number]:
                    wanted[number] = now
                    poll.modify(number, now)

    def _begin(self, method: str, target: str) -> Exchange:
        exchange = self._traffic.begin(method, target)
        self._pending.append(exchange)
        return exchange

    def _see_request(self, data: bytes) -> None:
        del data
        if not self._requests.is_readable:
            self._give_up_reading()

    def _see_reply(self, data: bytes) -> None:
        self._responses.feed(data)
        if not self._responses.is_readable:
            self._give_up_reading()

    def _give_up_reading(self) -> None:
        """Count a connection that can no longer be read; its bytes pass on."""
        if not self._is_unread:
            self._is_unread = True
            self._requests.is_readable = False
            self._traffic.unread += 1
            self._responses.close()
            self._drop_pending()

    def _drop_pending(self) -> None:
        while self._pending:
            self._traffic.leave(1)
            self._pending.popleft().drop()


def _unchanged(data: bytes) -> bytes:
    return data
