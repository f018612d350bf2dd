"""``pullback check umbridge+http://host:4242/model``: the checks of other people's servers."""

from collections.abc import Generator, Mapping, Sequence
from typing import Any

from rich.console import Console

from pullback.cli.console import styled
from pullback.cli.values import attribute
from pullback.errors import BadArgument
from pullback.gradcheck.events import TargetOptions, check_targets
from pullback.gradcheck.function import as_object
from pullback.gradcheck.number_comparison import Tolerances
from pullback.gradcheck.of.local import Given
from pullback.gradcheck.targets import FUNCTIONS, Target, server_target
from pullback.reports import Event, Report


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
