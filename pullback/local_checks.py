"""Checks where the service is installed, without it: a process of this machine runs them, and no HTTP is involved."""

import json
import os
import socket
import subprocess
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from pathlib import Path

from pullback.calls import CheckOptions, names, selections
from pullback.closing import Closing
from pullback.errors import BadArgument, ConnectionLost
from pullback.reports import Event, Summary, event
from pullback.service_process import NOT_INSTALLED, command, environment, is_installed

# While TensorFlow is imported, the collector of garbage would take a fifth of the time, and find none.
CODE = "import gc; gc.disable(); from app.children.local_checks import main; main({})"


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

        Without pages, the ops are those that a service here would have. Each op is checked in a separate process, as
        many at a time as there are cores. Another call ends the checks of this one.

        Raises ``ProblemError`` for a request that the service would refuse, ``ConnectionLost`` if the process ends.
        """
        fields = {**selections(options), "ops": names("ops", ops)}
        request = {name: value for name, value in fields.items() if value is not None}
        message = {"pages": [str(page.absolute()) for page in pages], "request": request}
        with ExitStack() as files:
            reading, writing = os.pipe()
            lines = files.enter_context(os.fdopen(reading, "rb"))
            try:
                socket.send_fds(self._control, [json.dumps(message).encode()], [writing])
            except OSError as error:
                raise ConnectionLost(f"the process of the checks cannot be reached: {error.strerror}") from error
            finally:
                os.close(writing)
            for line in lines:
                if not line.endswith(b"}\n"):
                    continue  # the process has ended in the middle of it
                if (document := json.loads(line))["event"] == "ended":
                    raise ConnectionLost(f"the process of the checks ended with {document['status']}")
                if (found := event(line)) is not None:
                    yield found
                    if isinstance(found, Summary):
                        return
        raise ConnectionLost("the process of the checks ended without a summary")

    def close(self) -> None:
        """End the process and what it runs."""
        self._control.close()
        self._process.kill()
        self._process.wait()
