"""Schemathesis, with all of its checks, against both OpenAPI documents.

``make test-all`` sends few requests to a few paths of one document; ``make schemathesis`` sends many to all.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, Start

pytestmark = pytest.mark.slow

CONFIG = Path(__file__).with_name("schemathesis.toml")
# A few paths of each document, and a few examples of each: its other requests are the bounds of the schemas.
FEW = 4
ALL_OPS, EACH_OP = "/openapi.json", "/docs/openapi.json"
SOME = {
    ALL_OPS: r"^(/health/.*|/metrics|/v1/ops|/v1/ops/{op}|/v1/ops/{op}/forward|/v1/graphs.*)$",
    EACH_OP: r"^/v1/ops/(softmax_cross_entropy/forward|square/check)$",
}
LIMIT_S = 4 * 3600


@pytest.mark.schemathesis
@pytest.mark.parametrize("document", [ALL_OPS, pytest.param(EACH_OP, marks=pytest.mark.thorough)])
def test_the_service_keeps_to_its_document(start: Start, pytestconfig: pytest.Config, tmp_path: Path, document: str):
    service = start().wait_until_ready()
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", CONFIG, "run", f"{service.url}{document}"]
    examples = pytestconfig.getoption("--examples")
    selected = [] if examples else ["--include-path-regex", SOME[document]]
    done = subprocess.run(
        [*command, "--max-examples", str(examples or FEW), "--seed", "1", *selected],
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout[-20_000:]
