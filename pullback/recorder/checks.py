"""Which recorded inputs are checked, and when: some while requests come, the others at the end."""

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass, field
from typing import Any

from pullback.gradcheck.plan import LEAST
from pullback.recorder.merging import Checked, Recorded
from pullback.recorder.relay import Traffic
from pullback.recorder.reservoir import Reservoir, Reservoirs, Sample

SHARE = 0.01
"""The share of the time that evaluations of the checks may take while the application calls the server."""
PATIENCE_S = 0.5
"""How long a check waits for a moment in which no request is in flight."""
IDLE_S, IDLE = 0.1, 25.0
"""An application is idle after so many seconds, and so many times an evaluation: then the checks go on."""
PAUSE_S = 0.002
FORGET = 0.9
LONGEST_LINE = 64 << 20
LOOK_S = 0.05
EVERY = 4
"""While requests come, the next input of a model is checked when it has had so many times the requests."""


@dataclass(eq=False)
class Pace:
    """Grants evaluations one by one: after one that took t, the next after t / ``SHARE``, or while nothing happens.

    So they take the share that they may, and an application that comes back waits for one evaluation at most. Once
    ``is_free``, all are granted at once.
    """

    traffic: Traffic
    is_free: bool = False
    _granted: float | None = None
    _next: float = 0.0
    _longest: float = 0.0

    async def turn(self) -> None:
        """Wait until an evaluation may begin."""
        self.finish()
        late = max(self._next, time.monotonic()) + PATIENCE_S
        while not self.is_free:
            now = time.monotonic()
            if self.traffic.idle_s > max(IDLE_S, IDLE * self._longest):
                break
            if now >= self._next and (not self.traffic.in_flight or now >= late):
                break
            await asyncio.sleep(max(PAUSE_S, self._next - now) if now < self._next else PAUSE_S)
        self._granted = time.monotonic()

    def finish(self) -> None:
        """Note that the last evaluation has ended."""
        if self._granted is None:
            return
        now = time.monotonic()
        took = now - self._granted
        self._granted = None
        self._longest = max(took, FORGET * self._longest)
        self._next = now + took * (1 / SHARE - 1)


@dataclass(frozen=True)
class CheckSettings:
    """How to check: up to ``calls`` evaluations in all, of up to ``sample`` inputs of each model."""

    protocol: str
    root: str
    target: str
    sample: int
    calls: int
    seed: int
    absolute: float
    relative: float
    timeout: float

    @property
    def budget(self) -> int:
        """The evaluations at one input."""
        return max(LEAST + 1, self.calls // self.sample)

    @property
    def inputs(self) -> int:
        """How many inputs of all models may be checked."""
        return self.calls // self.budget


@dataclass(eq=False)
class Checks:
    """The checks of all models, by a process of its own. Once ``has_ended``, all inputs that are left are due."""

    settings: CheckSettings
    samples: Reservoirs
    pace: Pace
    found: dict[str, Recorded] = field(default_factory=dict[str, Recorded])
    has_ended: bool = False
    count: int = 0
    _process: Process | None = None

    async def start(self) -> None:
        """Start the process, which waits for its first input."""
        # -P: import this package, not what is in the current folder.
        code = "from pullback.recorder.checker import main; main()"
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-c", code),
            stdin=PIPE,
            stdout=PIPE,
            limit=LONGEST_LINE,
            # Ctrl-C ends the recording, and this process after it.
            start_new_session=True,
        )
        settings = self.settings
        names = ("protocol", "root", "budget", "seed", "absolute", "relative", "timeout")
        self._send(self._process, {name: getattr(settings, name) for name in names})

    async def run(self) -> None:
        """Check inputs until none is left after the end."""
        while self.count < self.settings.inputs:
            sample = self._due()
            if sample is not None:
                await self._check(sample)
            elif self.has_ended:
                return
            else:
                await asyncio.sleep(LOOK_S)

    async def close(self) -> None:
        """End the process."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def _due(self) -> Sample | None:
        """Return the next input: of the model with the fewest checks, unless it has to wait for the end."""
        models = sorted(self.samples, key=lambda each: len(self._of(each[0]).checked))
        for model, reservoir in models:
            if self._is_due(self._of(model), reservoir) and (sample := reservoir.take()) is not None:
                return sample
        return None

    def _is_due(self, recorded: Recorded, reservoir: Reservoir) -> bool:
        if recorded.unusable or len(recorded.checked) + len(recorded.faults) >= self.settings.sample:
            return False
        if self.has_ended:
            return True
        is_first_half = 2 * self.count < self.settings.inputs and 2 * recorded.early < self.settings.sample
        return is_first_half and reservoir.seen >= EVERY**recorded.early

    def _of(self, model: str) -> Recorded:
        target = f"{self.settings.target}/{model}" if model else self.settings.target
        return self.found.setdefault(model, Recorded(target))

    async def _check(self, sample: Sample) -> None:
        recorded = self._of(sample.model)
        if not self.has_ended:
            recorded.early += 1
        outcome = await self._outcome(sample)
        if (document := outcome.get("document")) is not None:
            recorded.checked.append(Checked(sample.number, document))
        recorded.faults += [outcome["lost"]] if "lost" in outcome else []
        recorded.unreadable += [outcome["unreadable"]] if "unreadable" in outcome else []
        recorded.unusable = outcome.get("unusable", "")
        if document is None and not self.has_ended:
            recorded.early -= 1
        self.count += document is not None or "lost" in outcome

    async def _outcome(self, sample: Sample) -> dict[str, Any]:
        """Return what the process found at an input, and grant its evaluations meanwhile."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        answer = None if sample.answer is None else sample.answer.decode(errors="replace")
        body = sample.body.decode(errors="replace")
        self._send(process, {"model": sample.model, "path": sample.path, "body": body, "answer": answer})
        while line := await process.stdout.readline():
            message = json.loads(line)
            if "outcome" in message:
                self.pace.finish()
                return message["outcome"]
            await self.pace.turn()
            self._send(process, {})
        status = await process.wait()
        self.count = self.settings.inputs
        return {"lost": f"the process of the checks ended with status {status}"}

    @staticmethod
    def _send(process: Process, message: dict[str, Any]) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps(message).encode() + b"\n")
