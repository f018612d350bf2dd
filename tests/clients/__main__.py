"""Run the tests of other people's clients: ``python -m tests.clients ENVIRONMENT FILE [ENVIRONMENT FILE]...``.

Each file is run by the Python of an environment that has the client and not the service, against one service with the
plug-in ops of the HTTP tests.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.conftest import ROOT, Service

HERE = Path(__file__).parent
PLUGINS = ROOT / "tests" / "http" / "plugins"
LIMIT_S = 600


def run(environment: str, file: str, url: str) -> int:
    """Return the exit status of the tests of one client, 0 when all is well."""
    print(f"{file} in {environment}", flush=True)
    # Nothing of ours on the path: the client is alone, as it is at its users'.
    command = [f"{environment}/bin/python", "-P", "-m", "pytest", "-c", HERE / "pytest.ini", HERE / file, "--url", url]
    return subprocess.run(command, cwd=HERE, timeout=LIMIT_S, check=False).returncode


def main(arguments: Sequence[str]) -> int:
    """Run the tests of each client; return 1 when any of them fails."""
    with tempfile.TemporaryFile() as log:
        service = Service(log, OPS_PATH=str(PLUGINS))
        try:
            url = service.wait_until_ready().url
            pairs = zip(arguments[::2], arguments[1::2], strict=True)
            failed = [file for environment, file in pairs if run(environment, file, url)]
            if failed:
                print(f"failed: {', '.join(failed)}; the end of the service's log:\n{service.log()[-4000:]}")
        finally:
            service.close()
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
