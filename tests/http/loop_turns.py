"""A service that measures its longest turn of the event loop, and the longest wait for the interpreter's lock."""

import asyncio
import gc
import selectors
import threading
import time

import httpx
from fastapi import FastAPI

from app.http.listener import listen, url_of
from app.http.server import OneServer
from app.main import create_app
from tests.conftest import client_of
from tests.patience import PATIENCE_S
from tests.threaded_service import config_of, settings_of

# The time between two beats of the heart, without what they wait.
BEAT_S = 0.001


class _Turns(selectors.DefaultSelector):
    """A selector that measures what its event loop does between two calls; CPU time, since the machine may be busy."""

    def __init__(self) -> None:
        super().__init__()
        self.longest_s, self._began = 0.0, 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.longest_s = max(self.longest_s, time.thread_time() - (self._began or time.thread_time()))
        found = super().select(timeout)
        self._began = time.thread_time()
        return found


class _Heartbeat(threading.Thread):
    """A thread that measures how long it waits for the interpreter's lock, which other threads may hold.

    Since the machine may be busy, a beat is late by no more than the CPU time of the process meanwhile.
    """

    def __init__(self) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self.longest_s, self.should_stop = 0.0, False

    def run(self) -> None:
        while not self.should_stop:
            began, cpu = time.monotonic(), time.process_time()
            time.sleep(BEAT_S)
            late = time.monotonic() - began - BEAT_S
            self.longest_s = max(self.longest_s, min(late, time.process_time() - cpu))


class MeasuredService:
    """A service on a thread, with the event loop of asyncio."""

    def __init__(self, **settings: str) -> None:
        made = settings_of(**settings)
        self.app: FastAPI = create_app(made)
        self._turns, self._listener, ready = _Turns(), listen(made.host, made.port), threading.Event()
        config = config_of(made)
        config.app = lambda: self.app
        self._server = OneServer(config, ready.set)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        self._heartbeat = _Heartbeat()
        self._heartbeat.start()
        assert ready.wait(PATIENCE_S)
        self.client = client_of(url_of(self._listener))

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(self._turns)) as runner:
            runner.run(self._server.serve(sockets=[self._listener]))

    def longest_s(self, request: httpx.Request) -> tuple[float, float, httpx.Response]:
        """Return the CPU time of the longest turn of the event loop until a request is answered, and the answer.

        In between is the longest time for which a thread has waited for the interpreter's lock.
        """
        self._turns.longest_s = self._heartbeat.longest_s = 0.0
        response = self.client.send(request)
        self.client.get("/health/live")  # the turn that has sent the answer is over
        return self._turns.longest_s, self._heartbeat.longest_s, response

    def close(self) -> None:
        """Stop the service."""
        self.client.close()
        self._heartbeat.should_stop = True
        self._server.should_exit = True
        self._thread.join(PATIENCE_S)
        self._listener.close()
        gc.unfreeze()
