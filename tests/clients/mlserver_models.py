"""Pairs of models on MLServer, with right and wrong gradients: ``python mlserver_models.py PORT GRPC_PORT``."""

import asyncio
import logging
import sys

import numpy as np
from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse, MetadataTensor


class Softplus(MLModel):
    """y = log1p(eˣ)."""

    async def load(self):
        return True

    async def predict(self, payload):
        (x,) = map(NumpyCodec.decode_input, payload.inputs)
        y = NumpyCodec.encode_output("y", np.log1p(np.exp(x)))
        return InferenceResponse(model_name=self.name, outputs=[y])


class Vjp(MLModel):
    """dx = dy σ(x)."""

    factor = 1.0

    async def load(self):
        return True

    async def predict(self, payload):
        x, dy = map(NumpyCodec.decode_input, payload.inputs)
        dx = NumpyCodec.encode_output("dx", self.factor * dy / (1 + np.exp(-x)))
        return InferenceResponse(model_name=self.name, outputs=[dx])


class Flipped(Vjp):
    """The same with the wrong sign."""

    factor = -1.0


def main(port, grpc_port):
    settings = Settings(
        host="127.0.0.1", http_port=port, grpc_port=grpc_port, metrics_endpoint=None, parallel_workers=0, debug=False
    )
    logging.disable(logging.INFO)
    inputs, outputs = ([MetadataTensor(name=name, datatype="FP64", shape=[-1])] for name in ("x", "y"))
    models = [
        ModelSettings(name="right", implementation=Softplus, inputs=inputs, outputs=outputs),
        ModelSettings(name="right.vjp", implementation=Vjp),
        ModelSettings(name="flipped", implementation=Softplus),
        ModelSettings(name="flipped.vjp", implementation=Flipped),
        ModelSettings(name="alone", implementation=Softplus),
    ]
    asyncio.run(MLServer(settings).start(models))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
