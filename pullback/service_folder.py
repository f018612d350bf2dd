"""Where the service is: beside this package in a clone, inside of it where a wheel has been installed."""

from pathlib import Path

PACKAGE = Path(__file__).parent
_CARRIED = PACKAGE / "_service"

SERVICE = _CARRIED if _CARRIED.is_dir() else PACKAGE.parent
"""The folder with the packages ``app`` and ``ops``, which only the processes of the service have on ``sys.path``."""
