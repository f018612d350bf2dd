"""Parts: requests of one turn that are computed in one call, and their responses."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, TypeAlias

from app.fast_path.pending import PendingRequest
from app.fast_path.shared_calls import SharedCall
from app.fast_path.templates import Columns, Template

Batch: TypeAlias = dict[Template, list[PendingRequest]]
"""The requests of a batch by their templates."""


class Group(NamedTuple):
    """What requests that may share a call have in common; ``owner`` is whose share of the queue their call takes."""

    call: SharedCall
    shared: object
    owner: str


@dataclass(eq=False)
class Part:
    """Requests of one call, with ``count`` units in all.

    Once they are ``computed``, ``bodies`` has those of the responses for each template, ``None`` for a response of
    another layout. The times are those of ``time.perf_counter``.
    """

    call: SharedCall
    batch: Batch
    count: int
    bodies: list[list[bytes | None]] = field(default_factory=list[list[bytes | None]])
    began: float = 0.0
    computed: float = 0.0
    ended: float = 0.0

    @property
    def requests(self) -> Iterable[PendingRequest]:
        """The requests, in the order of their units."""
        return chain.from_iterable(self.batch.values())

    def run(self) -> None:
        """Compute and write the responses; raises ``NotTraced``, ``NotPackable``, and whatever TensorFlow raises."""
        self.began = time.perf_counter()
        columns: list[Columns] = []
        for alike in self.batch.values():
            for request in alike:
                columns.append(request.columns)
        results = self.call.run(columns, self.count, next(iter(self.batch)).shapes)
        self.computed, start = time.perf_counter(), 0
        self.bodies.clear()
        for template, alike in self.batch.items():
            shape = len(alike), template.size
            self.bodies.append(template.response.bodies(self.call.rows(results, template.response.keys, start, shape)))
            start += len(alike) * template.size
        self.ended = time.perf_counter()


def part_of(call: SharedCall, requests: Iterable[PendingRequest]) -> Part:
    """Return the part of these requests, at least one, which may share a call."""
    batch, count = Batch(), 0
    for request in requests:
        batch.setdefault(request.template, []).append(request)
        count += request.template.size
    return Part(call, batch, count)
