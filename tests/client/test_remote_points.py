"""The points that a remote function keeps: how many requests they save, how large they get, threads and forks."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

import pullback
from pullback.limits import Limit
from pullback.remotes import Derivative, evaluate, points
from pullback.remotes.points import Point, Points
from tests.client.fake_servers import problem_response
from tests.patience import PATIENCE_S

X, ONES = np.array([-0.5, 0.25, 2.0]), np.ones(3)


def layers(p: Derivative, count: int) -> list[np.ndarray]:
    """Evaluate a function once for each layer, and return the points."""
    at = [X]
    for _ in range(count):
        at.append(evaluate(p, at[-1:], ahead=True)[0])
    return at[:-1]


@pytest.mark.parametrize("name", ["log1pexp", "safe_norm"])
def test_layers_take_one_request_each_and_backward_passes_none(remote, transport, name: str) -> None:
    p = remote(name)
    at = layers(p, 10) if name == "log1pexp" else [X + i for i in range(10)]
    for x in at:
        evaluate(p, [x], ahead=True)
    for _ in range(2):
        for x in reversed(at):
            evaluate(p.vjp, [x, ONES if name == "log1pexp" else np.array(1.0)])
    assert len(transport.new()) == 10


def test_threads_take_one_request_for_each_point(remote, transport) -> None:
    p = remote("log1pexp")
    start = threading.Barrier(8)

    def work(seed: int) -> None:
        start.wait(PATIENCE_S)
        for i in range(25):
            x = X + seed + i / 100
            evaluate(p, [x], ahead=True)
            evaluate(p.vjp, [x, ONES])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(transport.new()) == 200


def test_the_points_have_a_limit_in_bytes_and_those_unused_for_longest_go_first(remote, transport, monkeypatch) -> None:
    p, ones = remote("log1pexp"), np.ones(100)
    monkeypatch.setattr(points, "MAX_BYTES", 10 * 4 * ones.nbytes)  # a point has x, y, f' and f''
    for i in range(15):
        evaluate(p.vjp, [ones + i, ones])
        evaluate(p.vjp, [ones, ones])  # stays in use
    assert len(transport.new()) == 15
    for i in (0, *range(6, 15)):
        evaluate(p.vjp, [ones + i, ones])
    assert transport.new() == []
    evaluate(p.vjp, [ones + 1, ones])
    assert len(transport.new()) == 1


def test_the_last_point_stays_however_large(remote, transport, monkeypatch) -> None:
    monkeypatch.setattr(points, "MAX_BYTES", 1)
    p = remote("log1pexp")
    for x in (X, X + 1):
        evaluate(p, [x], ahead=True)
        evaluate(p.vjp, [x, ONES])
    assert len(transport.new()) == 2
    evaluate(p, [X], ahead=True)
    assert len(transport.new()) == 1


def test_the_points_have_a_limit_in_number(remote, transport, monkeypatch) -> None:
    monkeypatch.setattr(points, "MAX_POINTS", 3)
    p = remote("log1pexp")
    for i in (*range(5), 4, 3, 2, 1):
        evaluate(p.vjp, [X + i, ONES])
    assert len(transport.new()) == 6


FORKS = """
import os, signal, sys, threading, time, warnings
import numpy as np
from pullback.limits import Limit
from pullback.remotes import points
from pullback.remotes.points import Point, Points

warnings.simplefilter("ignore", DeprecationWarning)  # of forks in a process with threads: this is what is tested
memory, no_limit, x = Points(), Limit(None), np.ones(3)
ready, end = threading.Event(), threading.Event()

def point(): return Point((np.ones(3),), ())

def request():
    ready.set()
    end.wait(60)
    return point()

def hold():
    with points._lock:
        ready.set()
        time.sleep(0.5)

def child_of(busy):
    ready.clear()
    end.clear()
    thread = threading.Thread(target=busy)
    thread.start()
    ready.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # ends the process if it waits for a thread that it does not have
        memory.get([x], point, no_limit)
        memory.known([x], no_limit)
        os._exit(0)
    end.set()
    thread.join()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

print(child_of(hold), child_of(lambda: memory.get([x], request, no_limit)))
memory.get([x], point, no_limit)
"""


def test_a_fork_waits_for_no_thread_of_its_parent(python: Callable[[str], str]) -> None:
    """One thread holds the lock while the process forks, the other has a request in progress for the same point."""
    assert python(FORKS).split() == ["0", "0"]


def test_integers_have_a_value_and_slow_nothing_down(remote, transport) -> None:
    p = remote("square")
    for _ in range(3):
        assert evaluate(p, [np.array([3])], ahead=True)[0].tolist() == [9]
    with pytest.raises(pullback.Unprocessable, match="convert it, as by"):
        evaluate(p.vjp, [np.array([3]), np.array([1])])
    transport.new()
    evaluate(p.vjp.vjp, [X, ONES, ONES])
    evaluate(p.vjp, [X, ONES])
    assert transport.new() == ["square/gradients"]


def refusing(transport, monkeypatch, is_refused: Callable[[], bool]) -> None:
    """Refuse requests of second order as an op does that fails there."""
    handle = transport.handle_request

    def handle_request(request: httpx.Request) -> httpx.Response:
        if b'"order":2' not in request.content.replace(b" ", b"") or not is_refused():
            return handle(request)
        transport.sent.append("refused")
        document = problem_response(500, "Op failed")
        return httpx.Response(500, headers=document.headers, content=document.body)

    monkeypatch.setattr(transport, "handle_request", handle_request)


def test_a_refusal_of_the_second_order_at_a_point_is_no_loss_at_others(remote, transport, monkeypatch) -> None:
    p, left = remote("log1pexp"), [True]
    refusing(transport, monkeypatch, lambda: bool(left and left.pop()))
    evaluate(p.vjp, [X, ONES])
    assert transport.new() == ["refused", "log1pexp/gradients"]
    for i in range(1, 4):
        evaluate(p.vjp, [X + i, ONES])
    transport.new()
    evaluate(p.vjp.vjp, [X + 4, ONES, ONES])
    evaluate(p.vjp, [X + 4, ONES])
    assert transport.new() == ["log1pexp/gradients"]


def test_an_op_without_a_second_order_is_seldom_asked_for_it(remote, transport, monkeypatch) -> None:
    p = remote("log1pexp")
    refusing(transport, monkeypatch, lambda: True)
    for i in range(100):
        evaluate(p.vjp, [X + i, ONES])
    assert 100 < len(transport.new()) < 110


def test_another_point_is_never_answered(remote, transport) -> None:
    p, x = remote("log1pexp"), X.copy()
    first = evaluate(p.vjp, [x, ONES])[0]
    x[0] += 1e-9  # the same object with other bytes
    assert evaluate(p.vjp, [x, ONES])[0][0] > first[0]
    evaluate(p.vjp, [x.astype(np.float32), ONES.astype(np.float32)])
    evaluate(p.vjp, [x.reshape(1, 3), ONES.reshape(1, 3)])
    zero = np.array([0.0])
    evaluate(p.vjp, [zero, zero])
    evaluate(p.vjp, [-zero, zero])
    assert len(transport.new()) == 6


def test_threads_get_the_answers_for_their_own_points(remote) -> None:
    p = remote("log1pexp")

    def error(seed: int) -> float:
        rng, worst = np.random.default_rng(seed), 0.0
        for _ in range(30):
            x = rng.choice([-1.0, 0.0, 1.0], size=2)
            sigma = 1 / (1 + np.exp(-x))
            worst = max(worst, np.abs(evaluate(p.vjp, [x, np.ones(2)])[0] - sigma).max())
            worst = max(worst, np.abs(evaluate(p, [x], ahead=True)[0] - np.log1p(np.exp(x))).max())
        return worst

    with ThreadPoolExecutor(8) as pool:
        assert max(pool.map(error, range(8))) < 1e-6


def test_threads_at_one_point_share_a_request_and_survive_its_failure() -> None:
    memory, no_limit = Points(), Limit(None)
    is_waiting, calls = threading.Event(), list[str]()

    def failing() -> Point:
        is_waiting.wait(PATIENCE_S)
        raise pullback.TimedOut("too late")

    def working() -> Point:
        calls.append("request")
        return Point((X.copy(),), ())

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(memory.get, [X], failing, no_limit)
        while not memory._requests:
            pass
        second = pool.submit(memory.get, [X], working, no_limit)
        is_waiting.set()
        assert isinstance(first.exception(PATIENCE_S), pullback.TimedOut)
        np.testing.assert_array_equal(second.result(PATIENCE_S).outputs[0], X)
    memory.get([X], working, no_limit)
    assert len(calls) == 1
    assert not memory._requests


def test_a_value_is_that_of_its_own_point(remote) -> None:
    square = remote("square")
    evaluate(square.vjp, [X, ONES])
    (there,) = evaluate(square, [X + 1])
    np.testing.assert_array_equal(there, (X + 1) ** 2)


def test_results_belong_to_the_caller(remote) -> None:
    square = remote("square")
    for p, arrays in ((square, [X]), (square.vjp, [X, ONES])):
        first = evaluate(p, arrays, ahead=True)[0].copy()
        evaluate(p, arrays, ahead=True)[0][:] = 7
        np.testing.assert_array_equal(evaluate(p, arrays, ahead=True)[0], first)
