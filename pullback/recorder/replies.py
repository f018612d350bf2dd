"""What a server answered a recorded request, beside what it answers to it, and to others like it, now."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.errors import BadAnswer, PullbackError
from pullback.gradcheck.function import Request
from pullback.gradcheck.number_comparison import Comparison, Tolerances
from pullback.gradcheck.of.json_server import JsonServer
from pullback.gradcheck.verdict import Finding, Subject
from pullback.recorder import answers, repeats
from pullback.recorder.answers import answered
from pullback.recorder.repeats import repeated


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

    def judge(self, parts: Sequence[Any], dtype: str) -> Finding:
        """Ask for all parts of a derivative of a dtype: they show what should have been answered."""

        def found(before: Any, now: list[Any]) -> Finding:
            url = f"{self.server.url}{self.path}"
            requests = [Request(url, body, "the answer") for body in (self.body, *parts)]
            subject = Subject(answers.CHECK, None, None, None, self.protocol, dtype)
            return answered(before, now, Comparison(subject, self.tolerances), requests)

        return self._compared(answers.CHECK, parts, found)

    def _compared(self, check: str, bodies: Sequence[Any], found: Callable[[Any, list[Any]], Finding]) -> Finding:
        subject = Subject(check, None, None, None, self.protocol, "float64")
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
