"""``pullback check tesseract+http://...`` with Tesseract's own server, where the environment has it."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="under this Python, the environment has only Tesseract's client")

APPLICATION = """
import os
from tesseract_core import Tesseract
model = Tesseract.from_url(os.environ["PULLBACK_RECORDED_URL"])
for i in range(20):
    inputs = {"x": [0.1 * i, -2.0, 1.0], "parameters": {"a": 3.0}, "label": "here"}
    model.apply(inputs)
    model.vector_jacobian_product(inputs, ["x"], ["y"], {"y": [1.0, 2.0, 3.0]})
"""
MODEL = Path(__file__).with_name("tesseract_model.py")


@pytest.mark.parametrize(("factor", "code"), [("1", 0), ("1.09", 1), ("-1", 1)])
def test_a_tesseract(check, start, tmp_path, factor, code):
    runtime = Path(sys.executable).with_name("tesseract-runtime")
    variables = {"TESSERACT_API_PATH": str(MODEL), "TESSERACT_OUTPUT_PATH": str(tmp_path), "FACTOR": factor}
    command = [str(runtime), "serve", "--host", "127.0.0.1", "--port", "PORT"]
    url = start(*command, ready="/health", **variables)
    for budget in ("300", "40"):
        found = check(f"tesseract+{url}", "--budget", budget)
        assert found.code == code, found.out
    point = '{"x": [1, -2], "parameters": {"a": 3}, "label": "here"}'
    found = check(f"tesseract+{url}", "--budget", "150", "--inputs", point)
    assert found.code == code, found.out
    found = check(f"tesseract+{url}", "--sample", "4", "--", sys.executable, "-c", APPLICATION, command="record")
    assert found.code == code, found.out
    assert "4 inputs of 40 requests, drawn at random" in found.out
