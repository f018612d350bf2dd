"""GET / and the files of /explore: who gets what, how it is kept, and that the pages load only files of the service."""

import gzip
import hashlib
import json
import re
import subprocess
from pathlib import Path

import httpx
import pytest

from app.routes.native.explorer import FOLDER, LINKS, PAGE, files
from pullback.keys import line_for, new_key
from tests.conftest import Serve
from tests.http.native_client import problem
from tests.page_examples import node

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
FILES = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*") if path.is_file() and path.suffix != ".ts")
# What the browser loads for a page, compressed.
MOST_BYTES = 150_000


@pytest.mark.parametrize("accept", [BROWSER, "text/html"])
def test_a_browser_is_sent_to_the_explorer(client: httpx.Client, accept: str) -> None:
    response = client.get("/", headers={"accept": accept})
    assert (response.status_code, response.headers["location"]) == (302, "/explore")


@pytest.mark.parametrize("accept", ["*/*", "application/json", "application/json, text/html;q=0.5", ""])
def test_others_get_the_links_of_the_service(client: httpx.Client, accept: str) -> None:
    response = client.get("/", headers={"accept": accept})
    assert response.json() == LINKS
    assert [client.get(path).status_code for path in LINKS.values()] == [200] * len(LINKS)


def test_an_unknown_path_is_a_page_for_a_browser(client: httpx.Client) -> None:
    response = client.get("/no%3Cscript%3E", headers={"accept": BROWSER})
    assert (response.status_code, response.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "<p>unknown path /no&lt;script&gt;; GET /docs lists the paths</p>" in response.text
    assert "default-src 'none'" in response.headers["content-security-policy"]
    links = re.findall(r'href="([^"]+)"', response.text)
    assert set(links) == {"/", "/docs", "/explore"}
    assert [client.get(link, follow_redirects=True).status_code for link in links] == [200] * len(links)
    head = client.head("/no%3Cscript%3E", headers={"accept": BROWSER})
    assert (head.status_code, head.headers["content-length"]) == (404, response.headers["content-length"])


@pytest.mark.parametrize(
    ("method", "accept"),
    [
        ("GET", "*/*"),
        ("GET", "application/json, text/html;q=0.5"),
        ("GET", "image/png"),
        ("GET", ""),
        ("POST", BROWSER),
    ],
)
def test_an_unknown_path_is_a_document_for_others(client: httpx.Client, method: str, accept: str) -> None:
    response = client.request(method, "/nowhere", headers={"accept": accept})
    assert problem(response, 404)["detail"] == "unknown path /nowhere; GET /docs lists the paths"
    assert response.headers["vary"] == "Accept"


@pytest.mark.parametrize("path", ["/explore", "/explore/", "/explore/square", "/explore/square.vjp/"])
def test_a_page_may_only_load_files_of_the_service(client: httpx.Client, path: str) -> None:
    page = client.get(path)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(rule.split(" ", 1) for rule in page.headers["content-security-policy"].split("; "))
    assert policy.pop("img-src") == "'self' data:"
    # The hash is that of the script in the page, which test_origins compares.
    assert re.fullmatch(r"'self' 'sha256-[\w+/]+='", policy.pop("script-src"))
    assert set(policy.values()) == {"'self'", "'none'"}
    assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
    sources = re.findall(r'(?:src|href)="([^"#]+)"', page.text)
    assert {source.rpartition("/")[2] for source in sources} >= {Path(file).name for file in FILES if "js/" in file} - {
        "loading.js"
    }
    assert all(client.get(source).status_code == 200 for source in sources)


def test_docs_are_found_with_a_slash(client: httpx.Client) -> None:
    assert client.get("/docs/").text == client.get("/docs").text


@pytest.mark.parametrize("file", FILES)
def test_a_file_is_sent_once(client: httpx.Client, file: str) -> None:
    content, path = files().by_path[file].content, f"/explore/static/{files().version}/{file}"
    assert file == PAGE or content == (FOLDER / file).read_bytes()
    plain, packed = (client.get(path, headers={"accept-encoding": kind}) for kind in ("identity", "gzip"))
    assert plain.content == packed.content == content
    assert (packed.headers["content-encoding"], "content-encoding" in plain.headers) == ("gzip", False)
    assert int(packed.headers["content-length"]) == len(gzip.compress(content, mtime=0))
    assert plain.headers["x-content-type-options"] == "nosniff"
    assert "immutable" in plain.headers["cache-control"]
    other = client.get(f"/explore/static/0123/{file}")
    assert (other.content, other.headers["cache-control"]) == (content, "no-cache")
    known = client.get(path, headers={"if-none-match": f'"other", {plain.headers["etag"]}'})
    assert (known.status_code, known.content) == (304, b"")
    if file.endswith(".js"):
        assert plain.headers["content-type"] == "text/javascript; charset=utf-8"


def test_the_files_are_small() -> None:
    assert sum(len(gzip.compress((FOLDER / file).read_bytes())) for file in FILES) < MOST_BYTES


@pytest.mark.parametrize("path", ["none.js", "..%2fmain", "js/..%2f..%2fmain", "js"])
def test_nothing_else_is_served(client: httpx.Client, path: str) -> None:
    problem(client.get(f"/explore/static/0123/{path}"), 404)


def test_what_others_wrote_is_as_they_published_it() -> None:
    vendor = FOLDER / "vendor"
    sums = dict(reversed(line.split("  ")) for line in (vendor / "SHA256SUMS").read_text().splitlines())
    assert set(sums) == {path.name for path in vendor.iterdir()} - {"SHA256SUMS"}
    assert {name: hashlib.sha256((vendor / name).read_bytes()).hexdigest() for name in sums} == sums


@pytest.mark.slow
def test_the_pages_need_no_key_and_all_that_they_show_does(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(line_for("someone", new_key()))
    with serve(KEYS_FILE=str(tmp_path / "keys")).client() as client:
        for path in ("/", "/explore", "/explore/square", f"/explore/static/0123/{FILES[0]}"):
            assert client.get(path).status_code == 200
        for path in ("/v1/ops", "/docs", "/explorer", "/health"):
            problem(client.get(path), 401)


def test_complex_numbers_count_as_their_parts() -> None:
    """⟨c, w⟩ is Re Σ conj(c) w, with c = 1 + 0i by default; a direction has a number for each part."""
    script = """
const { directionOf, isFloat, valueOf } = await import(process.argv[1] + "/slice.js");
const { complexTexts, numbers } = await import(process.argv[1] + "/numbers.js");
const slot = { name: "z", dtypes: ["complex64", "complex128"], differentiable: true };
const outputs = { w: { dtype: "complex64", shape: [2], data: [[1, 2], [3, 4]] } };
console.log(JSON.stringify([
  isFloat(slot, "complex128"),
  valueOf(outputs, null),
  valueOf(outputs, { w: [[0, 1], [1, 0]] }),
  directionOf({ inputs: [slot] }, { z: [[1, 2]] }, "complex64", { input: "z", index: 1 }),
  complexTexts(numbers([[1, -2], ["NaN", 0.5]]), 7),
]));
"""
    command = [node(), "--input-type=module", "-e", script, str(FOLDER / "js")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout) == [True, 4, 5, {"z": [[0, 1]]}, ["1 − 2i", "NaN + 0.5i"]]
