"""Build the CPU image, start it as Compose does, and test it: ``python -m tests.docker.image_check [OPTION...]``.

The options are those of ``docker build``. Nothing is done where all that the image is made of is as it was when it last
passed. ``START_DOCKER`` may name a command that starts a Docker engine and provides the base image; without an engine,
the test is skipped. The exit status is 0 in both cases, and 1 when the image cannot be built or a test fails.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.conftest import ROOT
from tests.docker.context import digest_of

PASSED = ROOT / "build" / "image-check"
TESTS = "tests/docker/test_started_image.py"


def main(*options: str) -> int:
    """Test the image if it has changed, and return the exit status."""
    digest = digest_of(ROOT)
    if PASSED.exists() and PASSED.read_text() == digest:
        print("The image is made of the same files as when it last passed.")
        return 0
    PASSED.unlink(missing_ok=True)
    if reason := lacking():
        print(f"SKIPPED the test of the image: {reason}.")
        return 0
    image = built(*options)
    test = [sys.executable, "-m", "pytest", TESTS, "-m", "docker", "--image", image]
    if not image or subprocess.run(test, cwd=ROOT, check=False).returncode:
        print("The image cannot be built, or a test of it failed: see above.")
        return 1
    PASSED.parent.mkdir(exist_ok=True)
    PASSED.write_text(digest)
    return 0


def lacking() -> str:
    """Start an engine, if a command for it is given; return what is missing to build and start an image, or ""."""
    if command := os.environ.get("START_DOCKER"):
        subprocess.run(shlex.split(command), check=False)
    if not shutil.which("docker"):
        return "there is no command docker"
    if not succeeds("docker", "info"):
        return "no Docker engine answers `docker info`"
    if not succeeds("docker", "compose", "version") and not shutil.which("docker-compose"):
        return "there is neither `docker compose` nor docker-compose"
    return ""


def succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def built(*options: str) -> str:
    """Build the image without a tag, and return its id, "" if that fails."""
    with TemporaryDirectory() as folder:
        id_file = Path(folder, "id")
        build = ["docker", "build", *options, "--target", "cpu", "--iidfile", str(id_file), "."]
        return id_file.read_text() if not subprocess.run(build, cwd=ROOT, check=False).returncode else ""


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
