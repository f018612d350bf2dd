"""A service for one command: it serves the ops of folders to this process alone, and ends with it."""

import os
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from pullback.cli.pages import pages_at
from pullback.errors import BadArgument
from pullback.service_process import NOT_INSTALLED, command, environment, is_installed

# The kernel ends it, even where this process is killed.
CODE = (
    "import runpy, signal; from app.processes.forks import signal_at_parents_death; "
    "signal_at_parents_death(signal.SIGKILL); runpy.run_module('app', run_name='__main__')"
)
# What an op computes may depend on these; the others are for a service that others use.
INHERITED = ("PULLBACK_DEVICE", "PULLBACK_GPU_MEMORY_MB", "PULLBACK_OPS_PATH")

# The largest set of parameters that this process puts.
LOCAL_MB = "4096"


@contextmanager
def local_service(paths: Sequence[Path]) -> Generator[str]:
    """Yield the URL of a service with the ops of the folders of these pages, by default with those of a service here.

    Raises ``BadArgument`` for a path without a page, and if the service is not installed or does not start.
    """
    if not is_installed():
        raise BadArgument(NOT_INSTALLED)
    folders = dict.fromkeys(str(page.absolute().parent) for path in paths for page in pages_at(path))
    with TemporaryDirectory() as own, open(Path(own) / "log", "w+", encoding="utf-8", errors="replace") as log:
        settings = {"PULLBACK_HOST": f"unix:{own}/socket", "PULLBACK_WARM_UP": "0", "PULLBACK_DRAIN_S": "0"}
        settings |= {"PULLBACK_CHECK_PROCESSES": "0", "PULLBACK_PARAMETERS_MB": LOCAL_MB}
        if folders:
            settings["PULLBACK_OPS_PATH"] = os.pathsep.join(folders)
        own_names = {name for name in os.environ if name.startswith("PULLBACK_")} - {*INHERITED}
        inherited = {name: value for name, value in environment({}).items() if name not in own_names}
        process = subprocess.Popen(
            command("-c", CODE),
            env=inherited | settings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
        try:
            assert process.stdout
            if not process.stdout.readline():
                log.seek(0)
                lines = log.read().split("\n")
                raise BadArgument(f"the service cannot start: {' '.join(filter(None, lines[-4:]))}")
            yield f"http+unix://{quote(own, safe='')}%2Fsocket"
        finally:
            process.kill()
            process.communicate()
