"""Run the tests of third-party clients: ``python -m tests.clients ENVIRONMENTS CLIENT...``.

The tests of a client are test_CLIENT.py and its examples in docs/clients.md. The Python in the folder
ENVIRONMENTS/CLIENT, which has the client but not the service, runs them against one service with the plug-in ops of
the HTTP tests.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.conftest import ROOT, Service

HERE = Path(__file__).parent
PLUGINS = ROOT / "tests" / "http" / "plugins"
LIMIT_S = 600


def run(environments: Path, client: str, url: str) -> int:
    """Run the tests of one client; return their exit code, 0 if they pass."""
    print(f"{client}:", flush=True)
    # Nothing of this repository is on the path: the client is alone, as for its users.
    pytest = [environments / client / "bin" / "python", "-P", "-m", "pytest", "-c", HERE / "pytest.ini"]
    files = [HERE / f"test_{client}.py", HERE / "test_page.py"]
    command = [*pytest, *files, "--url", url, "--client", client]
    return subprocess.run(command, cwd=HERE, timeout=LIMIT_S, check=False).returncode


def main(environments: str, *clients: str) -> int:
    """Run the tests of each client; return 1 if any of them fails."""
    with tempfile.TemporaryFile() as log:
        service = Service(log, OPS_PATH=str(PLUGINS))
        try:
            url = service.wait_until_ready().url
            failed = [client for client in clients if run(Path(environments).absolute(), client, url)]
            if failed:
                print(f"failed: {', '.join(failed)}; the end of the service's log:\n{service.log()[-4000:]}")
        finally:
            service.close()
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
