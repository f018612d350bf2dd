"""``pullback check torch+MODULE:FUNCTION`` or ``umbridge+http://host:4242/model``: functions of other programs."""

import math
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from rich.console import Console

from pullback.cli.console import styled
from pullback.cli.values import attribute, number, tensor
from pullback.dtypes import FLOATS
from pullback.errors import BadArgument
from pullback.gradcheck.events import TargetOptions, check_targets
from pullback.gradcheck.function import as_object
from pullback.gradcheck.number_comparison import Tolerances
from pullback.gradcheck.of.local import Domain, Given
from pullback.gradcheck.targets import FUNCTIONS, Target, server_target
from pullback.reports import Event, Report

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


def server_targets(names: Sequence[str]) -> list[Target]:
    """Return the servers that the arguments of ``pullback check`` name, none if they name none.

    Raises ``BadArgument`` for servers among ops.
    """
    found = [server_target(name) for name in names]
    servers = [target for target in found if target is not None]
    if servers and len(servers) < len(found):
        other = names[found.index(None)]
        raise BadArgument(f"expected only URLs of servers beside {servers[0]}, got {other!r}: check it by itself")
    return servers


def events_of(
    servers: Sequence[Target],
    *,
    of_ops: Mapping[str, Any],
    inputs: Sequence[str],
    config: str | None,
    budget: int | None,
    checks: Sequence[str] | None,
    seed: int,
    tolerances: Tolerances,
    timeout: float,
    given: Given,
) -> Generator[Event, None, None]:
    """Return the events of the checks of servers; raise ``BadArgument`` for options ``of_ops`` that are set."""
    functions = [target for target in servers if target.protocol in FUNCTIONS]
    if given != Given() and len(functions) < len(servers):
        options = "--input, --shape, --domain, --vjp, --dtype and --mode"
        raise BadArgument(f"{options}: expected a function, such as torch+MODULE:FUNCTION, got {servers[0]}")
    if wrong := [option for option, value in of_ops.items() if value]:
        raise BadArgument(f"{wrong[0]}: expected none for {servers[0]}, which computes in its own way: leave it out")
    parameters = as_object({} if config is None else attribute("--config", config, None))
    if parameters is None:
        raise BadArgument(f"--config: expected a JSON object, got {config!r}")
    return check_targets(
        servers,
        TargetOptions(
            checks=checks,
            seed=seed,
            budget=budget,
            inputs=[attribute("--inputs", text, None) for text in inputs],
            config=parameters,
            timeout=timeout,
            tolerances=tolerances,
            given=given,
        ),
    )


def print_scopes(out: Console, reports: Sequence[Report]) -> None:
    """Print what the checks of servers can show, and what they cannot."""
    for report in reports:
        if scope := report.document.get("scope"):
            out.print(styled(f"{report.op}: {scope}", "dim"))
