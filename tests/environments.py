"""Tests that run in other environments, with a service that runs in this one.

``python -m tests.environments PYTEST...`` runs a command of pytest with the option ``--url``.

Two cores run two environments at a time, each with a separate service, because some tests read its counters.
"""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.complex_numbers.pages import write_pages
from tests.conftest import ROOT, Service
from tests.page_examples import op_files

PLUGINS, FORCES = ROOT / "tests" / "http" / "plugins", ROOT / "docs" / "examples" / "forces"
MODELS = ROOT / "docs" / "models.md"
AT_ONCE = 2
# The tests of JAX, the longest, take a tenth of it on two quiet cores.
LIMIT = ("timeout", "--kill-after=10", "30m")


def run(environment: str, folder: Path, files: Sequence[str], *options: str, **variables: str) -> int:
    """Run test files in build/ENVIRONMENT and print their output at their end; return the exit code, 0 if they pass."""
    # The current folder is not on the path of Python.
    pytest = [ROOT / "build" / environment / "bin" / "python", "-P", "-m", "pytest", "-c", folder / "pytest.ini"]
    command = [*LIMIT, *pytest, *(folder / file for file in files), *options]
    with tempfile.TemporaryFile() as output:
        code = subprocess.run(
            command, cwd=folder, env={**os.environ, **variables}, check=False, stdout=output, stderr=subprocess.STDOUT
        ).returncode
        output.seek(0)
        print(f"{environment}:\n{output.read().decode(errors='replace')}", end="", flush=True)
    return code


def failures(names: Sequence[str], run_one: Callable[[str, str], int]) -> list[str]:
    """Call ``run_one(name, url)`` for each name in turn, two at a time; return the names for which it is not 0."""
    # A shell ignores it for commands in the background, and so would all processes that tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    services = queue.SimpleQueue[Service]()

    def failed(name: str) -> bool:
        service = services.get()
        try:
            if code := run_one(name, service.url):
                print(f"{name} ended with {code}; the end of the service's log:\n{service.log()[-4000:]}")
            return bool(code)
        finally:
            services.put(service)

    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(service_with_plugins()) for _ in names[:AT_ONCE]]
        for service in started:
            services.put(service.wait_until_ready())
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return [name for name, is_failed in zip(names, pool.map(failed, names), strict=True) if is_failed]


@contextlib.contextmanager
def service_with_plugins() -> Iterator[Service]:
    """Start a service with the ops that these tests ask."""
    with tempfile.TemporaryFile() as log, tempfile.TemporaryDirectory() as pages:
        write_pages(Path(pages))
        Path(pages, "classifier.py").write_text(op_files(MODELS)["classifier"], encoding="utf-8")
        service = Service.launched(log, OPS_PATH=f"{PLUGINS}:{FORCES}:{pages}")
        try:
            yield service
        finally:
            service.close()


def main(*command: str) -> int:
    """Return 1 if the command fails."""
    return bool(failures(["pytest"], lambda _, url: subprocess.run([*command, "--url", url], check=False).returncode))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
