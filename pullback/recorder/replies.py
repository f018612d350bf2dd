"""What a server answered a recorded request, beside what it answers to it, and to others like it, now."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pullback.errors import BadAnswer, PullbackError
from pullback.gradcheck.number_comparison import Comparison, Tolerances
from pullback.gradcheck.verdict import Finding, Subject
from pullback.recorder import answers, repeats
from pullback.recorder.answers import Parts, answered
from pullback.recorder.repeats import repeated
from pullback.server_checks.json_server import JsonServer
from pullback.server_checks.model import Request


@dataclass(frozen=True)
class Reply:
    """A request, and the text of its answer. ``ask`` waits until the server may be asked."""

    protocol: str
    server: JsonServer
    path: str
    body: Any
    answer: str
    tolerances: Tolerances
    ask: Callable[[], None]

    def repeat(self) -> Finding:
        """Ask again: the same numbers."""

        def found(before: Any, now: list[Any]) -> Finding:
            return repeated(before, now[0], self.protocol, self.tolerances)

        return self._compared(repeats.CHECK, [self.body], found)

    def judge(self, parts: Parts, relative_bar: float) -> Finding:
        """Ask for both parts of a derivative: their difference is what was answered."""

        def found(before: Any, now: list[Any]) -> Finding:
            bodies = (self.body, parts.both, parts.other)
            requests = [Request(f"{self.server.url}{self.path}", body, "the answer") for body in bodies]
            comparison = Comparison(self._subject(answers.CHECK), self.tolerances)
            return answered(before, (now[0], now[1]), comparison, requests, relative_bar)

        return self._compared(answers.CHECK, [parts.both, parts.other], found)

    def _subject(self, check: str) -> Subject:
        return Subject(check, None, None, None, self.protocol, "float64")

    def _compared(self, check: str, bodies: list[Any], found: Callable[[Any, list[Any]], Finding]) -> Finding:
        subject = self._subject(check)
        try:
            before = json.loads(self.answer)
        except (ValueError, RecursionError) as error:
            return Finding(subject, "skipped", f"not run: the recorded answer is no JSON ({error})")
        now = list[Any]()
        try:
            for body in bodies:
                self.ask()
                now.append(self.server.post(self.path, body))
        except PullbackError as error:
            verdict = "fail" if isinstance(error, BadAnswer) else "error"
            return Finding(subject, verdict, f"a request that the server answered before is not answered: {error}")
        return found(before, now)
