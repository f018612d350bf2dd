"""Sparsities: patterns that are right, miss a nonzero or fit no matrix, foreign ids, and shapes that are huge."""

import json
import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.hostile.attack import whole
from tests.hostile.documents import hostile_json
from tests.hostile.findings import LOST, WRONG
from tests.hostile.requests import Request, post
from tests.hostile.rules import judge
from tests.hostile.stage import Stage
from tests.hostile.strike import in_threads, strike
from tests.hostile.wire import Answer, Lost, Wire
from tests.hostile.witness import watch

THREADS, MOST, TIMEOUT_S = 6, 10_000, 20.0
OK, INVALID = 200, 422
PATH = "/v1/ops/matvec"
STRANGE = ("0" * 32, "", "a" * 5000, "..%2f", {"x": 1}, [1], 7)
HUGE = 200_000

Matrix = NDArray[np.float32]


def attack(stage: Stage) -> None:
    """Ask for sparse Jacobians, whose numbers are known, until the time is over."""

    def one(number: int) -> None:
        case = f"{stage.seed} {number}"
        rng = random.Random(case)
        if rng.random() < 0.02:
            strike(stage.target.port, whole("a huge shape", _huge(rng)), stage.findings, f"case '{case}':")
            return
        matrix = _matrix(rng, rng.randint(1, 12), rng.randint(1, 12))
        pattern, misses = _pattern(rng, matrix)
        name = _given(stage, matrix, pattern, f"case '{case}':", misses=misses)
        name = rng.choice([*STRANGE, name]) if rng.random() < 0.3 else name
        # At another point, perhaps with other nonzeros, and perhaps of another shape.
        other = _matrix(rng, *matrix.shape) * np.float32(1.0 if rng.random() < 0.5 else matrix != 0)
        _used(stage, matrix if rng.random() < 0.3 else other, name, f"case '{case}':")
        damaged = _request("sparsity", matrix, {"pattern": pattern})
        damaged = damaged.with_body(hostile_json(rng, damaged.document))
        strike(stage.target.port, whole("a damaged pattern", damaged), stage.findings, f"case '{case}':")

    with watch(stage.target, stage.goods, stage.findings, stage.seed):
        in_threads(THREADS, stage.seconds, one, MOST)


def _matrix(rng: random.Random, rows: int, columns: int) -> Matrix:
    density = rng.choice([0.0, 0.1, 0.4, 1.0])
    numbers = [[rng.uniform(1, 2) * (rng.random() < density) for _ in range(columns)] for _ in range(rows)]
    return np.array(numbers, np.float32)


def _pattern(rng: random.Random, matrix: Matrix) -> tuple[Any, bool | None]:
    """Return a pattern, and whether it misses a nonzero; ``None`` if the matrix cannot have it."""
    rows, columns = (x.tolist() for x in np.nonzero(matrix))
    misses: bool | None = False
    match rng.randrange(7):
        case 0 if rows:
            at = rng.randrange(len(rows))
            del rows[at], columns[at]
            misses = True
        case 1:
            rows, columns = rows * 3, columns * 3
        case 2:
            rows, columns = (x.ravel().tolist() for x in np.indices(matrix.shape))
        case 3:
            rows, misses = [*rows, rng.choice([-1, matrix.shape[0], 1 << 31, 1 << 62])], None
            columns = [*columns, 0]
        case 4:
            columns, misses = [*columns, 0], None
        case 5 if rows:
            rows, columns, misses = [], [], True
        case _:
            pass
    return {"y": {"x": {"rows": rows, "columns": columns}}}, misses


def _request(operation: str, matrix: Matrix, more: dict[str, Any]) -> Request:
    inputs = {"a": matrix.tolist(), "x": [1.0] * matrix.shape[1]}
    document = {"inputs": inputs, "of": ["y"], "wrt": ["x"], **more}
    return post(f"{PATH}/{operation}", document, pullback_deadline_ms="10000")


def _given(stage: Stage, matrix: Matrix, pattern: Any, text: str, *, misses: bool | None) -> Any:
    """Give a pattern; return the id of the sparsity, "" if it is refused."""
    request = _request("sparsity", matrix, {"pattern": pattern})
    answer = _answer(stage, request, text)
    expected = OK if misses is False else INVALID
    if answer is not None and answer.status in (OK, INVALID) and answer.status != expected:
        stage.findings.fail(WRONG, f"{text} a pattern: {answer.status}, expected {expected}", (request.encode(),))
    return json.loads(answer.body)["sparsity"]["id"] if answer is not None and answer.status == OK else ""


def _used(stage: Stage, matrix: Matrix, name: Any, text: str) -> None:
    """Request a Jacobian with a sparsity, and compare its numbers."""
    request = _request("jacobian", matrix, {"sparse": "coo", "sparsity": name})
    answer = _answer(stage, request, text)
    if answer is None or answer.status != OK:
        return
    block = json.loads(answer.body)["jacobian"]["y"]["x"]
    found = np.zeros_like(matrix)
    found[block["rows"]["data"], block["columns"]["data"]] = block["values"]["data"]
    if not np.array_equal(found, matrix):
        stage.findings.fail(WRONG, f"{text} a Jacobian: {found.tolist()}", (request.encode(),))
    stage.findings.matched()


def _answer(stage: Stage, request: Request, text: str) -> Answer | None:
    stage.findings.sent()
    try:
        with Wire(stage.target.port, TIMEOUT_S) as wire:
            wire.send([request.encode()])
            answer = wire.answer()
    except (OSError, Lost) as error:
        stage.findings.fail(LOST, f"{text} {error}", (request.encode(),))
        return None
    judge(answer, stage.findings, text, (request.encode(),))
    return answer


def _huge(rng: random.Random) -> Request:
    """Return a request whose rows all have a column in common, and whose columns all have a row."""
    every = [*range(HUGE)]
    rows, columns = [*every, *every, *[0] * HUGE], [*every, *[0] * HUGE, *every]
    order = rng.choice([1, 2])
    pattern = {"y" if order == 1 else "x": {"x": {"rows": rows, "columns": columns}}}
    document = {"inputs": {"x": [0.5] * HUGE}, "pattern": pattern, "order": order}
    return post("/v1/ops/square/sparsity", document, pullback_deadline_ms="5000")
