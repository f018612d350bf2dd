"""``pullback serve`` and ``pullback doctor``, which need the service beside this package."""

import importlib.util
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOT_INSTALLED = """\
pullback: only the client is installed here, not the service.
To run the service, clone the repository and run `make serve` or `docker compose up` there."""


def is_installed() -> bool:
    """Report whether the service lies beside this package and its dependencies are installed."""
    files = (ROOT / "app" / "__main__.py", ROOT / "ops" / "_op.py")
    return all(path.is_file() for path in files) and all(
        importlib.util.find_spec(name) is not None for name in ("tensorflow", "uvicorn")
    )


def run_service(host: str | None, port: int | None) -> int:
    """Replace this process by the service; return 2 if it is not installed."""
    return _execute("app", environment(host, port))


def run_doctor() -> int:
    """Replace this process by the service's doctor; return 2 if it is not installed."""
    return _execute("app.runtime.doctor", environment(None, None))


def _execute(module: str, environment: dict[str, str]) -> int:
    if is_installed():
        # -P: import the `app` beside this package, not one in the current folder.
        os.execve(sys.executable, [sys.executable, "-P", "-m", module], environment)
    print(NOT_INSTALLED, file=sys.stderr)
    return 2


def environment(host: str | None, port: int | None) -> dict[str, str]:
    """Return the environment of the service."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    # These are for the command line; the service does not need the caller's key.
    inherited = {name: value for name, value in os.environ.items() if name not in ("PULLBACK_URL", "PULLBACK_KEY")}
    options = {"PULLBACK_HOST": host, "PULLBACK_PORT": None if port is None else str(port)}
    settings = {name: value for name, value in options.items() if value is not None}
    return {**inherited, **settings, "PYTHONPATH": os.pathsep.join(paths)}
