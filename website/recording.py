"""Record a terminal as an SVG: ``python -m website.recording FILE`` runs the first commands of the README.

Lines appear one after the other, once; where motion is reduced, or CSS is not supported, all are there from the start.
"""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import NamedTuple

COLUMNS = 104
WIDTH, LINE, LEFT, TOP = 860, 19, 18, 58
TYPING_S, READING_S = 0.8, 0.3
LIMIT_S = 300
URL = "http://127.0.0.1:8000"
SERVE = "pullback serve my_ops &"
# Each command, and how many lines of its output to show.
COMMANDS = (
    ("pullback new cube          # write an op: x³, with its gradient 3x² by hand", 3),
    ("pullback check my_ops      # is its gradient right?", 1),
    (SERVE, 1),
    ("pullback call cube gradients x=1,2 --order 2      # x³, 3x² and 6x, by HTTP", 6),
    ("sed -i 's/return 3 /return 3.3 /' my_ops/cube.py && pullback check my_ops      # and now?", 3),
)
COLOURS = (
    (re.compile(r"\bpass\b"), "good"),
    (re.compile(r"^FAIL\b|\bfail\b"), "bad"),
    (re.compile(r" # .*"), "comment"),
)
STYLE = """
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d7dae3; }
tspan.prompt { fill: #8ea2ff; } tspan.comment { fill: #a6acb8; }
tspan.good { fill: #5fd38d; } tspan.bad { fill: #ff8d7a; }
@media (prefers-reduced-motion: no-preference) {
  text { animation: appear 0.1s backwards; }
  @keyframes appear { from { opacity: 0; } }
}
"""


class Shown(NamedTuple):
    """A line of the recording, and the seconds after which it appears."""

    text: str
    after_s: float


def recorded(folder: Path) -> Iterator[Shown]:
    """Run the commands in a folder; yield the lines of the recording."""
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "PULLBACK_PORT": "0", "PULLBACK_DRAIN_S": "0"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    after_s = -TYPING_S
    with contextlib.ExitStack() as servers:
        for command, lines in COMMANDS:
            yield Shown(f"$ {command}", after_s := after_s + TYPING_S)
            if command == SERVE:
                output = servers.enter_context(serving(folder, environment))
                environment["PULLBACK_URL"] = output.split()[4]
                output = output.replace(environment["PULLBACK_URL"], URL)
            else:
                output = printed(command, folder, environment)
            for line in wrapped(output.splitlines()[:lines]):
                yield Shown(line, after_s := after_s + READING_S)


@contextlib.contextmanager
def serving(folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Start the service; yield the line that it prints."""
    command = SERVE.split()[:-1]
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=PIPE, stderr=DEVNULL, text=True) as process:
        try:
            assert process.stdout
            yield process.stdout.readline()
        finally:
            process.terminate()


def printed(command: str, folder: Path, environment: Mapping[str, str]) -> str:
    """Run a command in a shell; return what it prints. Raises ``ValueError`` if that is nothing."""
    shell = ["bash", "-c", command]
    done = subprocess.run(
        shell, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if not done.stdout:
        raise ValueError(f"expected output of {command}, got {done.stderr}")
    return done.stdout


def wrapped(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines that fit, with the indentation of what they continue."""
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        yield from textwrap.wrap(line, COLUMNS, subsequent_indent=indent, drop_whitespace=True, break_on_hyphens=False)


def drawn(lines: Sequence[Shown]) -> str:
    """Return the recording as an SVG."""
    height = TOP + LINE * len(lines)
    words = "Terminal: " + " ".join(line.text for line in lines)
    shown = "\n".join(
        f'<text x="{LEFT}" y="{TOP + LINE * i}" style="animation-delay:{line.after_s:.1f}s" xml:space="preserve">'
        f"{coloured(line.text)}</text>"
        for i, line in enumerate(lines)
    )
    buttons = "".join(f'<circle cx="{LEFT + 6 + 20 * i}" cy="22" r="6" fill="#4a5068"/>' for i in range(3))
    size = f'width="{WIDTH}" height="{height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(words)}">\n<style>{STYLE}</style>\n'
        f'<rect {size} rx="8" fill="#1e2129"/>{buttons}\n{shown}\n</svg>\n'
    )


def coloured(line: str) -> str:
    """Return a line as text of an SVG, with the prompt, comments and verdicts in colours."""
    prompt, line = ("$ ", line[2:]) if line.startswith("$ ") else ("", line)
    text = escape(line, quote=False)
    for pattern, name in COLOURS:
        if prompt or name != "comment":
            text = pattern.sub(lambda found, name=name: f'<tspan class="{name}">{found[0]}</tspan>', text, count=1)
    return f'<tspan class="prompt">{prompt}</tspan>{text}' if prompt else text


def main(file: Path) -> None:
    """Record, and write the SVG."""
    with tempfile.TemporaryDirectory() as folder:
        file.write_text(drawn(list(recorded(Path(folder)))), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
