"""Send an attack on a new connection, and judge what comes back."""

import contextlib
import itertools
import threading
import time
from collections.abc import Callable

from tests.hostile.attack import Attack
from tests.hostile.findings import LOST, Findings
from tests.hostile.rules import judge
from tests.hostile.wire import Lost, Wire
from tests.hostile.witness import ANSWER_S, compare

# How long a connection waits for an answer that need not come, and how many it reads.
SILENCE_S, ANSWERS = 0.25, 8
CLOSED = (BrokenPipeError, ConnectionResetError)


def strike(port: int, attack: Attack, findings: Findings, text: str) -> None:
    """Carry out an attack and record its findings under ``text``."""
    must_answer = attack.is_whole or bool(attack.expected)
    findings.sent(max(1, len(attack.expected)))
    text = f"{text} {attack.kind}"
    try:
        # The service may refuse before it has read everything, and close: then the answer may be lost as well.
        with Wire(port, ANSWER_S if must_answer else SILENCE_S) as wire, contextlib.suppress(*CLOSED):
            wire.send(attack.pieces, attack.pause_s)
            _read_answers(wire, attack, findings, text)
    except OSError as error:
        findings.fail(LOST, f"{text}: {error}", attack.pieces)


def _read_answers(wire: Wire, attack: Attack, findings: Findings, text: str) -> None:
    if not (attack.expected or attack.is_whole):
        with contextlib.suppress(Lost):
            for _ in range(ANSWERS):
                judge(wire.answer(attack.method), findings, text, attack.pieces)
        return
    try:
        if attack.is_whole:
            judge(wire.answer(attack.method), findings, text, attack.pieces)
        for good in attack.expected:
            answer = wire.answer(good.request.method)
            compare(good, answer, findings, text, attack.pieces)
            if answer.is_last:  # It says that it closes the connection: requests after this one are not read.
                return
    except Lost as error:
        findings.fail(LOST, f"{text}: {error}", attack.pieces)


def in_threads(count: int, seconds: float, work: Callable[[int], None], most: int) -> None:
    """Call ``work`` with 0, 1, 2, ... from several threads, until the time is over or ``most`` calls are made."""
    numbers, end = itertools.count(), time.monotonic() + seconds

    def loop() -> None:
        for number in iter(lambda: next(numbers), most):
            if time.monotonic() > end or number > most:
                return
            work(number)

    threads = [threading.Thread(target=loop) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
