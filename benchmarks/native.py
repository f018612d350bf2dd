"""The C++ ops against alternatives, in one run and on the same threads: ``make bench``.

Every round calls each candidate once, in turn, so that other load on the machine affects all of them alike. A ratio is
the median of the rounds' ratios.

- ``roi_pool`` forward against onnxruntime's MaxRoiPool, features of [1, 64, 64, 256] (NCHW there), 300 regions, 7 x 7
  bins; and its gradient against its forward;
- ``zero_out``, ``relu`` and its gradient on 64 MB of float32 against a NumPy copy of 64 MB into memory that is new
  each time, like the results of the ops.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnxruntime
import tensorflow as tf
from onnx import TensorProto, helper

from ops import relu, roi_pool, zero_out

THREADS = 2
ROUNDS, WARM_UP, LIMIT_S = 40, 3, 60.0
IMAGE, STRIDE, REGIONS, BINS = (1, 64, 64, 256), 16, 300, 7
ELEMENTS = 1 << 24

Candidates = Mapping[str, Callable[[], Any]]
Times = dict[str, list[float]]


def measure(candidates: Candidates) -> Times:
    """Return the milliseconds of each candidate, for each round."""
    times: Times = {name: [] for name in candidates}
    end = time.perf_counter() + LIMIT_S
    for i in range(WARM_UP + ROUNDS):
        for name, call in candidates.items():
            start = time.perf_counter()
            call()
            if i >= WARM_UP:
                times[name].append(1e3 * (time.perf_counter() - start))
        if time.perf_counter() > end:
            break
    return times


def ratio(times: Times, one: str, other: str) -> float:
    """Return the time of ``one`` divided by that of ``other``."""
    return statistics.median(a / b for a, b in zip(times[one], times[other], strict=True))


def show(times: Times) -> None:
    """Print the medians and the minima."""
    for name, ms in times.items():
        print(f"  {name:<28} {statistics.median(ms):8.1f} ms   best {min(ms):8.1f} ms")


def judge(what: str, found: float, target: float, *, at_least: bool = False) -> None:
    """Print a ratio beside its target."""
    met = found >= target if at_least else found <= target
    word = "at least" if at_least else "at most"
    print(f"  {what:<46} {found:6.2f}   target: {word} {target:g}   {'met' if met else 'MISSED'}")


def regions(rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Draw rows (0, x1, y1, x2, y2) on the image of the features."""
    corners = np.sort(rng.uniform(0, IMAGE[1] * STRIDE, (REGIONS, 2, 2)), axis=1).reshape(REGIONS, 4)
    return np.concatenate([np.zeros((REGIONS, 1)), corners], axis=1).astype(np.float32)


def max_roi_pool() -> onnxruntime.InferenceSession:
    """Return an ONNX session with one MaxRoiPool."""
    n, h, w, c = IMAGE
    node = helper.make_node("MaxRoiPool", ["x", "rois"], ["y"], pooled_shape=[BINS, BINS], spatial_scale=1 / STRIDE)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [n, c, h, w])
    rois = helper.make_tensor_value_info("rois", TensorProto.FLOAT, [REGIONS, 5])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [REGIONS, c, BINS, BINS])
    graph = helper.make_graph([node], "roi_pool", [x, rois], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def bench_roi_pool(rng: np.random.Generator) -> None:
    """Measure roi_pool and MaxRoiPool."""
    features, rois = rng.normal(size=IMAGE).astype(np.float32), regions(rng)
    attrs = {"pooled_height": BINS, "pooled_width": BINS, "spatial_scale": 1 / STRIDE}
    x, r = tf.constant(features), tf.constant(rois)
    pooled, argmax = roi_pool.kernels.pullback_roi_pool(x, r, **attrs)
    dy = tf.constant(rng.normal(size=pooled.shape).astype(np.float32))
    session, nchw = max_roi_pool(), np.ascontiguousarray(np.moveaxis(features, 3, 1))

    def onnx() -> Any:
        return session.run(None, {"x": nchw, "rois": rois})[0]

    def forward() -> Any:
        return roi_pool.kernels.pullback_roi_pool(x, r, **attrs)

    def backward() -> Any:
        return roi_pool.kernels.pullback_roi_pool_grad(x, r, argmax, dy, **attrs)

    times = measure({"onnxruntime MaxRoiPool": onnx, "roi_pool": forward, "roi_pool gradient": backward})
    show(times)
    judge("forward, times as fast as onnxruntime", ratio(times, "onnxruntime MaxRoiPool", "roi_pool"), 4, at_least=True)
    judge("backward / forward", ratio(times, "roi_pool gradient", "roi_pool"), 1.5)
    differ = float((np.moveaxis(onnx(), 1, 3) != pooled.numpy()).mean())
    print(f"  {differ:.1e} of the numbers differ: bins are cut by exact integers here, in floating point there")


def bench_elementwise(rng: np.random.Generator) -> None:
    """Measure the elementwise kernels and a copy."""
    array = rng.normal(size=ELEMENTS).astype(np.float32)
    there, x = np.empty_like(array), tf.constant(array)
    copy = "NumPy copy"
    ours: Candidates = {
        "zero_out": lambda: zero_out.kernels.pullback_zero_out(x),
        "relu": lambda: relu.kernels.pullback_relu(x),
        "relu gradient": lambda: relu.kernels.pullback_relu_grad(x, x),
    }
    others: Candidates = {copy: array.copy, "NumPy copy, memory there": lambda: np.copyto(there, array)}
    times = measure({**others, **ours})
    show(times)
    for name in ours:
        judge(f"{name} / copy", ratio(times, name, copy), 1.2)


def main() -> None:
    """Run all benchmarks."""
    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
    rng = np.random.default_rng(0)
    print(f"TensorFlow {tf.__version__}, onnxruntime {onnxruntime.__version__}, {THREADS} threads")
    for what, bench in (
        (f"roi_pool: features {list(IMAGE)}, {REGIONS} regions, {BINS} x {BINS}", bench_roi_pool),
        (f"elementwise: {4 * ELEMENTS >> 20} MB of float32", bench_elementwise),
    ):
        print(f"{what} (up to {LIMIT_S:.0f} s)", flush=True)
        bench(rng)


if __name__ == "__main__":
    main()
