"""What it takes to add something to the service, or to remove it: in a copy, that edits few files, and the rest works.

All additions are made in one copy, and one process serves them. An addition is a row of ``ADDITIONS``: the edits, the
most files that they may touch, the settings of the process, and what a caller then sees. All of ``REMOVALS`` are made
in another copy: a feature is its folder and a line or two.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.conftest import ROOT, Service, environment

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Edit:
    """New lines in a file, after the only line that matches a pattern, or in place of it."""

    path: str
    line: str
    lines: str
    replaces: bool = False

    def apply(self, folder: Path) -> None:
        path = folder / self.path
        (found,) = re.finditer(f"^{self.line}$\n", path.read_text(), re.MULTILINE)
        start = found.start() if self.replaces else found.end()
        path.write_text(found.string[:start] + self.lines + found.string[found.end() :])


@dataclass(frozen=True)
class Addition:
    """Edits of at most ``files`` files, and a check that they work in a service with these settings."""

    edits: tuple[Edit, ...]
    files: int
    check: Callable[[httpx.Client], None]
    settings: Mapping[str, str] = field(default_factory=dict[str, str])


def counts_the_bytes_of_the_log(client: httpx.Client) -> None:
    def written() -> float:
        return float(re.findall(r"^pullback_log_bytes_total (\S+)$", client.get("/metrics").text, re.MULTILINE)[0])

    before = written()
    assert client.post("/v1/ops/square/forward", json={"inputs": {"x": 3}}).json()["outputs"]["y"]["data"] == 9
    assert any(written() > before for _ in range(1000)), "no line was counted"
    assert "# HELP pullback_log_bytes_total Bytes of the log.\n" in client.get("/metrics").text


def has_the_title_of_the_setting(client: httpx.Client) -> None:
    assert client.get("/openapi.json").json()["info"]["title"] == "Gradients of ours"


def multiplies_the_hessian_by_a_vector(client: httpx.Client) -> None:
    body = {"inputs": {"x": [3, 4]}, "vectors": {"x": [1, 10]}}
    assert client.post("/v1/ops/square/hv", json=body).json()["products"]["x"]["data"] == [2, 20]
    missing = client.post("/v1/ops/square/hv", json={"inputs": {"x": [3, 4]}})
    assert missing.status_code == 422
    assert missing.json()["errors"][0]["loc"] == ["vectors"]
    assert client.get("/openapi.json").json()["paths"]["/v1/ops/{op}/hv"]["post"]["summary"] == "Multiply by vectors"
    assert client.get("/v1/ops/square").json()["default_mode"]["hv"]["float32"] == "xla"
    assert 'pullback_requests_total{op="square",operation="hv",status="200"} 1.0' in client.get("/metrics").text


def knows_no_bfloat16(client: httpx.Client) -> None:
    refused = client.post("/v1/ops/log1pexp/forward", json={"inputs": {"x": 3}, "dtype": "bfloat16"})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["expected"] == "one of float32, float64, float16"
    assert client.get("/v1/ops/log1pexp").json()["dtypes"] == ["float32", "float64", "float16"]
    for path in ("/openapi.json", "/v1/ops", "/v2/models/log1pexp", "/tesseract/log1pexp/openapi.json"):
        page = client.get(path)
        assert page.status_code == 200
        assert not {'"bfloat16"', '"BF16"'} & set(re.findall(r'"\w+"', page.text)), path


ADDITIONS = {
    # In reverse, because TensorFlow has kernels for no other float dtype: without these lines, the dtype is unknown.
    "dtype": Addition(
        (
            Edit("app/tensors/dtypes.py", r'    _float\("bfloat16", .*', "", replaces=True),
            Edit(
                "pullback/ops/_slots.py", "FLOATS = .*", 'FLOATS = ("float32", "float64", "float16")\n', replaces=True
            ),
        ),
        2,
        knows_no_bfloat16,
    ),
    "operation": Addition(
        (
            Edit(
                "app/requests/models.py",
                r'class HvpRequest[^"]*"""[^"]*"""\n(?:\n?    .*\n)*    wrt: Wrt = None',
                """

class HvRequest(HvpRequest):
    \"\"\"A request for products with the Hessian.\"\"\"
""",
            ),
            Edit(
                "app/requests/answers.py",
                r"    products: dict\[str, TensorOrNull\]\n    absent: Absences = ABSENT",
                """

class HvAnswer(HvpAnswer):
    \"\"\"Products.\"\"\"
""",
            ),
            Edit(
                "app/requests/operations.py",
                r'            _tree_of\("products"\),\n        \),',
                """        Operation(
            "hv",
            "Multiply by vectors",
            models.HvRequest,
            answers.HvAnswer,
            {**_COTANGENTS, "vectors": "inputs"},
            lambda plan, point, given: derivatives.vjp_jvp(point, plan.wrt, given["cotangents"], given["vectors"]),
            _tree_of("products"),
        ),
""",
            ),
        ),
        3,
        multiplies_the_hessian_by_a_vector,
    ),
    "metric": Addition(
        (
            Edit(
                "app/telemetry/line_writer.py",
                r"        self\.descriptor, self\.dropped = descriptor, 0",
                "        self.written = 0\n",
            ),
            Edit(
                "app/telemetry/line_writer.py",
                r"                written = write_all\(self\.descriptor, data\)",
                "                self.written += written\n",
            ),
            Edit(
                "app/telemetry/prometheus.py",
                r'        self\.gauge\("pullback_in_flight_requests", .*\)',
                '        self.counter("pullback_log_bytes", "Bytes of the log.", lambda: STDERR.written)\n',
            ),
        ),
        2,
        counts_the_bytes_of_the_log,
    ),
    "setting": Addition(
        (
            Edit(
                "app/settings.py",
                r"    port: int = .*",
                '    title: str = Field(default="Pullback", description="Title of the documentation.")\n',
            ),
            Edit("app/main.py", r'        title="Pullback",', "        title=settings.title,\n", replaces=True),
        ),
        2,
        has_the_title_of_the_setting,
        {"TITLE": "Gradients of ours"},
    ),
}


@dataclass(frozen=True)
class Removal:
    """What is deleted, the lines that name it, as patterns by file, and a path that only it answers."""

    deleted: tuple[str, ...]
    lines: tuple[tuple[str, str], ...]
    path: str

    def apply(self, folder: Path) -> None:
        for path, line in self.lines:
            Edit(path, line, "", replaces=True).apply(folder)
        for path in self.deleted:
            subprocess.run(["rm", "-r", folder / path], check=True)


REMOVALS = (
    Removal(("app/routes/mcp",), (("app/settings.py", '    "mcp": .*'),), "/mcp"),
    Removal(("app/routes/tesseract",), (("app/settings.py", '    "tesseract": .*'),), "/tesseract/square/health"),
    Removal(
        ("app/routes/native/explorer.py", "app/explorer"),
        (
            ("app/main.py", r"from app\.routes\.native\.explorer import explorer"),
            ("app/main.py", r"    app\.include_router\(explorer\(\)\)"),
        ),
        "/explore",
    ),
)
OTHERS = (
    "/docs",
    "/openapi.json",
    "/v1/ops",
    "/v1/ops/square",
    "/metrics",
    "/health/ready",
    "/v2/models/square",
    "/Info",
)
# Every module can be imported: none names what is gone.
IMPORT_ALL = """
import importlib, pkgutil, app
for found in pkgutil.walk_packages(app.__path__, "app."):
    if not found.name.endswith("__main__") and found.name != "app.telemetry.spans":
        importlib.import_module(found.name)
"""


@contextmanager
def served_copy(*edits: Edit | Removal, **settings: str) -> Generator[tuple[Service, Path]]:
    """Serve a copy of the code with these edits."""
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryFile() as log:
        folder = Path(place)
        for name in ("app", "ops", "pullback"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "build").symlink_to(ROOT / "build")
        for edit in edits:
            edit.apply(folder)
        process = subprocess.Popen(
            [sys.executable, "-m", "app"],
            cwd=folder,
            env=environment(**settings),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        one = Service(process, log)
        try:
            yield one.wait_until_ready(), folder
        finally:
            one.close()


@pytest.fixture(scope="module")
def extended() -> Iterator[Service]:
    """A service of a copy of the code with all additions."""
    edits = [edit for addition in ADDITIONS.values() for edit in addition.edits]
    settings = {name: value for addition in ADDITIONS.values() for name, value in addition.settings.items()}
    with served_copy(*edits, **settings) as (service, _):
        yield service


@pytest.mark.parametrize("what", ADDITIONS)
def test_an_addition_touches_few_files(what: str) -> None:
    addition = ADDITIONS[what]
    assert len({edit.path for edit in addition.edits}) <= addition.files


@pytest.mark.parametrize("what", ADDITIONS)
def test_an_addition_works(extended: Service, what: str) -> None:
    with extended.client() as client:
        ADDITIONS[what].check(client)


def test_the_service_is_the_copy_and_knows_its_settings(extended: Service) -> None:
    assert Path(f"/proc/{extended.process.pid}/cwd").resolve() != ROOT
    assert "is not a setting" not in extended.log()


def test_what_is_removed_leaves_the_rest_as_it_was() -> None:
    with served_copy(*REMOVALS) as (service, folder), service.client() as client:
        assert [client.get(each.path).status_code for each in REMOVALS] == [404] * len(REMOVALS)
        assert [path for path in OTHERS if client.get(path).status_code != 200] == []
        for operation, more in {"forward": {}, "vjp": {}, "hvp": {"vectors": {"x": [1, 0]}}, "check": {}}.items():
            answer = client.post(f"/v1/ops/square/{operation}", json={"inputs": {"x": [3, 4]}} | more)
            assert answer.status_code == 200, answer.text
        subprocess.run([sys.executable, "-c", IMPORT_ALL], cwd=folder, env=environment(), check=True)
