"""The arguments of a function that ``pullback check`` checks: ``--input x=1,2 --shape w=3,4 --domain x=0..inf``."""

import math
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from pullback.cli.values import number, tensor
from pullback.dtypes import FLOATS
from pullback.errors import BadArgument
from pullback.gradcheck.of.local import Domain, Given

T = TypeVar("T")

COMPILE = "compile"
SHAPE = re.compile(r"\d*(,\d+)*")


def given(
    *,
    inputs: Sequence[str] | None,
    shapes: Sequence[str] | None,
    domains: Sequence[str] | None,
    dtypes: Sequence[str] | None,
    vjp: str | None,
    modes: Sequence[str] | None = None,
) -> Given:
    """Return what the options say of a function's arguments; raise ``BadArgument``."""
    if unknown := [dtype for dtype in dtypes or () if dtype not in FLOATS]:
        raise BadArgument(f"--dtype: expected some of {', '.join(FLOATS)} for a function, got {unknown[0]!r}")
    if unknown := [mode for mode in modes or () if mode != COMPILE]:
        raise BadArgument(f"--mode: expected {COMPILE} for a function, or none, got {unknown[0]!r}")
    return Given(
        _named("--input", inputs, lambda text: np.asarray(tensor("--input", text))),
        _named("--shape", shapes, _shape),
        _named("--domain", domains, _domain),
        tuple(dtypes or ()),
        vjp,
        compiles=bool(modes),
    )


def _named(option: str, texts: Sequence[str] | None, read: Callable[[str], T]) -> dict[str, T]:
    found = dict[str, T]()
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name or name in found:
            raise BadArgument(f"{option}: expected NAME=VALUE, once for each name, got {text!r}")
        found[name] = read(value)
    return found


def _shape(text: str) -> tuple[int, ...]:
    if not SHAPE.fullmatch(text):
        raise BadArgument(f"--shape: expected sizes, such as x=3,4, or x= for a scalar, got {text!r}")
    return tuple(int(size) for size in text.split(",") if size)


def _domain(text: str) -> Domain:
    low, dots, high = text.partition("..")
    try:
        found = Domain(float(number(low)), float(number(high)))
    except (ValueError, OverflowError):
        found = Domain(math.nan, math.nan)
    if not dots or not found.low < found.high:
        raise BadArgument(f"--domain: expected LOW..HIGH, such as x=0..1, x=0..inf or x=-inf..0, got {text!r}")
    return found
