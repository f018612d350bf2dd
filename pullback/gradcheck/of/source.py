"""The Python that computes a gradient, so that a finding can be reproduced as it is pasted."""

import shlex
import sys
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from pullback.dtypes import Array
from pullback.gradcheck import floats
from pullback.gradcheck.of.calling import Arguments


class Source(str):
    """Python whose ``repr`` is itself: the ``repr`` of a tree with some is Python."""

    __slots__ = ()
    __repr__ = str.__str__


class Spelling(NamedTuple):
    """How a program writes a function, and the module from which it imports it, "" where it holds the function."""

    name: str
    module: str = ""

    def command(self, setup: str, expression: str) -> str:
        """Return a command line that prints an expression, or Python where nothing can be imported."""
        if not self.module:
            return f"{setup}; {expression}"
        imported = f"from {self.module} import {self.name.partition('.')[0]}"
        return f"{shlex.quote(sys.executable)} -c {shlex.quote(f'{imported}; {setup}; print({expression})')}"


def call(name: str, arguments: Arguments) -> Source:
    """Return a call of a function, whose arrays are ``Source``."""
    parts = [*map(repr, arguments.positional), *(f"{key}={value!r}" for key, value in arguments.by_keyword.items())]
    return Source(f"{name}({', '.join(parts)})")


def array(make: str, x: Array, module: str, *more: str) -> Source:
    """Return an array in its dtype, which ``make`` makes."""
    return Source(f"{make}({', '.join([repr(numbers_of(x)), f'dtype={module}.{floats.name_of(x)}', *more])})")


def numbers_of(x: Array) -> Any:
    """Return the numbers of an array as lists."""
    return (floats.decoded(x) if floats.name_of(x) == "bfloat16" else x).tolist()


def argument(sources: Mapping[str, Source], name: str, make: str) -> Source | None:
    """Return the source of an argument, whose two parts ``make`` a complex one; ``None`` if it is not among them."""
    if f"{name}.real" in sources:
        return Source(f"{make}({sources[f'{name}.real']}, {sources[f'{name}.imag']})")
    return sources.get(name)


def part(output: str, are_complex: Collection[str] = ()) -> str:
    """Return how an output, by its name, is a part of a result: ``[0]["loss"]`` for ``0.loss``.

    Those that ``are_complex`` have a real and an imaginary part: ``["z"].real`` for ``z.real``.
    """
    whole, _, which = output.rpartition(".")
    if whole in are_complex:
        return f"{part(whole)}.{which}"
    keys = [] if output == "y" else output.split(".")
    return "".join(f"[{key}]" if key.isdigit() else f'["{key}"]' for key in keys)
