"""`requirements/install.py`: uv installs what pip's configuration says, from where it says; otherwise pip does."""

import base64
import contextlib
import hashlib
import http.server
import os
import ssl
import subprocess
import sys
import threading
import venv
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import ROOT
from tests.http.test_tls import make_certificate

INSTALL = ROOT / "requirements" / "install.py"
WHEEL = "planted-1.0-py3-none-any.whl"
NAMED = ("PIP_", "UV_", "SSL_", "REQUESTS_", "CURL_")
OTHER = hashlib.sha256(b"other").hexdigest()
SECRET = base64.b64encode(b"me:se/cret").decode()


class Index(NamedTuple):
    """A package index on loopback, with TLS and a password; its certificate is its own authority."""

    url: str
    authority: Path
    digest: str


def make_wheel(folder: Path) -> bytes:
    """Return a wheel with one module, ``planted``."""
    info = "planted-1.0.dist-info"
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        wheel.writestr("planted.py", "HERE = True\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"planted.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return (folder / WHEEL).read_bytes()


@contextlib.contextmanager
def served(pages: Mapping[str, tuple[str, bytes]], certificate: Path, key: Path) -> Iterator[int]:
    """Serve pages over TLS to those who know the password; yield the port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_known = self.headers.get("Authorization") == f"Basic {SECRET}"
            kind, body = pages.get(self.path, ("text/plain", b"")) if is_known else ("text/plain", b"")
            self.send_response((200 if body else 404) if is_known else 401)
            self.send_header("WWW-Authenticate", 'Basic realm="index"')
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> Iterator[Index]:
    folder = tmp_path_factory.mktemp("an index")
    certificate, key = make_certificate(folder, "-nodes", "-addext", "basicConstraints=critical,CA:FALSE")
    wheel = make_wheel(folder)
    page = f'<!DOCTYPE html><html><body><a href="/{WHEEL}">{WHEEL}</a></body></html>'.encode()
    pages = {"/simple/planted/": ("text/html", page), f"/{WHEEL}": ("application/octet-stream", wheel)}
    with served(pages, certificate, key) as port:
        url = f"https://me:se%2Fcret@localhost:{port}/simple"
        yield Index(url, certificate, hashlib.sha256(wheel).hexdigest())


@pytest.fixture
def environment(tmp_path) -> Path:
    """An environment without any package, in a folder whose name has a space."""
    folder = tmp_path / "an environment"
    venv.create(folder, symlinks=True)
    return folder


@pytest.fixture(scope="module")
def without_uv(tmp_path_factory) -> Path:
    """The Python of an environment that has pip and no uv."""
    folder = tmp_path_factory.mktemp("with pip")
    venv.create(folder, symlinks=True, with_pip=True)
    return folder / "bin" / "python"


def install(environment: Path, digest: str, python: Path | str = sys.executable, **variables: str) -> str:
    """Run the installer with these variables and without a machine's own; return what it printed to stderr."""
    lock = environment / "lock.txt"
    lock.write_text(f"planted==1.0 \\\n    --hash=sha256:{digest}\n")
    others = {name: value for name, value in os.environ.items() if not name.startswith(NAMED)}
    arguments = [environment / "bin" / "python", "--no-deps", "--require-hashes", "-r", lock]
    done = subprocess.run(
        [python, INSTALL, *arguments],
        env={**others, "PIP_CONFIG_FILE": os.devnull, "UV_CACHE_DIR": str(environment / "cache"), **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout == ""
    assert (done.returncode == 0) == bool(installer(environment))
    return done.stderr


def installer(environment: Path) -> str:
    """Return which program installed the package: uv, pip or "" for none."""
    return next((path.read_text().strip() for path in environment.rglob("planted-1.0.dist-info/INSTALLER")), "")


def configured(folder: Path, index: Index) -> dict[str, str]:
    """Return the variables of a machine where only pip's configuration file tells where the index is."""
    file = folder / "pip.conf"
    file.write_text(f"[global]\nquiet = 1\n[install]\nindex-url = {index.url}\ncert = {index.authority}\n")
    return {"PIP_CONFIG_FILE": str(file)}


def test_uv_reads_the_configuration_of_pip(environment, index) -> None:
    assert install(environment, index.digest, **configured(environment, index)) == ""
    assert installer(environment) == "uv"


@pytest.mark.slow
@pytest.mark.parametrize("bundle", ["PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"])
def test_uv_reads_the_variables_of_pip(environment, index, bundle) -> None:
    variables = {"PIP_INDEX_URL": index.url, bundle: str(index.authority), "PIP_DEFAULT_TIMEOUT": "7"}
    assert install(environment, index.digest, **variables) == ""
    assert installer(environment) == "uv"


@pytest.mark.slow
def test_uv_looks_at_links(environment, tmp_path) -> None:
    links = [tmp_path / "links", tmp_path / "more"]
    for folder in links:
        folder.mkdir()
    digest = hashlib.sha256(make_wheel(links[1])).hexdigest()
    (empty := tmp_path / "simple").mkdir()
    variables = {"PIP_INDEX_URL": empty.as_uri(), "PIP_FIND_LINKS": " ".join(map(str, links))}
    assert install(environment, digest, **variables) == ""
    assert installer(environment) == "uv"


@pytest.mark.slow
def test_uv_looks_at_all_indexes_and_takes_the_file_with_the_hash(environment, index, tmp_path) -> None:
    (other := tmp_path / "simple" / "planted").mkdir(parents=True)
    (other / "planted-2.0-py3-none-any.whl").touch()
    (other / "index.html").write_text('<a href="planted-2.0-py3-none-any.whl">planted-2.0-py3-none-any.whl</a>')
    variables = {"PIP_INDEX_URL": index.url, "PIP_EXTRA_INDEX_URL": other.parent.as_uri()}
    assert install(environment, index.digest, PIP_CERT=str(index.authority), **variables) == ""
    assert installer(environment) == "uv"


@pytest.mark.slow
def test_variables_of_uv_come_first(environment, index) -> None:
    variables = {"UV_DEFAULT_INDEX": index.url, "PIP_INDEX_URL": "https://localhost:1/simple"}
    assert install(environment, index.digest, PIP_CERT=str(index.authority), **variables) == ""
    assert installer(environment) == "uv"


@pytest.mark.slow
def test_pip_installs_where_there_is_no_uv(environment, index, without_uv) -> None:
    assert install(environment, index.digest, without_uv, **configured(environment, index)) == ""
    assert installer(environment) == "pip"


@pytest.mark.slow
def test_pip_installs_where_uv_cannot(environment, index) -> None:
    printed = install(environment, index.digest, UV_CACHE_DIR="/dev/null/x", **configured(environment, index))
    assert "pip tries" in printed
    assert installer(environment) == "pip"


@pytest.mark.slow
def test_neither_installs_a_file_with_another_hash(environment, index) -> None:
    printed = install(environment, OTHER, **configured(environment, index))
    assert printed.count(index.digest) >= 2
    assert installer(environment) == ""
