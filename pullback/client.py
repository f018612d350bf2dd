"""The client.

::

    with pullback.Client() as client:
        square = client.op("square")
        dx = square.vjp({"x": x}, cotangents={"y": dy}).gradients["x"]
"""

import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import httpx

from pullback import answers, calls, transport
from pullback.arrays import Arrays
from pullback.calls import LINES, Call, CheckOptions, Common
from pullback.catalogue import Contract, OpSummary
from pullback.reports import Event, Report, Verification

T = TypeVar("T")


class Client:
    """A client that reuses its connections to a service; ``close`` it, or use it as a context manager.

    ``url`` defaults to ``PULLBACK_URL``, then to http://127.0.0.1:8000; ``api_key``, for a service that needs one, to
    ``PULLBACK_KEY``; ``timeout`` limits every network wait, in seconds. After a 429 or 503 with a ``Retry-After``, a
    call is sent again up to ``retries`` times, with at most half a minute of pauses. On failure every method raises a
    ``PullbackError``.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float = transport.DEFAULT_TIMEOUT,
        retries: int = transport.DEFAULT_RETRIES,
    ) -> None:
        """Set the address; this sends nothing."""
        self._address = transport.address(url, timeout, api_key)
        self._retries = retries
        self._http = httpx.Client(**self._address.options())

    @property
    def url(self) -> str:
        """The URL of the service."""
        return self._address.url

    def ops(self) -> list[OpSummary]:
        """Return a summary of every op."""
        return self.send(calls.ops())

    def op(self, name: str) -> "Op":
        """Return an op by name; this sends nothing, so an unknown name shows at the first call."""
        return Op(self, name)

    def checks(self, ops: Iterable[str] | None = None, **options: Unpack[CheckOptions]) -> Generator[Event, None, None]:
        """Check the gradients of these ops, by default of all; yield the events as they arrive, ``Summary`` last.

        The first event sends the request. Closing the iterator closes the connection, and the service then stops the
        work. Raises ``ConnectionLost`` when the events end without a summary.
        """
        return self._events(calls.checks(ops, options))

    def send(self, call: Call[T]) -> T:
        """Send a call and return its result."""
        retries = transport.Retries(self._retries)
        while True:
            try:
                response = self._http.request(call.method, call.path, content=call.body, headers=call.headers())
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise self._address.failure(error) from error
            pause = retries.pause(response)
            if pause is None:
                return transport.result(self._address, call, response)
            time.sleep(pause)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _events(self, call: Call[None]) -> Generator[Event, None, None]:
        stream = transport.Stream(self._address)
        try:
            with self._open_stream(call) as response:
                for chunk in response.iter_bytes():
                    yield from stream.feed(chunk)
        except httpx.HTTPError as error:
            raise self._address.failure(error) from error
        stream.end()

    @contextmanager
    def _open_stream(self, call: Call[None]) -> Generator[httpx.Response, None, None]:
        """Send a call whose response is a stream; yield the response once it starts."""
        retries, headers = transport.Retries(self._retries), call.headers(LINES)
        while True:
            with self._http.stream(call.method, call.path, content=call.body, headers=headers) as response:
                pause = retries.pause(response)
                if pause is None:
                    if not response.is_success:
                        response.read()
                    transport.check_stream(self._address, response)
                    yield response
                    return
            time.sleep(pause)


class Op:
    """An op of a service.

    Pass arrays by name. Arrays with a dtype are sent exactly, in that dtype; lists and scalars take the dtype that the
    op expects. ``calls.Common`` documents the other keywords: ``attrs``, ``dtype``, ``mode``, ``device``.
    """

    def __init__(self, client: Client, name: str) -> None:
        """Set the client that sends the calls, and the name."""
        self._client = client
        self.name = name

    def contract(self) -> Contract:
        """Return the contract: formulas, kinks, shapes, dtypes, attributes, examples."""
        return self._client.send(calls.contract(self.name))

    def forward(self, inputs: Arrays, **common: Unpack[Common]) -> answers.Forward:
        """Return the outputs."""
        return self._client.send(calls.forward(self.name, inputs, common))

    def gradients(
        self,
        inputs: Arrays,
        *,
        order: int = 1,
        cotangents: Arrays | None = None,
        wrt: Sequence[str] | None = None,
        **common: Unpack[Common],
    ) -> answers.Orders:
        """Return the outputs and the gradients of order 1 to ``order``, at most 4.

        The first is weighted by ``cotangents``; each further one is that of the sum of the previous one's entries.
        """
        return self._client.send(
            calls.gradients(self.name, inputs, common, order=order, cotangents=cotangents, wrt=wrt)
        )

    def vjp(
        self,
        inputs: Arrays,
        *,
        cotangents: Arrays | None = None,
        wrt: Sequence[str] | None = None,
        outputs: bool = False,
        batched: bool = False,
        **common: Unpack[Common],
    ) -> answers.Gradients:
        """Return cotangents (by default ones) pulled back to the inputs, and the outputs if requested.

        With ``batched``, cotangents and gradients have a leading axis.
        """
        return self._client.send(
            calls.vjp(self.name, inputs, common, cotangents=cotangents, wrt=wrt, outputs=outputs, batched=batched)
        )

    def jvp(
        self, inputs: Arrays, *, tangents: Arrays, batched: bool = False, **common: Unpack[Common]
    ) -> answers.Tangents:
        """Return tangents of the inputs pushed forward to the outputs."""
        return self._client.send(calls.jvp(self.name, inputs, common, tangents=tangents, batched=batched))

    def jacobian(
        self,
        inputs: Arrays,
        *,
        of: Sequence[str] | None = None,
        wrt: Sequence[str] | None = None,
        **common: Unpack[Common],
    ) -> answers.Jacobian:
        """Return the derivatives of all outputs, or those in ``of``, by all inputs, or those in ``wrt``."""
        return self._client.send(calls.jacobian(self.name, inputs, common, of=of, wrt=wrt))

    def hvp(
        self,
        inputs: Arrays,
        *,
        vectors: Arrays,
        cotangents: Arrays | None = None,
        wrt: Sequence[str] | None = None,
        batched: bool = False,
        **common: Unpack[Common],
    ) -> answers.Products:
        """Return Hᵀv, the products of the derivative of the vjp and the vectors."""
        return self._client.send(
            calls.hvp(self.name, inputs, common, vectors=vectors, cotangents=cotangents, wrt=wrt, batched=batched)
        )

    def hessian(
        self,
        inputs: Arrays,
        *,
        cotangents: Arrays | None = None,
        wrt: Sequence[str] | None = None,
        diagonal: bool = False,
        **common: Unpack[Common],
    ) -> answers.Hessian:
        """Return the derivative of the vjp, or only its ``diagonal``, for an elementwise op."""
        return self._client.send(
            calls.hessian(self.name, inputs, common, cotangents=cotangents, wrt=wrt, diagonal=diagonal)
        )

    def check(
        self,
        inputs: Arrays | None = None,
        *,
        attrs: Mapping[str, Any] | None = None,
        **options: Unpack[CheckOptions],
    ) -> Report:
        """Check the gradients at a point, by default at the op's examples and at points drawn from its domain."""
        return self._client.send(calls.check(self.name, inputs, attrs, options))

    def verify(
        self,
        inputs: Arrays,
        gradients: Arrays,
        *,
        cotangents: Arrays | None = None,
        tolerances: Mapping[str, float] | None = None,
        **common: Unpack[Common],
    ) -> Verification:
        """Compare your gradients, by input, with the op's own in its widest dtype."""
        return self._client.send(
            calls.verify(self.name, inputs, gradients, common, cotangents=cotangents, tolerances=tolerances)
        )
