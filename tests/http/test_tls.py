"""TLS: the same answers as without, and one line in place of a traceback when the certificate cannot be used."""

import ssl
import subprocess
from pathlib import Path

import httpx
import numpy as np
import pytest

import pullback
from tests.patience import PATIENCE_S

SQUARE = "/v1/ops/square/forward"


def make_certificate(folder: Path, *options: str) -> tuple[Path, Path]:
    """Return a new self-signed certificate for this machine, and its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    made = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "2", "-subj", "/CN=localhost")
    command = ["openssl", "req", "-x509", *made, "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", key, "-out", cert, *options], check=True, capture_output=True)
    return cert, key


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"), "-nodes")


@pytest.fixture(scope="module")
def secured(start_for_module, certificate):
    cert, key = certificate
    return start_for_module(TLS_CERT=str(cert), TLS_KEY=str(key)).wait_until_ready()


@pytest.fixture(scope="module")
def client(secured, certificate):
    context = ssl.create_default_context(cafile=str(certificate[0]))
    with httpx.Client(base_url=secured.url, verify=context, timeout=PATIENCE_S, trust_env=False) as one:
        yield one


def test_requests_are_answered(secured, client):
    assert secured.url.startswith("https://127.0.0.1:")
    for _ in range(2):
        answer = client.post(SQUARE, json={"inputs": {"x": [1, 2]}})
        assert answer.json()["outputs"]["y"]["data"] == [1, 4]
    assert client.post(SQUARE, json={}).status_code == 422


def test_large_tensors_keep_their_bits(secured, certificate, monkeypatch):
    """These bodies bypass the parser, and the responses are sent in pieces."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    x = np.random.default_rng(1).standard_normal(1 << 20)
    with pullback.Client(secured.url) as one:
        for _ in range(2):
            y = one.op("square").forward({"x": x}).outputs["y"]
            assert np.array_equal(y, x * x)


def test_a_body_in_the_clear_is_not_answered(secured, client):
    with pytest.raises(httpx.TransportError):
        httpx.get(secured.url.replace("https", "http") + "/health/live", trust_env=False, timeout=PATIENCE_S)
    assert client.get("/health/live").status_code == 200


def test_old_versions_are_refused(secured, certificate):
    context = ssl.create_default_context(cafile=str(certificate[0]))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with httpx.Client(verify=context, trust_env=False, timeout=PATIENCE_S) as one:
        assert one.get(f"{secured.url}/health/live").status_code == 200
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with httpx.Client(verify=context, trust_env=False, timeout=PATIENCE_S) as one, pytest.raises(httpx.ConnectError):
        one.get(f"{secured.url}/health/live")


@pytest.mark.parametrize("case", ["missing", "not a certificate", "another key", "a password"])
def test_an_unusable_certificate_is_one_line(start, certificate, tmp_path, case):
    cert, key = certificate
    match case:
        case "missing":
            cert = tmp_path / "none"
        case "not a certificate":
            cert = tmp_path / "text"
            cert.write_text("text")
        case "another key":
            _, key = make_certificate(tmp_path, "-nodes")
        case _:
            cert, key = make_certificate(tmp_path, "-passout", "pass:secret")
    one = start(TLS_CERT=str(cert), TLS_KEY=str(key))
    assert one.wait() == 2
    assert "cannot use the certificate (PULLBACK_TLS_CERT, PULLBACK_TLS_KEY): " in one.log()
    assert "Traceback" not in one.log()


def test_a_key_needs_a_certificate(start, certificate):
    one = start(TLS_KEY=str(certificate[1]))
    assert one.wait() == 2
    assert "PULLBACK_TLS_KEY: expected PULLBACK_TLS_CERT too" in one.log()
