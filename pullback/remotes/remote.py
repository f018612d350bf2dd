"""An op of a service, with the attributes, the mode and the client that calls of it share."""

import json
import weakref
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from pullback.arrays import FLOATS, plain
from pullback.calls import Common
from pullback.catalogue import Contract, Slot
from pullback.client import Client
from pullback.errors import BadArgument
from pullback.remotes.points import LastPoint

Path = tuple[str, ...]


class Remote:
    """An op of a service.

    Two are equal if their arguments are; each has its own connections and its own last point. Threads may share it, and
    a copy made by pickle has new connections.
    """

    def __init__(
        self,
        name: str,
        url: str | None = None,
        attrs: Mapping[str, Any] | None = None,
        mode: str | None = None,
        api_key: str | None = None,
    ) -> None:
        """Set the op; this sends nothing. ``url`` defaults to ``PULLBACK_URL``, ``api_key`` to ``PULLBACK_KEY``."""
        self.name = name
        self.client = Client(url, api_key=api_key)
        weakref.finalize(self, self.client.close)
        self.common: Common = {"mode": mode} if attrs is None else {"mode": mode, "attrs": dict(attrs)}
        self.point = LastPoint()
        self._contracts: dict[Path, Contract] = {}
        self.public_arguments = (name, self.client.url, json.loads(_text(attrs)), mode)
        self._arguments = (name, self.client.url, attrs, mode, api_key)
        self._key = (name, self.client.url, _text(attrs), mode, api_key)

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The attributes that were given."""
        return self.common.get("attrs") or {}

    @property
    def batching(self) -> str:
        """How a batch of points may share a call: ``elementwise``, along the ``leading_axis``, or ``none``."""
        return self.contract().batching

    @cached_property
    def is_linear(self) -> bool:
        """Whether the gradient is known to be linear; the contract says so only for the default attributes."""
        contract = self.contract()
        defaults = {name: schema.get("default") for name, schema in contract.attr_schemas.items()}
        is_default = all(name in defaults and plain(value) == defaults[name] for name, value in self.attrs.items())
        return is_default and contract.claim is not None and contract.claim.linear

    @cached_property
    def elementwise_orders(self) -> int:
        """How many orders of derivatives are number by number, 0 to 2, for an op with one input and one output.

        The second is only if it is the derivative of the first: one that the author declared need not be linear.
        """
        contract = self.contract()
        if self.batching != "elementwise" or (len(contract.inputs), len(contract.outputs)) != (1, 1):
            return 0
        if not (is_live(contract.inputs[0]) and is_live(contract.outputs[0])):
            return 0
        return 2 if contract.claim is not None and contract.claim.second == "derivative" else 1

    def contract(self, path: Path = ()) -> Contract:
        """Return the contract of the op after a path of derivations; it is requested once."""
        contract = self._contracts.get(path)
        if contract is None:
            contract = self.client.op(".".join((self.name, *path))).contract()
            self._contracts[path] = contract
        return contract

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remote) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __reduce__(self) -> tuple[Callable[..., "Remote"], tuple[Any, ...]]:
        return Remote, self._arguments

    def __repr__(self) -> str:
        return f"<{self.name} at {self.client.url}>"


def is_live(slot: Slot) -> bool:
    """Report whether derivatives reach a slot, if its array has floats."""
    return slot.differentiable and any(dtype in FLOATS for dtype in slot.dtypes)


def _text(attrs: Mapping[str, Any] | None) -> str:
    try:
        return json.dumps({name: plain(value) for name, value in (attrs or {}).items()}, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise BadArgument(f"attrs: expected numbers, strings, bools and lists of them: {error}") from error
