"""SavedModels as ops: values and gradients are those of what was saved, in every mode; what is refused, and why."""

import shutil
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from app.autodiff.admission import admit
from app.autodiff.binding import bind
from app.autodiff.derived import variant_of
from app.tensors.json import decode
from ops import MODES, Example, Mode, Op
from tests.ops.cases import DEVICE, answer
from tests.ops.doubled import ROW, save_doubled


@pytest.fixture(scope="module")
def doubled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two SavedModels, with and without their custom gradients."""
    path = tmp_path_factory.mktemp("doubled")
    save_doubled(path)
    return path


class Stateful(tf.Module):
    """Functions that no op may have."""

    def __init__(self) -> None:
        super().__init__()
        self.count = tf.Variable(1.0)

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def counted(self, x):
        return x * self.count.assign_add(1.0)

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def python(self, x):
        return tf.numpy_function(np.tanh, [x], tf.float32)

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def noisy(self, x):
        return x + tf.random.normal(tf.shape(x))

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def filed(self, x):
        return x + tf.strings.to_number(tf.io.read_file("/etc/hostname"))

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def branching(self, x):
        tf.print("not part of the value", x)
        y = tf.while_loop(lambda y: tf.reduce_sum(y) < 100.0, lambda y: [y * y + self.count], [tf.abs(x)])[0]
        return tf.cond(tf.reduce_sum(x) > 0.0, lambda: y, lambda: self.count * y)


def op_of(folder: Path, **fields: Any) -> Op:
    op = Op.from_saved_model(folder, name="net", summary="a test", examples=(Example("one", {"x": ROW}),), **fields)
    admit(op)
    return op


def found(op: Op, mode: Mode, order: int = 2, x: Any = ROW) -> dict[str, Any]:
    """Return the outputs, and the gradients up to an order in x and the parameters."""
    at = variant_of(op, {"x": None})
    point = bind(at, {"x": x}, {}, None, decode, mode=mode, device=DEVICE, max_elements=1 << 20)
    return answer(point, "gradients", {}, order)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A Keras model, and the folder that it was exported to."""
    keras.utils.set_random_seed(0)
    layers = (keras.layers.Dense(4, activation="tanh"), keras.layers.BatchNormalization(), keras.layers.Dense(2))
    model = keras.Sequential([keras.Input((3,)), *layers])
    path = tmp_path_factory.mktemp("exported")
    model.export(path, verbose=False)
    return path, model


@pytest.mark.parametrize("mode", MODES)
def test_an_exported_model_has_every_order_of_the_model(exported: tuple[Path, Any], mode: Mode) -> None:
    path, model = exported
    op = op_of(path)
    own = Op.from_keras(model, name="net", summary="a test", examples=op.examples)
    assert op.source.startswith("a SavedModel of TensorFlow")
    assert [(slot.name, slot.shape) for slot in (*op.inputs, *op.outputs)] == [("x", ("N", 3)), ("y", ("N", 2))]
    assert {each.name for each in op.parameters} == {each.name for each in own.parameters}
    one, other = found(op, mode, 4), found(own, mode, 4)
    assert one.keys() == other.keys()
    scale = max(float(np.abs(x).max()) for x in other.values() if isinstance(x, np.ndarray))
    for name, x in other.items():
        if isinstance(x, np.ndarray):
            np.testing.assert_allclose(one[name], x, rtol=1e-4, atol=1e-5 * scale, err_msg=name)
        else:
            assert one[name] == x


@pytest.mark.parametrize("mode", MODES)
def test_saved_gradients_are_honoured_where_they_were_saved(doubled: Path, mode: Mode) -> None:
    one, other = op_of(doubled / "with_gradients"), op_of(doubled / "without")
    assert one.source.endswith(", with its custom gradients")
    assert other.source.endswith(", saved without some of its custom gradients")
    assert [each.name for each in one.parameters] == ["weights"]
    own, true = found(one, mode), found(other, mode)
    for name, factor in {"outputs/y": 1, "gradients/0/x": 2, "gradients/0/weights": 3}.items():
        np.testing.assert_allclose(own[name], factor * true[name], rtol=1e-5, err_msg=name)

    # The second order is the derivative of the first one that was saved.
    with tf.GradientTape() as tape:
        x, w = tf.constant(ROW), tf.constant(one.parameters[0].value)
        tape.watch([x, w])
        y = tf.tanh(1.5 * x @ w)
        inner = 1 - y * y
        total = tf.reduce_sum(3 * inner @ tf.transpose(w)) + tf.reduce_sum(3 * tf.transpose(1.5 * x) @ inner)
    for name, expected in zip(("x", "weights"), tape.gradient(total, [x, w]), strict=True):
        np.testing.assert_allclose(own[f"gradients/1/{name}"], tf.convert_to_tensor(expected), rtol=1e-4, atol=1e-6)


@pytest.fixture(scope="module")
def stateful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, module = tmp_path_factory.mktemp("stateful"), Stateful()
    names = ("counted", "python", "noisy", "filed", "branching")
    tf.saved_model.save(module, str(path), signatures={name: getattr(module, name) for name in names})
    return path


REFUSED = {
    "counted": "AssignAddVariableOp at .* has state",
    "python": "PyFunc at .* runs Python",
    "noisy": "RandomStandardNormal at .* has state",
    "filed": "ReadFile at .* (works with text or files|has state)",
    "none": "expected one of the signatures branching, counted, filed, noisy, python, got 'none'",
    "__saved_model_init_op": "expected one of the signatures",
}


@pytest.mark.parametrize("signature", REFUSED)
def test_what_is_no_op_is_refused(stateful: Path, signature: str) -> None:
    with pytest.raises(ValueError, match=REFUSED[signature]):
        op_of(stateful, signature=signature)


@pytest.mark.parametrize("mode", ["graph", "eager", "v1"])
def test_loops_and_branches(stateful: Path, mode: Mode) -> None:
    x = tf.constant(ROW)
    module = Stateful()
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = module.branching(x)
    one = found(op_of(stateful, signature="branching"), mode, 1)
    np.testing.assert_allclose(one["outputs/y"], y, rtol=1e-5)
    np.testing.assert_allclose(one["gradients/0/x"], tape.gradient(y, [x, module.count])[0], rtol=1e-4)


def test_a_folder_without_a_model(tmp_path: Path, exported: tuple[Path, Any]) -> None:
    with pytest.raises(ValueError, match=r"expected a folder with saved_model\.pb"):
        op_of(tmp_path)
    (tmp_path / "saved_model.pb").write_bytes(b"\x00garbage")
    with pytest.raises(ValueError, match="expected a SavedModel"):
        op_of(tmp_path)
    whole = (exported[0] / "saved_model.pb").read_bytes()
    (tmp_path / "saved_model.pb").write_bytes(whole)
    with pytest.raises(ValueError, match="expected its variables in variables/variables"):
        op_of(tmp_path)
    (tmp_path / "variables").symlink_to(exported[0] / "variables")
    (tmp_path / "saved_model.pb").write_bytes(whole.replace(b"MatMul", b"NatMul"))
    with pytest.raises(ValueError, match=r"NatMul at .* is not one of TensorFlow"):
        op_of(tmp_path)


def test_a_model_of_a_later_tensorflow(tmp_path: Path, exported: tuple[Path, Any]) -> None:
    shutil.copytree(exported[0], tmp_path, dirs_exist_ok=True)
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((tmp_path / "saved_model.pb").read_bytes())
    [graph] = saved.meta_graphs
    nodes = [node for each in graph.graph_def.library.function for node in each.node_def if node.op == "MatMul"]
    for node in nodes:
        node.attr["transpose_c"].b = True
    (tmp_path / "saved_model.pb").write_bytes(saved.SerializeToString())
    with pytest.raises(ValueError, match=r"MatMul at .* is known to TensorFlow [\d.]+ without transpose_c"):
        op_of(tmp_path)
    graph.graph_def.versions.min_consumer = 9999
    graph.meta_info_def.tensorflow_version = "3.1.4"
    (tmp_path / "saved_model.pb").write_bytes(saved.SerializeToString())
    expected = r"expected graphs up to version \d+, .* got one of TensorFlow 3\.1\.4, whose graph needs version 9999"
    with pytest.raises(ValueError, match=expected):
        op_of(tmp_path)
