"""Run the tests of the client where the service is not: ``python -m tests.client_alone PYTHON ENVIRONMENT``.

They run with another Python, in a new environment that has the wheel and ``requirements/client.txt``, against a service
that runs with this one. So they show that this Python can install the client, and that it needs nothing else.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.environments import LIMIT_S, failures

TESTS = ROOT / "tests" / "client"
OF_SERVICE = re.compile(r'^from (app|ops|opentelemetry)\b|import_module\("keras"', re.MULTILINE)
"""The import of tests that compare the client with the service, or need TensorFlow or OpenTelemetry."""
INSTALLED = "import importlib.util as u, pullback; assert not u.find_spec('tensorflow'), 'expected no TensorFlow here'"


def files() -> list[Path]:
    """Return the files with tests of the client that need no part of the service."""
    return [path for path in sorted(TESTS.glob("test_*.py")) if not OF_SERVICE.search(path.read_text("utf-8"))]


def make(environment: Path, python: str) -> Path:
    """Make an environment; return its Python."""
    shutil.rmtree(environment, ignore_errors=True)
    made, wheels = environment / "bin" / "python", environment / "wheels"
    install = [sys.executable, ROOT / "requirements" / "install.py", made, "--quiet", "--no-deps"]
    for command in (
        [python, "-m", "venv", "--without-pip", environment],
        [*install, "--require-hashes", "-r", ROOT / "requirements" / "client.txt"],
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", wheels, ROOT],
    ):
        subprocess.run(command, check=True, timeout=LIMIT_S)
    subprocess.run([*install, next(wheels.glob("*.whl"))], check=True, timeout=LIMIT_S)
    subprocess.run([made, "-P", "-c", INSTALLED], check=True, timeout=LIMIT_S, cwd=environment)
    return made


def main(python: str, environment: str) -> int:
    """Return 1 when a test fails."""
    made, tests = make(Path(environment).absolute(), python), files()

    def run(name: str, url: str) -> int:
        command = [made, "-m", "pytest", *tests, "-p", "no:cacheprovider", "-n", "2", "--url", url]
        print(f"{name}: {len(tests)} files", flush=True)
        return subprocess.run(command, cwd=ROOT, check=False).returncode

    return bool(failures([python], run))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
