"""Run what ``make test-all`` leaves out, and record what passed: ``python -m tests.release_check [STEP...]``.

The steps run one after the other. The table, which is printed at the end, and the output of each step are in
``build/release-check``. A step that needs something that this machine lacks is skipped, with the reason. The exit
status is 1 if any step fails or does not end.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT
from tests.docker import image_check

FOLDER = ROOT / "build" / "release-check"
LIMIT_S = 3 * 3600
GRACE_S = 30


class Lacking(Exception):
    """The machine lacks what a step needs; the message is the reason in the table."""


@dataclass(frozen=True)
class Step:
    """A step: its name, and a function that returns its shell command or raises ``Lacking``."""

    name: str
    command: Callable[[], str]


@dataclass(frozen=True)
class Result:
    """What became of a step: passed, failed, skipped or not run, and why or how long it took."""

    step: str
    result: str
    details: str


def make(target: str) -> Callable[[], str]:
    return lambda: f"make {target}"


def docker_test() -> str:
    """Return the command, if there is Docker."""
    if reason := image_check.lacking():
        raise Lacking(reason)
    return "make docker-test"


def on_python(minor: str) -> Callable[[], str]:
    """Return the step that tests a clone of the last commit with another Python, in a new environment."""

    def command() -> str:
        python, clone = interpreter(minor), FOLDER / f"clone-{minor}"
        return f"rm -rf '{clone}' && git clone --quiet . '{clone}' && make -C '{clone}' test-service PYTHON='{python}'"

    return command


def client_on(minor: str) -> Callable[[], str]:
    """Return the step that tests the client alone with a Python that the service does not run with."""

    def command() -> str:
        return f"make test-client-alone ALONE='{interpreter(minor)}'"

    return command


def interpreter(minor: str) -> str:
    """Return the path of a Python of a minor version: from the PATH, or from uv, which may have to download it.

    Raises ``Lacking`` with the reason why uv cannot.
    """
    # make installs uv next to this Python, unless only pip works here.
    uv = [str(Path(sys.executable).with_name("uv")), "python"]
    find = [*uv, "find", "--managed-python", minor]
    own = {"UV_PYTHON_INSTALL_DIR": str(FOLDER / "pythons")}
    # The PATH may have a command of that name that only says how to get Python, as pyenv's.
    found = printed([f"python{minor}", "-c", "import sys; print(sys.executable)"])[0] or printed(find)[0]
    if found:
        return found
    _, reason = printed([*uv, "install", "--no-bin", minor], **own)
    found, _ = printed(find, **own)
    if not found:
        raise Lacking(f"neither the PATH nor uv has Python {minor}, and uv cannot install it: {reason}")
    return found


def printed(command: Sequence[str], **variables: str) -> tuple[str, str]:
    """Return what a command prints, "" if it fails, and the last line of its errors."""
    try:
        done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    except OSError as error:
        return "", str(error)
    errors = done.stderr.strip().splitlines() or [""]
    return "" if done.returncode else done.stdout.strip(), errors[-1].strip().removeprefix("cause: ")


STEPS = (
    Step("thorough", make("test-thorough")),
    Step("sanitize", make("sanitize")),
    Step("trust", make("trust")),
    Step("mutants", make("mutants")),
    Step("schemathesis", make("schemathesis EXAMPLES=20")),
    Step("hostile", make("hostile")),
    Step("rows", make("rows")),
    Step("clients", make("test-clients-full")),
    Step("frameworks", make("test-frameworks-full")),
    Step("fleet", make("test-fleet-full")),
    Step("docs", make("docs")),
    Step("docker", docker_test),
    Step("python3.11", on_python("3.11")),
    Step("python3.12", on_python("3.12")),
    Step("python3.13", on_python("3.13")),
    Step("client3.14", client_on("3.14")),
    # They write the notebooks and the tables of the docs, which belong to a commit then.
    Step("tutorials", make("tutorials")),
    Step("bench", make("bench")),
    Step("bench-ops", make("bench-ops")),
    Step("bench-against", make("bench-against")),
)


def run(step: Step, limit_s: float = LIMIT_S) -> Result:
    """Run a step, with its output in a file; end it, with all its processes, when it takes longer than the limit."""
    try:
        command = step.command()
    except Lacking as reason:
        return Result(step.name, "skipped", str(reason))
    log, began = FOLDER / f"{step.name}.log", time.monotonic()
    with log.open("wb") as output:
        # A signal waits until the process is known: otherwise the process would go on without its check.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        process = subprocess.Popen(
            command,
            shell=True,
            cwd=ROOT,
            stdout=output,
            stderr=output,
            env=environment(),
            start_new_session=True,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask),  # noqa: PLW1509 - one thread
        )
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return Result(step.name, "failed", f"`{command}` took longer than {limit_s:g} s: see {log}")
        finally:
            end(process)
    minutes = (time.monotonic() - began) / 60
    if code:
        return Result(step.name, "failed", f"`{command}` ended with status {code}: see {log}")
    return Result(step.name, "passed", f"`{command}`, {minutes:.1f} minutes")


def end(process: subprocess.Popen[bytes]) -> None:
    """End all processes of a step; first ask them, so that tests can remove their containers."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)


def environment() -> dict[str, str]:
    """Return the environment without what make passes to the makes below it: its options and its variables."""
    return {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES")}


def run_all(steps: Iterable[Step], names: Sequence[str]) -> list[Result]:
    """Run the steps with these names, all of them if there are none, until Ctrl-C or SIGTERM."""
    results: list[Result] = []
    is_ended = False
    for step in steps:
        if is_ended or (names and step.name not in names):
            results.append(Result(step.name, "not run", "ended early" if is_ended else "not named in STEPS"))
            continue
        print(f"{step.name} ...", flush=True)
        try:
            results.append(run(step))
        except KeyboardInterrupt:
            results.append(Result(step.name, "failed", "ended early"))
            is_ended = True
        print(f"{step.name}: {results[-1].result}, {results[-1].details}", flush=True)
    return results


def table(results: Sequence[Result]) -> str:
    """Return the results as a table in Markdown."""
    rows = [f"| {one.step} | {one.result} | {one.details} |" for one in results]
    return "\n".join(["| step | result | details |", "| --- | --- | --- |", *rows])


def commit() -> str:
    """Return the commit that is tested; the clones lack any other changes."""
    revision, changes = (
        subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
        for arguments in (["rev-parse", "HEAD"], ["status", "--porcelain"])
    )
    return f"{revision}, with uncommitted changes" if changes else revision


def main(*names: str) -> int:
    """Run the steps, print the table, and return the exit status."""
    if unknown := sorted({*names} - {step.name for step in STEPS}):
        print(f"expected names of steps ({', '.join(step.name for step in STEPS)}), got {', '.join(unknown)}")
        return 2
    # `kill` ends it as Ctrl-C does, which a shell disables for commands in the background.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    FOLDER.mkdir(parents=True, exist_ok=True)
    tested = commit()  # before a step changes files
    results = run_all(STEPS, names)
    document = f"Release check of {tested}, with Python {sys.version.split()[0]}\n\n{table(results)}\n"
    (FOLDER / "table.md").write_text(document, encoding="utf-8")
    found = {"commit": tested.partition(",")[0], "changes": "," in tested, "results": [vars(one) for one in results]}
    (FOLDER / "results.json").write_text(json.dumps(found, indent=1), encoding="utf-8")  # tests/releasable.py reads it
    print(f"\n{document}", end="")
    return int(any(one.result == "failed" for one in results))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
