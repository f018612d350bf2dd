"""The first five minutes of the README, as a newcomer spends them: in an empty folder, with the command `pullback`."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import httpx
import pytest

from tests.conftest import READY, ROOT
from tests.docs.test_docs import README, blocks, differences, needs_curl, run, text_of
from tests.patience import PATIENCE_S

MAX_LINES = 150
RECORDING = ROOT / "docs" / "recording.svg"
SVG = "{http://www.w3.org/2000/svg}"
INSTALL, ACTIVATE, NEW, CHECK, SERVE = [line.partition("#")[0].strip() for line in blocks(README, "sh")[0].splitlines()]
PICTURE = re.compile(r'(?:!\[[^\]]*\]\(|<img src=")([^)"]+)')
# Durations, and the worst number in error bars, differ between machines.
NUMBER = re.compile(r"-?\d[\d.]*(e[-+]\d+)?")
# What a finding does not share with another machine: the time, and the error bar, which is made of roundings.
VARIES = re.compile(r"(?<=± )[\d.]+(e[-+]\d+)?|[\d.]+(?= s;)")
DIGEST = re.compile(r"\bpage [0-9a-f]{12}\b")

# The shell in which .venv is active.
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}


def test_it_is_short() -> None:
    assert len(text_of(README).splitlines()) < MAX_LINES


def test_its_pictures_exist_and_the_logo_is_small() -> None:
    logo, *others = PICTURE.findall(text_of(README))
    assert others
    assert [picture for picture in (logo, *others) if not (ROOT / picture).is_file()] == []
    assert f'href="/explore/static/{Path(logo).name}"' in (ROOT / logo).with_name("explorer.html").read_text()
    drawing = ElementTree.parse(ROOT / logo).getroot()
    # A viewBox without a size: it is sharp at 16 px and at 512.
    assert drawing.attrib["viewBox"] == "0 0 32 32"
    assert not {"width", "height"} & set(drawing.attrib)
    assert (ROOT / logo).stat().st_size < 1_000


def test_make_installs_and_serves() -> None:
    assert (INSTALL, ACTIVATE) == ("make install", ". .venv/bin/activate")
    subprocess.run(["make", "--dry-run", "install"], cwd=ROOT, check=True, capture_output=True)


def shell(command: str, folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("a newcomer's")
    assert shell(NEW, folder)[0] == 0
    return folder


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    process = subprocess.Popen(
        SERVE.split(), cwd=folder, env={**ENVIRONMENT, "PULLBACK_PORT": "0"}, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout
        found = READY.match(process.stdout.readline())
        assert found
        yield found[1]
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


def recorded() -> list[tuple[str, str]]:
    """Return the commands of the recorded terminal, and the lines that each has printed, joined."""
    lines = ["".join(line.itertext()) for line in ElementTree.parse(RECORDING).iter(f"{SVG}text")]
    found = "\n".join(lines).removeprefix("$ ").split("\n$ ")
    return [(command, " ".join(printed.split())) for command, _, printed in (part.partition("\n") for part in found)]


def masked(output: str) -> str:
    """Return an output as one line, without its numbers and digests."""
    return NUMBER.sub("#", DIGEST.sub("page #", " ".join(output.split())))


def finding(output: str) -> str:
    """Return an output as one line, with the numbers that are the same on all machines."""
    return VARIES.sub("#", " ".join(output.split()))


def test_the_recorded_terminal_stands_still_for_those_who_want_that() -> None:
    assert all(command and printed for command, printed in recorded())
    style = RECORDING.read_text(encoding="utf-8").split("<style>")[1].split("</style>")[0]
    assert style.index("prefers-reduced-motion: no-preference") < style.index("animation")
    assert f"({RECORDING.relative_to(ROOT)})" in text_of(README)


@pytest.mark.slow
@needs_curl
def test_requests_are_answered_as_on_the_page(url: str) -> None:
    assert differences(README, url) == []
    [program], output = blocks(README, "python"), blocks(README, "text")[0]
    assert run([sys.executable, "-W", "error", "-c", program], url) == output
    [plot] = re.findall(r"<http://127\.0\.0\.1:8000(/explore/\w+)>", text_of(README))
    assert httpx.get(f"{url}{plot}").status_code == 200


@pytest.mark.slow
def test_checks_print_what_is_on_the_page(folder: Path) -> None:
    _, wrong = blocks(README, "text")
    code, output = shell(CHECK, folder)
    assert code == 0
    check_of_right, check_of_wrong = (printed for command, printed in recorded() if CHECK in command)
    assert masked(output).startswith(masked(check_of_right))
    [change] = re.findall(r"let `vjp` return `([^`]*)`", text_of(README))
    page = folder / "my_ops" / "cube.py"
    page.write_text(page.read_text().replace("return 3 * x * x * dy", f"return {change}"))
    code, output = shell(CHECK, folder)
    assert code == 1
    assert finding(output).startswith(finding(check_of_wrong))
    assert finding(wrong) in finding(output)
    *in_ci, _ = blocks("docs/ci.md", "text")[0].splitlines()
    assert finding("\n".join(in_ci)) in finding(output)
