"""``pullback check oip+http://...`` with pairs of models on MLServer."""

import socket
import sys
from pathlib import Path

import pytest

MODELS = Path(__file__).with_name("mlserver_models.py")


@pytest.fixture(scope="module")
def stock(start):
    with socket.create_server(("127.0.0.1", 0)) as free:
        grpc_port = str(free.getsockname()[1])
    return start(sys.executable, "-P", str(MODELS), "PORT", grpc_port, ready="/v2/health/ready")


@pytest.mark.parametrize("budget", ["300", "40", "5"])
def test_a_pair_with_metadata(check, stock, budget):
    found = check(f"oip+{stock}/right", "--budget", budget)
    assert found.code == 0, found.out


def test_a_pair_without_metadata_needs_a_point(check, stock):
    code, out = check(f"oip+{stock}/flipped")
    assert code == 2
    assert "give --inputs" in out
    code, out = check(f"oip+{stock}/flipped", "--inputs", '{"x": [1, -2, 3]}', "--budget", "300")
    assert code == 1
    assert "the sign is flipped" in out


def test_a_model_without_its_vjp(check, stock):
    code, out = check(f"oip+{stock}/alone")
    assert code == 2
    assert "serve its vector-Jacobian product as alone.vjp" in out
