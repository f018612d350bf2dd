"""UM-Bridge's own server with all operations, in NumPy, started as in its documentation: ``... PORT``."""

import functools
import sys
from typing import Any

import numpy as np
import umbridge
from aiohttp import web

Config = dict[str, Any]
Lists = list[list[float]]


def sigmoid(x: Any) -> Any:
    """σ(x)."""
    return 1 / (1 + np.exp(-np.asarray(x)))


class Log1pExp(umbridge.Model):
    """y = log1p(e^x); ``config`` sets the length of x."""

    def get_input_sizes(self, config: Config) -> list[int]:
        """The size in ``config``."""
        return list(config["shape"])

    def get_output_sizes(self, config: Config) -> list[int]:
        """The same size."""
        return list(config["shape"])

    def __call__(self, parameters: Lists, config: Config) -> Lists:
        """y."""
        return [np.log1p(np.exp(np.asarray(parameters[0]))).tolist()]

    def gradient(self, out_wrt: int, in_wrt: int, parameters: Lists, sens: list[float], config: Config) -> list[float]:
        """dx = dy σ(x)."""
        return (np.asarray(sens) * sigmoid(parameters[0])).tolist()

    def apply_jacobian(
        self, out_wrt: int, in_wrt: int, parameters: Lists, vec: list[float], config: Config
    ) -> list[float]:
        """ty = tx σ(x)."""
        return (np.asarray(vec) * sigmoid(parameters[0])).tolist()

    def apply_hessian(  # noqa: PLR0917 - the client's own order
        self,
        out_wrt: int,
        in_wrt1: int,
        in_wrt2: int,
        parameters: Lists,
        sens: list[float],
        vec: list[float],
        config: Config,
    ) -> list[float]:
        """dy tx σ(x) (1 - σ(x))."""
        s = sigmoid(parameters[0])
        return (np.asarray(sens) * np.asarray(vec) * s * (1 - s)).tolist()

    def supports_evaluate(self) -> bool:
        """The value is available."""
        return True

    supports_gradient = supports_apply_jacobian = supports_apply_hessian = supports_evaluate


# By default it listens on every address.
web.run_app = functools.partial(web.run_app, host="127.0.0.1")
umbridge.serve_models([Log1pExp("log1pexp")], int(sys.argv[1]))
