"""Requests of the fast path that wait: whole ones for their call, others for the rest of their body."""

from dataclasses import dataclass
from typing import TypeAlias

from app.fast_path.templates import Columns, Template
from app.http.connection import Connection


@dataclass(eq=False, slots=True)
class PendingRequest:
    """A request that waits for its call: all its ``data``, and what the log shows of it.

    ``began`` and ``parsed``, the end of its reading, are times of ``time.perf_counter``; reading took ``read_s``.
    ``is_done``: it has been answered, or released.
    """

    connection: Connection
    data: bytes
    template: Template
    columns: Columns
    target: str
    client: tuple[str, int] | None
    received: int
    key: str
    began: float
    parsed: float
    read_s: float
    is_done: bool = False
    method: str = "POST"
    status: int = 200
    sent: int = 0
    id: bytes = b""


Batch: TypeAlias = dict[Template, list[PendingRequest]]
"""The requests of a batch by their templates."""


@dataclass(eq=False, slots=True)
class PartialRequest:
    """The first part of a request with a known prefix; the whole body has ``size`` bytes."""

    data: bytes
    size: int
    since: float
