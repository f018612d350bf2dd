"""Processes of checks that run no check: each does what its order says, in the name of the op."""

import faulthandler
import os
import signal
import socket
import time
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn, Self

import numpy as np

from app.children import fork_server
from app.processes.check_process import ForkServer
from app.processes.forks import start_copy
from app.processes.messages import Began, Done, Found, Left, Order, Planned, Ready
from pullback.gradcheck.verdict import Finding, Subject
from tests.patience import PATIENCE_S, PAUSE_S

fork = os.fork
TO_ITSELF = {"crash": signal.SIGSEGV, "stop": signal.SIGSTOP}
TO_SERVER = {"end-server": signal.SIGKILL, "stop-server": signal.SIGSTOP}
TOLD_S = 0.5
GARBLED = {"garble": b"\0\0\0\4.ab.", "boast": b"\x7f\0\0\0"}


class ObedientServer(ForkServer):
    """A fork server that is a copy of the test, which takes milliseconds to start."""

    @classmethod
    def spawned(cls) -> Self:
        """Start it."""
        control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            return cls(start_copy("obedient", partial(_serve, control, other)), control)

    def stop(self) -> None:
        """Stop it, until it is ended."""
        os.kill(self._process.pid, signal.SIGSTOP)
        # The kernel stops a process only when it gets to run again.
        while not self.has_ended:
            time.sleep(PAUSE_S)


def _serve(control: socket.socket, other: socket.socket) -> NoReturn:
    control.close()
    faulthandler.disable()
    os.setsid()
    fork_server.run_checks, fork_server.os.fork = obey, fork
    fork_server.main(other.detach())


def obey(connection: Connection, journal: int) -> None:
    """Load nothing, and do what the order says."""
    del journal
    order: Order = connection.recv()
    action, *arguments = order.job.op.split()
    if action == "faint":
        os.kill(os.getpid(), signal.SIGKILL)
    connection.send(Ready())
    connection.send(Began(0))
    signal_server(action)
    if action in TO_ITSELF:
        os.kill(os.getpid(), TO_ITSELF[action])
    elif action in ("faint-once", "hang-once") and not Path(arguments[0]).exists():
        Path(arguments[0]).touch()
        if action == "faint-once":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(PATIENCE_S)
    elif action == "who":
        connection.send(Found(0, Finding(Subject("contract"), "pass", str(os.getpid())).entry({})))
    elif action == "differ":
        connection.send(Planned(["contract {'k': 1}"]))
    elif action == "close":
        os.closerange(3, 100)
    elif action in GARBLED:
        os.write(connection.fileno(), GARBLED[action])
    elif action == "grow":
        kept = np.ones(int(arguments[0]) << 17)
        for _ in range(int(PATIENCE_S / 0.01)):
            connection.send(Found(0, Finding(Subject("contract"), "pass", "").entry({})))
            time.sleep(0.01)
        del kept
    elif action in ("breed-and-crash", "breed-and-end-server"):
        breed(Path(arguments[0]))
        os.kill(*((os.getpid(), signal.SIGSEGV) if action == "breed-and-crash" else (os.getppid(), signal.SIGKILL)))
    if action not in ("hang", "close", "stop", "differ", "end-server", *GARBLED):
        connection.send(Left(0, True, "", 0.0))
        connection.send(Done())
    time.sleep(PATIENCE_S)


def signal_server(action: str) -> None:
    """Send the signal of an action to the fork server, once that has had time to tell the id of this process."""
    if action in TO_SERVER:
        time.sleep(TOLD_S)
        server = os.getppid()
        os.kill(server, TO_SERVER[action])
        # The kernel stops a process only when it gets to run again.
        while action == "stop-server" and Path(f"/proc/{server}/stat").read_text("ascii").rpartition(")")[2][1] != "T":
            time.sleep(PAUSE_S)


def breed(path: Path) -> None:
    """Start a process, whose id is in a file."""
    if not (pid := os.fork()):
        time.sleep(PATIENCE_S)
    path.write_text(str(pid), encoding="ascii")


def is_running(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except FileNotFoundError:
        return False
