"""Checks where the service is installed, without it: a process of this machine runs them, and no HTTP is involved."""

import json
import os
import shlex
import signal
import socket
import subprocess
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from pullback.calls import CheckOptions, names, selections
from pullback.closing import Closing
from pullback.errors import BadArgument, ConnectionLost
from pullback.reports import Event, Progress, Report, Start, Summary, event, report
from pullback.service_process import NOT_INSTALLED, command, environment, is_installed

CODE = "from app.local_checks import main; main({})"
# Others end processes by these signals, the system too, where memory runs out.
NOT_BY_THE_OP = (-signal.SIGKILL, -signal.SIGTERM)


class Ended(NamedTuple):
    """The end of a process, with its status, before that of its checks; ``evaluation`` is its last, or ""."""

    status: int
    evaluation: str

    def __str__(self) -> str:
        name = signal.Signals(-self.status).name if self.status < 0 else f"status {self.status}"
        return f"{name} in {self.evaluation}" if self.evaluation else name


class LocalChecks(Closing):
    """A process that runs checks. It imports TensorFlow once, which takes seconds; checks run in copies of it."""

    def __init__(self) -> None:
        """Start the process; this returns at once. Raises ``BadArgument`` if the service is not installed."""
        if not is_installed():
            raise BadArgument(NOT_INSTALLED)
        # A message has its own boundary, and the process ends with this end.
        self._control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                command("-c", CODE.format(other.fileno())),
                env=environment({}),
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=(other.fileno(),),
                # Ctrl-C must end the command only: it prints the results so far, and then ends this process.
                start_new_session=True,
            )

    def checks(
        self, pages: Sequence[Path], ops: Sequence[str] | None, options: CheckOptions
    ) -> Generator[Event, None, None]:
        """Check the ops of these pages, by default all of them; yield the events as ``Client.checks`` does.

        Without pages, the ops are those that a service here would have. An op that crashes the process fails; the
        others are checked in another process. Another call ends the checks of this one.

        Raises ``ProblemError`` for a request that the service would refuse, ``ConnectionLost`` if the process ends.
        """
        request = {**selections(options), "ops": names("ops", ops)}
        wanted: list[str] | None = None
        reports = list[Report]()
        while wanted is None or wanted:
            running: Progress | None = None
            for found in self._run(pages, request):
                match found:
                    case Ended():
                        if running is None or wanted is None or found.status in NOT_BY_THE_OP:
                            raise ConnectionLost(f"the process of the checks ended with {found}")
                        reports.append(_crash(running, found, pages, options.get("seed") or 0))
                        yield reports[-1]
                        wanted = request["ops"] = wanted[wanted.index(running.op) + 1 :]
                        break
                    case Summary():
                        yield found if wanted is not None and len(wanted) == len(reports) else _summary(reports, found)
                        return
                    case Start() if wanted is None:
                        wanted = found.ops
                        yield found
                    case Start():
                        pass
                    case Progress():
                        running = found
                        yield found
                    case Report():
                        reports.append(found)
                        yield found
            else:
                raise ConnectionLost("the process of the checks ended without a summary")
        yield _summary(reports, None)

    def close(self) -> None:
        """End the process and what it runs."""
        self._control.close()
        self._process.kill()
        self._process.wait()

    def _run(self, pages: Sequence[Path], request: dict[str, Any]) -> Iterator[Event | Ended]:
        """Send a request; yield its events, and how its process ends if that is not as it should."""
        fields = {name: value for name, value in request.items() if value is not None}
        message = {"pages": [str(page.absolute()) for page in pages], "request": fields}
        with ExitStack() as files:
            reading, writing = os.pipe()
            events = files.enter_context(os.fdopen(reading, "rb"))
            try:
                socket.send_fds(self._control, [json.dumps(message).encode()], [writing])
            except OSError as error:
                raise ConnectionLost(f"the process of the checks cannot be reached: {error.strerror}") from error
            finally:
                os.close(writing)
            for line in events:
                if not line.endswith(b"}\n"):
                    continue  # the process has ended in the middle of it
                if (ended := json.loads(line)).get("event") == "ended":
                    yield Ended(ended["status"], ended["evaluation"])
                elif (found := event(line)) is not None:
                    yield found


def _crash(running: Progress, ended: Ended, pages: Sequence[Path], seed: int) -> Report:
    """Return the report on an op of these pages that has ended the process: its check fails."""
    sentence = f"op {running.op} crashed the process of the check with {ended}"
    nowhere: dict[str, Any] = {
        "order": None,
        "output": None,
        "input": None,
        "attrs": {},
        "mode": "",
        "dtype": "",
        "device": "",
    }
    counts = {"points": 0, "evaluations": 0, "seconds": 0.0}
    entry: dict[str, Any] = {**nowhere, **counts, "check": running.check, "verdict": "fail", "sentence": sentence}
    entry |= {"inconclusive": {}, "worst": None, "places": [nowhere]}
    # A page or a graph has the name of its op.
    what = [str(page) for page in pages if page.name.partition(".")[0] == running.op] or [running.op]
    entry["reproduce"] = shlex.join(["pullback", "check", *what, "--check", running.check, "--seed", str(seed)])
    head = {"op": running.op, "verdict": "fail", "sentence": f"{running.op}: 1 of 1 check failed: {running.check}"}
    return report({**head, "seed": seed, **counts, "unfinished": 0, "coverage": [], "checks": [entry]})


def _summary(reports: Sequence[Report], last: Summary | None) -> Summary:
    """Return the summary of all reports, of which the ``last`` process knows only its own."""
    verdicts = [found.verdict for found in reports]
    counts = {verdict: verdicts.count(verdict) for verdict in ("pass", "fail", "error", "inconclusive")}
    worst = next((verdict for verdict in ("fail", "error", "inconclusive") if counts[verdict]), "pass")
    seconds = sum(found.seconds for found in reports) if last is None else last.seconds
    unfinished = sum(found.unfinished > 0 for found in reports)
    document = {"event": "summary", "verdict": worst, **counts, "unfinished": unfinished, "seconds": round(seconds, 3)}
    found = event(json.dumps(document))
    assert isinstance(found, Summary)
    return found
