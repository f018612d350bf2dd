"""The devices that requests may name, and the one they get when they name none."""

from collections.abc import Mapping

import tensorflow as tf

from app.errors import CannotStart

TENSORFLOW_VERSION: str = tf.__version__


def devices() -> dict[str, str]:
    """Return TensorFlow's device names by ours: ``cpu``, and ``gpu:0`` and so on where there are GPUs."""
    gpus = tf.config.list_logical_devices("GPU")
    return {"cpu": "/device:CPU:0"} | {f"gpu:{i}": f"/device:GPU:{i}" for i in range(len(gpus))}


def default_device(setting: str, known: Mapping[str, str]) -> str:
    """Return the device for requests that name none: ``auto`` is the first GPU where there is one.

    Raises ``CannotStart`` when the setting names one that is not there.
    """
    if setting == "auto":
        return "gpu:0" if "gpu:0" in known else "cpu"
    name = "gpu:0" if setting == "gpu" else setting
    if name not in known:
        raise CannotStart(f"PULLBACK_DEVICE: expected auto or one of {', '.join(known)}, got {setting}")
    return name
