"""What a copy of a process prints: its beginning and its end, whatever ends the copy."""

import re
import subprocess
import sys

import pytest

from app.telemetry.printed import HEAD, TAIL
from tests.conftest import ROOT
from tests.patience import PATIENCE_S

# A parent that runs code in a copy of it.
PARENT = """
import os, signal, sys, time
from app.telemetry.printed import SUBJECT, Prints
with Prints() as prints:
    copy, began = os.fork(), time.process_time()
    if not copy:
        prints.enter()
        {code}
        os._exit(0)
status = os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
prints.wait()
print("ended", status)
assert time.process_time() - began < 0.4
"""
LEFT_OUT = re.compile(rb"^pullback: (.*) printed (\d+) bytes more here, which are left out$", re.MULTILINE)


def run(*code: str) -> tuple[bytes, bytes]:
    """Run lines of code in a copy; return the stdout and stderr of its parent."""
    text = PARENT.format(code="\n        ".join(code))
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, check=True, timeout=PATIENCE_S)
    return done.stdout, done.stderr


def test_each_op_has_its_own_bound() -> None:
    _, log = run(
        'SUBJECT.begin("op one")',
        'print("first", "x" * 99, sep="\\n")',
        'for _ in range(100): os.write(1, b"y" * 49_999 + b"\\n")',
        'print("last")',
        'SUBJECT.begin("op two")',
        'print("all of it")',
        "SUBJECT.begin()",
        'os.system("echo from a child")',
    )
    assert log.startswith(b"first\n")
    ((subject, count),) = LEFT_OUT.findall(log)
    assert subject == b"op one"
    written = len(log) - len(LEFT_OUT.search(log)[0]) - 2 - len(b"all of it\nfrom a child\n")  # type: ignore[index]
    assert written <= HEAD + TAIL
    assert written + int(count) == len("first\n") + 100 + 5_000_000 + len("last\n")
    assert log.endswith(b"\nlast\nall of it\nfrom a child\n")


@pytest.mark.parametrize("number", [6, 9])
def test_the_last_words_before_a_crash_are_written(number: int) -> None:
    out, log = run(
        'SUBJECT.begin("op one")',
        'for _ in range(100): sys.stderr.write("z" * 50_000)',
        'os.write(2, b"\\nCheck failed: one")',
        f"os.kill(os.getpid(), {number})",
    )
    assert out == b"ended %d\n" % -number
    assert len(log) < HEAD + TAIL + 100
    assert log.endswith(b"\nCheck failed: one\n")
    assert LEFT_OUT.search(log)


def test_the_exact_bound_is_written_whole() -> None:
    _, log = run(f'os.write(1, b"v" * {HEAD})', f'os.write(2, b"w" * {TAIL})')
    assert log == b"v" * HEAD + b"w" * TAIL + b"\n"


def test_a_copy_may_close_its_output() -> None:
    """The thread of the parent must not spin."""
    out, log = run("os.write(1, b'x\\n')", "os.close(1)", "os.close(2)", 'SUBJECT.begin("op one")', "time.sleep(1)")
    assert (out, log) == (b"ended 0\n", b"x\n")
