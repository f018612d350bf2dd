"""The functions that a framework calls."""

from collections.abc import Mapping
from typing import Any, Self

from pullback.addresses import DEFAULT_TIMEOUT
from pullback.remotes.derivatives import Derivative
from pullback.remotes.remote import Remote


class Function:
    """An op as a function of a framework, which adds ``__call__``.

    A copy made by pickle is the same function in the same process. In another process it has the key, the user name and
    the password of the environment there: none of them is saved, nor are headers.
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

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.p,)

    def __repr__(self) -> str:
        return f"{type(self).__module__}.remote: {self.p.remote!r}"
