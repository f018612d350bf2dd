"""The functions that a framework calls."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeAlias

from pullback.addresses import DEFAULT_TIMEOUT
from pullback.compose import apply_document, post, traced_calls
from pullback.errors import BadArgument
from pullback.graph_values import apply
from pullback.remotes.derivatives import Derivative
from pullback.remotes.remote import Remote

Call: TypeAlias = Callable[..., Sequence[Any]]
"""``call(*arrays, batched=..., points=...)`` evaluates a derivative; the flags are those of ``evaluate``."""

MOST_COPIED = 1 << 26
"""How many bytes of arrays that all points share may be copied for them; beyond it, each point has its own call."""


def batch(
    p: Derivative,
    arrays: Sequence[Any],
    dims: Sequence[int | None],
    size: Any,
    *,
    batched: bool,
    points: bool,
    call: Call,
    xp: Any,
) -> tuple[list[Any], int] | None:
    """Return the results of a batch of calls, and the axis that the batch has in each; ``None`` if it is not one call.

    Each array has the batch in the axis ``dims``, or is the same for all. If only the directions of the last derivation
    have the batch, it becomes their axis of directions. If the op is elementwise or its leading axes are independent,
    and no input that all rows use has the batch, it becomes a part of the arrays. Otherwise it becomes the axis of
    points; it is not one call only if what all points share is too large to be copied for each. ``xp`` is the module of
    the framework that has ``moveaxis`` and ``broadcast_to``; PyTensor's ``size`` may be a variable.
    """
    count = p.parent.arity if p.path else p.arity
    first = int(points)
    if p.path and all(dim is None for dim in dims[:count]):
        many = [_with_batch(x, dim, size, first, xp) for x, dim in zip(arrays[count:], dims[count:], strict=True)]
        if not batched:
            return list(call(*arrays[:count], *many, batched=True, points=points)), first
        found = call(*arrays[:count], *(_merged(x, first) for x in many), batched=True, points=points)
        return [_split(x, first, many[0].shape[first : first + 2]) for x in found], first
    if points or p.batching == "none" or any(dims[i] is not None for i in p.shared_inputs):
        copied = sum(_bytes(x) for x, dim in zip(arrays, dims, strict=True) if dim is None)
        if isinstance(size, int) and copied * size > MOST_COPIED:
            return None
        many = [_with_batch(x, dim, size, 0, xp) for x, dim in zip(arrays, dims, strict=True)]
        if not points:
            return list(call(*many, batched=batched, points=True)), 0
        found = call(*(_merged(x, 0) for x in many), batched=batched, points=True)
        return [_split(x, 0, many[0].shape[:2]) for x in found], 0
    # The batch becomes an axis of all arrays, or a part of their first axis; directions may have an axis before it.
    moved = list(arrays)
    is_merged, sizes = p.batching == "leading_axis", ()
    for i in (i for i in range(len(arrays)) if i not in p.shared_inputs):
        axis = int(batched and i >= count)
        moved[i] = _with_batch(arrays[i], dims[i], size, axis, xp)
        if is_merged:
            sizes = moved[i].shape[axis : axis + 2]
            moved[i] = _merged(moved[i], axis)
    found = list(call(*moved, batched=batched, points=False))
    return [_split(x, int(batched), sizes) if is_merged else x for x in found], int(batched)


def _bytes(x: Any) -> int:
    """Return an upper bound of the bytes of an array, whose sizes may not be known yet."""
    return 8 * math.prod(size for size in x.shape if isinstance(size, int))


def _with_batch(x: Any, dim: int | None, size: int, axis: int, xp: Any) -> Any:
    """Return an array with the batch at an axis."""
    if dim is None:
        x, dim = xp.broadcast_to(x, (size, *x.shape)), 0
    return x if dim == axis else xp.moveaxis(x, dim, axis)


def _merged(x: Any, axis: int) -> Any:
    """Return an array with an axis and the next one merged."""
    return x.reshape((*x.shape[:axis], x.shape[axis] * x.shape[axis + 1], *x.shape[axis + 2 :]))


def _split(x: Any, axis: int, sizes: Sequence[int]) -> Any:
    """Return an array with an axis split into several."""
    return x.reshape((*x.shape[:axis], *sizes, *x.shape[axis + 1 :]))


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
