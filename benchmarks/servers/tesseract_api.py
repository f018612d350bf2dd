"""A Tesseract with the gradient in NumPy: ``TESSERACT_API_PATH=tesseract_api.py tesseract-runtime serve``."""

from typing import Any

import numpy as np
from pydantic import BaseModel
from tesseract_core.runtime import Array, Differentiable, Float32


class InputSchema(BaseModel):
    """The input."""

    x: Differentiable[Array[(None,), Float32]]


class OutputSchema(BaseModel):
    """The output."""

    y: Differentiable[Array[(None,), Float32]]


def apply(inputs: InputSchema) -> OutputSchema:
    """y = log1p(e^x)."""
    return OutputSchema(y=np.log1p(np.exp(inputs.x)))


def vector_jacobian_product(
    inputs: InputSchema, vjp_inputs: set[str], vjp_outputs: set[str], cotangent_vector: dict[str, Any]
) -> dict[str, Any]:
    """dx = dy σ(x)."""
    del vjp_inputs, vjp_outputs
    return {"x": cotangent_vector["y"] / (1 + np.exp(-inputs.x))}
