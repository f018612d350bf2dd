"""MLServer with the gradient in NumPy: ``python mlserver_numpy.py PORT``; it also needs the next port, for gRPC."""

import asyncio
import logging
import sys

import numpy as np
from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Log1pExp(MLModel):
    """y = log1p(e^x) of any number of x."""

    async def load(self) -> bool:
        """There is nothing to load."""
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """dx = dy σ(x)."""
        x, dy = map(NumpyCodec.decode_input, payload.inputs)
        dx = dy / (1 + np.exp(-x))
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("dx", dx)])


def main(port: int) -> None:
    """Serve in one process until stopped."""
    settings = Settings(
        host="127.0.0.1", http_port=port, grpc_port=port + 1, metrics_endpoint=None, parallel_workers=0, debug=False
    )
    logging.disable(logging.INFO)
    model = ModelSettings(name="log1pexp", implementation=Log1pExp)
    asyncio.run(MLServer(settings).start([model]))


if __name__ == "__main__":
    main(int(sys.argv[1]))
