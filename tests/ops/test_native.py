"""C++ ops: their libraries, the device of their kernels, and tests of the small ops beyond the table of tests."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ops import discover, relu, zero_out, zero_out_indexed
from pullback.ops import _native
from pullback.ops._native import NotBuilt, load
from tests.conftest import READY, ROOT, client_of, environment
from tests.ops.cases import REGISTRY, Case
from tests.ops.places import by_gradients
from tests.patience import PATIENCE_S

LENGTHS = (0, 1, 7, 8, 9, 31, 1000, 100_003)
NATIVE = [op for op in REGISTRY.ops.values() if Path("ops", f"{op.name}.cc").exists()]


@pytest.fixture
def elsewhere(tmp_path, monkeypatch) -> Path:
    """An empty folder in place of build/."""
    monkeypatch.setattr(_native, "BUILD", tmp_path)
    return tmp_path


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_relu_is_right_at_every_length_and_number(length, dtype) -> None:
    rng = np.random.default_rng(length)
    x = rng.choice(np.array([-np.inf, -1.5, -0.0, 0.0, np.finfo(dtype).tiny, 2.5, np.inf, np.nan], dtype), length)
    dy = rng.normal(size=length).astype(dtype)
    y, dx = relu.kernels.pullback_relu(x), relu.kernels.pullback_relu_grad(dy, x)
    np.testing.assert_array_equal(y, np.maximum(x, 0))
    np.testing.assert_array_equal(dx, np.where(x <= 0, 0, dy))
    assert not np.signbit(y).any() or np.isnan(y[np.signbit(y)]).all()


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_zero_out_is_right_at_every_length(length, dtype) -> None:
    x = np.arange(3, 3 + length).astype(dtype)
    expected, index = zero_out_indexed.reference(x)
    np.testing.assert_array_equal(zero_out.kernels.pullback_zero_out(x), expected)
    for actual, desired in zip(zero_out_indexed.kernels.pullback_zero_out_indexed(x), (expected, index), strict=True):
        np.testing.assert_array_equal(actual, desired)


def test_an_input_is_not_written_to() -> None:
    """A kernel may reuse the memory of an input only if nothing else refers to it."""
    x = tf.constant([3.0, -1.0, 2.0])
    zero_out.kernels.pullback_zero_out(x)
    relu.kernels.pullback_relu(x)
    relu.kernels.pullback_relu_grad(x, x)
    assert x.numpy().tolist() == [3.0, -1.0, 2.0]


def test_relu_grad_refuses_a_cotangent_of_another_shape() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"dy: expected the shape of x, \[3\], got \[2\]"):
        relu.kernels.pullback_relu_grad([1.0, 2.0], [1.0, 2.0, 3.0])


def test_no_python_registry_has_the_gradient_of_relu() -> None:
    """So ``vjp`` can only get the gradient that C++ registers."""
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [3])
        with pytest.raises(LookupError, match=r"No gradient defined for operation.*PullbackRelu"):
            tf.gradients(relu.kernels.pullback_relu(x), x)
    with tf.GradientTape() as tape:
        x = tf.constant([-1.0, 2.0])
        tape.watch(x)
        y = relu.OP.function(x)
    assert tape.gradient(y, x, output_gradients=tf.constant([3.0, 5.0])).numpy().tolist() == [0.0, 5.0]


@pytest.mark.parametrize("op", NATIVE, ids=lambda op: op.name)
def test_kernels_are_placed_on_the_cpu_beside_ops_of_a_gpu(op) -> None:
    """A graph records the placement when it is built, which needs no GPU."""
    point = Case(op, op.examples[0]).point(op.dtypes[0])
    with tf.Graph().as_default() as graph, tf.device("/device:GPU:0"):
        xs = [tf.compat.v1.placeholder(x.dtype, x.shape) for x in point.inputs.values()]
        numbers = {name: tf.constant(value, xs[0].dtype) for name, value in point.spec.attrs.numbers().items()}
        ys = op.function(*(x * 2 for x in xs), **point.spec.attrs.static(), **numbers)
        by_gradients(lambda _: ys[0] if isinstance(ys, tuple) else ys, xs[0], 1)
    ours = [o for o in graph.get_operations() if o.type.startswith("Pullback")]
    assert ours
    assert all(o.device.endswith("CPU:0") for o in ours)
    assert any(o.device.endswith("GPU:0") for o in graph.get_operations() if o.type == "Mul")


def test_a_page_without_its_library_is_unavailable_with_the_cure(tmp_path, elsewhere) -> None:
    shutil.copy("ops/relu.py", tmp_path / "not_built.py")
    registry = discover([tmp_path])
    assert "square" in registry.ops
    (missing,) = registry.unavailable
    assert missing.name == "not_built"
    folder = tmp_path.name
    assert missing.reason == (
        f"NotBuilt: {folder}/build/not_built.so is missing; run pullback native {folder} and start again"
    )


def test_a_library_for_another_tensorflow_is_refused(elsewhere) -> None:
    (elsewhere / "old.so").touch()
    (elsewhere / "tensorflow.flags").write_text("2.5.0\n-I...\n")
    with pytest.raises(NotBuilt, match=r"old\.so is for TensorFlow 2\.5\.0, not for 2\..*pullback native"):
        load("old.py")


def test_a_library_that_does_not_load_is_refused(elsewhere) -> None:
    (elsewhere / "torn.so").write_bytes(b"\x7fELF, and no more")
    with pytest.raises(NotBuilt, match=r"torn\.so does not load: .*pullback native"):
        load("torn.py")


def test_two_pages_of_one_stem_do_not_share_a_library(tmp_path, monkeypatch) -> None:
    """The library is one of the two, and may have other kernels than the second page needs."""
    shutil.copy("ops/relu.py", tmp_path / "relu.py")
    (refused,) = discover([tmp_path]).unavailable
    assert "build/relu.so is the library of another page: ops/relu.py has loaded it; rename one" in refused.reason


@pytest.fixture
def uncompilable(tmp_path) -> Iterator[Path]:
    """A folder with a source that does not compile, and a library of its earlier version."""
    (tmp_path / "uncompilable.cc").write_text("int broken(\n")
    (tmp_path / "uncompilable.py").write_text("from ops import load\nload(__file__)\n")
    library = ROOT / "build" / "uncompilable.so"
    library.write_bytes(b"of an earlier version")
    os.utime(library, (0, 0))
    yield tmp_path
    library.unlink(missing_ok=True)


def made(target: str, folder: Path, **options: Any) -> subprocess.Popen[str]:
    env = {name: value for name, value in environment(OPS_PATH=str(folder)).items() if not name.startswith("MAKE")}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(["make", target], cwd=ROOT, env=env, **pipes, **options)


def test_a_source_that_does_not_compile_fails_make_native(uncompilable) -> None:
    with made("native", uncompilable) as make:
        _, errors = make.communicate(timeout=PATIENCE_S)
    assert make.returncode == 2
    assert "uncompilable.cc:2:1: error" in errors or "uncompilable.cc:1:" in errors
    assert not (ROOT / "build" / "uncompilable.so").exists()


@pytest.mark.slow
def test_a_source_that_does_not_compile_does_not_stop_make_serve(uncompilable) -> None:
    with made("serve", uncompilable, start_new_session=True) as make:
        assert make.stdout
        try:
            lines = iter(make.stdout.readline, "")
            url = next(match[1] for line in lines if (match := READY.match(line)))
            with client_of(url) as client:
                [broken] = client.get("/health/ready").json()["unavailable"]
        finally:
            os.killpg(make.pid, signal.SIGTERM)
            _, errors = make.communicate(timeout=PATIENCE_S)
    assert broken["op"] == "uncompilable"
    assert "build/uncompilable.so is missing; run pullback native" in broken["reason"]
    assert "uncompilable.cc:" in errors
    assert "Some C++ ops are not built" in errors


def test_sources_of_one_name_fail_make_native_and_no_other_target(tmp_path) -> None:
    shutil.copy("ops/relu.cc", tmp_path / "relu.cc")
    for target, code in (("native", 2), ("help", 0)):
        with made(target, tmp_path) as make:
            _, errors = make.communicate(timeout=PATIENCE_S)
        assert make.returncode == code
        assert ("Expected one C++ file of a name" in errors) == (code != 0)
