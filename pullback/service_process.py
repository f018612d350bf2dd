"""Where the service is installed, and how a process of it starts."""

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path

PACKAGE = Path(__file__).parent
_CARRIED = PACKAGE / "_service"

SERVICE = _CARRIED if _CARRIED.is_dir() else PACKAGE.parent
"""The folder with the packages ``app`` and ``ops``, which only the processes of the service have on ``sys.path``."""
NOT_INSTALLED = """\
only the client is installed here, not the service. \
To install the service too: pip install ".[serve]" in a clone of the repository, or `make serve` there."""


def is_installed() -> bool:
    """Report whether the service is in this package or beside it, and its dependencies are installed."""
    files = (SERVICE / "app" / "__main__.py", SERVICE / "ops" / "__init__.py")
    return all(path.is_file() for path in files) and all(
        importlib.util.find_spec(name) is not None for name in ("tensorflow", "uvicorn")
    )


def command(*arguments: str) -> list[str]:
    """Return the command that runs Python with these arguments and imports the service's modules."""
    # -P: import the `app` of the service, not one in the current folder.
    return [sys.executable, "-P", *arguments]


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the service with these settings, ``PULLBACK_*`` variables."""
    paths = [str(SERVICE), *filter(None, [os.environ.get("PYTHONPATH")])]
    # These are for the command line; the service does not need the caller's key.
    inherited = {name: value for name, value in os.environ.items() if name not in ("PULLBACK_URL", "PULLBACK_KEY")}
    return {**inherited, **settings, "PYTHONPATH": os.pathsep.join(paths)}
