"""Run the tests of third-party clients: ``python -m tests.clients CLIENT...``.

The tests of a client are test_CLIENT.py, test_CLIENT_*.py and its examples in docs/clients.md. They run in the
environment build/clients-CLIENT, which has the client but not the service, against a service with the plug-in ops of
the HTTP tests. The examples with a key ask one more service, which needs it.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pullback.keys import line_for, new_key
from tests.conftest import Service
from tests.environments import failures, run

HERE = Path(__file__).parent


class Guarded(NamedTuple):
    """The URL of a service that needs a key, and the key."""

    url: str
    key: str


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


def main(*clients: str) -> int:
    """Run the tests of each client; return 1 when any of them fails."""
    with guarded_service() as guarded:

        def run_one(client: str, url: str) -> int:
            # Nothing of this repository is on the path: the client is alone, as for its users.
            options = ["--url", url, "--guarded-url", guarded.url, "--key", guarded.key, "--client", client]
            options += ["--python", sys.executable]
            files = [
                f"test_{client}.py",
                *sorted(file.name for file in HERE.glob(f"test_{client}_*.py")),
                "test_page.py",
            ]
            return run(f"clients-{client}", HERE, files, *options)

        return bool(failures(clients, run_one))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
