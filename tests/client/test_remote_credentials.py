"""Keys, passwords and headers of remote functions: sent with every request, never written, and not mixed up."""

import base64
import copy
import io
import multiprocessing
import os
import pickle
from collections.abc import Iterator

import numpy as np
import pytest

import pullback
from pullback.remotes import Derivative, Function, Remote, evaluate
from tests.patience import PATIENCE_S
from tests.recording_proxy import RecordingProxy, recording_proxy

X = np.array([-0.5, 0.25, 2.0])
KEY, PASSWORD, HEADER = "k3y-of-mine", "passw0rd-of-mine", "h3ader-of-mine"
SECRETS = (KEY, PASSWORD, HEADER)


@pytest.fixture(autouse=True)
def environment(monkeypatch) -> None:
    for name in ("PULLBACK_KEY", "PULLBACK_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def proxy(service) -> Iterator[RecordingProxy]:
    with recording_proxy(service.url) as one:
        yield one


def with_user(url: str, user: str) -> str:
    return url.replace("://", f"://{user}@")


def basic(user: str) -> str:
    return f"Basic {base64.b64encode(user.encode()).decode()}"


def written(thing: object) -> str:
    """Return all that prints or saves a thing."""
    pickles = [pickle.dumps(thing, protocol).decode("latin-1") for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    return "\n".join([repr(thing), str(thing), f"{thing}", *pickles])


def elsewhere(saved: bytes) -> None:
    """Evaluate a function in a process that was spawned."""
    (y,) = evaluate(pickle.loads(saved), [X])
    np.testing.assert_array_equal(y, X**2)


def test_nothing_secret_is_printed_or_saved(proxy) -> None:
    remote = Remote("square", with_user(proxy.url, f"me:{PASSWORD}"), api_key=KEY, headers={"X-Tenant": HEADER})
    p = Derivative(remote)
    evaluate(p.vjp, [X, X])
    for thing in (remote, p, p.vjp.jvp, Function(p), remote.saved, remote.client):
        text = repr(thing) if thing is remote.client else written(thing)
        assert "square" in text or thing is remote.client
        for secret in (*SECRETS, base64.b64encode(f"me:{PASSWORD}".encode()).decode(), str(hash(KEY))):
            assert secret not in text


@pytest.mark.slow
def test_what_was_saved_has_its_credentials_in_the_same_process_alone(proxy, monkeypatch) -> None:
    url = with_user(proxy.url, f"me:{PASSWORD}")
    for remote, expected in (
        (Remote("square", proxy.url, api_key=KEY), f"Bearer {KEY}"),
        (Remote("square", url), basic(f"me:{PASSWORD}")),
        (Remote("square", proxy.url, headers={"authorization": HEADER}), HEADER),
    ):
        p = Derivative(remote)
        for one in (p, pickle.loads(pickle.dumps(p)), copy.deepcopy(p), pickle.loads(pickle.dumps(copy.copy(p)))):
            assert one == p
            evaluate(one, [X])
            assert proxy.new("Authorization") == [expected]
        monkeypatch.setenv("PULLBACK_KEY", "theirs")
        process = multiprocessing.get_context("spawn").Process(target=elsewhere, args=(pickle.dumps(p),))
        process.start()
        process.join(PATIENCE_S)
        assert process.exitcode == 0
        assert proxy.new("Authorization") == ["Bearer theirs"]
        monkeypatch.delenv("PULLBACK_KEY")


@pytest.mark.slow
def test_another_process_has_the_password_of_its_environment(proxy, monkeypatch) -> None:
    saved = pickle.dumps(Derivative(Remote("square", with_user(proxy.url, f"me:{PASSWORD}"))))
    for environment, expected in (
        (with_user(proxy.url, "you:s%20cret") + "/", basic("you:s cret")),
        (with_user(proxy.url.replace("http", "https"), "you:secret"), None),
        (with_user("http://127.0.0.2:" + proxy.url.split(":")[-1], "you:secret"), None),
        ("http://[", None),
    ):
        monkeypatch.setenv("PULLBACK_URL", environment)
        process = multiprocessing.get_context("spawn").Process(target=elsewhere, args=(saved,))
        process.start()
        process.join(PATIENCE_S)
        assert process.exitcode == 0
        assert proxy.new("Authorization") == [expected]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_has_the_credentials(proxy) -> None:
    saved = pickle.dumps(Derivative(Remote("square", proxy.url, api_key=KEY)))
    process = multiprocessing.get_context("fork").Process(target=elsewhere, args=(saved,))
    process.start()
    process.join(PATIENCE_S)
    assert process.exitcode == 0
    assert proxy.new("Authorization") == [f"Bearer {KEY}"]


def test_functions_with_other_credentials_are_not_equal(proxy, monkeypatch) -> None:
    url = proxy.url
    remotes = [
        Remote("square", url),
        Remote("square", url, api_key="a"),
        Remote("square", url, api_key="b"),
        Remote("square", with_user(url, "me:a")),
        Remote("square", with_user(url, "me:b")),
        Remote("square", url, headers={"x": "a"}),
        Remote("square", url, headers={"x": "b"}),
        Remote("square", url, timeout=1),
        Remote("square", url, deadline=1),
    ]
    monkeypatch.setenv("PULLBACK_KEY", "c")
    remotes.append(Remote("square", url))
    assert len(set(remotes)) == len(remotes)
    assert len({hash(remote) for remote in remotes}) == 3  # a hash may reach a file: only the limits count
    assert len({pickle.dumps(remote.saved) for remote in remotes[:-1]}) == len(remotes) - 1
    assert Remote("square", url, api_key="a", headers={}) == remotes[1]
    assert Remote("square", url, headers={"X": "a"}, api_key="c") == Remote("square", url, headers={"x": "a"})


def test_the_headers_go_with_every_request(proxy) -> None:
    p = Derivative(Remote("square", proxy.url, headers={"X-Tenant": "seven"}))
    evaluate(p, [X], ahead=True)
    evaluate(p.vjp.vjp.vjp, [X] * 5)
    assert {headers.get("x-tenant") for _, _, headers in proxy.requests} == {"seven"}
    with pytest.raises(pullback.BadArgument, match="Content-Length"):
        Remote("square", proxy.url, headers={"Content-Length": "7"})


def test_files_that_were_saved_with_a_handle_of_another_process_are_resolved_by_the_environment(
    proxy, monkeypatch
) -> None:
    """A handle is random, so it never stands for the credentials of someone else."""
    remote = Remote("square", proxy.url, api_key=KEY)
    saved = io.BytesIO()
    pickle.dump(remote, saved)
    handle = remote.saved["handle"].encode()
    assert len(handle) >= 16
    monkeypatch.setenv("PULLBACK_KEY", "theirs")
    other = pickle.loads(saved.getvalue().replace(handle, b"0" * len(handle)))
    assert other != remote
    evaluate(Derivative(other), [X])
    assert proxy.new("Authorization") == ["Bearer theirs"]
    assert os.environ["PULLBACK_KEY"] not in written(other)
