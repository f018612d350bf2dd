"""An op of a service, whose methods send calls."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar, Unpack

from pullback import answers, calls
from pullback.arrays import ArrayLike, Arrays
from pullback.calls import Call, CheckOptions, Common
from pullback.catalogue import Contract
from pullback.limits import Limit
from pullback.naming import is_named, named
from pullback.reports import Report, Verification

T = TypeVar("T")


class Sender(Protocol):
    """A client, as far as an op needs it."""

    def send(self, call: Call[T], limit: Limit | None = None) -> T:
        """Send a call and return its result; ``limit`` is that of the call, if it has started."""
        ...


class Op:
    """An op of a service.

    Pass arrays by name; an array may come without its name where the op has only one input, or output. Arrays with a
    dtype are sent exactly, in that dtype; lists and scalars take the dtype that the op expects. ``calls.Common``
    documents the other keywords: ``attrs``, ``dtype``, ``mode``, ``device``, ``deadline``.
    """

    def __init__(self, client: Sender, name: str) -> None:
        """Set the client that sends the calls, and the name."""
        self._client = client
        self.name = name
        self._contract: Contract | None = None

    def contract(self) -> Contract:
        """Return the contract: formulas, kinks, shapes, dtypes, attributes, examples."""
        return self._client.send(calls.contract(self.name))

    def forward(self, inputs: Arrays | ArrayLike, **common: Unpack[Common]) -> answers.Forward:
        """Return the outputs."""
        limit = calls.limit(common)
        return self._client.send(calls.forward(self.name, self._named("inputs", inputs, limit), common), limit)

    def gradients(
        self,
        inputs: Arrays | ArrayLike,
        *,
        order: int = 1,
        cotangents: Arrays | ArrayLike | None = None,
        wrt: Sequence[str] | None = None,
        **common: Unpack[Common],
    ) -> answers.Orders:
        """Return the outputs and the gradients of order 1 to ``order``, at most 4.

        The first is weighted by ``cotangents``; each further one is that of the sum of the previous one's entries.
        """
        limit = calls.limit(common)
        return self._client.send(
            calls.gradients(
                self.name,
                self._named("inputs", inputs, limit),
                common,
                order=order,
                cotangents=self._named("cotangents", cotangents, limit),
                wrt=wrt,
            ),
            limit,
        )

    def vjp(
        self,
        inputs: Arrays | ArrayLike,
        *,
        cotangents: Arrays | ArrayLike | None = None,
        wrt: Sequence[str] | None = None,
        outputs: bool = False,
        batched: bool = False,
        **common: Unpack[Common],
    ) -> answers.Gradients:
        """Return cotangents (by default ones) pulled back to the inputs, and the outputs if requested.

        With ``batched``, cotangents and gradients have a leading axis.
        """
        limit = calls.limit(common)
        return self._client.send(
            calls.vjp(
                self.name,
                self._named("inputs", inputs, limit),
                common,
                cotangents=self._named("cotangents", cotangents, limit),
                wrt=wrt,
                outputs=outputs,
                batched=batched,
            ),
            limit,
        )

    def jvp(
        self,
        inputs: Arrays | ArrayLike,
        *,
        tangents: Arrays | ArrayLike,
        batched: bool = False,
        **common: Unpack[Common],
    ) -> answers.Tangents:
        """Return tangents of the inputs pushed forward to the outputs."""
        limit = calls.limit(common)
        return self._client.send(
            calls.jvp(
                self.name,
                self._named("inputs", inputs, limit),
                common,
                tangents=self._named("tangents", tangents, limit),
                batched=batched,
            ),
            limit,
        )

    def jacobian(
        self,
        inputs: Arrays | ArrayLike,
        *,
        of: Sequence[str] | None = None,
        wrt: Sequence[str] | None = None,
        **common: Unpack[Common],
    ) -> answers.Jacobian:
        """Return the derivatives of all outputs, or those in ``of``, by all inputs, or those in ``wrt``."""
        limit = calls.limit(common)
        return self._client.send(
            calls.jacobian(self.name, self._named("inputs", inputs, limit), common, of=of, wrt=wrt), limit
        )

    def hvp(
        self,
        inputs: Arrays | ArrayLike,
        *,
        vectors: Arrays | ArrayLike,
        cotangents: Arrays | ArrayLike | None = None,
        wrt: Sequence[str] | None = None,
        batched: bool = False,
        **common: Unpack[Common],
    ) -> answers.Products:
        """Return Hᵀv, the products of the derivative of the vjp and the vectors."""
        limit = calls.limit(common)
        return self._client.send(
            calls.hvp(
                self.name,
                self._named("inputs", inputs, limit),
                common,
                vectors=self._named("vectors", vectors, limit),
                cotangents=self._named("cotangents", cotangents, limit),
                wrt=wrt,
                batched=batched,
            ),
            limit,
        )

    def hessian(
        self,
        inputs: Arrays | ArrayLike,
        *,
        cotangents: Arrays | ArrayLike | None = None,
        wrt: Sequence[str] | None = None,
        diagonal: bool = False,
        **common: Unpack[Common],
    ) -> answers.Hessian:
        """Return the derivative of the vjp, or only its ``diagonal``, for an elementwise op."""
        limit = calls.limit(common)
        return self._client.send(
            calls.hessian(
                self.name,
                self._named("inputs", inputs, limit),
                common,
                cotangents=self._named("cotangents", cotangents, limit),
                wrt=wrt,
                diagonal=diagonal,
            ),
            limit,
        )

    def check(
        self,
        inputs: Arrays | ArrayLike | None = None,
        *,
        attrs: Mapping[str, Any] | None = None,
        **options: Unpack[CheckOptions],
    ) -> Report:
        """Check the gradients at a point, by default at the op's examples and at points drawn from its domain."""
        limit = calls.limit(options)
        return self._client.send(calls.check(self.name, self._named("inputs", inputs, limit), attrs, options), limit)

    def verify(
        self,
        inputs: Arrays | ArrayLike,
        gradients: Arrays | ArrayLike,
        *,
        cotangents: Arrays | ArrayLike | None = None,
        tolerances: Mapping[str, float] | None = None,
        **common: Unpack[Common],
    ) -> Verification:
        """Compare your gradients, by input, with the op's own in its widest dtype."""
        limit = calls.limit(common)
        return self._client.send(
            calls.verify(
                self.name,
                self._named("inputs", inputs, limit),
                self._named("gradients", gradients, limit),
                common,
                cotangents=self._named("cotangents", cotangents, limit),
                tolerances=tolerances,
            ),
            limit,
        )

    def __repr__(self) -> str:
        return f"{self._client!r}.op({self.name!r})"

    def _named(self, field: str, value: Any, limit: Limit) -> Any:
        """Return arrays by name; an array without one takes the name in the contract, which is requested once."""
        if is_named(value):
            return value
        self._contract = self._contract or self._client.send(calls.contract(self.name), limit)
        return named(field, value, self._contract)
