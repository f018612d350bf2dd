"""Values of the parameters of an op: requests that put them on the service, and that get them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pullback import safetensors
from pullback.arrays import ArrayLike, array_or_json
from pullback.bodies import Body
from pullback.calls import Call, op_path, segment
from pullback.dtypes import Array
from pullback.limits import checked


def put(op: str, values: Mapping[str, ArrayLike], deadline: float | None) -> Call[str]:
    """Put values; the result is their digest."""
    arrays = {name: np.asarray(array_or_json(value, name)) for name, value in values.items()}
    body = Body(safetensors.MEDIA_TYPE, tuple(safetensors.write(arrays, "{}")))
    limit = checked("deadline", deadline)
    return Call(op_path(op, "parameters"), _digest, body, deadline=limit, may_repeat=True, verb="PUT")


def get(op: str, digest: str, deadline: float | None) -> Call[dict[str, Array]]:
    """Get the values with a digest."""
    path, limit = f"{op_path(op, 'parameters')}/{segment(digest)}", checked("deadline", deadline)
    return Call(path, dict, None, safetensors.MEDIA_TYPE, limit, may_repeat=True)


def _digest(document: Mapping[str, Any]) -> str:
    return str(document["digest"])
