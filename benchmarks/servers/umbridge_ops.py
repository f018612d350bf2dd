"""UM-Bridge with the gradient of every case of ``benchmarks.ops`` in NumPy.

``python -m benchmarks.servers.umbridge_ops PORT``. A model is an op at one size, so that it knows its shapes.
"""

import functools
import sys
from typing import Any

import umbridge
from aiohttp import web

from benchmarks.op_cases import CASES, Case


class Gradient(umbridge.Model):
    """An op at one size; the gradient is the only operation in use."""

    def __init__(self, case: Case) -> None:
        """Keep the case."""
        super().__init__(case.name)
        self._case = case

    def supports_gradient(self) -> bool:
        """It has a gradient."""
        return True

    def gradient(
        self, out_wrt: int, in_wrt: int, parameters: list[list[float]], sens: list[float], config: dict[str, Any]
    ) -> Any:
        """Return the gradient as an array: UM-Bridge writes lists much more slowly."""
        del out_wrt, in_wrt, config
        return self._case.flat_gradient(parameters, sens)


if __name__ == "__main__":
    # By default it listens on every address. Its checks are off: they need the sizes in advance, and cost time.
    web.run_app = functools.partial(web.run_app, host="127.0.0.1")
    umbridge.serve_models([Gradient(case) for case in CASES], int(sys.argv[1]), error_checks=False)
