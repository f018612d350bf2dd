"""A Tesseract with all calls of its client, in NumPy: ``TESSERACT_API_PATH=... tesseract-runtime serve``."""

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


def sigmoid(x: Any) -> Any:
    """σ(x)."""
    return 1 / (1 + np.exp(-x))


def apply(inputs: InputSchema) -> OutputSchema:
    """y = log1p(e^x)."""
    return OutputSchema(y=np.log1p(np.exp(inputs.x)))


def abstract_eval(abstract_inputs: Any) -> dict[str, Any]:
    """y has the shape of x."""
    x = abstract_inputs.x
    return {"y": {"shape": x.shape, "dtype": x.dtype}}


def jacobian(inputs: InputSchema, jac_inputs: set[str], jac_outputs: set[str]) -> dict[str, Any]:
    """A diagonal matrix."""
    del jac_inputs, jac_outputs
    return {"y": {"x": np.diag(sigmoid(inputs.x))}}


def jacobian_vector_product(
    inputs: InputSchema, jvp_inputs: set[str], jvp_outputs: set[str], tangent_vector: dict[str, Any]
) -> dict[str, Any]:
    """ty = tx σ(x)."""
    del jvp_inputs, jvp_outputs
    return {"y": tangent_vector["x"] * sigmoid(inputs.x)}


def vector_jacobian_product(
    inputs: InputSchema, vjp_inputs: set[str], vjp_outputs: set[str], cotangent_vector: dict[str, Any]
) -> dict[str, Any]:
    """dx = dy σ(x)."""
    del vjp_inputs, vjp_outputs
    return {"x": cotangent_vector["y"] * sigmoid(inputs.x)}
