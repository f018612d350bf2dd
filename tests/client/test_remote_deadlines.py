"""Deadlines of remote functions: all requests of an evaluation share one, the first look at the contract included."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

import pullback
from pullback.remotes import Derivative, Remote, evaluate
from tests.patience import PATIENCE_S
from tests.recording_proxy import RecordingProxy, recording_proxy

X = np.array([-0.5, 0.25, 2.0])
LATE = (pullback.TimedOut, pullback.DeadlinePassed)


@pytest.fixture
def proxy(service) -> Iterator[RecordingProxy]:
    with recording_proxy(service.url) as one:
        yield one


def milliseconds(proxy: RecordingProxy) -> list[int]:
    """Return the deadlines that the requests had, those for contracts too."""
    return [int(headers["pullback-deadline-ms"]) for _, _, headers in proxy.requests]


@pytest.mark.parametrize("is_known", [False, True])
def test_a_server_that_does_not_answer_ends_nothing_but_the_call(proxy, is_known: bool) -> None:
    p = Derivative(Remote("log1pexp", proxy.url, deadline=1))
    if is_known:
        p.remote.contract()
    proxy.is_open.clear()
    with pytest.raises(LATE):
        evaluate(p, [X])
    proxy.is_open.set()
    p = Derivative(Remote("log1pexp", proxy.url, deadline=PATIENCE_S))
    assert evaluate(p, [X])[0].shape == (3,)


def test_all_requests_of_an_evaluation_share_the_deadline(proxy) -> None:
    remote = Remote("softmax_cross_entropy", proxy.url, deadline=PATIENCE_S)
    proxy.is_open.clear()
    # Longer than what is compared below: the call begins after the timer.
    threading.Timer(0.6, proxy.is_open.set).start()
    logits, labels = np.eye(3), np.array([0, 1, 2], np.int32)
    evaluate(Derivative(remote).vjp.vjp, [logits, labels, np.ones(3), logits])
    assert [path.split("/")[-1] for _, path, _ in proxy.requests] == [
        "softmax_cross_entropy",
        "softmax_cross_entropy.vjp",
        "vjp",
    ]
    first, *rest = milliseconds(proxy)
    assert first <= 1000 * PATIENCE_S
    assert max(rest) <= 1000 * PATIENCE_S - 300


def test_a_thread_waits_for_the_request_of_another_until_its_own_deadline(service) -> None:
    """The other one here has a transport that knows no timeout."""
    is_sent, is_released = threading.Event(), threading.Event()

    class Slow(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            is_sent.set()
            is_released.wait(PATIENCE_S)
            return super().handle_request(request)

    p = Derivative(Remote("log1pexp", service.url, deadline=1))
    p.remote.contract()
    with Slow() as transport, ThreadPoolExecutor(1) as pool:
        p.remote.client = pullback.Client(service.url, transport=transport)
        slow = pool.submit(evaluate, p, [X], ahead=True)
        is_sent.wait(PATIENCE_S)
        with pytest.raises(pullback.TimedOut, match="within the deadline of 1 s"):
            evaluate(p, [X], ahead=True)
        is_released.set()
        slow.exception(PATIENCE_S)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_deadline_is_a_number_of_seconds(seconds: float) -> None:
    with pytest.raises(pullback.BadArgument, match="deadline: expected seconds above 0"):
        Remote("square", "http://127.0.0.1:8000", deadline=seconds)


def test_the_timeout_is_that_of_the_client(proxy) -> None:
    p = Derivative(Remote("square", proxy.url, timeout=0.2))
    proxy.is_open.clear()
    with pytest.raises(pullback.TimedOut, match=r"within 0\.2 s"):
        evaluate(p, [X])
