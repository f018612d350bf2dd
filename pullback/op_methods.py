"""Methods of an op that send calls: each is written once, and blocks in ``Op`` and is awaited in ``AsyncOp``."""

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from functools import wraps
from inspect import Parameter, signature
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, get_args, overload

from pullback import calls
from pullback.calls import Call
from pullback.catalogue import Contract, html_of
from pullback.coroutines import run
from pullback.errors import BadArgument, Gone, PullbackError
from pullback.jobs import AsyncJob, BaseJob, Job, Started, deferred
from pullback.limits import Limit
from pullback.op_calls import OpCall


class Arguments:
    """The names that a method takes, those of its ``**common`` among them."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Read the signature of a function whose first parameter is the op."""
        self._name, self._signature = function.__name__, signature(function)
        parameters = list(self._signature.parameters.values())[1:]
        self._first = [p.name for p in parameters if p.kind is Parameter.POSITIONAL_OR_KEYWORD]
        self._named = [p.name for p in parameters if p.kind is Parameter.KEYWORD_ONLY]
        common = [each for p in parameters if p.kind is Parameter.VAR_KEYWORD for each in get_args(p.annotation)]
        self._common = [name for each in common for name in sorted(each.__optional_keys__)]
        self._known = frozenset((*self._first, *self._named, *self._common))

    def check_names(self, options: Mapping[str, Any]) -> None:
        """Raise ``BadArgument`` for an argument of another name, if the method takes a tensor."""
        if not self._common or self._known.issuperset(options):
            return
        name = next(name for name in options if name not in self._known)
        instead = f"an attribute is attrs={{{name!r}: ...}}, an input is {self._name}({{{name!r}: ...}})"
        raise BadArgument(
            f"{self._name}: expected {', '.join((*self._named, *self._common))}, got the argument {name}; {instead}"
        )

    def check(self, op: Any, args: Sequence[Any], options: Mapping[str, Any]) -> None:
        """Raise ``BadArgument`` for arguments that do not fit, if the method takes a tensor."""
        try:
            if self._common:
                self._signature.bind(op, *args, **options)
        except TypeError as error:
            if len(args) <= len(self._first):
                raise BadArgument(f"{self._name}: {error}") from None
            first, others = ", ".join(self._first), ", ".join(f"{name}=..." for name in self._named[:2])
            got = f"got {len(args)} without a name"
            cure = f"pass several inputs as one dictionary, {self._name}({{'a': ..., 'b': ...}}), and others by name"
            raise BadArgument(f"{self._name}: expected {self._name}({first}, {others}), {got}: {cure}") from None


P = ParamSpec("P")
T = TypeVar("T")


class Sender(Protocol):
    """A client, as far as an op needs it."""

    def send(self, call: Call[T], limit: Limit | None = None) -> T:
        """Send a call and return its result; ``limit`` is that of the call, if it has started."""
        ...


class AsyncSender(Protocol):
    """A client for asyncio, as far as an op needs it."""

    async def send(self, call: Call[T], limit: Limit | None = None) -> T:
        """Send a call and return its result; ``limit`` is that of the call, if it has started."""
        ...


class Blocking:
    """What has methods that block."""


class Awaited:
    """What has methods that are awaited."""


class BaseOp(ABC):
    """An op of a service, whose coroutines send calls."""

    def __init__(self, client: Any, name: str) -> None:
        """Set the client that sends the calls, and the name."""
        self._client = client
        self.name = name
        self._contract: Contract | None = None
        # The requests for the contract that are in progress, by process: a child of a fork has none of its parent's.
        self._fetches: dict[int, Future[None]] = {}

    async def result(self, call: OpCall[T] | Call[T]) -> T:
        """Send a call and return its result; arrays without a name take the one in the contract."""
        if isinstance(call, Call):
            return await self._send(call, Limit(call.deadline))
        limit = call.limit
        # Under the same name: many gathered calls wait here, and each keeps all its variables.
        contract = None if call.is_named else await self._shared_contract(limit)
        without = (
            None if call.fields.get("sparsity") is None else call._replace(fields={**call.fields, "sparsity": None})
        )
        call = call.named(contract)
        try:
            return await self._send(call, limit)
        except Gone:
            if without is None:
                raise
            return await self._send(without.named(contract), limit)

    async def start(self, call: OpCall[T] | Call[T], background: bool | str) -> BaseJob[T]:
        """Make a job of a call; a string finds the job that a call with the same one has made."""
        limit = Limit(call.deadline) if isinstance(call, Call) else call.limit
        if not isinstance(call, Call):
            call = call.named(None if call.is_named else await self._shared_contract(limit))
        return self._job(await self._send(deferred(call, background), limit))

    async def _shared_contract(self, limit: Limit) -> Contract:
        """Return the contract; calls that need it at the same time share one request."""
        while self._contract is None:
            mine = Future[None]()
            # Now a waiting task cannot cancel it.
            mine.set_running_or_notify_cancel()
            fetch = self._fetches.setdefault(os.getpid(), mine)
            try:
                await (self._fetch(mine, limit) if fetch is mine else self._wait(fetch, limit.wait(None)))
            except TimeoutError:
                # The client reports that the deadline has passed.
                return await self._send(calls.contract(self.name), limit)
        return self._contract

    async def _fetch(self, fetch: Future[None], limit: Limit) -> None:
        """Request the contract; the calls that wait for it get the error too, unless it concerns this call alone."""
        error: PullbackError | None = None
        try:
            if self._contract is None:
                self._contract = await self._send(calls.contract(self.name), limit)
        except PullbackError as failed:
            error = None if limit.has_passed else failed
            raise
        finally:
            del self._fetches[os.getpid()]
            if error is None:
                fetch.set_result(None)
            else:
                fetch.set_exception(error)

    @abstractmethod
    def _job(self, started: Started[T]) -> BaseJob[T]: ...

    @abstractmethod
    def _send(self, call: Call[T], limit: Limit) -> Awaitable[T]: ...

    @abstractmethod
    async def _wait(self, fetch: Future[None], seconds: float | None) -> None:
        """Wait for a request of another thread or task."""

    def __reduce__(self) -> tuple[type[Self], tuple[Any, str]]:
        return type(self), (self._client, self.name)

    def __repr__(self) -> str:
        return f"{self._client!r}.op({self.name!r})"

    def _repr_html_(self) -> str | None:
        """Return the contract for a notebook, if it is known; a look at an op sends no request."""
        return None if self._contract is None else html_of(self._contract)


class BlockingOp(Blocking, BaseOp):
    """An op whose methods block."""

    def __init__(self, client: Sender, name: str) -> None:
        """Set the client that sends the calls, and the name."""
        super().__init__(client, name)

    def _job(self, started: Started[T]) -> Job[T]:
        return Job(self._client, started)

    async def _send(self, call: Call[T], limit: Limit) -> T:
        return self._client.send(call, limit)

    async def _wait(self, fetch: Future[None], seconds: float | None) -> None:
        fetch.result(seconds)


class AsyncioOp(Awaited, BaseOp):
    """An op whose methods are coroutines."""

    def __init__(self, client: AsyncSender, name: str) -> None:
        """Set the client that sends the calls, and the name."""
        super().__init__(client, name)

    def _job(self, started: Started[T]) -> AsyncJob[T]:
        return AsyncJob(self._client, started)

    def _send(self, call: Call[T], limit: Limit) -> Awaitable[T]:
        return self._client.send(call, limit)

    async def _wait(self, fetch: Future[None], seconds: float | None) -> None:
        async with asyncio.timeout(seconds):
            await asyncio.wrap_future(fetch)


class method(Generic[P, T]):
    """A method that returns the result of a call, as ``result`` does; the function that it decorates returns the call.

    It blocks in ``Blocking`` classes. With ``background``, it returns a job instead, which no type can say.
    """

    def __init__(self, function: Callable[Concatenate[Any, P], OpCall[T] | Call[T]]) -> None:
        """Make both methods; ``BadArgument`` says what to write for arguments that the function does not take."""
        arguments = Arguments(function)

        def call(op: Any, *args: P.args, **options: P.kwargs) -> OpCall[T] | Call[T]:
            arguments.check_names(options)
            try:
                return function(op, *args, **options)
            except TypeError:
                arguments.check(op, args, options)
                raise

        @wraps(function)
        def blocking(op: Any, *args: P.args, **options: P.kwargs) -> T:
            if background := options.pop("background", False):
                return run(op.start(call(op, *args, **options), background))
            return run(op.result(call(op, *args, **options)))

        @wraps(function)
        async def awaited(op: Any, *args: P.args, **options: P.kwargs) -> T:
            if background := options.pop("background", False):
                return await op.start(call(op, *args, **options), background)
            return await op.result(call(op, *args, **options))

        self.signature = signature(function)
        (result,) = get_args(self.signature.return_annotation)
        for made in (blocking, awaited):
            made.__annotations__ = {**function.__annotations__, "return": result}
            vars(made)["__signature__"] = self.signature.replace(return_annotation=result)
        self._blocking: Callable[..., Any] = blocking
        self._awaited: Callable[..., Any] = awaited

    @overload
    def __get__(self, op: Blocking, kind: Any = None) -> Callable[P, T]: ...
    @overload
    def __get__(self, op: Awaited, kind: Any = None) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, op: None, kind: Any = None) -> Callable[..., Any]: ...
    def __get__(self, op: Any, kind: type[Any] | None = None) -> Callable[..., Any]:
        made = self._blocking if issubclass(kind or type(op), Blocking) else self._awaited
        return made if op is None else MethodType(made, op)
