"""Tokens of an identity provider: what is verified, and what an enemy tries."""

import base64
import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from app.errors import CannotStart, Overloaded, Unauthorized
from app.http import token_keys
from app.http.token_keys import TokenKeys, read_keys
from app.http.tokens import LEEWAY_S, Tokens
from app.settings import Settings
from tests.http.test_keys import DIALECTS, JSON, REQUEST, SQUARE, bearer
from tests.patience import PATIENCE_S

ISSUER, AUDIENCE = "https://login.example.org", "pullback"
PRIVATE: dict[str, Any] = {
    "rsa": rsa.generate_private_key(65537, 2048),
    "ec": ec.generate_private_key(ec.SECP256R1()),
    "ed": ed25519.Ed25519PrivateKey.generate(),
}
ALGORITHMS = {"rsa": "RS256", "ec": "ES256", "ed": "EdDSA"}
OTHER = ec.generate_private_key(ec.SECP256R1())


def document(*names: str) -> dict[str, Any]:
    keys = list[dict[str, Any]]()
    for name in names:
        algorithm = jwt.get_algorithm_by_name(ALGORITHMS[name])
        keys.append({**json.loads(algorithm.to_jwk(PRIVATE[name].public_key())), "kid": name, "use": "sig"})
    return {"keys": keys}


def claims(**more: Any) -> dict[str, Any]:
    now = int(time.time())
    own = {"iss": ISSUER, "aud": AUDIENCE, "sub": "carol", "exp": now + 600, "nbf": now - 5, "scope": "openid call"}
    return {name: value for name, value in {**own, **more}.items() if value is not None}


def token(
    name: str = "ec", key: Any = None, algorithm: str = "", header: dict[str, Any] | None = None, **more: Any
) -> str:
    headers = {"kid": name} if header is None else header
    return jwt.encode(claims(**more), key or PRIVATE[name], algorithm or ALGORITHMS[name], headers)


def settings(source: Path | str) -> Settings:
    return Settings(oidc_jwks=str(source), oidc_issuer=ISSUER, oidc_audience=AUDIENCE)


@pytest.fixture(scope="module")
def keys_path(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("jwks") / "jwks.json"
    path.write_text(json.dumps(document("rsa", "ec", "ed")))
    return path


@pytest.fixture(scope="module")
def tokens(keys_path) -> Tokens:
    return Tokens(settings(keys_path))


@pytest.fixture(scope="module")
def anybody(start_for_module, keys_path):
    own = {"OIDC_JWKS": str(keys_path), "OIDC_ISSUER": ISSUER, "OIDC_AUDIENCE": AUDIENCE}
    with start_for_module(**own, WARM_UP="false").wait_until_ready().client() as client:
        yield client


def test_a_token_lets_in_for_its_scopes_on_both_paths(anybody):
    headers = {**JSON, **bearer(token())}
    for x in range(20):
        answer = anybody.post(SQUARE, content=f'{{"inputs":{{"x":[{x}]}}}}', headers=headers)
        assert answer.status_code == 200, answer.text
    assert anybody.post(SQUARE, content=REQUEST, headers={**JSON, **bearer(token(scope="check"))}).status_code == 403
    refused = anybody.get("/metrics", headers=headers)
    assert refused.status_code == 403
    assert "expected a key for operate" in refused.json()["detail"]
    text = anybody.get("/metrics", headers=bearer(token(scope=None, scp=["pullback:operate"], sub="ops"))).text
    assert 'pullback_key_requests_total{key="oidc:carol",status="200"} 20.0' in text


def test_each_protocol_refuses_a_wrong_token(anybody):
    for path, text in DIALECTS.items():
        answer = anybody.post(path, json={}, headers=bearer(token(aud="other")))
        assert answer.status_code == 401
        assert text(answer.json()).startswith("invalid token: expected one for the audience pullback")


def test_no_template_answers_a_token_that_expires(anybody):
    short = {**JSON, **bearer(token(exp=int(time.time()) - LEEWAY_S + 3))}
    until = time.monotonic() + PATIENCE_S
    statuses = list[int]()
    while not statuses or statuses[-1] == 200:
        assert time.monotonic() < until
        statuses.append(anybody.post(SQUARE, content=REQUEST, headers=short).status_code)
        time.sleep(0.05)
    assert statuses[-1] == 401


@pytest.mark.parametrize("name", PRIVATE)
def test_each_type_of_key_verifies(tokens, name):
    grant = tokens.grant_of(token(name).encode())
    assert (grant.name, grant.may) == ("oidc:carol", {"call"})
    assert grant is tokens.grant_of(token(name).encode()) or name != "ed"


def public_pem(name: str) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return PRIVATE[name].public_key().public_bytes(serialization.Encoding.PEM, form)


def by_hand(header: dict[str, Any], signature: bytes = b"", **more: Any) -> str:
    parts = (json.dumps(header).encode(), json.dumps(claims(**more)).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def hs256(name: str) -> str:
    import hmac  # noqa: PLC0415

    signed = by_hand({"alg": "HS256", "kid": name}).rpartition(".")[0]
    digest = hmac.digest(public_pem(name), signed.encode(), "sha256")
    return f"{signed}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: hs256("rsa"), "expected one signed by RS256 or"),
        (lambda: hs256("ec"), "expected one signed by ES256"),
        (lambda: by_hand({"alg": "none", "kid": "ec"}, b"x"), "expected one signed by ES256"),
        (lambda: token("ec", header={"kid": "rsa"}), "expected one signed by RS256 or"),
        (lambda: token("ec", key=OTHER), "expected one that the identity provider has signed"),
        (
            lambda: token("ec", header={"kid": "ec", "crit": ["x"], "x": 1}),
            "expected one that the identity provider has signed",
        ),
        (lambda: token("ec", header={"kid": "unknown"}), "got one with the key 'unknown'"),
        (lambda: token("ec", header={}), "got one without a key id"),
        (lambda: token(exp=int(time.time()) - LEEWAY_S - 5), "expected a valid token, got an expired one"),
        (lambda: token(exp=None), "got none with exp"),
        (lambda: token(exp="soon"), "expected one that the identity provider has signed"),
        (lambda: token(nbf=int(time.time()) + LEEWAY_S + 60), "got one for later"),
        (lambda: token(aud=None), "got none with aud"),
        (lambda: token(aud=["a", "b"]), "got one for another"),
        (lambda: token(iss="https://evil.example"), "got one of another issuer"),
        (lambda: token(sub=None), "got none with sub"),
        (lambda: token()[:-8] + "AAAAAAAA", "expected one that the identity provider has signed"),
        (lambda: "a.b.c", "invalid token: "),
        (lambda: by_hand({"alg": "ES256", "kid": ["ec"]}, b"x"), "invalid token: "),
    ],
)
def test_any_other_token_is_refused(tokens, made, message):
    with pytest.raises(Unauthorized) as caught:
        tokens.grant_of(made().encode())
    assert message in caught.value.detail


def test_names_and_scopes_are_clean(tokens):
    name = tokens.grant_of(token(sub="x\n y=1 (key alice)", scope="callx calls pullback.check admin").encode())
    assert name.name.removeprefix("oidc:").isalnum()
    assert name.may == {"check"}
    assert tokens.grant_of(token(scope={"call": 1}).encode()).may == frozenset()


def test_verified_tokens_are_bounded(tokens, monkeypatch):
    monkeypatch.setattr("app.http.tokens.KEPT", 3)
    made = [token("ed", sub=f"user{number}").encode() for number in range(8)]
    names = [tokens.grant_of(each).name for each in made]
    assert names == [tokens.grant_of(each).name for each in made] == [f"oidc:user{number}" for number in range(8)]
    # Those from before the bound are still there.
    before = len(tokens._verified)
    tokens.grant_of(token("ed", sub="one more").encode())
    assert len(tokens._verified) <= before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "cannot read the keys"),
        ("[]", "expected a JWKS"),
        ('{"keys": {}}', "expected a JWKS"),
        ('{"keys": []}', "expected a JWKS with a public key"),
        ('{"keys": [{"kty": "oct", "k": "AAAA", "kid": "a", "alg": "HS256"}]}', "expected a JWKS with a public key"),
        ('{"keys": [{"kty": "RSA", "n": "AAAA", "e": "AQAB", "kid": "a"}, 7, {"kty": "EC"}]}', "with a public key"),
        ("[" * 100_000, "cannot read the keys"),
        (" " * (1 << 20) + "{}", "expected at most"),
    ],
)
def test_a_file_without_a_key_stops_the_start(tmp_path, content, message):
    path = tmp_path / "jwks.json"
    path.write_text(content)
    with pytest.raises(CannotStart, match=message):
        TokenKeys(str(path))


def test_keys_for_encryption_verify_nothing():
    keys = document("rsa", "ec")["keys"]
    assert [*read_keys(json.dumps({"keys": [{**keys[0], "use": "enc"}, keys[1]]}).encode())] == ["ec"]
    assert read_keys(json.dumps({"keys": [{**keys[0], "alg": "RS512"}]}).encode())["rsa"].algorithms == ("RS512",)


@pytest.mark.parametrize("source", ["http://login.example.org/keys", "file:///etc/passwd", "ftp://localhost/keys"])
def test_keys_come_by_https(source):
    with pytest.raises(CannotStart, match="expected a file or an https URL"):
        TokenKeys(source)


class Provider(http.server.BaseHTTPRequestHandler):
    """An identity provider."""

    answers: list[tuple[int, bytes]]
    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        status, body = self.answers[min(type(self).asked, len(self.answers)) - 1]
        self.send_response(status)
        self.send_header("location", "/other")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Log nothing."""


@pytest.fixture
def provider(monkeypatch) -> Iterator[str]:
    Provider.asked = 0
    monkeypatch.setattr(token_keys, "AFTER_S", 0.2)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/keys"
    server.shutdown()
    server.server_close()


def test_a_provider_that_is_down_or_changes(provider, caplog):
    """Down at first, then with a key, then redirecting, then with another key in its place."""
    first, second = (json.dumps(document(name)).encode() for name in ("ec", "ed"))
    Provider.answers = [(503, b""), (200, first), (302, b""), (200, second)]
    tokens = Tokens(settings(provider))

    def ask(made: str, wanted: type[Exception] | None) -> None:
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                tokens.grant_of(made.encode())
            except (Overloaded, Unauthorized) as error:
                found = type(error)
            else:
                found = None
            if found is wanted:
                return
            assert time.monotonic() < until, found
            tokens._keys.want()
            time.sleep(0.02)

    old = token("ec")
    ask(old, Overloaded)
    ask(old, None)
    ask(token("ed"), None)
    assert Provider.asked == 4
    # The key of the first token is gone, and with it what was verified.
    ask(old, Unauthorized)
    assert "until they can be, no token is accepted" in caplog.text
    assert "the previous keys stay valid" in caplog.text


def test_tokens_with_unknown_keys_cause_few_reads(provider, monkeypatch):
    monkeypatch.setattr(token_keys, "AFTER_S", 30.0)
    Provider.answers = [(200, json.dumps(document("ec")).encode())]
    tokens = Tokens(settings(provider))
    until = time.monotonic() + PATIENCE_S
    while not tokens._keys.is_known:
        assert time.monotonic() < until
        time.sleep(0.01)
    for number in range(200):
        with pytest.raises(Unauthorized):
            tokens.grant_of(token("ec", header={"kid": f"k{number}"}).encode())
    assert Provider.asked == 1


def test_a_setting_alone_is_an_error(start, tmp_path):
    one = start(OIDC_JWKS=str(tmp_path))
    assert one.wait() == 2
    assert one.log_with("PULLBACK_OIDC_ISSUER: expected all of PULLBACK_OIDC_JWKS")
