"""A page that is wrong in any way makes its op unavailable, with file, line and cure, and changes nothing else."""

import json
import logging
import os
import re
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import httpx
import numpy as np
import pytest
import tensorflow as tf

from app.autodiff.admission import admit
from ops import discover
from tests.conftest import Serve
from tests.ops.pages import GOOD, MADE, WRONG

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True, scope="module")
def _unlogged() -> Iterator[None]:
    """The log has half a letter of an exception, which processes of pytest cannot send to each other."""
    with patch.object(logging.getLogger("pullback"), "disabled", True):
        yield


PLACE = re.compile(r"([\w.]+/[\w.]+)(?::(\d+))? and start again$")


def stem_of(kind: str) -> str:
    return re.sub(r"\W", "_", kind).lower()


def write(folder: Path, kind: str) -> Path:
    path = folder / f"{stem_of(kind)}.py"
    path.write_bytes(WRONG[kind].source.replace("NAME", stem_of(kind)).encode(errors="surrogateescape"))
    return path


@pytest.mark.share(3)
@pytest.mark.filterwarnings("ignore:Field name")  # pydantic warns of a field that hides a method
@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_page_is_unavailable_with_file_line_and_cure(kind: str, tmp_path: Path) -> None:
    wrong, path = WRONG[kind], write(tmp_path, kind)
    [broken] = discover([tmp_path], admit).unavailable
    assert broken.name == path.stem
    assert [word for word in wrong.words if word not in broken.reason] == [], broken.reason
    assert len(broken.reason) <= 300
    assert str(tmp_path) not in broken.reason
    if "pullback native" not in broken.reason:
        place = PLACE.search(broken.reason)
        assert place, broken.reason
        assert place[1] == f"{tmp_path.name}/{path.name}"[-120:]
        named = path.read_text(errors="replace").splitlines()[int(place[2]) - 1] if place[2] else ""
        assert wrong.line in named, broken.reason


def test_the_good_page_is_served(tmp_path: Path) -> None:
    """So each of the others is wrong for its own reason."""
    (tmp_path / "good.py").write_text(GOOD.replace("NAME", "good"))
    assert discover([tmp_path], admit).unavailable == ()


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.symlink_to("nowhere"), os.mkfifo])
def test_what_is_no_file_is_unavailable(make, tmp_path: Path) -> None:
    make(tmp_path / "odd.py")
    [broken] = discover([tmp_path]).unavailable
    assert "expected a file with Python code" in broken.reason
    assert "remove it" in broken.reason


def test_a_file_name_that_is_not_unicode_can_be_listed(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.py")).write_text("1 / 0")
    [broken] = discover([tmp_path]).unavailable
    assert json.dumps([broken.name, broken.reason], ensure_ascii=False).encode()


def test_an_error_in_a_file_beside_the_page_has_its_line(tmp_path: Path) -> None:
    (tmp_path / "_shared_beside.py").write_text("X = 1\n1 / 0\n")
    (tmp_path / "user.py").write_text(f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport _shared_beside\n")
    [broken] = discover([tmp_path]).unavailable
    assert broken.reason.endswith(f"correct {tmp_path.name}/_shared_beside.py:2 and start again")


MEDDLING = f"""
import os, signal, sys, warnings
import numpy as np
import tensorflow as tf
os.chdir("/")
sys.path.clear()
sys.path = ["/nowhere"]
sys.stdin = sys.stderr = None
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
warnings.simplefilter("ignore")
np.seterr(all="raise")
tf.config.run_functions_eagerly(True)
print("not to be read by what waits for the service")
{GOOD}
"""


def test_a_page_that_changes_the_process_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def state() -> list[object]:
        signals = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
        streams = [sys.stdin, sys.stdout, sys.stderr]
        return [Path.cwd(), sys.path, [*sys.path], *streams, *signals, [*warnings.filters], np.geterr()]

    (tmp_path / "meddling.py").write_text(MEDDLING.replace("NAME", "meddling"))
    before = state()
    registry = discover([tmp_path])
    assert "meddling" in registry.ops
    assert state() == before
    assert tf.executing_eagerly()
    assert not tf.config.functions_run_eagerly()
    printed = capsys.readouterr()
    assert (printed.out, "not to be read" in printed.err) == ("", True)


@pytest.fixture(scope="module")
def plugged(serve_for_module: Serve, tmp_path_factory: pytest.TempPathFactory):
    """A service with one good op of a plug-in and all wrong pages."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "good.py").write_text(GOOD.replace("NAME", "good"))
    for kind in WRONG:
        write(folder, kind)
    with serve_for_module(OPS_PATH=str(folder)).client() as client:
        yield client


def test_all_wrong_pages_are_listed_and_nothing_else_is_missing(plugged: httpx.Client) -> None:
    ops = {op["name"]: op for op in plugged.get("/v1/ops").json()["ops"]}
    assert {name for name, op in ops.items() if not op["available"]} == {stem_of(kind) for kind in WRONG}
    assert {"good", "square", "relu", "roi_pool"} <= {name for name, op in ops.items() if op["available"]}
    ready = plugged.get("/health/ready")
    assert ready.status_code == 200
    assert {broken["op"] for broken in ready.json()["unavailable"]} == {stem_of(kind) for kind in WRONG}


def test_a_request_for_a_broken_op_has_the_reason(plugged: httpx.Client) -> None:
    answer = plugged.post("/v1/ops/a_forgotten_comma/forward", json={"inputs": {"x": [1]}})
    assert answer.status_code == 404
    assert "write ('float32',), with a comma; correct" in answer.json()["detail"]
    assert "a_forgotten_comma.py:" in answer.json()["detail"]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/ops/good",
        "/v1/ops/good.vjp.jvp",
        "/openapi.json",
        "/docs",
        "/Info",
        "/v2",
        "/v2/models/good",
        "/v2/models/good.hessian/config",
        "/tesseract/good/openapi.json",
        "/metrics",
    ],
)
def test_every_document_is_served_beside_them(path: str, plugged: httpx.Client) -> None:
    answer = plugged.get(path)
    assert answer.status_code == 200
    if path in ("/Info", "/openapi.json"):
        assert "good" in answer.text


def test_every_api_computes_beside_them(plugged: httpx.Client) -> None:
    typed = {"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}
    requests = {
        "/v1/ops/good/gradients": {"inputs": {"x": [1, 2]}},
        "/Gradient": {"name": "good", "outWrt": 0, "inWrt": 0, "input": [[1, 2]], "sens": [1, 1], "config": {}},
        "/ModelInfo": {"name": "good"},
        "/v2/models/good.vjp/infer": {"inputs": [typed]},
        "/v2/repository/index": {},
        "/tesseract/good/apply": {"inputs": {"x": [1, 2]}},
    }
    assert {path: plugged.post(path, json=body).status_code for path, body in requests.items()} == dict.fromkeys(
        requests, 200
    )


def test_the_checks_run_beside_them(plugged: httpx.Client) -> None:
    body = {"ops": ["good", "square"], "checks": ["value", "derivative"]}
    answer = plugged.post("/v1/checks", json=body, headers={"accept": "application/x-ndjson"})
    events = [json.loads(line) for line in answer.text.splitlines()]
    assert events[-1]["event"] == "summary"
    assert events[-1]["pass"] == 2


def test_strict_mode_names_every_broken_page(tmp_path: Path, start) -> None:
    kinds = ("a forgotten comma", "sys.exit", "a wrong default", "an exception with half a letter")
    for kind in kinds:
        write(tmp_path, kind)
    one = start(OPS_PATH=str(tmp_path), STRICT="1")
    assert one.wait() == 3
    [line] = [line for line in one.log().splitlines() if line.startswith("pullback: ")]
    assert [kind for kind in kinds if f"{stem_of(kind)}: " not in line] == []


def test_the_table_has_every_kind_of_field() -> None:
    assert MADE in GOOD
    assert len(WRONG) > 90
