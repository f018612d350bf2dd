"""Two answers to one request: the same numbers, or a finding."""

import base64
from typing import Any

import numpy as np
import pytest

from pullback.gradcheck.number_comparison import Tolerances
from pullback.recorder.answers import repeated


def encoded(*numbers: float) -> dict[str, Any]:
    buffer = base64.b64encode(np.array(numbers).tobytes()).decode()
    data = {"buffer": buffer, "encoding": "base64"}
    return {"object_type": "array", "shape": [len(numbers)], "dtype": "float64", "data": data}


@pytest.mark.parametrize(
    ("before", "now", "verdict"),
    [
        ({"output": [[1.0, 2.0]]}, {"output": [[1.0, 2.0]]}, "pass"),
        ({"output": [[1.0, 2.0]]}, {"output": [[1.0, 2.0 + 1e-7]]}, "pass"),
        ({"output": [[1.0, 2.0]]}, {"output": [[1.0, 2.1]]}, "fail"),
        ({"output": [[1.0, 2.0]]}, {"output": [[1.0, 2.0, 3.0]]}, "fail"),
        ({"output": [[1.0], [2.0, 3.0]]}, {"output": [[1.0], [2.0, 4.0]]}, "fail"),
        ({"output": [[1.0]]}, {"error": {"type": "x"}}, "fail"),
        ({"y": encoded(1.0, 2.0)}, {"y": encoded(1.0, 2.0)}, "pass"),
        ({"y": encoded(1.0, 2.0)}, {"y": encoded(1.0, -2.0)}, "fail"),
        ({"y": {"dtype": "float64", "shape": [1], "data": [1.0]}}, {"y": {"shape": [1], "data": [2.0]}}, "fail"),
        (
            {"id": "a", "outputs": [{"name": "y", "data": [1]}]},
            {"id": "b", "outputs": [{"name": "y", "data": [1]}]},
            "pass",
        ),
    ],
)
def test_repeated(before: Any, now: Any, verdict: str) -> None:
    assert repeated(before, now, "umbridge", Tolerances()).verdict == verdict
