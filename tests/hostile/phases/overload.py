"""Overload: a full queue, many connections and tiny deadlines. A request is answered, refused or late, never lost."""

import contextlib
import random

from tests.hostile.findings import LOST, STATUS
from tests.hostile.requests import Request, post
from tests.hostile.rules import BUSY, judge
from tests.hostile.stage import Stage
from tests.hostile.strike import in_threads
from tests.hostile.wire import Lost, Wire
from tests.hostile.witness import ANSWER_S, watch

THREADS, IDLE, MOST = 128, 500, 200_000
ON_ONE_CONNECTION = 8
DEADLINES_MS = (*range(1, 10), 20, 50, 200)


def attack(stage: Stage) -> None:
    """Keep more requests in work than the queue holds, half of them with a deadline of a few milliseconds."""

    def one(number: int) -> None:
        rng = random.Random(f"{stage.seed} {number}")
        requests = [_request(rng) for _ in range(ON_ONE_CONNECTION)]
        try:
            with Wire(stage.target.port, ANSWER_S) as wire:
                for request in requests:
                    stage.findings.sent()
                    wire.send([data := request.encode()])
                    answer = wire.answer()
                    judge(answer, stage.findings, f"overload, {request.path}", (data,))
                    if answer.status not in (200, 500, *BUSY):
                        text = f"expected 200, 429, 503 or 504, got {answer.status} {answer.body[:200]!r}"
                        stage.findings.fail(STATUS, text, [data])
                    if answer.is_last:
                        return
        except (Lost, OSError) as error:
            stage.findings.fail(LOST, f"under overload: {type(error).__name__} {error}")

    with watch(stage.target, stage.goods, stage.findings, stage.seed), contextlib.ExitStack() as stack:
        for _ in range(IDLE):
            stack.enter_context(Wire(stage.target.port, ANSWER_S))
        in_threads(THREADS, stage.seconds, one, MOST)


def _request(rng: random.Random) -> Request:
    """Return a request that may share a batch with others, or one that keeps the scheduler busy for a while."""
    deadline = {"pullback_deadline_ms": str(rng.choice(DEADLINES_MS))} if rng.random() < 0.5 else {}
    if rng.random() < 0.1:
        size = 48
        matrix = [[float(i == j) * (i + 1) for j in range(size)] for i in range(size)]
        return post("/v1/ops/self_adjoint_eig/vjp", {"inputs": {"a": matrix}, "mode": "graph"}, **deadline)
    op, values = rng.choice(["log1pexp", "square"]), [rng.uniform(-3, 3) for _ in range(rng.randint(1, 8))]
    return post(f"/v1/ops/{op}/vjp", {"inputs": {"x": values}}, **deadline)
