"""The attack finds answers that depend on the load, and finds none in the service."""

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from pullback.ops._pages import load_page
from tests.conftest import Start
from tests.patience import PATIENCE_S
from tests.rows import attack, cases
from tests.rows.alone import is_close
from tests.rows.attack import drawn, drawn_of
from tests.rows.cases import Case, comparable
from tests.rows.corpus import CORPUS, write_pages
from tests.rows.tallies import AGAIN, Tallies

# y = x + 2: in the service under test, the last bit of the 2 differs.
PAGE = """
import tensorflow as tf
from ops import Tensor
from tests.gradcheck.wrong.making import rows


def shifted(x: Tensor) -> Tensor:
    return x + {constant}


OP = rows(shifted, None)
"""
SOME = (
    "row_asserted",
    "row_cross_entropy",
    "row_linear",
    "row_norm",
    "after_nan",
    "batch_norm",
    "many_rows",
    "mean_gradient",
)


def attacked(some: Sequence[Case], reference: int, tested: int, requests: int) -> Tallies:
    tallies = Tallies(Console(quiet=True), requests)
    until = time.monotonic() + PATIENCE_S
    asyncio.run(attack.attack(some, reference, tested, tallies, requests=requests, seed=1, until=until))
    assert tallies.requests == requests
    return tallies


@pytest.mark.slow
def test_answers_do_not_depend_on_the_load(start: Start, tmp_path: Path) -> None:
    pages = str(write_pages(tmp_path, [name for name in SOME if name in CORPUS]))
    services = [start(OPS_PATH=pages, STRICT="1", EXPRESS=fast) for fast in "01"]
    reference, tested = (service.wait_until_ready().port for service in services)
    tallies = attacked(drawn(1, SOME, 3, 6), reference, tested, 800)
    assert tallies.differences == 0, {name: tally.differences[:2] for name, tally in tallies.of.items()}
    assert set(tallies.of) == set(SOME)
    assert sum(tally.errors for tally in tallies.of.values()) > 0


@pytest.mark.slow
def test_a_last_bit_is_found(start: Start, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("right", "off")]
    for folder, constant in zip(folders, ("2.0", "2.0000000000000004"), strict=True):
        folder.mkdir()
        (folder / "shifted.py").write_text(PAGE.format(constant=constant))
    shifted = load_page(folders[0] / "shifted.py")
    services = [start(OPS_PATH=str(folder)) for folder in folders]
    reference, tested = (service.wait_until_ready().port for service in services)
    tally = attacked(drawn_of([shifted], 1, 1, 4), reference, tested, 40).of["shifted"]
    assert tally.requests == 40
    assert len(tally.differences) > 20
    assert tally.also_alone == AGAIN


def test_errors_are_compared_by_status_detail_and_entries() -> None:
    body = b'{"detail": "wrong", "instance": "/a", "errors": [{"loc": ["x", 0]}]}'
    assert comparable(422, body) == comparable(422, body.replace(b"/a", b"/b"))
    assert comparable(422, body) != comparable(400, body)
    assert comparable(422, body) != comparable(422, body.replace(b"wrong", b"another"))
    assert comparable(422, body) != comparable(422, body.replace(b"0", b"1"))
    assert comparable(200, b"[1.0]") != comparable(200, b"[1.00]")


def test_the_same_seed_draws_the_same_requests() -> None:
    first, again, other = ([case.request for case in drawn(seed, ["safe_norm"], 6, 8)] for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert len(set(first)) > 40
    assert {kind.operation for kind in {case.kind for case in drawn(1, ["square"], 6, 1)}} == {
        operation for operation, _ in cases.OPERATIONS
    }


def test_answers_may_differ_by_rounding_from_those_of_an_op_alone() -> None:
    def answer(*data: float | str) -> tuple[int, bytes]:
        tensor = {"dtype": "float32", "shape": [len(data)], "data": data}
        return 200, json.dumps({"outputs": {"y": tensor}, "absent": {}}).encode()

    assert is_close(answer(1.0, 2.0), answer(1.0, 2.0000002))
    assert is_close(answer(1.0, "NaN"), answer(1.0, "NaN"))
    assert not is_close(answer(1.0, 2.0), answer(1.0, 1.0))
    assert not is_close(answer(1.0, 2.0), answer(1.0))
    assert not is_close(answer(1.0), (422, b"{}"))
    # What remains of numbers of 4e7 that cancel is rounding.
    assert is_close(answer(0.0), answer(2.5), largest=4e7)
    assert not is_close(answer(0.0), answer(2.5), largest=4.0)
