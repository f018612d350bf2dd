"""Schemathesis, with all of its checks, against the OpenAPI document.

``make test-all`` sends few requests to a few paths; ``make schemathesis`` sends many to all.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, Start

pytestmark = pytest.mark.slow

CONFIG = Path(__file__).with_name("schemathesis.toml")
# A few paths, and a few examples of each: the other requests are the bounds of the schemas.
FEW, SOME = 4, r"^(/health/.*|/metrics|/v1/ops|/v1/ops/{op}|/v1/ops/{op}/forward|/v1/graphs.*)$"
LIMIT_S = 4 * 3600


@pytest.mark.schemathesis
def test_the_service_keeps_to_its_document(start: Start, pytestconfig: pytest.Config, tmp_path: Path):
    service = start().wait_until_ready()
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", CONFIG, "run", f"{service.url}/openapi.json"]
    examples = pytestconfig.getoption("--examples")
    selected = [] if examples else ["--include-path-regex", SOME]
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
