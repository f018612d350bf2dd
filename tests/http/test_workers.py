"""Several workers: one that dies is replaced by an equal one, or not at all, and the log says so."""

import contextlib
import os
import re
import resource
import signal
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from app.processes import sources
from app.processes.sources import Sources
from pullback.keys import line_for
from tests.conftest import ROOT, Service
from tests.http.native_client import ask
from tests.http.test_keys import bearer
from tests.http.test_tls import make_certificate
from tests.patience import PATIENCE_S

ALICE, BOB = "pullback_Of-Alice-0123", "pullback_Of-Bob-4567"
# How many requests, each on a separate connection, must have equal answers.
REQUESTS = 30
PAGE = '''\
"""A multiple of x. While a file exists, its import ends the process."""

import os
from pathlib import Path

import numpy as np

from ops import Array, Example, Input, Op, Output, Tensor

if Path({flag!r}).exists():
    os._exit(7)


def forward(x: Tensor) -> Tensor:
    """y = {factor} x."""
    return {factor} * x


def reference(x: Array) -> Array:
    """y = {factor} x."""
    return {factor} * np.asarray(x)


OP = Op(
    name="scaled",
    summary="a multiple of x",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("x"),),
    outputs=(Output("y"),),
    mechanism="symbolic_gradient",
    source="a test",
    examples=(Example("one", {{"x": [1.0]}}),),
)
'''


@pytest.fixture
def flag(tmp_path: Path) -> Path:
    """A file that does not exist; while it does, no worker can start."""
    return tmp_path / "broken"


@pytest.fixture
def page(tmp_path: Path, flag: Path) -> Path:
    """The page of the op ``scaled``, which multiplies by 2."""
    path = tmp_path / "ops" / "scaled.py"
    path.parent.mkdir()
    write(path, flag, 2)
    return path


def write(page: Path, flag: Path, factor: int) -> None:
    page.write_text(PAGE.format(flag=str(flag), factor=factor))


def until(condition: Callable[[], object], one: Service) -> None:
    """Wait until a condition holds; the service must not end meanwhile."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, one.log()
        assert one.process.poll() is None, one.log()
        time.sleep(0.05)


def until_log_has(one: Service, pattern: str, count: int = 1) -> re.Match[str]:
    """Wait until the log has lines that match; return the last match."""
    until(lambda: len(re.findall(pattern, one.log())) >= count, one)
    return [*re.finditer(pattern, one.log())][-1]


def factors(one: Service) -> set[float]:
    """Return all the different answers to equal requests, each on a separate connection."""
    body = {"inputs": {"x": [1.0]}}
    found = set[float]()
    for _ in range(REQUESTS):
        with one.client() as client:
            found.add(ask(client, "scaled", "forward", **body)["outputs"]["y"]["data"][0])
    return found


def kill_one(one: Service) -> int:
    """Kill a worker; return its process id."""
    pid = one.workers()[0]
    os.kill(pid, signal.SIGKILL)
    return pid


def save(file: Path, text: str) -> None:
    """Replace the text of a file at once: the service never sees it empty."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


def statuses(one: Service, key: str) -> set[int]:
    found = set[int]()
    for _ in range(REQUESTS):
        with one.client() as client:
            found.add(client.get("/v1/ops", headers=bearer(key)).status_code)
    return found


@pytest.mark.slow
def test_a_replacement_knows_the_keys_of_its_siblings(start, tmp_path):
    """Also while the file is invalid: then those that were valid last, without the keys that were revoked before."""
    keys = tmp_path / "keys"
    keys.write_text(f"{line_for('alice', ALICE)}\n{line_for('bob', BOB)}\n")
    one = start(WORKERS="2", KEYS_FILE=str(keys)).wait_until_ready()
    save(keys, f"{line_for('alice', ALICE)}\n")
    until(lambda: statuses(one, BOB) == {401}, one)
    save(keys, "not a line of keys\n")
    until_log_has(one, "line 1: expected NAME:SHA256.*; the previous keys stay valid")
    dead = kill_one(one)
    found = until_log_has(one, rf"worker {dead} was killed by SIGKILL; worker (\d+) replaces it")
    until(lambda: int(found[1]) in one.workers(), one)
    os.kill(next(pid for pid in one.workers() if pid != int(found[1])), signal.SIGKILL)
    # Now only workers answer that have started while the file was invalid.
    assert statuses(one, ALICE) == {200}
    assert statuses(one, BOB) == {401}
    assert one.log().count("the previous keys stay valid") == 1
    save(keys, f"{line_for('bob', BOB)}\n")
    until(lambda: statuses(one, BOB) == {200} and statuses(one, ALICE) == {401}, one)


@pytest.mark.slow
def test_equal_requests_have_equal_answers_while_pages_change(start, page, flag):
    one = start(WORKERS="2", OPS_PATH=str(page.parent)).wait_until_ready()
    assert factors(one) == {2}
    # A worker that would compute something else does not start.
    write(page, flag, 31)
    dead = kill_one(one)
    until_log_has(one, rf"worker {dead} was killed by SIGKILL; it is not replaced.*: {page}; 1 of 2 workers serve")
    assert factors(one) == {2}
    assert len(one.workers()) == 1
    # The page is as before: so is the service.
    write(page, flag, 2)
    until_log_has(one, rf"worker {dead} was killed by SIGKILL; worker \d+ replaces it")
    until(lambda: len(one.workers()) == 2, one)
    assert factors(one) == {2}
    # All workers are gone: all start anew, from the pages as they are now.
    write(page, flag, 31)
    for pid in one.workers():
        os.kill(pid, signal.SIGKILL)
    assert factors(one) == {31}
    until_log_has(one, rf"no worker is left.*: {page}")
    until_log_has(one, r"worker \d+ replaces it", 3)
    assert factors(one) == {31}


@pytest.mark.slow
def test_sighup_replaces_the_workers_and_loses_no_request(start, page, flag):
    one = start(WORKERS="2", OPS_PATH=str(page.parent)).wait_until_ready()
    before = set(one.workers())
    write(page, flag, 31)
    one.process.send_signal(signal.SIGHUP)
    seen: set[float] = set()
    until(lambda: seen.update(factors(one)) or not before & set(one.workers()), one)
    assert seen <= {2, 31}
    until(lambda: factors(one) == {31}, one)
    until_log_has(one, r"worker \d+ ended with status 0; worker \d+ replaces it", 2)
    # They have not failed: their successors start at once, also after the next signal.
    assert "its replacement starts in" not in one.log()
    one.process.terminate()
    assert one.wait() == 0


@pytest.mark.thorough
def test_a_worker_that_cannot_start_again_is_tried_ever_more_rarely(start, page, flag):
    one = start(WORKERS="2", OPS_PATH=str(page.parent)).wait_until_ready()
    flag.touch()
    kill_one(one)
    pauses = r"worker \d+ ended with status 7; its replacement starts in (\d+) s"
    until_log_has(one, pauses, 3)
    assert re.findall(pauses, one.log())[:3] == ["1", "2", "4"]
    assert factors(one) == {2}
    flag.unlink()
    until_log_has(one, r"worker \d+ ended with status 7; worker \d+ replaces it", 3)
    until(lambda: len(one.workers()) == 2, one)
    one.process.terminate()
    assert one.wait() == 0


@pytest.mark.slow
def test_a_service_whose_workers_all_fail_ends_with_the_reason(start, page, flag):
    flag.touch()
    one = start(WORKERS="2", OPS_PATH=str(page.parent))
    assert one.wait() == 3
    [line] = [line for line in one.log().splitlines() if "no worker can start" in line]
    assert len(re.findall(r"worker \d+ ended with status 7", line)) == 2
    assert "replaces" not in one.log()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "is_stable"),
    [pytest.param("'always the same'", True, marks=pytest.mark.thorough), ("str(os.getpid())", False)],
)
def test_a_worker_serves_only_what_its_siblings_have_read(start, page, content, *, is_stable):
    """Here the page writes a file into its folder on import: once, or another in every worker."""
    page.write_text(page.read_text() + f"\nPath(__file__).with_name('written').write_text({content})\n")
    one = start(WORKERS="2", OPS_PATH=str(page.parent))
    if is_stable:
        one.wait_until_ready()
        assert factors(one) == {2}
    else:
        assert one.wait() == 3
        [line] = [line for line in one.log().splitlines() if "no worker can start" in line]
        assert len(re.findall(r"worker \d+ ended with status 5 \(a file changed while it started\)", line)) == 2


@pytest.mark.slow
def test_a_worker_that_dies_at_the_start_does_not_end_the_service_and_all_end_with_their_supervisor(start, page):
    one = start(WORKERS="2", OPS_PATH=str(page.parent))
    until(lambda: len(one.workers()) == 2, one)
    dead = kill_one(one)
    one.wait_until_ready()
    until_log_has(one, rf"worker {dead} was killed by SIGKILL; worker \d+ replaces it")
    assert factors(one) == {2}
    # None can be made now, because the supervisor may open no file.
    limits = resource.prlimit(one.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(one.process.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
    dead = kill_one(one)
    until_log_has(one, rf"worker {dead} was killed by SIGKILL; it cannot be replaced now: .*Too many open files")
    assert factors(one) == {2}
    resource.prlimit(one.process.pid, resource.RLIMIT_NOFILE, limits)
    until_log_has(one, rf"worker {dead} was killed by SIGKILL; worker \d+ replaces it")
    until(lambda: len(one.workers()) == 2, one)
    workers = one.workers()
    one.process.kill()
    one.wait()
    end = time.monotonic() + PATIENCE_S
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < end
        time.sleep(0.05)
    with contextlib.closing(socket.socket()) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", one.port))


@pytest.mark.thorough
def test_a_replacement_has_the_certificate_of_its_siblings(start, tmp_path):
    cert, key = make_certificate(tmp_path, "-nodes")
    context = ssl.create_default_context(cafile=str(cert))
    one = start(WORKERS="2", TLS_CERT=str(cert), TLS_KEY=str(key)).wait_until_ready()
    cert.write_text("no certificate")
    key.unlink()
    for pid in one.workers():
        os.kill(pid, signal.SIGKILL)
    for _ in range(3):
        assert httpx.get(f"{one.url}/health/ready", verify=context, trust_env=False, timeout=PATIENCE_S).is_success


CHANGES: dict[str, Callable[[Path], object]] = {
    "edited": lambda folder: (folder / "page.py").write_text("b"),
    "added": lambda folder: (folder / "other.py").write_text(""),
    "removed": lambda folder: (folder / "page.py").unlink(),
    "renamed": lambda folder: (folder / "page.py").rename(folder / "new.py"),
    "a helper": lambda folder: (folder / "_helper.py").write_text("b"),
    "a helper in a package": lambda folder: (folder / "package" / "part.py").write_text("b"),
    "a library of its page": lambda folder: (folder / "build" / "page.so").write_text("b"),
    "a table": lambda folder: (folder / "table.npy").write_text("b"),
    "a link that leads elsewhere": lambda folder: relink(folder / "link.py", folder / "_helper.py"),
    "a large file": lambda folder: os.truncate(folder / "large.npy", sources.MAX_CONTENT + 2),
}
NO_CHANGES: dict[str, Callable[[Path], object]] = {
    "none": lambda folder: None,
    "touched": lambda folder: os.utime(folder / "page.py", (1, 1)),
    "written again": lambda folder: (folder / "page.py").write_text("a"),
    "a hidden file": lambda folder: (folder / ".page.py.swp").write_text("b"),
    "bytecode": lambda folder: (folder / "__pycache__").mkdir(),
    "a log": lambda folder: (folder / "package" / "log.txt").write_text("b"),
    "a pipe": lambda folder: os.mkfifo(folder / "pipe.py"),
    "a link to nothing": lambda folder: (folder / "broken.py").symlink_to("nothing"),
}


def relink(link: Path, target: Path) -> None:
    link.unlink()
    link.symlink_to(target)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A plug-in folder."""
    for name in ("package", "build"):
        (tmp_path / name).mkdir()
    for name in ("page.py", "_helper.py", "table.npy", "package/part.py", "build/page.so"):
        (tmp_path / name).write_text("a")
    (tmp_path / "_helper.py").write_text("different")
    (tmp_path / "link.py").symlink_to(tmp_path / "page.py")
    (tmp_path / "large.npy").touch()
    os.truncate(tmp_path / "large.npy", sources.MAX_CONTENT + 1)
    return tmp_path


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_files_is_found(folder, change):
    before = Sources([folder])
    CHANGES[change](folder)
    changed = before.changed()
    assert changed
    assert all(path.startswith(str(folder)) for path in changed)


@pytest.mark.parametrize("change", NO_CHANGES)
def test_what_is_no_change_is_not_found(folder, change):
    before = Sources([folder])
    NO_CHANGES[change](folder)
    assert before.changed() == []


def test_the_code_the_libraries_and_the_packages_are_among_the_files(tmp_path, monkeypatch):
    (package := tmp_path / "some-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    found = sources.digests(())
    own = {str(ROOT / name) for name in ("app/main.py", "ops/square.py", "pullback/ops/_op.py", "build/relu.so")}
    assert own <= found.keys()
    before = Sources(())
    (tmp_path / "other-1.0.dist-info").mkdir()
    assert before.changed() == []
    package.rename(tmp_path / "some-2.0.dist-info")
    assert before.changed() == [str(package)]


def test_a_library_counts_if_its_page_is_served(tmp_path, monkeypatch):
    (folder := tmp_path / "my_ops").mkdir()
    (folder / "page.py").touch()
    (build := tmp_path / "build").mkdir()
    monkeypatch.setattr(sources, "SERVICE", tmp_path)
    before = Sources([folder])
    (build / "other.so").touch()
    assert before.changed() == []
    (build / "page.so").touch()
    assert before.changed() == [str(build / "page.so")]
