"""The command line: ``pullback serve``, where the service is installed and where it is not."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.conftest import ROOT, client_environment, needs_service
from tests.conftest import READY, environment
from tests.patience import PATIENCE_S


@needs_service
@pytest.mark.slow
def test_serve_runs_the_service_from_anywhere(tmp_path) -> None:
    (tmp_path / "app.py").write_text("raise SystemExit('the wrong app')\n")
    environ = environment() | {"PYTHONPATH": str(ROOT), "PULLBACK_URL": "http://x"}
    with subprocess.Popen(
        [sys.executable, "-m", "pullback", "serve", "--port", "0"],
        cwd=tmp_path,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout
        assert READY.match(running.stdout.readline())
        running.terminate()
        _, err = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0
    assert "PULLBACK_URL" not in err
    assert "is not a setting" not in err


def test_serve_without_the_service_says_how_to_get_it(tmp_path) -> None:
    shutil.copytree(ROOT / "pullback", tmp_path / "pullback", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pullback", "serve"],
        cwd=tmp_path,
        env=client_environment() | {"PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert 'pip install ".[serve]"' in done.stderr
    assert "make serve" in done.stderr
    assert Path(tmp_path / "pullback" / "cli" / "__init__.py").is_file()
