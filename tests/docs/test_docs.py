"""Run every command on the pages against the service and compare its output with the page."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

import pullback
from app.errors import PullbackError
from app.gradcheck.checks import CHECKS
from app.http.origins import LOOPBACK_HOSTS
from app.requests.operations import OPERATIONS
from app.routes.native.check_models import CheckRequest, ChecksRequest
from app.runtime.trace_entry import MEMBERS
from app.runtime.trace_room import SESSIONS_KEPT, TRACES_KEPT
from app.settings import Settings
from pullback.keys import line_for
from tests.conftest import ROOT, Serve, Service, environment
from tests.page_examples import FENCE, op_files
from tests.patience import PATIENCE_S
from tests.threaded_service import ThreadedService

README, HTTP_API, ADD_AN_OP = "README.md", "docs/http-api.md", "docs/add-an-op.md"
ADD_A_NATIVE_OP, MODELS, PAGE_LIMITS = "docs/add-a-native-op.md", "docs/models.md", "docs/page-limits.md"
PAGES_OF_OPS = [ADD_A_NATIVE_OP, ADD_AN_OP, MODELS, PAGE_LIMITS]
# Their commands need an op of another page.
EXPLAIN = "docs/explain-a-model.md"
GRADIENT_CHECKS, DEPLOYMENT = "docs/gradient-checks.md", "docs/deployment.md"
OPS, PYTHON_CLIENT = "docs/ops.md", "docs/python-client.md"
EVENTS = ("start", "progress", "finding", "report", "summary", "error")
PAGES = [README, *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
ON_THE_PAGES = "http://127.0.0.1:8000"
MARK = "\x1e"
MAX_OP_LINES = 40
# The last digits of a float32 differ between processors.
DIGITS = 1e-6

LINK = re.compile(r"\]\(([^)\s]+)\)")
ROW = re.compile(r"^\| (?!---)(.+) \|$", re.MULTILINE)
DEFINES_OP = "\nOP = Op(\n"
OP_FILES = op_files(*(ROOT / page for page in (ADD_AN_OP, MODELS, PAGE_LIMITS)))

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="the pages use curl, which is not installed")


class Step(NamedTuple):
    """A command of a page, and its output according to the page."""

    command: str
    output: str


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def blocks(page: str, language: str) -> list[str]:
    return [body for found, body in FENCE.findall(text_of(page)) if found == language]


def steps(page: str) -> list[Step]:
    """Return the commands in a page's ``console`` blocks: a line that begins with ``$``, then its output."""
    found: list[Step] = []
    for line in "".join(blocks(page, "console")).splitlines():
        if line.startswith("$ "):
            found.append(Step(line[2:], ""))
        else:
            found[-1] = found[-1]._replace(output=f"{found[-1].output}{line}\n")
    return found


def rows(page: str, first_heading: str) -> list[list[str]]:
    """Return the cells of the table whose first heading this is."""
    table = text_of(page).split(f"\n| {first_heading} |", 1)[1].split("\n\n", 1)[0]
    return [[cell.strip() for cell in row.split(" | ")] for row in ROW.findall(table)]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]*)`", cell)


def run(command: list[str], url: str) -> str:
    """Run a command in a new folder, which has the files in ``docs/examples``; return its output.

    The pages' address is replaced by ``url``.
    """
    here = [part.replace(ON_THE_PAGES, url) for part in command]
    env = os.environ | {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "docs" / "examples", Path(folder, "docs", "examples"))
        done = subprocess.run(
            here, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=env
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


def printed(page: str, url: str, first: str = ":") -> list[str]:
    """Run a page's commands one after the other in one shell, after ``first``; return the output of each."""
    script = f"{first}\n" + "".join(f"{step.command}\nprintf '{MARK}'\n" for step in steps(page))
    return run(["bash", "-euc", script], url).split(MARK)[:-1]


def read(text: str) -> Any:
    """Return a text parsed as JSON if possible, otherwise stripped."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text.strip()


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        mine, theirs = cast("dict[str, Any]", one), cast("dict[str, Any]", other)
        return mine.keys() == theirs.keys() and all(same(value, theirs[key]) for key, value in mine.items())
    if isinstance(one, list):
        items, others = cast("list[Any]", one), cast("list[Any]", other)
        return len(items) == len(others) and all(map(same, items, others))
    return math.isclose(one, other, rel_tol=DIGITS) if isinstance(one, float) else one == other


def differences(page: str, url: str, first: str = ":") -> list[tuple[str, str, str]]:
    """Return each command whose output differs from the page: the command, the page's output, the real output."""
    commands = steps(page)
    return [
        (step.command, step.output, output)
        for step, output in zip(commands, printed(page, url, first), strict=True)
        if not same(read(step.output), read(output))
    ]


@needs_curl
@pytest.mark.parametrize("page", [p for p in PAGES if p not in (README, EXPLAIN, *PAGES_OF_OPS) and steps(p)])
def test_commands_print_the_output_on_the_page(page: str, service: Service) -> None:
    assert differences(page, service.url) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_request_on_a_page_is_run(page: str) -> None:
    assert not any("curl" in body or "post " in body for name in ("sh", "bash", "") for body in blocks(page, name))


@pytest.mark.parametrize("page", PAGES)
def test_links_have_targets(page: str) -> None:
    targets = [link for link in LINK.findall(text_of(page)) if "://" not in link]
    assert [link for link in targets if not has_target(page, link)] == []


def has_target(page: str, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (ROOT / page).parent / path if path else ROOT / page
    return target.exists() and (not anchor or anchor in anchors(target.read_text()))


def anchors(text: str) -> list[str]:
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings]


def test_a_command_leaves_nothing_in_the_repository() -> None:
    run(["bash", "-euc", "touch left_here; test -f docs/examples/residual.graph.json"], ON_THE_PAGES)
    assert not (ROOT / "left_here").exists()


def test_same_finds_differences() -> None:
    assert same({"a": [1.0, "NaN", None]}, {"a": [1.0000001, "NaN", None]})
    for other in ({"a": [1, "NaN", None]}, {"a": [1.0, "NaN"]}, {"a": [1.0, "NaN", 0]}, {"a": [1.1, "NaN", None]}, {}):
        assert not same({"a": [1.0, "NaN", None]}, other)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [PYTHON_CLIENT, GRADIENT_CHECKS, HTTP_API, "docs/graphs.md", "docs/expensive-functions.md"]
)
def test_the_python_example_prints_the_output_on_the_page(page: str, service: Service) -> None:
    programs, texts = blocks(page, "python"), blocks(page, "text")
    for program, output in zip(programs, texts[-len(programs) :], strict=True):
        assert run([sys.executable, "-W", "error", "-c", program], service.url) == output


def test_the_check_of_a_wrong_op_prints_the_output_on_the_page(serve: Serve, tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests/http/plugins/steep.py", tmp_path)
    service = serve(OPS_PATH=str(tmp_path))
    # With the address in the environment and `pullback` on the path, the printed command needs neither.
    paths = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    done = subprocess.run(
        ["pullback", "check", "steep"],
        env={**os.environ, "PATH": paths, "PULLBACK_URL": service.url},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    # Durations and the worst number, in error bars, differ between machines.
    number = re.compile(r"-?\d[\d.]*(e[-+]\d+)?")
    sample = blocks(GRADIENT_CHECKS, "text")[0]
    assert number.sub("#", sample) in number.sub("#", done.stdout)
    assert "265 of 265 points wrong: all are 1.09 times what they should be" in sample
    assert "265 of 265 points wrong: all are 1.09 times what they should be" in done.stdout


def check_passes(op: str, url: str) -> None:
    """Run all checks of an op that a page defines: no number may be wrong, and every value must be compared."""
    command = [sys.executable, "-m", "pullback", "check", op, "--json", "-", "--quiet"]
    [report] = json.loads(run([*command, "--url", url], url))["reports"]
    verdicts = {entry["check"]: entry["verdict"] for entry in report["checks"]}
    assert report["verdict"] == "pass"
    assert verdicts["value"] == "pass"
    assert set(verdicts.values()) <= {"pass", "skipped"}


def test_every_field_of_the_checks_is_in_their_table() -> None:
    table = [quoted(cells[0])[0] for cells in rows(GRADIENT_CHECKS, "field")]
    assert set(table) == set(CheckRequest.model_fields)
    assert set(ChecksRequest.model_fields) == set(table) - {"inputs", "attrs", "parameters"} | {"ops", "findings"}
    assert [cells[0] for cells in rows(GRADIENT_CHECKS, "check")] == list(CHECKS)
    assert [quoted(cells[0])[0] for cells in rows(GRADIENT_CHECKS, "event")] == list(EVENTS)


def test_every_op_is_in_the_table(service: Service) -> None:
    table = {quoted(cells[0])[0]: quoted(cells[3]) if len(cells) > 3 else [] for cells in rows(OPS, "op")}
    with service.client() as client:
        names = [op["name"] for op in client.get("/v1/ops").json()["ops"]]
        served = {name: list(client.get(f"/v1/ops/{name}").json()["attrs"]["properties"]) for name in names}
    assert table == served
    assert f"[{len(names)} ops]" in text_of(README)


def test_every_setting_is_in_the_table_with_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PULLBACK_")]:
        monkeypatch.delenv(name)
    defaults = Settings()
    table = {quoted(cells[0])[0]: quoted(cells[1])[0].strip() for cells in rows(DEPLOYMENT, "variable")}
    assert list(table) == [f"PULLBACK_{name.upper()}" for name in Settings.model_fields]
    for name, default in table.items():
        monkeypatch.setenv(name, default)
    assert Settings() == defaults


def test_every_setting_is_in_the_compose_file_at_its_default() -> None:
    """Settings are commented out, except for those that the image sets, the hosts and the service's device."""
    table = {quoted(cells[0])[0]: quoted(cells[1])[0].strip() for cells in rows(DEPLOYMENT, "variable")}
    there = dict(re.findall(r"^  (?:# )?(PULLBACK_\w+): ?(\S*)$", text_of("docker-compose.yml"), re.MULTILINE))
    hosts = f"${{PUBLISH_HOSTS:-{','.join(LOOPBACK_HOSTS)}}}"
    other = {"PULLBACK_HOST": "0.0.0.0", "PULLBACK_OPS_PATH": "/ops-extra", "PULLBACK_HOSTS": hosts}
    other["PULLBACK_DATA"] = "/data"
    assert there == table | other
    image = dict(re.findall(r"(PULLBACK_\w+)=(\S+)", text_of("Dockerfile")))
    names = ("PULLBACK_HOST", "PULLBACK_PORT", "PULLBACK_OPS_PATH", "PULLBACK_DATA")
    assert image == {name: there[name] for name in names}


def test_the_image_is_of_this_version() -> None:
    assert set(re.findall(r"^ARG VERSION=(.+)$", text_of("Dockerfile"), re.MULTILINE)) == {pullback.__version__}


def test_a_container_gets_enough_time_to_stop() -> None:
    longest = Settings().drain_s + Settings().grace_s
    compose = re.search(r"stop_grace_period: (\d+)s", text_of("docker-compose.yml"))
    pod = re.search(r"terminationGracePeriodSeconds: (\d+)", text_of(DEPLOYMENT))
    assert compose
    assert pod
    assert min(int(compose[1]), int(pod[1])) > longest


@pytest.mark.slow
def test_the_doctor_prints_the_output_on_the_page() -> None:
    """Of a healthy machine, and exits with 0; the command line executes ``python -m app.runtime.doctor``."""
    done = subprocess.run(
        [sys.executable, "-m", "pullback", "doctor"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == blocks(DEPLOYMENT, "text")[0]


def test_every_route_is_in_the_table(service: Service) -> None:
    with service.client() as client:
        paths = client.get("/openapi.json").json()["paths"]
        table = {route for cells in rows(HTTP_API, "route") for route in quoted(cells[0])}
        served = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
        assert table == served | {
            *("GET /docs", "GET /openapi.json", "GET /llms.txt"),
            *("GET /", "GET /explore", "GET /explore/{op}"),
        }
        assert client.get("/docs").status_code == client.get("/explore").status_code == 200


def test_every_metric_is_in_the_table_with_its_labels(serve: Serve, tmp_path: Path) -> None:
    # With a file of keys, because without one requests are not counted by key.
    (tmp_path / "keys").write_text(line_for("a", "key"), encoding="ascii")
    table = {quoted(cells[0])[0]: set(quoted(cells[1])) for cells in rows(DEPLOYMENT, "metric")}
    with serve(KEYS_FILE=str(tmp_path / "keys")).client() as client:
        client.headers["authorization"] = "Bearer key"
        # An op whose rows share calls has a metric of their shapes.
        client.post("/v1/ops/safe_norm/forward", json={"inputs": {"x": [1]}})
        client.get("/health/live")
        client.get("/v1/ops", headers={"authorization": "Bearer other"})
        families = list(text_string_to_metric_families(client.get("/metrics").text))
    # The samples of a counter have a suffix that its family lacks.
    names = {family.name + ("_total" if family.type == "counter" else ""): family for family in families}
    served = {name: {label for sample in family.samples for label in sample.labels} for name, family in names.items()}
    assert table == {name: labels - {"le"} for name, labels in served.items()}


def test_every_field_is_in_the_table() -> None:
    table = {quoted(cells[0])[0]: cells[1].split(", ") for cells in rows(HTTP_API, "field")}
    taken = {name for operation in OPERATIONS.values() for name in operation.request.model_fields}
    assert set(table) == taken
    for name, takers in table.items():
        takes = [operation.name for operation in OPERATIONS.values() if name in operation.request.model_fields]
        assert takers == (["all"] if len(takes) == len(OPERATIONS) else takes)


def test_every_status_is_in_the_table(service: Service) -> None:
    table = {cells[0] for cells in rows(HTTP_API, "status")}
    with service.client() as client:
        paths = client.get("/openapi.json").json()["paths"]
    documented = {status for methods in paths.values() for one in methods.values() for status in one["responses"]}
    assert documented - {"200", "201", "204", "default"} <= table


def test_every_error_is_in_the_table_with_its_title() -> None:
    table = {(cells[0], cells[1]) for cells in rows(HTTP_API, "status")}
    assert table == {(str(error.status), error.title) for error in PullbackError.__subclasses__()}


def test_the_limits_of_traces_match_the_code() -> None:
    compiled = SESSIONS_KEPT * MEMBERS
    assert f"{TRACES_KEPT} traces and {compiled} of those that XLA compiles" in text_of(HTTP_API)


def mistakes() -> dict[str, tuple[str, list[str]]]:
    """Return the page's wrong versions of its first op by name: the file and the error message."""
    cube, wrong = OP_FILES["cube"], dict[str, tuple[str, list[str]]]()
    for number, (function, line, words) in enumerate(rows(ADD_AN_OP, "function")):
        name = f"mistake_{number}"
        [right] = re.findall(rf"def {quoted(function)[0]}\(.*?(    return [^\n]*)", cube, re.DOTALL)
        body = cube.replace(right, f"    {quoted(line)[0]}").replace('name="cube"', f'name="{name}"')
        wrong[name] = body, quoted(words)
    return wrong


@pytest.fixture(scope="module")
def plugged(serve_for_module: Serve, tmp_path_factory: pytest.TempPathFactory) -> ThreadedService:
    """A service with the page's files in one folder and its wrong versions in another."""
    right, wrong = tmp_path_factory.mktemp("my_ops"), tmp_path_factory.mktemp("mistakes")
    for name, body in OP_FILES.items():
        (right / f"{name}.py").write_text(body)
    for name, (body, _) in mistakes().items():
        (wrong / f"{name}.py").write_text(body)
    return serve_for_module(OPS_PATH=f"{right}{os.pathsep}{wrong}", PARAMETERS_MB="1")


# The others take seconds each, and their pages seldom change.
QUICK_TO_CHECK = ("cube", "pick")


def test_the_first_op_is_short() -> None:
    assert len(OP_FILES["cube"].splitlines()) < MAX_OP_LINES


@needs_curl
def test_the_op_of_the_page_works_as_described(plugged: ThreadedService) -> None:
    assert differences(ADD_AN_OP, plugged.url) == []


@needs_curl
def test_models_are_served_as_described(plugged: ThreadedService) -> None:
    assert differences(MODELS, plugged.url) == []
    [program, *_], [output] = blocks(MODELS, "py"), blocks(MODELS, "text")
    assert run([sys.executable, "-W", "error", "-c", program], plugged.url) == output


def test_an_exported_model_is_served_as_described(serve: Serve, tmp_path: Path) -> None:
    _, export, page = blocks(MODELS, "py")
    subprocess.run([sys.executable, "-c", export], cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "my_ops" / "flowers" / "flowers.py").write_text(page)
    with serve(OPS_PATH=str(tmp_path / "my_ops")).client() as client:
        contract = client.get("/v1/ops/flowers").json()
        names = [each["name"] for each in contract["parameters"]]
        assert names == ["dense_kernel", "dense_bias", "dense_1_kernel", "dense_1_bias"]
        assert contract["source"].startswith("a SavedModel of TensorFlow 2.")
        body = {"inputs": {"x": [[5, 3, 1, 0]]}, "wrt": ["dense_1_bias"]}
        found = client.post("/v1/ops/flowers/vjp", json=body).json()["gradients"]["dense_1_bias"]["data"]
        assert found == [1.0, 1.0, 1.0]


@needs_curl
def test_what_a_page_cannot_say_is_written_as_described(plugged: ThreadedService) -> None:
    definition = next(step for step in steps(ADD_AN_OP) if step.command.startswith("post()"))
    assert differences(PAGE_LIMITS, plugged.url, first=definition.command) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK_TO_CHECK else pytest.mark.thorough)
        for name, body in OP_FILES.items()
        if DEFINES_OP in body
    ],
)
def test_the_check_of_an_op_of_the_page_passes(name: str, plugged: ThreadedService) -> None:
    check_passes(name, plugged.url)


def test_every_page_that_defines_an_op_has_a_test_that_checks_it() -> None:
    assert [page for page in PAGES if DEFINES_OP in text_of(page)] == PAGES_OF_OPS


@pytest.mark.parametrize("name", mistakes())
def test_a_mistake_gives_the_error_on_the_page(name: str, plugged: ThreadedService) -> None:
    with plugged.client() as client:
        answer = client.post(f"/v1/ops/{name}/gradients", json={"inputs": {"x": [1, 2]}, "order": 2})
    assert answer.status_code == 500
    detail = answer.json()["detail"]
    assert [words for words in [name, *mistakes()[name][1]] if words not in detail] == []
