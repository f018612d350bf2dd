"""Jobs: calls that the service answers later, whether the client still runs or not."""

import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from pullback.addresses import HEADER_VALUE
from pullback.calls import Call, nothing, segment
from pullback.coroutines import run
from pullback.errors import BadArgument, TimedOut

T = TypeVar("T")
PATH = "/v1/jobs"
# How long one request waits at most: proxies and clients end those that take long.
WAIT_S = 20.0


class JobProgress(NamedTuple):
    """How many points, or steps of checks, are done of a job that runs."""

    done: int
    total: int


class JobState(NamedTuple):
    """The state of a job: its place in the line while it waits, why it has failed, and how much of it is done."""

    id: str
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    position: int | None = None
    error: str | None = None
    progress: JobProgress | None = None

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self.state not in ("waiting", "running")


class Started(NamedTuple, Generic[T]):
    """What a service has answered to a call that may become a job: its ``id``, or the result at once."""

    id: str
    read: Callable[[Mapping[str, Any]], T]
    accept: str
    result: T | None


class BaseJob(Generic[T]):
    """A job of a service. ``id`` is its name there, empty if the service has answered at once."""

    def __init__(self, client: Any, started: Started[T]) -> None:
        """Take the client and what the service has answered."""
        self._client, self._started = client, started
        self.id = started.id

    def __repr__(self) -> str:
        return f"{self._client!r}.job({self.id!r})"

    def _state(self, wait_s: float = 0.0) -> Call[JobState]:
        return Call(f"{_path(self.id)}?wait={max(0.0, wait_s):.3f}", state, may_repeat=True)

    def _wait_s(self) -> float:
        timeout = self._client.timeout
        return WAIT_S if timeout is None else min(WAIT_S, timeout / 2)

    async def _wait(self, send: Callable[[Call[Any]], Awaitable[Any]], timeout: float | None) -> JobState:
        if not self.id:
            return JobState("", "done")
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = self._wait_s() if until is None else min(self._wait_s(), until - time.monotonic())
            found: JobState = await send(self._state(left))
            if found.has_ended:
                return found
            if until is not None and time.monotonic() >= until:
                raise TimedOut(f"job {self.id} is {found.state} after {timeout:g} s: wait longer, or cancel it")

    async def _result(self, send: Callable[[Call[Any]], Awaitable[Any]], timeout: float | None) -> T:
        if not self.id:
            return self._started.result  # pyright: ignore[reportReturnType] - that of the call
        await self._wait(send, timeout)
        return await send(
            Call(f"{_path(self.id)}/result", self._started.read, None, self._started.accept, may_repeat=True)
        )

    async def _cancel(self, send: Callable[[Call[Any]], Awaitable[Any]]) -> None:
        if self.id:
            await send(Call(_path(self.id), nothing, may_repeat=True, verb="DELETE"))


class Job(BaseJob[T]):
    """A job of a service, whose methods block."""

    def wait(self, timeout: float | None = None) -> JobState:
        """Return the state once the job has ended; raises ``TimedOut`` after ``timeout`` seconds."""
        return run(self._wait(self._send, timeout))

    def result(self, timeout: float | None = None) -> T:
        """Wait for the job, and return the result of its call, or raise its error."""
        return run(self._result(self._send, timeout))

    def cancel(self) -> None:
        """End the job with its computation; free the result of one that has ended."""
        run(self._cancel(self._send))

    async def _send(self, call: Call[Any]) -> Any:
        return self._client.send(call)


class AsyncJob(BaseJob[T]):
    """A job of a service, whose methods are coroutines, with the arguments and results of ``Job``."""

    async def wait(self, timeout: float | None = None) -> JobState:
        """Return the state once the job has ended; raises ``TimedOut`` after ``timeout`` seconds."""
        return await self._wait(self._client.send, timeout)

    async def result(self, timeout: float | None = None) -> T:
        """Wait for the job, and return the result of its call, or raise its error."""
        return await self._result(self._client.send, timeout)

    async def cancel(self) -> None:
        """End the job with its computation; free the result of one that has ended."""
        await self._cancel(self._client.send)


def deferred(call: Call[T], background: bool | str) -> Call[Started[T]]:
    """Return the call that makes a job of a call; a string is its idempotency key. Raises ``BadArgument``."""
    key = background if isinstance(background, str) else secrets.token_hex(16)
    if not HEADER_VALUE.fullmatch(key):
        raise BadArgument(f"background: expected a name of printable ASCII characters, got {key!r}")

    def read(document: Mapping[str, Any]) -> Started[T]:
        is_job = "state" in document and "id" in document
        result = None if is_job else call.read(document)
        return Started(document["id"] if is_job else "", call.read, call.accept, result)

    headers = (("Prefer", "respond-async"), ("Idempotency-Key", key))
    return Call(call.path, read, call.body, call.accept, call.deadline, may_repeat=True, headers=headers)


def known(name: str) -> Started[dict[str, Any]]:
    """Return a job by its id, whose result is the document of the answer."""
    return Started(name, dict, "", None)


def latest() -> Call[list[JobState]]:
    """Request the states of the latest jobs of the key."""
    return Call(PATH, _states, may_repeat=True)


def _states(document: Mapping[str, Any]) -> list[JobState]:
    return [state(each) for each in document["jobs"]]


def state(document: Mapping[str, Any]) -> JobState:
    """Read the state of a job."""
    progress = document.get("progress")
    done = None if progress is None else JobProgress(progress["done"], progress["total"])
    return JobState(document["id"], document["state"], document.get("position"), document.get("error"), done)


def _path(name: str) -> str:
    return f"{PATH}/{segment(name)}"
