"""Keras copies a model with a remote activation."""

from importlib import import_module
from typing import Any

import pytest

from tests.conftest import Service

keras: Any = import_module("keras")
tensorflow: Any = import_module("pullback.tensorflow")


@pytest.mark.parametrize("kind", ["Activation", "Dense"])
def test_a_model_with_a_remote_activation_is_cloned(service: Service, kind: str) -> None:
    f = tensorflow.remote("log1pexp", url=service.url)
    layer = keras.layers.Activation(f) if kind == "Activation" else keras.layers.Dense(2, activation=f)
    model = keras.Sequential([keras.Input((3,)), layer])
    copy = keras.models.clone_model(model)
    assert copy.layers[-1].activation == f
    copy.set_weights(model.get_weights())
    x = keras.ops.ones((2, 3))
    assert bool(keras.ops.all(copy(x) == model(x)))
