"""What mends TensorFlow 2.21: kernels and gradients that are wrong, and what it hands to the functions of an author."""

from app.runtime.repairs import (
    complex_gradients,
    complex_roots,
    dense_cotangents,
    empty_transforms,
    failed_decompositions,
    gradient_kernels,
    gradient_terms,
    moments,
    pooling,
    power_gradient,
    python_gradients,
    tangent_gradient,
    tensor_equality,
    variable_arguments,
)


def install() -> None:
    """Install every repair; call this before any program is built."""
    complex_gradients.install()
    complex_roots.install()
    dense_cotangents.install()
    empty_transforms.install()
    failed_decompositions.install()
    gradient_kernels.install()
    gradient_terms.install()
    moments.install()
    pooling.install()
    power_gradient.install()
    python_gradients.install()
    tangent_gradient.install()
    tensor_equality.install()
    variable_arguments.install()
