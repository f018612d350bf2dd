"""Tests that run in other environments, with a service that runs in this one.

An environment is a folder ENVIRONMENTS/NAME with its own Python. Two cores run two environments at a time, each
with a separate service, because some tests read its counters.
"""

import itertools
import os
import signal
import subprocess
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
LIMIT_S = 1800
"""The tests of JAX, the longest, take a tenth of it on two quiet cores."""
STUCK_S = 300
"""A test that takes longer shows where it is."""


def run(environment: Path, folder: Path, files: Sequence[str], *options: str, **variables: str) -> int:
    """Run test files in an environment and print their output at their end; return the exit code, 0 if they pass."""
    # The current folder is not on the path of Python.
    pytest = [environment / "bin" / "python", "-P", "-m", "pytest", "-c", folder / "pytest.ini"]
    with tempfile.TemporaryFile() as output:
        try:
            done = subprocess.run(
                [*pytest, *(folder / file for file in files), *options, "-o", f"faulthandler_timeout={STUCK_S}"],
                cwd=folder,
                env={**os.environ, **variables},
                timeout=LIMIT_S,
                check=False,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            end, code = "", done.returncode
        except subprocess.TimeoutExpired:
            end, code = f"\nended after {LIMIT_S} s\n", 1
        output.seek(0)
        print(f"{environment.name}:\n{output.read().decode(errors='replace')}{end}", end="", flush=True)
    return code


def failures(names: Sequence[str], run_one: Callable[[str, str], int]) -> list[str]:
    """Call ``run_one(name, url)`` for each name in turn, two at a time; return the names for which it is not 0."""
    # A shell ignores it for commands in the background, and so would all processes that tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    left = iter(names)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        failed = pool.map(lambda _: _failures(left, run_one), range(min(AT_ONCE, len(names))))
        return list(itertools.chain.from_iterable(failed))


def _failures(names: Iterator[str], run_one: Callable[[str, str], int]) -> list[str]:
    """Run names until none is left; another thread takes from them too."""
    with tempfile.TemporaryFile() as log, tempfile.TemporaryDirectory() as pages:
        write_pages(Path(pages))
        Path(pages, "classifier.py").write_text(op_files(MODELS)["classifier"], encoding="utf-8")
        service = Service.launched(log, OPS_PATH=f"{PLUGINS}:{FORCES}:{pages}")
        try:
            url = service.wait_until_ready().url
            failed = [name for name in names if run_one(name, url)]
            if failed:
                print(f"failed: {', '.join(failed)}; the end of the service's log:\n{service.log()[-4000:]}")
        finally:
            service.close()
    return failed
