"""The arguments of a method of an op: what to write in place of those that it does not take."""

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from typing import Any, get_args

from pullback.errors import BadArgument


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
            raise BadArgument(f"{self._name}: expected {self._name}({first}, {others}), {got}") from None
