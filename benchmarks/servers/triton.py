"""Triton with the gradient in NumPy, by PyTriton: ``python -P triton.py PORT``."""

import signal
import sys
import threading
from typing import Any

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

HOST = "127.0.0.1"


@batch
def log1pexp_vjp(x: Any, dy: Any) -> dict[str, Any]:
    """dx = dy σ(x), for a batch of requests."""
    return {"dx": dy / (1 + np.exp(-x))}


def main(port: int) -> None:
    """Serve until stopped."""
    # If the signal killed the process, its shared memory would stay behind.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    config = TritonConfig(
        http_address=HOST, http_port=port, grpc_address=HOST, grpc_port=port + 1, allow_metrics=False, log_verbose=0
    )
    vector = (-1,)
    with Triton(config=config) as triton:
        triton.bind(
            model_name="log1pexp",
            infer_func=log1pexp_vjp,
            inputs=[Tensor(name=name, dtype=np.float32, shape=vector) for name in ("x", "dy")],
            outputs=[Tensor(name="dx", dtype=np.float32, shape=vector)],
            config=ModelConfig(max_batch_size=64, batcher=DynamicBatcher()),
        )
        triton.run()
        threading.Event().wait()


if __name__ == "__main__":
    main(int(sys.argv[1]))
