"""An op of a service as an explicit discipline of Philote, which its stock clients call over gRPC.

The messages are those of ``philote-mdo``. The server keeps nothing of a client: the shapes, units and attributes are
those that it was started with, so clients cannot change each other's numbers.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from math import prod
from typing import Any

import grpc
import numpy as np
from google.protobuf.empty_pb2 import Empty
from philote_mdo.generated import data_pb2 as data
from philote_mdo.generated import disciplines_pb2_grpc as services

from pullback import __version__
from pullback.dtypes import Array
from pullback.errors import BadArgument, DeadlinePassed, Overloaded, PullbackError, RateLimited, TimedOut
from pullback.errors import Unprocessable as Refused
from pullback.remotes import Jacobians, TensorType

LIMIT = 1 << 22
"""The most numbers of all inputs, of all outputs, and of all blocks of the Jacobian, which Philote sends dense."""
CALLS = 16
"""The most calls in progress; another one gets RESOURCE_EXHAUSTED."""
CHUNK, MOST_CHUNK = 1000, 1 << 16
"""How many numbers a message has, by default and at most."""
MOST_TEXT = 1000
GRACE_S = 1.0
CODES: Mapping[type[PullbackError], grpc.StatusCode] = {
    BadArgument: grpc.StatusCode.INVALID_ARGUMENT,
    Refused: grpc.StatusCode.INVALID_ARGUMENT,
    TimedOut: grpc.StatusCode.DEADLINE_EXCEEDED,
    DeadlinePassed: grpc.StatusCode.DEADLINE_EXCEEDED,
    Overloaded: grpc.StatusCode.UNAVAILABLE,
    RateLimited: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
Types = Mapping[str, TensorType]


class Discipline(services.DisciplineServiceServicer, services.ExplicitServiceServicer):
    """The explicit discipline of an op. Its methods are the calls of Philote, in their order."""

    def __init__(self, of: Jacobians, units: Mapping[str, str], read_s: float) -> None:
        """Take the op with its shapes. A client may take ``read_s`` seconds to send what a call needs.

        Raises ``BadArgument`` for what Philote cannot carry.
        """
        contract = of.p.remote.contract()
        self._of, self._units, self._read_s, self._chunk = of, dict(units), read_s, CHUNK
        self._inputs = dict(zip([slot.name for slot in contract.inputs], of.inputs, strict=True))
        self._outputs = dict(zip([slot.name for slot in contract.outputs], of.outputs, strict=True))
        self._name = contract.name
        _check(self._inputs, self._outputs, units)
        numbers = {
            "the inputs": sum(t.size for t in of.inputs),
            "the outputs": sum(t.size for t in of.outputs),
            "the Jacobian, which Philote sends dense": sum(prod(pattern.shape) for pattern in of.patterns.values()),
        }
        for what, count in numbers.items():
            if count > LIMIT:
                raise BadArgument(f"shapes: expected at most {LIMIT} numbers in {what}, got {count}")

    async def GetInfo(self, request: Any, context: Any) -> Any:
        """Return what the discipline has."""
        properties = {"continuous": True, "differentiable": True, "provides_gradients": True}
        return data.DisciplineProperties(**properties, name=self._name, version=__version__)

    async def SetStreamOptions(self, request: Any, context: Any) -> Any:
        """Set how many numbers a message has; any other client reads these messages as well."""
        async with _reported(context):
            if request.num_double < 1:
                raise BadArgument(f"num_double: expected at least 1, got {request.num_double}")
        self._chunk = min(request.num_double, MOST_CHUNK)
        return Empty()

    async def GetAvailableOptions(self, request: Any, context: Any) -> Any:
        """Return that clients can set no options."""
        return data.OptionsList()

    async def SetOptions(self, request: Any, context: Any) -> Any:
        """Refuse options: those of one client would be those of all."""
        async with _reported(context):
            if names := sorted(request.options.fields):
                expected = "no options: set attributes where the server starts, pullback philote OP NAME=VALUE"
                raise BadArgument(f"expected {expected}, got {names[0]!r}")
        return Empty()

    async def Setup(self, request: Any, context: Any) -> Any:
        """Do nothing: shapes are fixed when the server starts."""
        return Empty()

    async def GetVariableDefinitions(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Yield the inputs and outputs."""
        for kind, types in ((data.kInput, self._inputs), (data.kOutput, self._outputs)):
            for name, t in types.items():
                yield data.VariableMetaData(type=kind, name=name, shape=_shape(t), units=self._units.get(name, ""))

    async def GetPartialDefinitions(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Yield the pairs of an output and an input with derivatives."""
        for name, subname in self._pairs():
            yield data.PartialsMetaData(name=name, subname=subname)

    async def SetVariableShapes(self, request_iterator: Any, context: Any) -> Any:
        """Refuse other shapes than those of the start."""
        async with _reported(context), self._in_time():
            async for found in request_iterator:
                t = {data.kInput: self._inputs, data.kOutput: self._outputs}.get(found.type, {}).get(found.name)
                if t is None or tuple(found.shape) != _shape(t):
                    known = ", ".join(f"{name}: {list(_shape(t))}" for name, t in self._variables())
                    got = f"{found.name}: {list(found.shape)}"
                    raise BadArgument(f"expected the shapes that the server was started with, {known}, got {got}")
        return Empty()

    async def ComputeFunction(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:
        """Yield the outputs."""
        async with _reported(context):
            arrays = await self._read(request_iterator)
            found = await asyncio.to_thread(self._of.values, arrays)
        for name, y in zip(self._outputs, found, strict=True):
            for message in self._messages(y.ravel(), name=name, type=data.kOutput):
                yield message

    async def ComputeGradient(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:
        """Yield the blocks of the Jacobian."""
        async with _reported(context):
            arrays = await self._read(request_iterator)
            found = await asyncio.to_thread(self._of.entries, arrays)
        for (name, subname), (pair, entries) in zip(self._pairs(), found.items(), strict=True):
            pattern = self._of.patterns[pair]
            block = np.zeros(pattern.shape)
            block[pattern.rows, pattern.columns] = entries
            for message in self._messages(block.ravel(), name=name, subname=subname, type=data.kPartial):
                yield message

    async def _read(self, messages: AsyncIterator[Any]) -> list[Array]:
        """Return the inputs of a call. Raises ``BadArgument`` unless each number comes once, and ``TimedOut``."""
        arrays = {name: np.zeros(t.size) for name, t in self._inputs.items()}
        is_known = {name: np.zeros(t.size, bool) for name, t in self._inputs.items()}
        async with self._in_time():
            async for message in messages:
                part = message.continuous
                if message.WhichOneof("payload") != "continuous" or part.type != data.kInput:
                    raise BadArgument("expected arrays of inputs, got a discrete variable or an array of another kind")
                if part.name not in arrays:
                    expected = f"the inputs {', '.join(arrays)}" if arrays else "no inputs"
                    raise BadArgument(f"expected {expected}, got {part.name!r}")
                size, at = arrays[part.name].size, slice(part.start, part.end + 1)
                if not 0 <= part.start <= part.end < size or part.end + 1 - part.start != len(part.data):
                    got = f"{len(part.data)} numbers from {part.start} to {part.end}"
                    raise BadArgument(f"{part.name}: expected numbers of the {size} from 0 to {size - 1}, got {got}")
                if is_known[part.name][at].any():
                    raise BadArgument(
                        f"{part.name}: expected each number once, got one of {at.start} to {at.stop - 1} again"
                    )
                arrays[part.name][at], is_known[part.name][at] = part.data, True
        for name, known in is_known.items():
            if not known.all():
                raise BadArgument(f"{name}: expected {known.size} numbers, got {np.count_nonzero(known)}")
        return [_cast(name, arrays[name], t) for name, t in self._inputs.items()]

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        """Limit how long a client takes to send."""
        try:
            async with asyncio.timeout(self._read_s):
                yield
        except TimeoutError:
            raise TimedOut(f"expected all of a call within {self._read_s:g} s, got part of it") from None

    def _pairs(self) -> list[tuple[str, str]]:
        outputs, inputs = [*self._outputs], [*self._inputs]
        return [(outputs[o], inputs[i]) for o, i in self._of.patterns]

    def _variables(self) -> list[tuple[str, TensorType]]:
        return [*self._inputs.items(), *self._outputs.items()]

    def _messages(self, numbers: Array, **fields: Any) -> Iterator[Any]:
        for start in range(0, numbers.size, chunk := self._chunk):
            part = numbers[start : start + chunk]
            yield data.VariableMessage(
                continuous=data.Array(**fields, start=start, end=start + part.size - 1, data=part)
            )


async def serve(discipline: Discipline, address: str, tell: Callable[[int], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; ``tell`` is called with the port once it is served. Raises ``BadArgument``."""
    # Without this option, two servers on one port would share its clients.
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)], maximum_concurrent_rpcs=CALLS)
    services.add_DisciplineServiceServicer_to_server(discipline, server)
    services.add_ExplicitServiceServicer_to_server(discipline, server)
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise BadArgument(f"--listen: expected an address and port that are free, got {address}") from error
    await server.start()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    try:
        tell(port)
        await ended.wait()
    finally:
        await server.stop(GRACE_S)


@asynccontextmanager
async def _reported(context: Any) -> AsyncIterator[None]:
    """End a call with the code and the text of an error of the client."""
    try:
        yield
    except PullbackError as error:
        code = next((code for kind, code in CODES.items() if isinstance(error, kind)), grpc.StatusCode.UNKNOWN)
        await context.abort(code, str(error)[:MOST_TEXT])


def _check(inputs: Types, outputs: Types, units: Mapping[str, str]) -> None:
    """Raise ``BadArgument`` for variables that a stock client cannot have, and for units of others."""
    every: Sequence[tuple[str, TensorType]] = [*inputs.items(), *outputs.items()]
    if other := [f"{name} of {t.dtype}" for name, t in every if t.dtype.kind != "f"]:
        raise BadArgument(f"expected an op of floats, got {other[0]}; pullback.openmdao has discrete variables")
    if empty := [name for name, t in every if not t.size]:
        raise BadArgument(f"{empty[0]}: expected a shape without 0, got {list(dict(every)[empty[0]].shape)}")
    if both := [name for name in inputs if name in outputs]:
        raise BadArgument(f"{both[0]}: expected different names of inputs and outputs, by which Philote knows them")
    if unknown := [name for name in units if name not in dict(every)]:
        raise BadArgument(f"units: expected inputs and outputs ({', '.join(dict(every))}), got {unknown[0]}")


def _cast(name: str, numbers: Array, t: TensorType) -> Array:
    with np.errstate(over="ignore"):
        found = numbers.astype(t.dtype)
    if (np.isinf(found) & np.isfinite(numbers)).any():
        raise BadArgument(f"{name}: expected numbers that {t.dtype} has, got one as large as {np.abs(numbers).max():g}")
    return found.reshape(t.shape)


def _shape(t: TensorType) -> tuple[int, ...]:
    """Return the shape, as Philote has it: a number is an array of one."""
    return t.shape or (1,)
