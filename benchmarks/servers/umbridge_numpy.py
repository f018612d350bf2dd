"""UM-Bridge with the gradient in NumPy: ``python umbridge_numpy.py PORT``."""

import functools
import sys
from typing import Any

import numpy as np
import umbridge
from aiohttp import web


class Log1pExp(umbridge.Model):
    """y = log1p(e^x) of any number of x."""

    def supports_gradient(self) -> bool:
        """The gradient is the only operation in use."""
        return True

    def gradient(
        self, out_wrt: int, in_wrt: int, parameters: list[list[float]], sens: list[float], config: dict[str, Any]
    ) -> Any:
        """dx = dy σ(x), as an array: UM-Bridge writes lists much more slowly."""
        del out_wrt, in_wrt, config
        x, dy = np.asarray(parameters[0], np.float32), np.asarray(sens, np.float32)
        return dy / (1 + np.exp(-x))


# By default it listens on every address. Its checks are off: they need the sizes in advance, and cost time.
web.run_app = functools.partial(web.run_app, host="127.0.0.1")
umbridge.serve_models([Log1pExp("log1pexp")], int(sys.argv[1]), error_checks=False)
