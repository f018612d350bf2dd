"""Ops of models: values and gradients are those of the model itself, in every mode; names, and what is refused."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.autodiff.absent import Absent
from app.autodiff.admission import admit
from app.autodiff.binding import bind
from app.autodiff.derived import variant_of
from app.tensors.json import decode
from ops import MODES, Example, Input, Mode, Op, Output, Parameter, discover
from tests.ops.cases import DEVICE, answer

pytestmark = pytest.mark.slow

ROW = [[0.5, -1.0, 2.0], [0.25, 1.0, -1.0]]


class Layer(tf.Module):
    """tanh(x w + b)."""

    def __init__(self, n: int, m: int) -> None:
        super().__init__()
        self.w = tf.Variable(tf.random.stateless_normal((n, m), (1, m)))
        self.b = tf.Variable(tf.zeros([m]))

    def __call__(self, x):
        return tf.tanh(x @ self.w + self.b)


class Network(tf.Module):
    """Variables in attributes, a list and a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [Layer(3, 4), Layer(4, 2)]
        self.last = {"scale": tf.Variable(2.0)}

    @tf.function
    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.last["scale"] * x


class Compiled(tf.Module):
    """A part that is a function of TensorFlow."""

    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(2.0)

    @tf.function
    def scaled(self, x):
        return self.w * x

    def __call__(self, x):
        return self.scaled(x)


class Hidden(tf.Module):
    """A variable in a tuple, which cannot change."""

    def __init__(self) -> None:
        super().__init__()
        self.w = (tf.Variable(2.0),)

    def __call__(self, x):
        return self.w[0] * x


def sequential() -> Any:
    keras.utils.set_random_seed(0)
    layers = (keras.layers.Dense(4, activation="tanh"), keras.layers.BatchNormalization(), keras.layers.Dense(2))
    return keras.Sequential([keras.Input((3,)), *layers])


def of_keras(model: Any, **inputs: Any) -> Op:
    op = Op.from_keras(model, name="net", summary="a test", examples=(Example("one", inputs),))
    admit(op)
    return op


def of_module(module: tf.Module) -> Op:
    slots = {"inputs": (Input("x", ("float32",), ("N", 3)),), "outputs": (Output("y", ("float32",), ("N", 2)),)}
    op = Op.from_module(module, name="net", summary="a test", examples=(Example("one", {"x": ROW}),), **slots)
    admit(op)
    return op


def found(op: Op, mode: Mode) -> dict[str, Any]:
    """Return the outputs, and the gradients of both orders, at the first example."""
    [example] = op.examples
    at = variant_of(op, dict.fromkeys(example.inputs))
    return answer(
        bind(at, example.inputs, {}, None, decode, mode=mode, device=DEVICE, max_elements=1 << 20), "gradients", {}
    )


def expected(model: Any, variables: list[Any], *xs: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the outputs, and the gradients of both orders, by tapes around the model itself."""
    floats = [x for x in xs if x.dtype.is_floating]
    with tf.GradientTape() as second:
        second.watch([*floats, *variables])
        with tf.GradientTape() as first:
            first.watch([*floats, *variables])
            ys = tf.nest.flatten(model(xs[0] if len(xs) == 1 else list(xs)))
        once = first.gradient(ys, [*floats, *variables])
        total = tf.add_n([tf.reduce_sum(tf.convert_to_tensor(each)) for each in once])
    return ys, once, second.gradient(total, [*floats, *variables])


def assert_same(op: Op, mode: Mode, model: Any, variables: list[Any], *xs: Any) -> None:
    results = found(op, mode)
    names = [*(slot.name for slot in op.inputs if slot.differentiable), *(each.name for each in op.parameters)]
    ys, *levels = expected(model, variables, *xs)
    for slot, y in zip(op.outputs, ys, strict=True):
        np.testing.assert_allclose(results[f"outputs/{slot.name}"], y, rtol=1e-4, atol=1e-5)
    for level, wanted in enumerate(levels):
        for name, x in zip(names, wanted, strict=True):
            y = results[f"gradients/{level}/{name}"]
            y = np.zeros(x.shape) if isinstance(y, Absent) and x is not None else y
            if x is None:
                assert isinstance(y, Absent) or not np.any(y)
            else:
                np.testing.assert_allclose(y, tf.convert_to_tensor(x), rtol=1e-4, atol=1e-5, err_msg=f"{level} {name}")


@pytest.mark.parametrize("mode", MODES)
def test_a_keras_model_has_its_values_and_gradients_in_every_mode(mode: Mode) -> None:
    model = sequential()
    op = of_keras(model, x=ROW)
    assert [(slot.name, slot.shape) for slot in (*op.inputs, *op.outputs)] == [("x", ("N", 3)), ("y", ("N", 2))]
    assert_same(op, mode, model, [weight.value for weight in model.weights], tf.constant(ROW))


@pytest.mark.parametrize("mode", MODES)
def test_a_module_has_its_values_and_gradients_in_every_mode(mode: Mode) -> None:
    module = Network()
    op = of_module(module)
    names = [each.name for each in op.parameters]
    assert names == ["last_scale", "layers_0_b", "layers_0_w", "layers_1_b", "layers_1_w"]
    variables = [module.last["scale"], *(v for layer in module.layers for v in (layer.b, layer.w))]
    assert_same(op, mode, module, variables, tf.constant(ROW))
    assert isinstance(module.layers[0].w, tf.Variable), "the module has its variables again"


def test_a_model_with_two_inputs_an_embedding_and_a_recurrent_layer() -> None:
    keras.utils.set_random_seed(0)
    a, b = keras.Input((2, 3)), keras.Input((2,), dtype="int32")
    dense = keras.layers.Dense(3)
    last = keras.layers.LSTM(3)(dense(a) + dense(keras.layers.Embedding(5, 3)(b)))
    model = keras.Model([a, b], [keras.layers.Dense(1)(last), last])
    x0, x1 = [ROW], [[0, 4]]
    op = of_keras(model, x0=x0, x1=x1)
    assert [slot.name for slot in (*op.inputs, *op.outputs)] == ["x0", "x1", "y0", "y1"]
    variables = [weight.value for weight in model.weights]
    for mode in ("graph", "eager"):
        assert_same(op, mode, model, variables, tf.constant(x0), tf.constant(x1))


class Noise(keras.layers.Layer):
    """Noise at inference too."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = keras.random.SeedGenerator(1)

    def call(self, x: Any) -> Any:
        return x + keras.random.normal(keras.ops.shape(x), seed=self.generator)


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_recurrent_layers_with_dropout_drop_nothing_at_inference(mode: Mode) -> None:
    keras.utils.set_random_seed(0)
    layers = keras.layers.Bidirectional(keras.layers.GRU(2, dropout=0.5, recurrent_dropout=0.5)), keras.layers.Dense(1)
    model = keras.Sequential([keras.Input((2, 3)), *layers])
    variables = [weight.value for weight in model.weights]
    assert_same(of_keras(model, x=[ROW]), mode, model, variables, tf.constant([ROW]))


def test_a_layer_that_draws_what_it_uses_is_refused() -> None:
    model = keras.Sequential([keras.Input((2, 3)), keras.layers.LSTM(2, dropout=0.5), Noise()])
    with pytest.raises(ValueError, match=r"the op reads .*seed_generator_state \(a variable\)"):
        of_keras(model, x=[ROW])


def test_names_are_those_of_the_model_and_do_not_hide_each_other() -> None:
    image, other = keras.Input((3,), name="Image"), keras.Input((3,), name="dense kernel")
    y = keras.layers.Dense(1, name="dense")(keras.layers.Add()([image, other]))
    model = keras.Model({"Image": image, "dense kernel": other}, {"score": y, "double": 2 * y})
    op = of_keras(model, image=ROW, dense_kernel=ROW)
    assert [slot.name for slot in (*op.inputs, *op.outputs)] == ["image", "dense_kernel", "double", "score"]
    assert [each.name for each in op.parameters] == ["dense_kernel_1", "dense_bias"]
    assert np.allclose(2 * found(op, "graph")["outputs/score"], found(op, "graph")["outputs/double"])


PAGE = """
import keras
from ops import Example, Op
MODEL = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.Dense(1)])
OP = Op.from_keras(MODEL, name="NAME", summary="s", examples=(Example("one", {"x": [[1.0, 2.0, 3.0]]}),))
"""


def test_names_of_parameters_do_not_depend_on_other_pages(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / f"{name}.py").write_text(PAGE.replace("NAME", name))
    ops = discover([tmp_path], admit).ops
    for name in ("first", "second"):
        names = [each.name for each in ops[name].parameters]
        assert names == ["dense_kernel", "dense_bias", "dense_1_kernel", "dense_1_bias"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: of_keras(keras.Sequential([keras.layers.Dense(1)]), x=ROW), "keras.Input"),
        (lambda: of_keras(3, x=ROW), "expected a built Keras model"),
        (lambda: of_module(Compiled()), "Compiled.scaled without @tf.function"),
        (lambda: of_module(Hidden()), "expected variables that are attributes"),
        (lambda: Op.from_module(Network(), name="n", summary="s", examples=()), "expected inputs and outputs"),
        (lambda: of_module(tf.Module()), "__call__"),
    ],
)
def test_what_is_no_op_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32", "bool"])
@pytest.mark.parametrize("value", [[1.0, -2.0, 3.0], [0.0, 2.0], [0.0, 0.0], [-3.0, -1.0], [], 2.0])
def test_a_parameter_is_in_place_for_tensorflow_and_its_range_is_that_around_it(value: Any, dtype: str) -> None:
    own = Parameter("w", np.asarray(value, tf.dtypes.as_dtype(dtype).as_numpy_dtype))
    assert own.value.ctypes.data % 64 == 0 or not own.value.size
    assert own.value.tolist() == np.asarray(value, own.value.dtype).tolist()
    ends = np.concatenate([np.ravel(own.around(np.full(own.value.shape, end))) for end in (0.0, 1.0)])
    low, high = own.slot.domain
    expected = [ends.min(), ends.max()] if ends.size else [0.0, 1.0]
    np.testing.assert_allclose([low, high], expected if expected[0] < expected[1] else [low, low + 1])
