"""``pullback serve`` and ``doctor``: the service itself, and its look at the machine, where it is at hand."""

import importlib.util
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOW = """\
pullback: this is the client alone; the service is not installed here.
To get it: clone the repository and run `make serve`, or run `docker compose up` there."""


def is_at_hand() -> bool:
    """Tell whether the service lies beside this package, and what it needs is installed."""
    files = (ROOT / "app" / "__main__.py", ROOT / "ops" / "_op.py")
    return all(path.is_file() for path in files) and all(
        importlib.util.find_spec(name) is not None for name in ("tensorflow", "uvicorn")
    )


def serve(host: str | None, port: int | None) -> int:
    """Become the service; return 2 where there is none."""
    return _become("app", environment(host, port))


def examine() -> int:
    """Become the service's doctor; return 2 where there is no service."""
    return _become("app.runtime.doctor", environment(None, None))


def _become(module: str, environment: dict[str, str]) -> int:
    if is_at_hand():
        sys.stdout.flush()
        # -P: not an `app` of the folder that we happen to be in, but the one beside this package.
        os.execve(sys.executable, [sys.executable, "-P", "-m", module], environment)
    print(HOW, file=sys.stderr)
    return 2


def environment(host: str | None, port: int | None) -> dict[str, str]:
    """Return the environment of the service."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    # What is set for the command line is no setting of the service, which would warn of it.
    kept = {name: value for name, value in os.environ.items() if name != "PULLBACK_URL"}
    where = {"PULLBACK_HOST": host, "PULLBACK_PORT": None if port is None else str(port)}
    given = {name: value for name, value in where.items() if value is not None}
    return {**kept, **given, "PYTHONPATH": os.pathsep.join(paths)}
