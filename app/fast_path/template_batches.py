"""Batches of requests with templates: they are computed in one call, with the bodies of their responses."""

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from app.autodiff.packing import Packing
from app.execution.lines import Batch
from app.fast_path.pending import PendingRequest
from app.fast_path.shared_calls import SharedCall
from app.fast_path.templates import Columns, Template
from app.telemetry.accounts import Owner

ByTemplate: TypeAlias = dict[Template, list[PendingRequest]]
"""The requests of a batch by their templates."""


class Answerer(Protocol):
    """The fast path."""

    def send(self, batch: "TemplateBatch") -> None:
        """Send the responses of a batch that has been computed."""
        ...

    def leave(self, request: PendingRequest) -> None:
        """Leave a request to the general path, unless it is done."""
        ...


class TemplateGroup(NamedTuple):
    """What requests that may share a call have in common, and who answers them."""

    shared_call: SharedCall
    shared: Hashable
    owner: Owner
    answerer: Answerer

    @property
    def packing(self) -> Packing:
        """How the requests share a call."""
        return self.shared_call.packing

    def batch(self, members: Sequence[PendingRequest]) -> "TemplateBatch":
        """Return the batch of these requests."""
        return TemplateBatch(self, members, self.shared_call, self.answerer)

    def fail(self, member: PendingRequest, error: BaseException) -> None:
        """Leave a request to the general path, which reports the error."""
        del error
        waited_s = time.perf_counter() - member.arrived
        member.template.counters.seconds["queue"] += waited_s
        member.account.add(waited_s, 0.0)
        self.answerer.leave(member)


@dataclass(eq=False)
class TemplateBatch(Batch[PendingRequest]):
    """Requests of one call.

    Once it is ``computed``, ``bodies`` has those of the responses for each template of ``by_template``, ``None`` for a
    response of another layout. The times are those of ``time.perf_counter``.
    """

    shared_call: SharedCall
    answerer: Answerer
    by_template: ByTemplate = field(init=False)
    bodies: list[list[bytes | None]] = field(init=False)
    began: float = 0.0
    computed: float = 0.0
    ended: float = 0.0

    def run(self) -> None:
        """Compute and write the responses; raises ``NotTraced``, ``NotPackable``, and whatever TensorFlow raises."""
        self.began = time.perf_counter()
        self.by_template, self.bodies = {}, []
        for request in self.members:
            self.by_template.setdefault(request.template, []).append(request)
        call, columns, units = self.shared_call, list[Columns](), 0
        for template, alike in self.by_template.items():
            units += template.size * len(alike)
            for request in alike:
                columns.append(request.columns)
        results, start = call.run(columns, units, self.members[0].template.shapes), 0
        self.computed = time.perf_counter()
        self.seconds = self.computed - self.began
        for template, alike in self.by_template.items():
            shape = len(alike), template.size
            self.bodies.append(template.response.bodies(call.rows(results, template.response.keys, start, shape)))
            start += len(alike) * template.size
        self.ended = time.perf_counter()

    def finish(self) -> None:
        """Send the responses."""
        self.answerer.send(self)
