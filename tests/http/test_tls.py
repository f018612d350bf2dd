"""TLS: the same answers as without, and one line in place of a traceback when the certificate cannot be used."""

import json
import os
import ssl
import subprocess
from pathlib import Path

import httpx
import numpy as np
import pytest

import pullback
from pullback.keys import line_for, new_key
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


def test_the_line_at_the_start_works_with_a_key(start, certificate, tmp_path):
    (tmp_path / "keys").write_text(line_for("alice", key := new_key()))
    cert, secret = certificate
    service = start(TLS_CERT=str(cert), TLS_KEY=str(secret), KEYS_FILE=str(tmp_path / "keys")).wait_until_ready()
    command = (service.printed[1:] or [service.line()])[0].removeprefix("Try: ")
    environment = {**os.environ, "PULLBACK_KEY": key}
    done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["outputs"]["y"]["data"][1] == 100


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


UNUSABLE = {
    "missing": "PULLBACK_TLS_CERT: cannot read {cert}: No such file or directory",
    "a folder": "PULLBACK_TLS_CERT: cannot read {cert}: Is a directory",
    "not a certificate": "PULLBACK_TLS_CERT: {cert}: expected a certificate in PEM, got none",
    "a broken certificate": "PULLBACK_TLS_CERT: {cert}, PULLBACK_TLS_KEY: {key}: cannot use the certificate: ",
    "no key in it": "PULLBACK_TLS_CERT: {cert}: expected the certificate's key in PEM, or another file as "
    "PULLBACK_TLS_KEY, got none",
    "a missing key": "PULLBACK_TLS_KEY: cannot read {key}: No such file or directory",
    "not a key": "PULLBACK_TLS_KEY: {key}: expected the certificate's key in PEM, got none",
    "another key": "PULLBACK_TLS_CERT: {cert}, PULLBACK_TLS_KEY: {key}: cannot use the certificate: the key is not "
    "that of the certificate",
    "a password": "PULLBACK_TLS_KEY: {key}: expected a key without a password",
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_an_unusable_certificate_is_one_line_that_names_the_file(start, certificate, tmp_path, case):
    cert, key = certificate
    text = tmp_path / "text"
    text.write_text("text")
    match case:
        case "missing":
            cert = tmp_path / "none"
        case "a folder":
            cert = tmp_path
        case "not a certificate":
            cert = text
        case "a broken certificate":
            text.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
            cert = text
        case "a missing key":
            key = tmp_path / "none"
        case "not a key":
            key = text
        case "another key":
            _, key = make_certificate(tmp_path, "-nodes")
        case "a password":
            cert, key = make_certificate(tmp_path, "-passout", "pass:secret")
        case _:
            key = None
    one = start(TLS_CERT=str(cert), **({"TLS_KEY": str(key)} if key else {}))
    assert one.wait() == 2
    assert one.log().startswith("pullback: " + UNUSABLE[case].format(cert=cert, key=key))
    assert one.log().count("\n") == 1


def test_the_key_may_be_in_the_file_of_the_certificate(start, certificate, tmp_path):
    both = tmp_path / "both.pem"
    both.write_bytes(b"".join(path.read_bytes() for path in certificate))
    one = start(TLS_CERT=str(both)).wait_until_ready()
    context = ssl.create_default_context(cafile=str(certificate[0]))
    assert httpx.get(f"{one.url}/health/live", verify=context, trust_env=False, timeout=PATIENCE_S).is_success


def test_a_key_needs_a_certificate(start, certificate):
    one = start(TLS_KEY=str(certificate[1]))
    assert one.wait() == 2
    assert one.log_with("PULLBACK_TLS_KEY: expected PULLBACK_TLS_CERT too")
