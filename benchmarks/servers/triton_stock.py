"""Triton with value and gradient in NumPy, by PyTriton, without batching: ``python -P triton_stock.py PORT``."""

import signal
import sys
import threading
from typing import Any

import numpy as np
from pytriton.decorators import sample
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

HOST = "127.0.0.1"
VECTOR = (-1,)


@sample
def value(x: Any) -> dict[str, Any]:
    """y = log1p(e^x)."""
    return {"y": np.log1p(np.exp(x))}


@sample
def log1pexp_vjp(x: Any, dy: Any) -> dict[str, Any]:
    """dx = dy σ(x)."""
    return {"dx": dy / (1 + np.exp(-x))}


def main(port: int) -> None:
    """Serve until stopped."""
    # If the signal killed the process, its shared memory would stay behind.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    config = TritonConfig(
        http_address=HOST, http_port=port, grpc_address=HOST, grpc_port=port + 1, allow_metrics=False, log_verbose=0
    )
    models = {"log1pexp": (value, ["x"], "y"), "log1pexp.vjp": (log1pexp_vjp, ["x", "dy"], "dx")}
    with Triton(config=config) as triton:
        for name, (function, inputs, output) in models.items():
            triton.bind(
                model_name=name,
                infer_func=function,
                inputs=[Tensor(name=one, dtype=np.float32, shape=VECTOR) for one in inputs],
                outputs=[Tensor(name=output, dtype=np.float32, shape=VECTOR)],
                config=ModelConfig(batching=False),
            )
        triton.run()
        threading.Event().wait()


if __name__ == "__main__":
    main(int(sys.argv[1]))
