"""The protocol of GradBench, on the side of a tool: a message on each line, and a response with the same id to each.

``start`` is answered with the name of the tool, ``define`` with whether the module is here, ``evaluate`` with the
output and the time of each run, and ``analysis``, which says whether an output was right, with its id alone.
"""

import json
import time
from collections.abc import Iterator, Mapping
from typing import IO, Any

from benchmarks.gradbench.evals import EVALS, Call, Eval, WrongInput, shown
from pullback import Client, PullbackError

MAX_LINE = 64 << 20
"""Most bytes of a message."""
MAX_RUNS, MAX_SECONDS = 10_000, 60.0
"""Most runs of a function, and the seconds after which no other begins, whatever the message asks for."""
TOOL = "pullback"


class BrokenProtocol(Exception):
    """A message cannot be answered, because it has no id that could be read."""


def responses(lines: IO[bytes], client: Client) -> Iterator[str]:
    """Yield the line that responds to each message. Raises ``BrokenProtocol``."""
    while line := lines.readline(MAX_LINE + 1):
        if len(line) > MAX_LINE:
            raise BrokenProtocol(f"expected messages of at most {MAX_LINE} bytes, got a longer one")
        message = parsed(line)
        head = {"id": message["id"]}
        try:
            yield json.dumps(head | response(message, client), allow_nan=False)
        except ValueError:
            yield json.dumps(head | failure("expected finite numbers, which JSON can write, got NaN or infinity"))
        if message.get("kind") == "end":
            return


def parsed(line: bytes) -> Mapping[str, Any]:
    """Return a message with an id."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BrokenProtocol(f"expected a JSON object on each line, got {shown(line)}") from error
    if not isinstance(message, dict) or not isinstance(message.get("id"), int):
        raise BrokenProtocol(f"expected a JSON object with an id, an integer, got {shown(message)}")
    return message


def response(message: Mapping[str, Any], client: Client) -> dict[str, Any]:
    """Return the response to a message, without its id."""
    kind = message.get("kind")
    if kind == "start":
        return {"tool": TOOL}
    if kind in ("analysis", "end"):
        return {}
    if kind not in ("define", "evaluate"):
        return failure(f"expected kind to be start, define, evaluate, analysis or end, got {shown(kind)}")
    try:
        found = eval_of(message)
        if kind == "define":
            client.op(found.op).contract()
            return {"success": True}
        return evaluated(found, message, client)
    except (WrongInput, PullbackError) as error:
        return failure(str(error))


def failure(error: str) -> dict[str, Any]:
    """Return the response that says that something failed."""
    return {"success": False, "error": error}


def eval_of(message: Mapping[str, Any]) -> Eval:
    """Return the eval that a message names."""
    module = message.get("module")
    if not isinstance(module, str) or module not in EVALS:
        raise WrongInput(f"expected a module that is here ({', '.join(EVALS)}), got {shown(module)}")
    return EVALS[module]


def evaluated(found: Eval, message: Mapping[str, Any], client: Client) -> dict[str, Any]:
    """Return the output of a function, and how long each run took."""
    function, given = message.get("function"), message.get("input")
    if not isinstance(function, str) or function not in found.functions:
        raise WrongInput(
            f"expected a function of {message['module']} ({', '.join(found.functions)}), got {shown(function)}"
        )
    call = found.functions[function](client, given)
    output, timings = runs(call, *asked(given))
    return {"success": True, "output": output, "timings": [{"name": "evaluate", "nanoseconds": t} for t in timings]}


def asked(given: Any) -> tuple[int, float]:
    """Return the least number of runs, and the least seconds that all take together, of an input."""
    if not isinstance(given, Mapping):
        return 1, 0.0
    least: list[float] = []
    for name, default, most in (("min_runs", 1, MAX_RUNS), ("min_seconds", 0, MAX_SECONDS)):
        value = given.get(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= most:
            raise WrongInput(f"expected {name} to be a number from 0 to {most:g}, got {shown(value)}")
        least.append(value)
    return max(1, int(least[0])), least[1]


def runs(call: Call, least: int, seconds: float) -> tuple[Any, list[int]]:
    """Call until there are enough runs, which took long enough together; return the last result, and nanoseconds."""
    timings: list[int] = []
    while True:
        began = time.perf_counter_ns()
        output = call()
        timings.append(time.perf_counter_ns() - began)
        spent = sum(timings) / 1e9
        is_enough = len(timings) >= least and spent >= seconds
        if is_enough or len(timings) >= MAX_RUNS or spent >= MAX_SECONDS:
            return output, timings
