"""The functions that a framework calls."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from pullback.addresses import DEFAULT_TIMEOUT
from pullback.compose import apply_document, post, traced_calls
from pullback.errors import BadArgument
from pullback.graph_values import apply
from pullback.remotes.derivatives import Derivative
from pullback.remotes.remote import Remote


class Function:
    """An op as a function of a framework, which adds ``__call__``.

    Two are equal if their arguments are. A copy made by pickle is the same function in the same process. In another
    process it has the key, the user name and the password of the environment there: none of them is saved, nor are
    headers.
    """

    def __init__(self, p: Derivative) -> None:
        """Set the op; frameworks look for a name."""
        self.p = p
        self.__name__ = self.__qualname__ = p.remote.name

    @classmethod
    def remote(
        cls,
        name: str,
        url: str | None = None,
        attrs: Mapping[str, Any] | None = None,
        mode: str | None = None,
        api_key: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
        deadline: float | None = None,
    ) -> Self:
        """Return an op of a service as a function; the class ``RemoteFunction`` of the module documents its calls.

        ``url`` defaults to ``PULLBACK_URL``, ``api_key`` to ``PULLBACK_KEY``. ``timeout`` limits every network wait,
        and ``deadline`` each evaluation with all its requests, in seconds. The function can be pickled.
        """
        arguments = Remote(name, url, attrs, mode, api_key, headers=headers, timeout=timeout, deadline=deadline)
        return cls(Derivative(arguments))

    @classmethod
    def compose(
        cls, function: Callable[..., Any], *, attrs: Mapping[str, Any] | None = None, mode: str | None = None
    ) -> Self:
        """Return the op that a Python function of remote functions composes: one request for each of its evaluations.

        ``function`` is called once, with values that have the operators of ``pullback.graph_values.Value``; its
        arguments are the inputs, in order. ``attrs`` are attributes of the graph, ``mode`` is that of its evaluations.
        Raises ``BadArgument`` for a function that calls no remote function, or functions of different services.
        """
        document, called = traced_calls(function)
        remotes: list[Remote] = list(called)
        if not remotes or any(each.url != remotes[0].url for each in remotes):
            got = ", ".join(sorted({each.url for each in remotes})) or "none"
            raise BadArgument(f"{function!r}: expected remote functions of one service, got {got}")
        name = remotes[0].client.send(post(document))
        composed = {"name": name, "attrs": attrs, "mode": mode, "document": document}
        arguments: dict[str, Any] = {**remotes[0].saved, **composed}
        return cls(Derivative(Remote(**arguments)))

    def given(self, inputs: Sequence[Any]) -> tuple[Derivative, list[Any]]:
        """Return the derivative of the inputs that are given, and these: optional ones may be ``None`` or left out."""
        slots = self.p.remote.contract().inputs
        absent = [slot.name for slot in slots[len(inputs) :] if slot.optional]
        absent += [slot.name for slot, x in zip(slots, inputs, strict=False) if slot.optional and x is None]
        if not absent:
            return self.p, list(inputs)
        optional = [i for i, slot in enumerate(slots) if slot.optional]
        return Derivative(self.p.remote.without(absent)), [
            x for i, x in enumerate(inputs) if x is not None or i not in optional
        ]

    def in_graph(self, inputs: Sequence[Any]) -> Any:
        """Return the value of a call inside a function that ``compose`` traces, or a dictionary of the outputs."""
        remote = self.p.remote
        if remote.document is not None:
            return apply_document(remote.document, inputs, remote.attrs, caller=remote)
        return apply(remote.name, inputs, attrs=remote.attrs, caller=remote)

    def __eq__(self, other: object) -> bool:
        """Report whether two are functions of one framework, with the same arguments."""
        return isinstance(other, Function) and (type(self), self.p) == (type(other), other.p)

    def __hash__(self) -> int:
        return hash(self.p)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.p,)

    def __repr__(self) -> str:
        return f"{type(self).__module__}.remote: {self.p.remote!r}"
