"""The devices that requests may name, the default device, and GPU memory limits."""

import logging
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from app.errors import CannotStart

log = logging.getLogger("pullback")

TENSORFLOW_VERSION: str = tf.__version__
BUILT_WITH_CUDA: bool = bool(tf.test.is_built_with_cuda())


def gpus() -> Sequence[tf.config.PhysicalDevice]:
    """Return the GPUs that TensorFlow sees."""
    return tf.config.list_physical_devices("GPU")


def share_gpus(limit_mb: int) -> None:
    """Allocate GPU memory only as needed, so that other processes can use the rest; 0 means no further limit.

    Call this before TensorFlow uses a GPU.
    """
    for gpu in gpus():
        if limit_mb:
            part = tf.config.LogicalDeviceConfiguration(memory_limit=limit_mb)
            tf.config.set_logical_device_configuration(gpu, [part])
        else:
            tf.config.experimental.set_memory_growth(gpu, True)


def devices() -> dict[str, str]:
    """Return TensorFlow's device names by ours: ``cpu``, and ``gpu:0`` and so on for each GPU."""
    gpus = tf.config.list_logical_devices("GPU")
    return {"cpu": "/device:CPU:0"} | {f"gpu:{i}": f"/device:GPU:{i}" for i in range(len(gpus))}


def default_device(setting: str, known: Mapping[str, str], why_not: Callable[[], str]) -> str:
    """Return the device for requests without one; ``auto`` is the first GPU, or the CPU if there is none.

    If TensorFlow is built for GPUs but finds none, logs a warning with the reason that ``why_not`` returns.

    Raises ``CannotStart`` if the setting names a device that does not exist.
    """
    if setting == "auto":
        if BUILT_WITH_CUDA and "gpu:0" not in known:
            log.warning("PULLBACK_DEVICE=auto: using the CPU, because no GPU is available: %s", why_not())
        return "gpu:0" if "gpu:0" in known else "cpu"
    name = "gpu:0" if setting == "gpu" else setting
    if name not in known:
        reason = f": {why_not()}" if name.startswith("gpu") else ""
        raise CannotStart(f"PULLBACK_DEVICE: expected auto or one of {', '.join(known)}, got {setting}{reason}")
    return name
