"""What `make test-all` leaves out, before a release: `make release-check`, or STEPS="thorough sanitize" of it.

The output of each session is in build/release-check/SESSION.log, and what became of all of them in report.json.
"""

import re
import subprocess
from pathlib import Path

import nox

nox.options.default_venv_backend = "uv"
nox.options.envdir = "build/nox"

PYTHON = ".venv/bin/python"
LOGS = Path("build/release-check")
LOGS.mkdir(parents=True, exist_ok=True)
LIMIT = ("timeout", "--signal=INT", "--kill-after=30", "3h")
# The import of tests that compare the client with the service, or need TensorFlow or OpenTelemetry.
OF_SERVICE = re.compile(r'^from (app|ops|opentelemetry)\b|import_module\("keras"', re.MULTILINE)


def run(session: nox.Session, *command: str | Path) -> None:
    """Run a command, whose output goes to the session's log, for some hours at most."""
    path = LOGS / f"{session.name}.log"
    session.log(f"the output is in {path}")
    with path.open("w") as log:
        session.run(*LIMIT, *command, external=True, stdout=log, stderr=subprocess.STDOUT)


def step(name: str, *target: str) -> None:
    """Add a session that makes a target."""

    @nox.session(name=name, venv_backend="none")
    def make(session: nox.Session) -> None:
        run(session, "make", *target)


step("thorough", "test-thorough")
step("sanitize", "sanitize")
step("trust", "trust")
step("mutants", "mutants")
step("schemathesis", "schemathesis", "EXAMPLES=20")
step("hostile", "hostile")
step("rows", "rows")
step("clients", "test-clients-full")
step("frameworks", "test-frameworks-full")
step("fleet", "test-fleet-full")
step("docs", "docs")


@nox.session(venv_backend="none")
def docker(session: nox.Session) -> None:
    """The service in containers."""
    if subprocess.run("${START_DOCKER:-:}; docker info", shell=True, capture_output=True, check=False).returncode:
        session.skip("no Docker engine answers `docker info`")
    run(session, "make", "docker-test")


@nox.session(python=["3.11", "3.12", "3.13"])
def service(session: nox.Session) -> None:
    """The tests of the service, in a clone of the last commit."""
    clone = Path(session.virtualenv.location, "clone")
    session.run("git", "clone", "--quiet", ".", clone, external=True)
    run(session, "make", "-C", clone, "test-service", f"PYTHON={session.bin}/python")


@nox.session(python="3.14")
def client(session: nox.Session) -> None:
    """The tests of the client that need no part of the service, in an environment that has none of it."""
    wheels = Path(session.virtualenv.location, "wheels")
    build = (PYTHON, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, ".")
    session.run(*build, external=True)
    session.install("--no-deps", "--require-hashes", "-r", "requirements/client.txt")
    session.install("--no-deps", *map(str, wheels.glob("*.whl")))
    files = [path for path in sorted(Path("tests/client").glob("test_*.py")) if not OF_SERVICE.search(path.read_text())]
    (wheels / "files").write_text("\n".join(map(str, files)))
    pytest = (f"{session.bin}/python", "-m", "pytest", f"@{wheels}/files", "-p", "no:cacheprovider", "-n", "2")
    run(session, PYTHON, "-m", "tests.environments", *pytest)


# They write the notebooks and the tables of the docs, which belong to a commit then.
step("tutorials", "tutorials")
step("bench", "bench")
step("bench-ops", "bench-ops")
step("bench-against", "bench-against")
