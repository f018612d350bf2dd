"""pullback.tensorflow: how many requests, with which credentials, and until when, in graphs and files too."""

import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import pullback
import pullback.tensorflow
from tests.frameworks.conftest import KEY, assert_no_secret, pickles

X = np.array([-0.5, 0.25, 2.0])
WAYS = pytest.mark.parametrize("way", [lambda f: f, tf.function], ids=["eager", "graph"])


def gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    def derived(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        return tape.gradient(y, x)

    return derived


@WAYS
def test_backward_passes_take_no_request(remote, count, way) -> None:
    f = remote("log1pexp")

    def repeated(x: tf.Tensor) -> Any:
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = f(0.5 * f(x))
        return [tape.gradient(y, x) for _ in range(3)], tape.jacobian(y, x, experimental_use_pfor=False)

    way(repeated)(tf.constant(X))
    assert count() == 2


@WAYS
def test_functions_with_different_keys_send_their_own(proxy, way) -> None:
    one, two = (pullback.tensorflow.remote("square", url=proxy.url, api_key=key) for key in ("one", "two"))
    copy = pickle.loads(pickle.dumps(one))
    found = way(gradient(lambda x: one(x) + two(x) + copy(x)))(tf.constant(X))
    np.testing.assert_allclose(found, 6 * X)
    assert sorted(proxy.new("Authorization")) == ["Bearer one", "Bearer one", "Bearer two"]


class Module(tf.Module):
    """A module with a remote op, which TensorFlow saves as a graph that calls Python."""

    def __init__(self, f: Callable[..., Any]) -> None:
        super().__init__()
        self.f = f

    @tf.function(input_signature=[tf.TensorSpec([3], tf.float64)])
    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return self.f(x)


def test_no_secret_is_in_graphs_and_files(secret, proxy, tmp_path: Path) -> None:
    f = pullback.tensorflow.remote("log1pexp", **secret)
    graph = tf.function(gradient(f)).get_concrete_function(tf.constant(X)).graph
    assert_no_secret(str(graph.as_graph_def()), graph.as_graph_def().SerializeToString(), repr(f), *pickles(f))
    module = Module(f)
    module(tf.constant(X))
    assert proxy.new("Authorization") == [f"Bearer {KEY}"]
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(module, str(tmp_path / "saved"), options=options)
    model = keras.Sequential([keras.Input([3]), keras.layers.Activation(f)])
    model.compile(jit_compile=False)
    model.save(tmp_path / "model.keras")
    files = [path.read_bytes() for path in (tmp_path / "saved").rglob("*") if path.is_file()]
    with zipfile.ZipFile(tmp_path / "model.keras") as archive:
        files += [archive.read(name) for name in archive.namelist()]
    assert len(files) > 4
    assert_no_secret(*filter(None, files))
    loaded = keras.models.load_model(tmp_path / "model.keras", custom_objects={"RemoteFunction": type(f)})
    np.testing.assert_allclose(loaded(X[None].astype("float32")), np.log1p(np.exp(X))[None], rtol=1e-6)


LOADED = """
import pickle, sys
from pathlib import Path
import tensorflow as tf
f = pickle.loads(Path(sys.argv[1]).read_bytes())
print(tf.function(f)(tf.constant([0.0])).numpy()[0].round(4))
"""


def test_a_pickle_has_the_key_of_the_environment_in_another_process(secret, proxy, python, tmp_path: Path) -> None:
    (tmp_path / "f.pickle").write_bytes(pickle.dumps(pullback.tensorflow.remote("log1pexp", **secret)))
    assert python(LOADED, tmp_path / "f.pickle", PULLBACK_KEY="theirs").split() == ["0.6931"]
    assert proxy.new("Authorization") == ["Bearer theirs"]
