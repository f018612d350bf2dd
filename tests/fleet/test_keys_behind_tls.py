"""HAProxy speaks TLS to clients and passes their keys on: the service admits those whose key it knows."""

import ssl
import tempfile

import httpx

from pullback.keys import line_for, new_key
from tests.conftest import Service
from tests.fleet.balancer import HOST, UP, Balancer
from tests.fleet.members import SETTINGS
from tests.http.test_tls import make_certificate
from tests.patience import PATIENCE_S


def test_a_key_opens_the_service_behind_tls(tmp_path):
    key, keys = new_key(), tmp_path / "keys"
    keys.write_text(line_for("alice", key))
    certificate, private = make_certificate(tmp_path, "-nodes")
    both = tmp_path / "both.pem"
    both.write_bytes(certificate.read_bytes() + private.read_bytes())
    with tempfile.TemporaryFile() as log:
        one = Service.forked(log, KEYS_FILE=str(keys), **SETTINGS).wait_until_ready()
        try:
            with Balancer({"a": f"{HOST}:{one.port}"}, tmp_path, log, both) as balancer:
                balancer.wait_for(UP, "a")
                context = ssl.create_default_context(cafile=certificate)
                with httpx.Client(
                    base_url=f"https://{HOST}:{balancer.port}", verify=context, timeout=PATIENCE_S
                ) as client:
                    body = {"inputs": {"x": [1.5]}}
                    bearer = {"Authorization": f"Bearer {key}"}
                    assert client.post("/v1/ops/square/vjp", json=body).status_code == 401
                    assert client.post("/v1/ops/square/vjp", json=body, headers=bearer).status_code == 200
                    # Not for clients, whatever their key.
                    assert client.get("/metrics", headers=bearer).status_code == 404
        finally:
            one.close()
