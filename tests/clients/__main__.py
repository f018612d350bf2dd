"""Run the tests of third-party clients: ``python -m tests.clients ENVIRONMENTS CLIENT...``.

The tests of a client are test_CLIENT.py, test_CLIENT_*.py and its examples in docs/clients.md. The Python in the folder
ENVIRONMENTS/CLIENT, which has the client but not the service, runs them against one service with the plug-in ops of
the HTTP tests. Two cores run two clients at a time, each against a service of its own, because some tests read its
counters. The examples with a key ask one more service, which needs it.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pullback.keys import line_for, new_key
from tests.conftest import ROOT, Service

HERE = Path(__file__).parent
PLUGINS = ROOT / "tests" / "http" / "plugins"
AT_ONCE = 2
LIMIT_S = 600


class Guarded(NamedTuple):
    """The URL of a service that needs a key, and the key."""

    url: str
    key: str


def run(environments: Path, client: str, url: str, guarded: Guarded) -> int:
    """Run the tests of one client and print their output at their end; return their exit code, 0 if they pass."""
    # Nothing of this repository is on the path: the client is alone, as for its users.
    pytest = [environments / client / "bin" / "python", "-P", "-m", "pytest", "-c", HERE / "pytest.ini"]
    files = [HERE / f"test_{client}.py", *sorted(HERE.glob(f"test_{client}_*.py")), HERE / "test_page.py"]
    command = [*pytest, *files, "--url", url, "--guarded-url", guarded.url, "--key", guarded.key, "--client", client]
    done = subprocess.run(
        command, cwd=HERE, timeout=LIMIT_S, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    print(f"{client}:\n{done.stdout}", end="", flush=True)
    return done.returncode


@contextmanager
def guarded_service() -> Iterator[Guarded]:
    """Run a service that needs a key."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as log:
        key, file = new_key(), Path(folder, "keys")
        file.write_text(line_for("clients", key), encoding="ascii")
        service = Service.launched(log, KEYS_FILE=str(file))
        try:
            yield Guarded(service.wait_until_ready().url, key)
        finally:
            service.close()


def failures(environments: Path, guarded: Guarded, clients: Sequence[str]) -> list[str]:
    """Run the tests of some clients, one after the other against one service; return the clients that fail."""
    with tempfile.TemporaryFile() as log:
        service = Service.launched(log, OPS_PATH=str(PLUGINS))
        try:
            url = service.wait_until_ready().url
            failed = [client for client in clients if run(environments, client, url, guarded)]
            if failed:
                print(f"failed: {', '.join(failed)}; the end of the service's log:\n{service.log()[-4000:]}")
        finally:
            service.close()
    return failed


def main(environments: str, *clients: str) -> int:
    """Run the tests of each client; return 1 when any of them fails."""
    folder, shares = Path(environments).absolute(), [clients[first::AT_ONCE] for first in range(AT_ONCE)]
    with ThreadPoolExecutor(AT_ONCE) as pool, guarded_service() as guarded:
        return any(list(pool.map(lambda share: failures(folder, guarded, share), filter(None, shares))))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
