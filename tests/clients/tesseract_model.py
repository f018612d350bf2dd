"""A Tesseract y = a log1p(eˣ) of any length with all derivatives; the variable FACTOR spoils the vjp."""

import os
from typing import Any

import numpy as np
from pydantic import BaseModel
from tesseract_core.runtime import Array, Differentiable, Float64


class Parameters(BaseModel):
    """What is not x."""

    a: Differentiable[Float64]


class InputSchema(BaseModel):
    """The inputs."""

    x: Differentiable[Array[(None,), Float64]]
    parameters: Parameters
    label: str = "none"


class OutputSchema(BaseModel):
    """The output."""

    y: Differentiable[Array[(None,), Float64]]


def partials(inputs: Any) -> dict[str, Any]:
    return {"x": inputs.parameters.a / (1 + np.exp(-inputs.x)), "parameters.a": np.log1p(np.exp(inputs.x))}


def apply(inputs: InputSchema) -> OutputSchema:
    return OutputSchema(y=inputs.parameters.a * np.log1p(np.exp(inputs.x)))


def abstract_eval(abstract_inputs: Any) -> dict[str, Any]:
    return {"y": {"shape": abstract_inputs.x.shape, "dtype": "float64"}}


def jacobian_vector_product(
    inputs: InputSchema, jvp_inputs: set[str], jvp_outputs: set[str], tangent_vector: dict[str, Any]
) -> dict[str, Any]:
    return {"y": sum(partials(inputs)[name] * tangent_vector[name] for name in jvp_inputs)}


def vector_jacobian_product(
    inputs: InputSchema, vjp_inputs: set[str], vjp_outputs: set[str], cotangent_vector: dict[str, Any]
) -> dict[str, Any]:
    factor, found = float(os.environ.get("FACTOR", "1")), partials(inputs)
    found = {name: factor * cotangent_vector["y"] * found[name] for name in vjp_inputs}
    return {name: dx if name == "x" else dx.sum() for name, dx in found.items()}
