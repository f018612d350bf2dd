"""``pullback serve`` and ``pullback doctor``, which need the service."""

import os
import sys
from collections.abc import Mapping

from pullback.service_process import NOT_INSTALLED, command, environment, is_installed


def run_service(settings: Mapping[str, str]) -> int:
    """Replace this process by the service with these settings; return 2 if it is not installed."""
    return _execute("app", settings)


def run_doctor() -> int:
    """Replace this process by the service's doctor; return 2 if it is not installed."""
    return _execute("app.runtime.doctor", {})


def _execute(module: str, settings: Mapping[str, str]) -> int:
    if is_installed():
        os.execve(sys.executable, command("-m", module), environment(settings))
    print(f"pullback: {NOT_INSTALLED}", file=sys.stderr)
    return 2
