"""The blocking client, and the asyncio client with the same blocking methods, so that a test can run with each."""

import asyncio
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Self

import uvloop

import pullback


class BlockingOp:
    """An op of the asyncio client, whose methods wait for their results."""

    def __init__(self, runner: asyncio.Runner, op: pullback.AsyncOp) -> None:
        self._runner, self._op = runner, op

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._op, name)
        return lambda *args, **options: self._runner.run(method(*args, **options))


class BlockingClient:
    """The asyncio client, whose methods wait for their results."""

    def __init__(self, *args: Any, new_loop: Callable[[], asyncio.AbstractEventLoop], **options: Any) -> None:
        self.client = pullback.AsyncClient(*args, **options)
        self.runner = asyncio.Runner(loop_factory=new_loop)

    def ops(self) -> list[pullback.ListedOp]:
        return self.runner.run(self.client.ops())

    def op(self, name: str) -> BlockingOp:
        return BlockingOp(self.runner, self.client.op(name))

    def checks(self, *args: Any, **options: Any) -> list[Any]:
        async def events() -> list[Any]:
            return [event async for event in self.client.checks(*args, **options)]

        return self.runner.run(events())

    def close(self) -> None:
        self.runner.run(self.client.close())
        self.runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


CLIENTS: dict[str, Callable[..., Any]] = {
    "blocking": pullback.Client,
    "asyncio": partial(BlockingClient, new_loop=asyncio.new_event_loop),
    "uvloop": partial(BlockingClient, new_loop=uvloop.new_event_loop),
}
