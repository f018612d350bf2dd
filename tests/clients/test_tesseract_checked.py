"""``pullback check tesseract+http://...`` with Tesseract's own server, where the environment has it."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="under this Python, the environment has only Tesseract's client")

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
