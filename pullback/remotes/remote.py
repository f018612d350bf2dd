"""An op of a service, with the attributes, the mode and the client that calls of it share."""

import json
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, TypeVar

from pullback import calls
from pullback.addresses import DEFAULT_TIMEOUT
from pullback.arrays import plain
from pullback.calls import Call, Common
from pullback.catalogue import Contract, Slot
from pullback.client import Client
from pullback.compose import put
from pullback.dtypes import COMPLEX, FLOATS
from pullback.errors import BadArgument, NotFound, TimedOut
from pullback.graph_values import Document
from pullback.limits import Limit
from pullback.remotes.credentials import given, restored
from pullback.remotes.forward_passes import Attempts, ForwardPasses
from pullback.remotes.points import Points

T = TypeVar("T")


class RepostingClient(Client):
    """A client of the op of a document, with the connections of another client."""

    def __init__(self, client: Client, name: str, document: Document) -> None:
        """Take the client, the name of the graph and the document that has it."""
        vars(self).update(vars(client))
        self.name, self.document = name, document

    def send(self, call: Call[T], limit: Limit | None = None) -> T:
        """Send a call and return its result, after the document if the service has no such graph."""
        try:
            return super().send(call, limit)
        except NotFound:
            super().send(put(self.document, self.name), limit)
            return super().send(call, limit)


Path = tuple[str, ...]
LETTERS = "dt"
"""The letters in front of the names of cotangents and tangents."""


class Remote:
    """An op of a service.

    Two are equal if their arguments are; each has its own connections and its own points. Threads may share it.

    ``saved`` are its arguments for files and graphs, with a handle in place of the key, the password and the headers.
    In the same process a copy made from them, as by pickle, has the same; in another one, those of its environment.
    """

    def __init__(
        self,
        name: str,
        url: str | None = None,
        attrs: Mapping[str, Any] | None = None,
        mode: str | None = None,
        api_key: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
        deadline: float | None = None,
        handle: str = "",
        document: Document | None = None,
        without: Sequence[str] = (),
    ) -> None:
        """Set the op; this sends nothing. ``url`` defaults to ``PULLBACK_URL``, ``api_key`` to ``PULLBACK_KEY``.

        ``document`` is that of a posted graph, which the service gets again if it no longer has it. ``without`` are the
        optional inputs that are not sent.

        ``timeout`` limits every network wait, and ``deadline`` each evaluation with all its requests, in seconds.
        """
        if deadline is not None and not 0 < deadline < math.inf:
            raise BadArgument(f"deadline: expected seconds above 0, or None for no limit, got {deadline}")
        address = restored(url, handle) if handle else given(url, api_key, headers)
        self.name, self.url, self.deadline = name, address.url, deadline
        self.credentials = address.credentials
        client = self.credentials.client(self.url, timeout)
        self.client = client if document is None else RepostingClient(client, name, document)
        self.document = document
        weakref.finalize(self, self.client.close)
        self.points, self.forward_passes = Points(), ForwardPasses()
        weakref.finalize(self, self.forward_passes.close)
        self.second_order = Attempts()
        self._common: Common = {"mode": mode} if attrs is None else {"mode": mode, "attrs": dict(attrs)}
        self._contracts: dict[Path, Contract] = {}
        self._without, self._variants = tuple(without), dict[tuple[str, ...], Remote]()
        text = _text(attrs)
        self._public = (name, self.url, text, mode, timeout, deadline, self._without)
        self.saved: dict[str, Any] = {
            "name": name,
            "url": self.url,
            "attrs": json.loads(text),
            "mode": mode,
            "timeout": timeout,
            "deadline": deadline,
            "handle": address.handle,
            **({} if document is None else {"document": document}),
            **({"without": list(without)} if without else {}),
        }

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The attributes that were given."""
        return self._common.get("attrs") or {}

    @cached_property
    def is_linear(self) -> bool:
        """Whether the gradient is known to be linear; the contract says so only for the default attributes."""
        claim = self.contract().claim
        return self._has_default_attrs and claim is not None and claim.linear

    @cached_property
    def runs_in_graphs(self) -> bool:
        """Whether calls are in mode graph, in which the service keeps forward passes."""
        mode = self._common.get("mode")
        defaults = (self.contract().default_mode or {}).get("vjp", {})
        return mode == "graph" or (mode is None and set(defaults.values()) == {"graph"})

    @property
    def batching(self) -> str:
        """Which rows are known to be independent; the contract says so only for the default attributes if it varies."""
        contract = self.contract()
        return "none" if contract.batching_varies and not self._has_default_attrs else contract.batching

    @property
    def _has_default_attrs(self) -> bool:
        defaults = {name: schema.get("default") for name, schema in self.contract().attr_schemas.items()}
        return all(name in defaults and plain(value) == defaults[name] for name, value in self.attrs.items())

    @cached_property
    def elementwise_orders(self) -> int:
        """How many orders of derivatives are number by number, 0 to 2, for an op with one input and one output.

        The second is only if it is the derivative of the first: one that the author declared need not be linear.
        """
        contract = self.contract()
        if self.batching != "elementwise" or (len(contract.inputs), len(contract.outputs)) != (1, 1):
            return 0
        if not (is_differentiable(contract.inputs[0]) and is_differentiable(contract.outputs[0])):
            return 0
        return 2 if contract.claim is not None and contract.claim.second == "derivative" else 1

    def contract(self, path: Path = (), limit: Limit | None = None) -> Contract:
        """Return the contract of the op after a path of derivations; it is requested once."""
        contract = self._contracts.get(path)
        if contract is None:
            call = calls.contract(".".join((self.name, *path)))
            whole = self.client.send(call._replace(deadline=self._left(limit or Limit(self.deadline))))
            contract = self._contracts[path] = _without(whole, self._without)
        return contract

    def without(self, names: Sequence[str]) -> "Remote":
        """Return the op without some optional inputs: the same one each time."""
        key = tuple(names)
        if key not in self._variants:
            saved: dict[str, Any] = {**self.saved, "without": key}
            self._variants[key] = Remote(**saved)
        return self._variants[key]

    def with_attrs(self, attrs: Mapping[str, Any]) -> "Remote":
        """Return the op with other attributes."""
        saved: dict[str, Any] = {**self.saved, "attrs": attrs}
        return Remote(**saved)

    def options(self, limit: Limit) -> Common:
        """Return the arguments of a call that all share, and the seconds that are left for it."""
        return {**self._common, "deadline": self._left(limit)}

    def _left(self, limit: Limit) -> float | None:
        if limit.has_passed:
            message = f"{self.name}: no result from {self.url} within the deadline of {limit.seconds:g} s"
            raise TimedOut(f"{message}: allow a longer deadline, or send a smaller request")
        return limit.left

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remote) and (self._public, self.credentials) == (other._public, other.credentials)

    def __hash__(self) -> int:
        # Without the credentials: a hash may be part of a file's name.
        return hash(self._public)

    def __reduce__(self) -> tuple[Callable[..., "Remote"], tuple[Any, ...]]:
        return partial(Remote, **self.saved), ()

    def __repr__(self) -> str:
        return f"<{self.name} at {self.url}>"


def _without(contract: Contract, names: Sequence[str]) -> Contract:
    """Return a contract without some optional inputs and their directions, whose names have more letters in front."""
    stems = {name.lstrip(LETTERS) for name in names}

    def is_kept(slot: Slot) -> bool:
        return not slot.optional or slot.name.lstrip(LETTERS) not in stems

    if not names:
        return contract
    inputs, outputs = tuple(filter(is_kept, contract.inputs)), tuple(filter(is_kept, contract.outputs))
    return replace(contract, inputs=inputs, outputs=outputs)


def is_differentiable(slot: Slot) -> bool:
    """Report whether derivatives reach a slot, if its array has floats or complex numbers."""
    return slot.differentiable and any(dtype in FLOATS or dtype in COMPLEX for dtype in slot.dtypes)


def _text(attrs: Mapping[str, Any] | None) -> str:
    try:
        return json.dumps({name: plain(value) for name, value in (attrs or {}).items()}, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise BadArgument(f"attrs: expected numbers, strings, bools and lists of them: {error}") from error
