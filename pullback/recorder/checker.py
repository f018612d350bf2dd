"""The process that checks a server at recorded inputs. It has a low priority, and asks before each evaluation.

Lines of JSON come and go: settings first, then a task each time, which ``{"outcome": ...}`` answers; in between,
``{"ask": true}`` is answered by any line as soon as the server may be asked. The end of the input ends the process.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import numpy as np

from pullback.bodies import Body
from pullback.calls import JSON, Call, op_path
from pullback.client import Client
from pullback.errors import BadArgument, PullbackError
from pullback.gradcheck import floats
from pullback.gradcheck.function import Function, Point, as_object, shown
from pullback.gradcheck.number_comparison import Tolerances
from pullback.gradcheck.of.json_server import JsonServer
from pullback.gradcheck.of.openinference import OpenInferenceModel
from pullback.gradcheck.plan import LEAST, plans
from pullback.gradcheck.report import FunctionReport
from pullback.gradcheck.targets import Protocol, Target
from pullback.gradcheck.verdict import Finding
from pullback.recorder.answers import REQUESTS, Reply, parts_of
from pullback.recorder.evaluations import RECORDED, Input, input_of

Document = dict[str, Any]
CHECKS = ("contract", "value", "derivative")
"""The checks of an op of a service at a recorded request."""
LOWEST = 19
MAX_SHOWN = 200


def check_op(client: Client, op: str, content: Any, seed: int, tolerances: Tolerances) -> Document:
    """Return the report on an op, in the dtype of a request to it.

    Raises ``BadArgument`` for a request with many points, ``PullbackError`` if the service refuses the check.
    """
    found = as_object(content)
    if found is None or as_object(found.get("inputs")) is None or found.get("points"):
        raise BadArgument(f"expected a request with inputs of one point, got {shown(content)}")
    fields: Document = {name: found[name] for name in ("inputs", "attrs", "parameters") if name in found}
    if found.get("dtype") is not None:
        fields["dtypes"] = [found["dtype"]]
    fields |= {"checks": CHECKS, "seed": seed}
    fields["tolerances"] = {"absolute": tolerances.absolute, "relative": tolerances.relative}
    document = client.send(Call(op_path(op, "check"), dict[str, Any], Body(JSON, (json.dumps(fields).encode(),))))
    entries = [{**entry, "places": entry.get("places") or [entry]} for entry in document["checks"]]
    return {**document, "checks": entries, "scope": ""}


class Unusable(PullbackError):
    """The model has no gradient to check."""


def main() -> None:
    """Check what standard input names until it ends."""
    os.nice(LOWEST)
    settings = json.loads(sys.stdin.readline() or "{}")
    if not settings:
        return
    with ExitStack() as opened:
        checker = Checker(opened=opened, **settings)
        for line in sys.stdin:
            say({"outcome": checker.check(**json.loads(line))})


def say(message: Document) -> None:
    """Write a line."""
    print(json.dumps(message), flush=True)


def ask(done: int = 0) -> None:
    """Wait until the server may be asked."""
    del done
    say({"ask": True})
    if not sys.stdin.readline():
        raise SystemExit


@dataclass(eq=False)
class Checker:
    """Checks the models of the server at ``root``, each input with up to ``budget`` evaluations."""

    protocol: str
    root: str
    budget: int
    seed: int
    absolute: float
    relative: float
    timeout: float
    opened: ExitStack
    _models: dict[str, Function] = field(default_factory=dict[str, Function])
    _inputs: set[str] = field(default_factory=set[str])
    _server: JsonServer | None = None
    _service: Client | None = None

    def check(self, model: str, path: str, body: str, answer: str | None) -> Document:
        """Return the report at the inputs of a request, or why there is none.

        The members are ``document``; or ``same`` for inputs that were checked before; ``unreadable``, with the reason,
        for inputs that cannot be checked; ``unusable`` for such a model, and ``lost`` for a server that does not answer
        as it should.
        """
        try:
            if self.protocol == "pullback":
                return self._check_op(model, body)
            content, (given, config) = self._read(body)
            found = self._model(model, config)
            if isinstance(found, OpenInferenceModel):
                given = found.without_cotangents(given)
            key = json.dumps([model, given, config], sort_keys=True)
            if key in self._inputs:
                return {"same": True}
            self._inputs.add(key)
            ask()
            reply = None if answer is None else self._reply(path, content, answer)
            points = found.points([given], 1, np.random.default_rng(self.seed))
            parts = self._parts(found, path, content)
            return {"document": self._run(self._report(model, found, points, config, parts), reply, parts)}
        except Unusable as error:
            return {"unusable": str(error)}
        except BadArgument as error:
            return {"unreadable": str(error)}
        except PullbackError as error:
            return {"lost": str(error)}

    def _check_op(self, op: str, body: str) -> Document:
        """Let the service check an op at the inputs of a request, once."""
        if body in self._inputs:
            return {"same": True}
        self._inputs.add(body)
        try:
            content = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise BadArgument(f"{error}"[:MAX_SHOWN]) from error
        if self._service is None:
            self._service = self.opened.enter_context(Client(self.root, timeout=self.timeout))
        ask()
        return {"document": check_op(self._service, op, content, self.seed, self._tolerances)}

    @property
    def _tolerances(self) -> Tolerances:
        return Tolerances(self.absolute, self.relative)

    def _read(self, body: str) -> tuple[Any, Input]:
        """Return the document of a request, and its inputs; raise ``BadArgument``."""
        try:
            content = json.loads(body)
            return content, input_of(self._protocol, content)
        except (ValueError, RecursionError, PullbackError) as error:
            raise BadArgument(f"{error}"[:MAX_SHOWN]) from error

    @property
    def _protocol(self) -> Protocol:
        return next(each for each in RECORDED if each == self.protocol)

    def _model(self, name: str, config: Any) -> Function:
        """Return a model, which is asked for its sizes once for each of its configs."""
        key = json.dumps([name, config], sort_keys=True)
        if key not in self._models:
            ask()
            try:
                self._models[key] = self._target(name).connect(self.opened, self.timeout, config)
            except BadArgument as error:
                raise Unusable(str(error)) from error
        return self._models[key]

    def _target(self, name: str) -> Target:
        return Target(self._protocol, f"{self.root}/{quote(name, safe='')}" if name else self.root)

    def _reply(self, path: str, content: Any, answer: str) -> Reply:
        if self._server is None:
            self._server = self.opened.enter_context(JsonServer(self.root, self.timeout))
        return Reply(self.protocol, self._server, path, content, answer, self._tolerances, ask)

    def _report(
        self, name: str, model: Function, points: Sequence[Point], config: Any, parts: Sequence[Any]
    ) -> FunctionReport:
        budget = self.budget - 1 - len(parts)
        plan, _ = next(plans(model, budget, None, 1))
        return FunctionReport(
            target=str(self._target(name)),
            protocol=self.protocol,
            function=model,
            points=points,
            are_given=True,
            plan=plan,
            checks=plan.checks(model, None),
            budget=budget,
            # With the same cotangents at points close by, a cache would answer with numbers of these checks.
            seed=self.seed + len(self._inputs) - 1,
            tolerances=self._tolerances,
            config=config,
        )

    def _parts(self, model: Function, path: str, content: Any) -> list[Any]:
        """Return the parts of a request for a derivative, none for others, or if the budget does not allow them."""
        if self.budget < LEAST + 1 + REQUESTS:
            return []
        outputs = [slot.name for slot in model.outputs]
        try:
            return parts_of(path, content, outputs, np.random.default_rng(self.seed))
        except (ValueError, TypeError, PullbackError):
            return []  # the server answered it, but not as these checks ask

    def _run(self, report: FunctionReport, reply: Reply | None, parts: Sequence[Any]) -> Document:
        """Ask the request again, run the checks at its inputs, and judge its answer."""
        others = 0
        if reply is not None:
            others += 1
            self._add(report, reply.repeat)
        report.run(ask)
        if reply is not None and parts:
            others += len(parts)
            slots = (*report.function.inputs, *report.function.outputs)
            self._add(report, lambda: reply.judge(parts, max((slot.dtype for slot in slots), key=floats.eps)))
        document = report.document()
        return {**document, "evaluations": document["evaluations"] + others}

    def _add(self, report: FunctionReport, check: Callable[[], Finding]) -> None:
        began = time.perf_counter()
        finding = check()
        report.entries.append(finding.entry(report.config, seconds=round(time.perf_counter() - began, 6)))
